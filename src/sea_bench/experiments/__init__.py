"""Every table and figure of the paper as an experiment that can be run again: ``sea bench``.

>>> EXPERIMENTS["aupc_fmnist"].metrics[0]
'aupc_windows:black'
"""

from sea_bench.experiments.catalogue import EXPERIMENTS, find_experiments
from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.run import Result, run_experiment

__all__ = ["EXPERIMENTS", "Experiment", "Map", "Result", "find_experiments", "run_experiment"]

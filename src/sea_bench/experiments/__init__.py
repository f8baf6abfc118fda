"""Everything the project measures as an experiment that can be run again: ``sea bench``.

>>> EXPERIMENTS["budgets_fmnist"].n_inputs
32
"""

from sea_bench.experiments.catalogue import EXPERIMENTS, find_experiments
from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.experiment import Experiment, Findings, Measurement, Run
from sea_bench.experiments.run import Result, run_experiment

__all__ = [
    "EXPERIMENTS",
    "Comparison",
    "Experiment",
    "Findings",
    "Map",
    "Measurement",
    "Result",
    "Run",
    "find_experiments",
    "run_experiment",
]

"""The framework of experiments: declare inputs, maps and scores; get a page and scores by input.

``sea_bench.catalogue`` has all experiments by name.
"""

from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.experiment import Experiment, Findings, Run
from sea_bench.experiments.run import Result, run_experiment

__all__ = ["Comparison", "Experiment", "Findings", "Map", "Result", "Run", "run_experiment"]

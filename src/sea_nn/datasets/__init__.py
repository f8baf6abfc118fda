"""Whole data sets: explain every input, in shards that can be resumed, and read the results.

``explain_dataset`` writes a folder (manifest, Parquet rows, safetensors maps), in one process or
with Ray on many machines; ``read_dataset`` opens it, finished or not.
"""

from sea_nn.datasets.read import ExplainedDataset, read_dataset
from sea_nn.datasets.run import Outcome, explain_dataset

__all__ = ["ExplainedDataset", "Outcome", "explain_dataset", "read_dataset"]

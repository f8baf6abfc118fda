"""Shared settings: hypothesis without deadlines, because machines differ, and one thread."""

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
torch.set_num_threads(1)  # tensors here are small: a second thread only waits for the first

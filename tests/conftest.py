"""Shared settings: hypothesis without deadlines (machines differ), and a few helpers' fixtures."""

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
torch.set_num_threads(min(2, torch.get_num_threads()))

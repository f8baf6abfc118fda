"""Shared by all tests: hypothesis without deadlines, one thread, a browser, the command line."""

import gc

import torch
from hypothesis import HealthCheck, settings

from tests.helpers.browser import axe, chromium  # noqa: F401
from tests.helpers.command import clothes, sea  # noqa: F401

settings.register_profile(
    "default", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
torch.set_num_threads(1)  # tensors here are small: a second thread only waits for the first


def pytest_collection_finish():
    """What was imported stays to the end: looking through it for garbage takes its time."""
    gc.freeze()

"""Where a result was made: hardware and versions, as its page records them."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch

from sea_nn.version import find_version

PACKAGES = {  # and the modules they hold
    "torch": "torch",
    "captum": "captum",
    "numpy": "numpy",
    "scikit-image": "skimage",
}


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version(), "sea-nn": find_version()}
    return found | {name: _find_version(name, module) for name, module in PACKAGES.items()}


def describe_machine(device: torch.device) -> str:
    """Return the device in words: the GPU's name, or the processor and its threads in use."""
    if device.type == "cuda":
        return f"GPU {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return (
        f"CPU {_name_processor()}, {os.cpu_count()} cores, "
        f"{threads} thread{'' if threads == 1 else 's'} used"
    )


def _find_version(name: str, module: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        pass  # a folder on the path, say, which has no metadata
    try:
        return str(getattr(import_module(module), "__version__", "unknown"))
    except ImportError:
        return "not installed"


def _name_processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()

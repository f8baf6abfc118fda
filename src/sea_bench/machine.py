"""The hardware that a result was made on."""

import os
import platform
import re
from pathlib import Path

import torch


def describe_machine(device: torch.device) -> str:
    """Return the device in words: the GPU's name, or the processor and its threads in use."""
    if device.type == "cuda":
        return f"GPU {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return (
        f"CPU {_name_processor()}, {os.cpu_count()} cores, "
        f"{threads} thread{'' if threads == 1 else 's'} used"
    )


def _name_processor() -> str:
    about = Path("/proc/cpuinfo")  # of Linux
    found = re.search("^model name\\s*: (.*)", about.read_text(), re.M) if about.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()

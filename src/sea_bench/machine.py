"""The hardware that a result was made on."""

import os
import platform

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
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()

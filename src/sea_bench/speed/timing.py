"""Timing that all speed tables share, and pictures to time with."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.resources import as_file, files
from typing import Any

import torch
from PIL import ImageOps
from torch import Tensor

from sea_nn.errors import MissingExtraError
from sea_nn.vision.images import Preprocess, load_image


def find_in_tests(name: str) -> Any:
    """A module of the tests: the small run of data sets, or the paper's slow form."""
    try:
        return import_module(f"tests.{name}")
    except ImportError as error:
        raise MissingExtraError(
            f"this needs tests.{name}: in a checkout, PYTHONPATH=. sea bench …"
        ) from error


def take_seconds(work: Callable[[], object], repeats: int = 3, warm: bool = True) -> float:
    """Median wall time of ``work``, after one untimed run; waits for the GPU."""
    took = []
    for _ in range(repeats + warm):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - started)
    return sorted(took[warm:])[repeats // 2]


def measure_peak(setup: str, code: str) -> float:
    """MiB that ``code`` adds at its peak, in a fresh process after ``setup`` (Linux)."""
    program = f"""
import torch
from sea_nn import SEAConfig, ensemble

def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024

{setup}
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before = status("VmRSS")
{code}
print(status("VmHWM") - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def crop_photographs(preprocess: Preprocess, count: int) -> Tensor:
    """Different crops of the library's two photographs as inputs of a model, [count, C, H, W]."""
    with as_file(files("sea_nn.vision") / "assets") as folder:
        pictures = [load_image(folder / name) for name in ("cat.jpg", "coffee.jpg")]
    draw, found = random.Random(0), []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        side = round(draw.uniform(0.5, 1.0) * min(picture.size))
        left, top = (draw.randint(0, whole - side) for whole in picture.size)
        crop = picture.crop((left, top, left + side, top + side))
        found.append(preprocess(ImageOps.mirror(crop) if draw.random() < 0.5 else crop))
    return torch.stack(found)

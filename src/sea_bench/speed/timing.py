"""Timing that all speed tables share, and pictures to time with."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import as_file, files

import torch
from PIL import Image, ImageOps
from torch import Tensor

from sea_nn.vision.images import Preprocess, load_image


def take_seconds(work: Callable[[], object], repeats: int = 3, warm: bool = True) -> float:
    """Median wall time of ``work``, after one untimed run; waits for the GPU."""
    took = []
    for number in range(repeats + warm):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - started)
        if warm and number == 0:
            took.clear()
    return sorted(took)[repeats // 2]


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


def load_photographs() -> list[Image.Image]:
    """The two photographs that come with the library."""
    pictures = []
    for name in ("cat.jpg", "coffee.jpg"):
        with as_file(files("sea_nn.vision") / "assets" / name) as path:
            pictures.append(load_image(path))
    return pictures


def crop_photographs(preprocess: Preprocess, count: int) -> Tensor:
    """Different crops of the two photographs as a model's inputs, [count, C, H, W]."""
    pictures, draw, found = load_photographs(), random.Random(0), []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        side = round(draw.uniform(0.5, 1.0) * min(picture.size))
        left, top = (draw.randint(0, whole - side) for whole in picture.size)
        crop = picture.crop((left, top, left + side, top + side))
        found.append(preprocess(ImageOps.mirror(crop) if draw.random() < 0.5 else crop))
    return torch.stack(found)

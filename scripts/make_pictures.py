"""Write docs/images/app_*.png: run ``python -m scripts.make_pictures`` from the project's folder.

Every view of ``sea app`` as a visitor sees it, in windows of 1400 x 1000 and 400 x 800, light and
dark. It needs Chromium, its driver, Selenium and the extras app and vision. The functions below
are models to look at.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from sea_nn import SEA, explain_dataset
from sea_nn.app import Columns
from sea_nn.vision import load_model
from sea_nn.vision.shipped import load_sample
from tests.helpers.browser import Browser, drive

COMMAND = (sys.executable, "-c", "from sea_nn.cli import main; main()", "app", "--no-browser")
IMAGES = Path(__file__).parent.parent / "docs" / "images"
SIZES = {"desktop": (1400, 1000), "phone": (400, 800)}
DONE = "(document.querySelector('#status')?.textContent ?? '').trim().startsWith('Map of')"
PATIENCE = 240
INSIDE = "[...document.querySelectorAll('#%s *')].find((n) => n.shadowRoot)?.shadowRoot"


class Loan(torch.nn.Module):
    """Says whether a loan is granted, by a sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of (refused, granted)."""
        total = x @ torch.tensor([0.2, 0.8, 0.5, -0.6, -1.6, 0.7, 0.0, -0.2])
        return torch.stack([-total, total], 1)


def table() -> tuple[torch.nn.Module, Columns]:
    names = ("age", "income", "years employed", "open loans", "missed payments", "savings")
    rows = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    about = (*names, "postcode", "dependants"), ("refused", "granted")
    return Loan(), Columns(*about, examples=rows)


class Beat(torch.nn.Module):
    """Looks for a peak in the middle of the first channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of (beat, drift, noise)."""
        return torch.stack([4 * x[:, 0, 40:60].mean(1), x[:, 1].mean(1), x[:, 0, :20].std(1)], 1)


def series() -> tuple[torch.nn.Module, Columns]:
    t, draw = torch.linspace(0, 1, 128), torch.Generator().manual_seed(0)
    x = torch.stack([2 * torch.exp(-(((t - 0.4) / 0.04) ** 2)), torch.sin(12 * t)])
    x = x + 0.1 * torch.randn(2, 2, 128, generator=draw)
    names = ("beat", "drift", "noise")
    return Beat(), Columns(("left", "right"), names, steps=128, examples=x)


def make_results(folder: Path) -> Path:
    """Results of a run over 30 pictures of clothes."""
    sample, loaded = load_sample(), load_model("fashion-cnn")
    (folder / "pictures").mkdir()
    for k in range(0, 180, 6):
        pixels = sample.images[k, 0].mul(255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / "pictures" / f"{k}.png")
    how: dict[str, Any] = {"preprocess": loaded.preprocess, "labels": loaded.labels, "quiet": True}
    explain_dataset(folder / "pictures", SEA(loaded.model, "saliency"), folder / "out", **how)
    return folder / "out"


@contextlib.contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The address of an app."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            found = map(re.compile(r"http://\S+").search, process.stdout or ())
            yield next(m[0] for m in found if m)
        finally:
            process.terminate()


def shoot(page: Browser, name: str) -> None:
    """Four pictures of what the page shows, in 256 colours that are as they were."""
    for size, (width, height) in SIZES.items():
        for dark in (False, True):
            with page.window(width, height, dark):
                page.run("document.body.classList.toggle('dark', arguments[0])", dark)
                time.sleep(1)  # colours fade
                png = page.driver.get_screenshot_as_png()
            path = IMAGES / f"app_{name}_{size}{'_dark' if dark else ''}.png"
            picture = Image.open(io.BytesIO(png)).convert("RGB")
            picture.quantize(256, kmeans=1).save(path, optimize=True)
            print(path, f"{path.stat().st_size / 1000:.0f} KB", flush=True)


def choose(page: Browser, name: str) -> None:
    time.sleep(1)  # a tab that was just opened
    page.run("const i = document.querySelector('#model input'); i.focus(); i.click()")
    options = "[...document.querySelectorAll('#model [role=option]')]"
    found = f"{options}.find((o) => o.textContent.includes({name!r}))"
    page.wait(found, PATIENCE)
    how = "new MouseEvent('mousedown', {bubbles: true})"
    page.run(f"{found}.dispatchEvent({how}); document.activeElement.blur()")
    time.sleep(3)  # until the map before it is gone
    page.wait(DONE, PATIENCE)


def main() -> None:
    own = [f"scripts/make_pictures.py:{kind}" for kind in ("table", "series")]
    models = [word for name in ("efficientnet-lite0", *own) for word in ("--model", name)]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        out = make_results(Path(folder))
        with serve(str(out), *models) as address, drive(profile) as driver:
            page = Browser(driver, address)
            tab = "document.querySelectorAll('[role=tab]')[{}].click()"
            name = f"{INSIDE % 'stage'}?.getElementById('name').textContent"
            page.wait(DONE, PATIENCE)
            choices = f"{INSIDE % 'picker'}.querySelectorAll('.choice')"
            for thumb, shown in ((0, "cat"), (1, "espresso")):
                page.run(f"{choices}[{thumb}].click()")
                page.wait(f"{name}.includes({shown!r})", PATIENCE)
                page.wait(DONE, PATIENCE)
            shoot(page, "ask")
            page.run(tab.format(1))
            page.wait(f"{INSIDE % 'strips'}.querySelectorAll('canvas').length > 5", PATIENCE)
            shoot(page, "compare")
            page.run(tab.format(2))
            page.wait(f"{INSIDE % 'results'}.querySelectorAll('.choice').length === 30", PATIENCE)
            shoot(page, "data_set")
            page.run(tab.format(0))
            for kind in ("table", "series"):
                choose(page, f":{kind}")
                shoot(page, kind)


if __name__ == "__main__":
    main()

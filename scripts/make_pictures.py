"""Write docs/images/app_*.png: run ``python -m scripts.make_pictures`` from the project's folder.

Every view of ``sea app`` as a visitor sees it, in windows of 1400 x 1000 and 400 x 800, light and
dark. It needs Chromium, its driver, Selenium and the extras app and vision. The functions below
are models to look at.
"""

import contextlib
import io
import re
import shutil
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

COMMAND = (sys.executable, "-c", "from sea_nn.cli import main; main()", "app", "--no-browser")
IMAGES = Path(__file__).parent.parent / "docs" / "images"
SIZES = {"desktop": (1400, 1000), "phone": (400, 800)}
DONE = "(document.querySelector('#status')?.textContent ?? '').trim().startsWith('Map of')"
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
    names = (*names, "postcode", "dependants")
    return Loan(), Columns(names, ("refused", "granted"), examples=rows)


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
        assert process.stdout is not None
        try:
            found = map(re.compile(r"http://\S+").search, iter(process.stdout.readline, ""))
            yield next(m[0] for m in found if m)
        finally:
            process.terminate()


@contextlib.contextmanager
def browse() -> Iterator[Any]:
    """A headless Chromium with nothing in its cache."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_script_timeout(300)
        # Elements get the focus even while another window is in front.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        try:
            yield driver
        finally:
            driver.quit()


def shoot(driver: Any, name: str) -> None:
    """Four pictures of what the page shows, in 256 colours that are as they were."""
    for size, (width, height) in SIZES.items():
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for dark in (False, True):
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            driver.execute_script("document.body.classList.toggle('dark', arguments[0])", dark)
            time.sleep(1)  # colours fade
            picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            path = IMAGES / f"app_{name}_{size}{'_dark' if dark else ''}.png"
            picture.quantize(256, kmeans=1).save(path, optimize=True)
            print(path, f"{path.stat().st_size / 1000:.0f} KB", flush=True)


def wait(driver: Any, condition: str, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not driver.execute_script(f"return Boolean({condition})"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.1)


def choose(driver: Any, name: str) -> None:
    time.sleep(1)  # a tab that was just opened
    driver.execute_script("const i = document.querySelector('#model input'); i.focus(); i.click()")
    options = "[...document.querySelectorAll('#model [role=option]')]"
    found = f"{options}.find((o) => o.textContent.includes({name!r}))"
    wait(driver, found)
    how = "new MouseEvent('mousedown', {bubbles: true})"
    driver.execute_script(f"{found}.dispatchEvent({how}); document.activeElement.blur()")
    time.sleep(3)  # until the map before it is gone
    wait(driver, DONE)


def main() -> None:
    own = [f"scripts/make_pictures.py:{kind}" for kind in ("table", "series")]
    models = [word for name in ("efficientnet-lite0", *own) for word in ("--model", name)]
    with tempfile.TemporaryDirectory() as folder:
        out = make_results(Path(folder))
        with serve(str(out), *models) as address, browse() as driver:
            driver.get(address)
            tab = "document.querySelectorAll('[role=tab]')[{}].click()"
            name = f"{INSIDE % 'stage'}?.getElementById('name').textContent"
            wait(driver, DONE)
            choices = f"{INSIDE % 'picker'}.querySelectorAll('.choice')"
            for thumb in (1, 0):
                driver.execute_script(f"{choices}[{thumb}].click()")
                wait(driver, f"{name}.includes({('cat', 'espresso')[thumb]!r})")
                wait(driver, DONE)
            shoot(driver, "ask")
            driver.execute_script(tab.format(1))
            wait(driver, f"{INSIDE % 'strips'}.querySelectorAll('canvas').length > 5")
            shoot(driver, "compare")
            driver.execute_script(tab.format(2))
            wait(driver, f"{INSIDE % 'results'}.querySelectorAll('.choice').length === 30")
            shoot(driver, "data_set")
            driver.execute_script(tab.format(0))
            for kind in ("table", "series"):
                choose(driver, f":{kind}")
                shoot(driver, kind)


if __name__ == "__main__":
    main()

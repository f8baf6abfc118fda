"""One browser for all tests of pages: the report, the app and pages of data sets.

``chromium`` is a Selenium driver; tests that ask for it are skipped where Chromium or
Selenium is missing, and say what to install. ``axe`` is the source of axe-core, which finds what
people with a screen reader or poor sight could not use.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
OWN = ("data:", "file:", "about:", "blob:", "chrome:")  # a page itself, and the browser's own


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A driver of a headless Chromium without a network of its own; logs are kept."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("browser tests need chromium and chromedriver: apt install chromium-driver")
    pytest.importorskip("selenium", reason="browser tests need selenium: pip install selenium")
    with drive(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@contextmanager
def drive(profile):
    """A driver of a headless Chromium that keeps its own things in the folder ``profile``."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    # Elements get the focus even while another window is in front.
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core 4.10.3 (npm, MPL 2.0), which comes with the tests."""
    return gzip.decompress((Path(__file__).parent / "axe.min.js.gz").read_bytes()).decode()


class Browser:
    """A page in the browser: what a reader can do and see."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(address)

    def run(self, code, *values):
        return self.driver.execute_script(code, *values)

    def wait(self, condition, seconds=30, *values):
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})", *values):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.02)

    def set(self, name, value, event="input"):
        self.run(
            f"const c = document.getElementById('{name}'); c.value = '{value}';"
            f"c.dispatchEvent(new Event('{event}', {{bubbles: true}}))"
        )

    def press(self, *keys):
        """Press keys, one after another, wherever the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def text(self, name):
        return self.run(f"return document.getElementById('{name}').textContent")

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector
        )

    def count(self, selector):
        return len(self.texts(selector))

    def pixels(self, name="heat"):
        """A canvas as uint8 [h, w, 4]."""
        code = (
            f"const c = document.getElementById('{name}');"
            "const copy = new OffscreenCanvas(c.width, c.height);"
            "const g = copy.getContext('2d', {willReadFrequently: true});"
            "g.drawImage(c, 0, 0);"
            "return [c.height, c.width, [...g.getImageData(0, 0, c.width, c.height).data]]"
        )
        height, width, data = self.run(code)
        return np.array(data, np.uint8).reshape(height, width, 4)

    @contextmanager
    def window(self, width, height=800, dark=False):
        """Show the page in a window of this size in pixels, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def find_faults(self, axe):
        """What axe-core finds wrong with the page: one line a fault, with where it is."""
        # By the protocol, not by a script element: the page's own policy allows none.
        if not self.run("return Boolean(window.axe)"):
            self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then("
            "r => done(r.violations.flatMap(v =>"
            " v.nodes.map(n => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary}`))),"
            " e => done([String(e)]))"
        )
        return list(found)

    def errors(self):
        return [line["message"] for line in self.driver.get_log("browser")]

    def requests(self):
        """Addresses asked for, other than the page itself and what it holds."""
        asked = []
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        assert asked, "the log should at least name the page"
        return [u for u in asked if not u.startswith(OWN)]

"""The app beside plain calls, and hostile visitors: python -m benchmarks app.

Speed: the first map against the same call in Python, the slider from what is cached (in a browser,
from the event to the drawn numbers), the first page of a gallery of 30. Hostile: a server of its
own gets bombs, wrong types, 1 GB, and 200 uploads at once; after each, a new visitor is served.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import io
import json
import re
import secrets
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.table import Table, seconds
from sea_nn import SEA, explain_dataset
from sea_nn.app.gallery import Gallery
from sea_nn.app.load import load_subject
from sea_nn.app.session import Session
from sea_nn.vision import load_model
from sea_nn.vision.shipped import load_sample

COMMAND = (sys.executable, "-c", "from sea_nn.cli import main; main()", "app", "--no-browser")
READY = (
    "window.sea && sea.page.state?.map && document.querySelector('#progress [data-running=false]')"
)


def run() -> Iterator[Table]:
    yield measure_speed()
    yield attack()


def measure_speed() -> Table:
    rows = []
    subject = load_subject("efficientnet-lite0")
    given = subject.examples[0]

    def call() -> None:
        how: dict[str, Any] = {"labels": subject.labels, "on_round": lambda e: False}
        SEA(subject.model, budget=128).explain(given.x, **how)

    def first_map() -> None:
        session = Session(subject)
        session.choose(given)
        for step in session.explain(128):
            if step.explanation is not None:
                session.stop()

    plain, app = seconds(call), seconds(first_map)
    limit = "at most 1.5 times"
    rows.append(["first map, EfficientNet-Lite0", f"{app:.2f} s", f"{plain:.2f} s in Python",
                 f"{app / plain:.2f} times; {limit}"])  # fmt: skip
    slider = time_slider()
    if slider is not None:
        rows.append(
            ["slider, from what is cached", f"{1000 * slider:.0f} ms", "", "at most 100 ms"]
        )
    with tempfile.TemporaryDirectory() as folder:
        out = make_results(Path(folder))

        def open_gallery() -> None:
            gallery = Gallery(out)
            assert len(gallery.show(gallery.select())["items"]) == 30

        rows.append(["gallery of 30, on the server", f"{seconds(open_gallery):.2f} s", "",
                     "at most 2 s"])  # fmt: skip
    note = "Medians of 3; the slider's of 20 moves in Chromium."
    return "The app's speed", note, ["", "app", "plain call", "goal"], rows


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
def serve() -> Iterator[tuple[str, int]]:
    """The address and the process of an app with the small network."""
    command = [*COMMAND, "--model", "fashion-cnn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = map(re.compile(r"http://\S+").search, iter(process.stdout.readline, ""))
            yield next(m[0] for m in found if m), process.pid
        finally:
            process.terminate()


def time_slider() -> float | None:
    """Seconds from the slider's event to the numbers on the page, all of them cached."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return None
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile, serve() as (address, _):
        for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.get(address)
            while not driver.execute_script(f"return Boolean({READY})"):
                time.sleep(0.1)
            took = driver.execute_async_script(
                "const done = arguments[0], known = sea.page.state.map.measured.map(m => m[0]);"
                "(async () => { const took = [];"
                "for (let i = 0; i < 20; i += 1) {"
                " const p = known[i % known.length], slider = document.getElementById('sea-p');"
                " const start = performance.now(); slider.value = p;"
                " slider.dispatchEvent(new Event('input'));"
                " await new Promise(r => requestAnimationFrame(() => setTimeout(r)));"
                " took.push(performance.now() - start); }"
                "done(took); })()"
            )
        finally:
            driver.quit()
    return statistics.median(took) / 1000


def write_png(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG file that says it is this large, with these compressed pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def make_attacks() -> dict[str, bytes]:
    """Files that nobody should trust."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("cat.png", b"\0" * 500_000_000)
    whole = io.BytesIO()
    Image.effect_noise((400, 400), 80).save(whole, "PNG")
    zeros = zlib.compress(b"\0" * 400_000_000, 9)
    return {
        "zip bomb, 500 MB inside": archive.getvalue(),
        "PNG of 65,500 x 65,500 pixels": write_png(65_500, 65_500, zlib.compress(b"")),
        "PNG of 11,500 x 11,500, all black": write_png(11_500, 11_500, zeros),
        "truncated PNG": whole.getvalue()[:40_000],
        "SVG with a script": b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
        "HTML called .png": b"<html><script>alert(1)</script></html>",
        "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94",
        "an empty file": b"",
    }


class Visitor:
    """A visitor without a browser: Gradio's queue by hand."""

    def __init__(self, address: str) -> None:
        self.address, self.key = address.rstrip("/"), secrets.token_hex(6)
        with urllib.request.urlopen(f"{self.address}/config", timeout=60) as reply:
            config = json.load(reply)
        self.functions = {}
        for one in config["dependencies"]:
            for _, event in one["targets"]:
                self.functions.setdefault(event, one["id"])

    def do(self, event: str, data: dict[str, Any] | None = None, seconds: float = 120) -> str:
        """Send an event; gives all that is answered."""
        body = {"data": [34], "event_data": data, "fn_index": self.functions[event],
                "session_hash": self.key}  # fmt: skip
        request = urllib.request.Request(
            f"{self.address}/gradio_api/queue/join?__theme=light",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=seconds).read()
        said = []
        stream = f"{self.address}/gradio_api/queue/data?session_hash={self.key}"
        with urllib.request.urlopen(stream, timeout=seconds) as lines:
            for line in lines:
                text = line.decode().removeprefix("data: ").strip()
                said.append(text)
                if text and ('"process_completed"' in text or '"close_stream"' in text):
                    break
        return "\n".join(said)


def upload(visitor: Visitor, content: bytes) -> str:
    """What the page says of an upload, in a word."""
    data = {"name": "cat.png", "data": base64.b64encode(content).decode()}
    try:
        said = visitor.do("upload", data)
    except urllib.error.HTTPError as error:
        return f"refused ({error.code})"
    except OSError as error:
        return f"refused ({type(error).__name__})"
    if '"layers"' in said:
        return "explained"
    found = re.search(r'"error": ?"([^"]+)"', said)
    return f"refused: {found[1][:60]}" if found else "refused"


def read_memory(process: int) -> float:
    """MiB that a process holds (Linux)."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def is_served(address: str) -> str:
    """Whether a new visitor gets a map, and how soon."""
    start = time.perf_counter()
    said = Visitor(address).do("load")
    return f"{time.perf_counter() - start:.1f} s" if '"layers"' in said else "no"


def attack() -> Table:
    rows = []
    with serve() as (address, process):
        is_served(address)
        before = read_memory(process)

        def note(name: str, result: str) -> None:
            now = read_memory(process)
            rows.append([name, result, f"{now - before:+.0f} MiB", is_served(address)])

        for name, content in make_attacks().items():
            visitor = Visitor(address)
            visitor.do("load")
            note(name, upload(visitor, content))
        note("1 GB in one request", send_gigabyte(address))
        boot = io.BytesIO()
        Image.linear_gradient("L").save(boot, "PNG")

        def send_one(number: int) -> str:
            try:
                visitor = Visitor(address)
                visitor.do("load", seconds=300)
                return upload(visitor, boot.getvalue())
            except OSError:
                return "refused (busy)"

        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            said = list(pool.map(send_one, range(200)))
        served = sum(word == "explained" for word in said)
        note("200 visitors upload at once", f"{served} explained, {200 - served} told to wait")
    heads = ["attack", "what happened", "memory", "next visitor served in"]
    return "Hostile visitors", "The small network, one server for all rows.", heads, rows


def send_gigabyte(address: str) -> str:
    """A body of 1 GB, said to be so long, to the route of uploads and to the queue."""

    def zeros() -> Iterator[bytes]:
        for _ in range(1024):
            yield b"\0" * (1 << 20)

    codes = []
    for route in ("upload", "queue/join"):
        request = urllib.request.Request(
            f"{address}gradio_api/{route}", zeros(), {"Content-Length": str(1 << 30)}
        )
        try:
            urllib.request.urlopen(request, timeout=60)
            codes.append("accepted")
        except urllib.error.HTTPError as error:
            codes.append(str(error.code))
        except OSError:
            codes.append("closed")
    return f"refused ({', '.join(codes)})" if "accepted" not in codes else "accepted"

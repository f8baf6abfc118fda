"""The page in a browser: what a visitor can do and see."""

import base64
import io
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from PIL import Image

from tests.helpers.browser import Browser

pytest.importorskip("gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'")

DONE = "sea.page.state?.map && document.querySelector('#progress [data-running=false]')"
KNOWN = "Method not implemented."  # Gradio's own, twice a page


@contextmanager
def start(command):
    """Run ``sea app`` until the tests are done with it; the address is what it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stdout.readline, "")
            yield next(m[0] for m in map(re.compile(r"http://\S+").search, lines) if m)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130


@pytest.fixture(scope="module")
def address():
    """The address of ``sea app`` in a process of its own."""
    command = [sys.executable, "-c", "from sea_nn.cli import main; main()", "app", "--no-browser"]
    with start([*command, "--model", "fashion-cnn"]) as found:
        yield found


@pytest.fixture(scope="module")
def b(chromium, address):
    browser = Browser(chromium, address)
    browser.wait(f"window.sea && {DONE}", 60)
    yield browser
    assert [line for line in browser.errors() if KNOWN not in line] == []
    outside = [url for url in browser.requests() if not url.startswith(address)]
    assert outside == []


def says(b):
    return b.run("return sea.page.state.top.map(row => row[1])")


def test_page_opens_with_a_map_of_the_first_example(b):
    assert says(b)[0] == "Ankle boot"
    assert b.texts("#classes .sea-name")[0] == "Ankle boot"
    assert b.text("sea-progress-text") == "Map of 127 evaluations"


def test_slider_shows_what_the_model_says_of_the_best(b):
    b.set("sea-p", 12)
    b.wait("document.querySelector('#evidence [data-measured=\"12\"]')")
    point = b.run("return sea.page.state.map.measured.find(m => m[0] === 12)")
    shown = [b.text(name) for name in ("sea-only", "sea-removed", "sea-predicted")]
    line = b.run("return sea.page.state.map.line[12]")
    for text, value in zip(shown, [*point[1:], line], strict=True):
        assert text == (">.99" if value > 0.995 else f"{value:.2f}"[1:])
    dots = b.run("return document.querySelectorAll('.sea-curve .point.only').length")
    assert dots == b.run("return sea.page.state.map.measured.length")


def test_removed_cells_are_asked_about_again(b):
    cells = b.run("return sea.page.state.map.order.slice(0, 12)")
    b.run("document.querySelectorAll('.sea-cell')[arguments[0]].click()", cells[0])
    for cell in cells[1:]:
        b.run("sea.mark(arguments[0])", cell)
    b.wait("document.querySelector('#trial [data-count=\"12\"]')")
    before = b.run("return sea.page.state.whole")
    after = dict(b.run("return sea.page.said.top.map(row => [row[1], row[2]])"))
    assert after.get("Ankle boot", 0) < before
    assert b.texts("#trial .sea-name") == list(after)
    b.run("sea.clear()")
    assert b.run("return document.querySelectorAll('.sea-cell.gone').length") == 0


def test_another_class_gets_its_own_map(b):
    b.run("document.querySelectorAll('#classes .sea-row')[1].click()")
    b.wait(f"sea.page.state.target === 7 && {DONE}", 60)
    assert b.run("return sea.page.state.label") == "Sneaker"


def upload(b, name, content):
    b.run(
        "const file = new File([Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0))],"
        " arguments[0]); const box = new DataTransfer(); box.items.add(file);"
        "const input = document.getElementById('sea-file'); input.files = box.files;"
        "input.dispatchEvent(new Event('change'))",
        name,
        base64.b64encode(content).decode(),
    )


def test_own_picture_is_explained_and_its_name_is_only_text(b):
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, "PNG")
    name = "<img src=x onerror=alert(1)>.png"
    upload(b, name, file.getvalue())
    b.wait(f"sea.page.state.input === '{name}' && {DONE}", 60)
    assert b.run("return document.querySelectorAll('img[src=x]').length") == 0


def test_what_is_no_picture_is_refused_in_words(b):
    upload(b, "cat.png", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    b.wait("document.querySelector('.sea-problem').textContent.includes('no picture')")

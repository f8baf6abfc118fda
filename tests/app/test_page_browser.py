"""The page in a browser: what a visitor can do and see."""

import base64
import io
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from sea_nn import SEA, Explanation, explain_dataset
from sea_nn.vision import load_model
from sea_nn.vision.shipped import load_sample
from tests.helpers.browser import Browser

pytest.importorskip("gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'")

SEA_COMMAND = (sys.executable, "-c", "from sea_nn.cli import main; main()")
DONE = "sea.page.state?.map && document.querySelector('#progress [data-running=false]')"
KNOWN = ("Method not implemented.", "[svelte-i18n]")  # Gradio's own complaints
TABLE = """
import torch
from sea_nn.app import Columns

def make():
    model = torch.nn.Linear(3, 2)
    torch.nn.init.eye_(model.weight)
    torch.nn.init.zeros_(model.bias)
    rows = torch.tensor([[3.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
    return model, Columns(("<b>a</b>", "b", "c"), ("x", "y"), examples=rows)
"""


@contextmanager
def start(*arguments):
    """Run ``sea app`` until the tests are done with it; gives the address that it prints."""
    command = [*SEA_COMMAND, "app", "--no-browser", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stdout.readline, "")
            yield next(m[0] for m in map(re.compile(r"http://\S+").search, lines) if m)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(30) == 130
            finally:
                process.kill()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with two models and the results of a run over eight pictures."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "own.py").write_text(TABLE)
    (folder / "pictures").mkdir()
    sample, loaded = load_sample(), load_model("fashion-cnn")
    for k in range(0, 200, 25):
        pixels = sample.images[k, 0].mul(255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / "pictures" / f"{sample.labels[k]}-{k}.png")
    sea = SEA(loaded.model, "saliency")
    how = {"preprocess": loaded.preprocess, "labels": loaded.labels, "quiet": True}
    explain_dataset(folder / "pictures", sea, folder / "out", **how)
    with start(folder / "out", "-m", "fashion-cnn", "-m", f"{folder / 'own.py'}:make") as found:
        yield found


@pytest.fixture(scope="module")
def b(chromium, address, tmp_path_factory):
    browser = Browser(chromium, address)
    where = tmp_path_factory.mktemp("downloads")
    chromium.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(where)}
    )
    browser.downloads = where
    browser.wait("document.querySelector('#gallery [data-count]')", 60)
    yield browser
    assert [m for m in browser.errors() if not any(known in m for known in KNOWN)] == []
    assert [url for url in browser.requests() if not url.startswith(address)] == []


@pytest.fixture
def ask(b):
    """The page with the map of the first example."""
    open_tab(b, 0)
    b.wait("document.querySelector('.sea-thumb')")
    if b.run("return sea.page.state?.target !== 9 || sea.page.state?.input !== 'Ankle boot'"):
        b.run("document.querySelector('.sea-thumb').click()")
        b.wait(f"sea.page.state?.target === 9 && {DONE}", 60)
    return b


def open_tab(b, number):
    b.run(f"document.getElementById('tab-{number}').click()")


def press(b, *keys):
    from selenium.webdriver import ActionChains

    actions = ActionChains(b.driver)
    for key in keys:
        actions.send_keys(key)
    actions.perform()


def test_results_of_a_run_can_be_filtered_sorted_and_opened(b):
    open_tab(b, 2)
    b.wait("document.querySelectorAll('.sea-item').length === 8")
    b.run("[...document.querySelectorAll('#which input')][3].click()")
    b.wait("document.querySelectorAll('.sea-item').length < 8")
    b.run("[...document.querySelectorAll('#which input')][0].click()")
    b.wait("document.querySelectorAll('.sea-item').length === 8")
    b.run("document.querySelectorAll('.sea-item')[7].click()")
    b.wait("document.querySelector('#opened [data-id=\"8-175.png\"] canvas')")
    assert "The model says Bag" in b.run("return document.getElementById('opened').textContent")


def test_model_is_asked_about_an_opened_result(b):
    open_tab(b, 2)
    b.run("document.querySelectorAll('.sea-item')[0].click()")
    b.wait("document.querySelector('#opened [data-id=\"0-0.png\"] #sea-ask')")
    b.run("document.getElementById('sea-ask').click()")
    b.wait(f"window.sea.page.state?.input === '0-0.png' && {DONE}", 60)
    assert b.texts("#classes .sea-name")[0] == "T-shirt/top"


def test_first_example_is_explained_with_the_budget_asked_for(ask):
    assert ask.texts("#classes .sea-name")[0] == "Ankle boot"
    spent = ask.run("return sea.page.state.map.spent")
    assert 100 < spent <= 128
    assert ask.text("sea-progress-text") == f"Map of {spent} evaluations"
    assert ask.run("return sea.page.state.map.layers.length") == 4


def test_slider_shows_what_the_model_says_of_the_best(ask):
    ask.set("sea-p", 12)
    ask.wait("document.querySelector('#evidence [data-measured=\"12\"]')")
    point = ask.run("return sea.page.state.map.measured.find(m => m[0] === 12)")
    shown = [ask.text(name) for name in ("sea-only", "sea-removed", "sea-predicted")]
    line = ask.run("return sea.page.state.map.line[12]")
    for text, value in zip(shown, [*point[1:], line], strict=True):
        assert text == (">.99" if value > 0.995 else f"{value:.2f}"[1:])
    dots = ask.run("return document.querySelectorAll('.sea-curve .point.only').length")
    assert dots == ask.run("return sea.page.state.map.measured.length")


def test_removed_cells_are_asked_about_again(ask):
    cells = ask.run("return sea.page.state.map.order.slice(0, 12)")
    for cell in cells:
        ask.run("document.querySelectorAll('.sea-cell')[arguments[0]].click()", cell)
    ask.wait("document.querySelector('#trial [data-count=\"12\"]')")
    before = ask.run("return sea.page.state.whole")
    after = dict(ask.run("return sea.page.said.top.map(row => [row[1], row[2]])"))
    assert after.get("Ankle boot", 0) < before
    assert ask.texts("#trial .sea-name") == list(after)
    ask.run("sea.clear()")
    assert ask.run("return document.querySelectorAll('.sea-cell.gone').length") == 0


def test_keyboard_alone_moves_marks_and_slides(ask):
    from selenium.webdriver import Keys

    ask.run("document.querySelector('.sea-cell').focus()")
    press(ask, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.SPACE)
    ask.wait("document.querySelector('#trial [data-count=\"1\"]')")
    assert ask.run("return [...sea.page.marked]") == [9]
    assert "row 2, column 2" in ask.run("return document.querySelector('.sea-read').textContent")
    ask.run("sea.clear(); document.getElementById('sea-p').focus()")
    before = ask.run("return sea.page.p")
    press(ask, Keys.ARROW_RIGHT)
    assert ask.run("return sea.page.p") == before + 1
    ask.run("document.querySelectorAll('#classes .sea-row')[0].focus()")
    press(ask, Keys.TAB)
    assert ask.run("return document.activeElement.className") == "sea-row"


def test_two_classes_are_set_against_each_other(ask):
    ask.run("document.querySelector('#classes .sea-not').click()")
    ask.wait(f"Array.isArray(sea.page.state.target) && {DONE}", 60)
    assert ask.run("return sea.page.state.label") == "Ankle boot and not Sneaker"
    assert ask.run("return sea.page.state.whole") > ask.run("return sea.page.state.chosen")


def test_another_class_is_found_by_its_name(ask):
    ask.set("sea-other", "Sandal", "change")
    ask.wait(f"sea.page.state.target === 5 && {DONE}", 60)
    assert ask.run("return sea.page.state.label") == "Sandal"


def test_stop_keeps_the_map_that_is_there(ask):
    ask.run("document.querySelectorAll('#budget input')[3].click()")
    ask.wait("document.querySelector('#progress [data-running=true]')")
    ask.run("document.getElementById('sea-stop').click()")
    ask.wait(f"{DONE}", 60)
    assert ask.run("return sea.page.state.map.spent") < 1000
    ask.run("document.querySelectorAll('#budget input')[1].click()")
    ask.wait(f"sea.page.state.map.code.includes('(9, 128)]') && {DONE}", 60)


def test_explanations_of_a_visit_can_be_compared(ask):
    open_tab(ask, 1)
    ask.wait("document.querySelector('#compare [data-shown]')")
    kept = ask.run("return sea.page.state.kept")
    assert len(kept) >= 2
    assert ask.texts("#compare option")[0] == kept[0]
    assert "Rank correlation of the two maps" in ask.texts("#compare .sea-note")[0]
    ask.run("[...document.querySelectorAll('#compare button')][2].click()")
    ask.run(
        "const s = document.querySelector('#compare input[type=range]'); s.value = 30;"
        "s.dispatchEvent(new Event('input'))"
    )
    clip = ask.run("return document.querySelector('#compare figure').style.clipPath")
    assert clip.replace(" ", "").startswith("inset(0px70%") or "70%" in clip
    ask.run("[...document.querySelectorAll('#compare button')][1].click()")
    first = ask.run("return document.querySelector('.sea-compare').dataset.shown")
    ask.wait(f"document.querySelector('.sea-compare').dataset.shown !== '{first}'")


def wait_for_file(b, name, seconds=30):
    end = time.monotonic() + seconds
    while not (b.downloads / name).is_file():
        assert time.monotonic() < end, f"{name} did not come"
        time.sleep(0.05)
    return b.downloads / name


def test_what_is_taken_away_is_what_is_shown(ask):
    shown = ask.run("return sea.page.state.map.gains[0]")
    ask.run("document.getElementById('take-explanation').click()")
    loaded = Explanation.load(wait_for_file(ask, "explanation.safetensors"))
    assert float(loaded.gains[0, 0]) == pytest.approx(shown, rel=1e-3)
    ask.run("document.querySelectorAll('#kind input')[1].click()")
    ask.run("document.getElementById('take-figure').click()")
    assert wait_for_file(ask, "map.svg").read_bytes().startswith(b"<?xml")
    ask.run("document.getElementById('take-report').click()")
    assert "Ankle boot" in wait_for_file(ask, "report.html").read_text("utf-8")
    assert ask.texts(".sea-code") == [ask.run("return sea.page.state.map.code")]


def upload(b, name, content):
    b.run(
        "const file = new File([Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0))],"
        " arguments[0]); const box = new DataTransfer(); box.items.add(file);"
        "document.dispatchEvent(new DragEvent('drop', {dataTransfer: box, bubbles: true}))",
        name,
        base64.b64encode(content).decode(),
    )


def test_dropped_picture_is_explained_and_its_name_is_only_text(ask):
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, "PNG")
    name = "<img src=x onerror=alert(1)>.png"
    upload(ask, name, file.getvalue())
    ask.wait(f"sea.page.state.input === '{name}' && {DONE}", 60)
    assert ask.run("return document.querySelectorAll('img[src=x]').length") == 0


def test_what_is_no_picture_is_refused_in_words(ask):
    upload(ask, "cat.png", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    ask.wait(
        "document.querySelector('.sea-problem[role=alert]').textContent.includes('no picture')"
    )


def test_table_has_bars_rows_to_choose_and_a_trial(ask):
    ask.run(
        "const m = document.getElementById('sea-model'); m.selectedIndex = 1;"
        "m.dispatchEvent(new Event('change'))"
    )
    ask.wait(f"sea.page.state.kind === 'table' && {DONE}", 60)
    assert ask.texts(".sea-feature .sea-name")[0] == "<b>a</b>"
    upload(ask, "rows.csv", b"a,b,c\n0,5,1\n4,1,1\n")
    ask.wait(f"sea.page.state.input === 'row 1' && {DONE}", 60)
    assert ask.texts(".sea-thumb") == ["row 1", "row 2"]
    assert ask.texts("#classes .sea-name")[0] == "y"
    ask.run("document.querySelectorAll('.sea-feature')[0].click()")
    ask.wait("document.querySelector('#trial [data-count=\"1\"]')")
    ask.run(
        "const m = document.getElementById('sea-model'); m.selectedIndex = 0;"
        "m.dispatchEvent(new Event('change'))"
    )
    ask.wait(f"sea.page.state.kind === 'image' && {DONE}", 60)


@pytest.mark.parametrize("dark", [False, True])
def test_page_is_for_everyone_and_fits_a_telephone(ask, axe, dark):
    with ask.window(400, 800, dark):
        # Colours fade from light to dark, and axe must not see the middle.
        still = "* { transition: none !important }"
        ask.run(f"document.head.insertAdjacentHTML('beforeend', '<style>{still}</style>')")
        ask.run(f"document.body.classList.toggle('dark', {str(dark).lower()})")
        for view in range(3):
            open_tab(ask, view)
            ask.wait("document.documentElement.scrollWidth <= 400")
            assert ask.find_faults(axe) == []
    ask.run("document.body.classList.remove('dark')")


def test_another_visitor_sees_nothing_of_it(ask, address):
    ask.driver.switch_to.new_window("tab")
    try:
        ask.driver.get(address)
        ask.wait("document.querySelector('#gallery [data-count]')", 60)
        assert ask.run("return sea.page.state?.input ?? null") is None
    finally:
        ask.driver.close()
        ask.driver.switch_to.window(ask.driver.window_handles[0])


def test_package_data_has_every_script_of_the_page():
    from sea_nn.app.page import SCRIPTS, read_asset

    folder = Path(__file__).parents[2] / "src" / "sea_nn" / "app"
    assert sorted(SCRIPTS) == sorted(path.name for path in folder.glob("*.js"))
    assert all(map(read_asset, (*SCRIPTS, "page.css")))

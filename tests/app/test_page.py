"""The page of the app in the browser: what a visitor can do."""

import io
import re
import time

import pytest
from PIL import Image

from sea_nn import Explanation
from sea_nn.vision.shipped import load_sample
from tests.app.conftest import SERVED

pytestmark = SERVED
PLACES = "#(stage|picker|strips|results|opened|parcel)"


def draw_picture(k=160):
    file = io.BytesIO()
    pixels = load_sample().images[k, 0].mul(255).round().byte().numpy()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_class_contrast_and_members_are_chosen(ask):
    ask.pick("target", "Sneaker")
    ask.until_done("Sneaker")
    ask.pick("versus", "Sandal")
    ask.until_done("Sneaker, not Sandal")
    ask.pick("versus", "–")
    ask.until_done("Sneaker")
    ask.pick("members", "saliency")
    ask.until(
        "stage", "[...root.querySelectorAll('#maps label')].some(n => n.textContent === 'saliency')"
    )
    assert "deeplift" not in ask.see("stage", "#maps label")
    ask.run(
        "document.querySelector('#members .token-remove, #members [aria-label*=emove]').click()"
    )
    ask.until(
        "stage", "[...root.querySelectorAll('#maps label')].some(n => n.textContent === 'deeplift')"
    )


def test_model_is_asked_about_the_best_and_about_marked_cells(ask):
    code = "const p = root.getElementById('p-exact'); p.value = 5; p.dispatchEvent(new Event('%s'))"
    ask.inside("stage", code % "change")
    says = "root.getElementById('p-says').textContent"
    ask.until("stage", f"{says}.includes('(the model') && !{says}.includes('between')")
    ask.inside("stage", "const h = root.getElementById('heat'); h.focus();"
               "for (const key of ['ArrowLeft', ' ', 'ArrowUp', ' ']) h.dispatchEvent("
               "new KeyboardEvent('keydown', {key, bubbles: true}))")  # fmt: skip
    ask.until("stage", "root.getElementById('trial-says').dataset.count === '2'")
    assert "Without 2 cells the model says" in ask.see("stage", "#trial-says")[0]
    without = ask.see("stage", "#trial-says li")
    ask.click("stage", "#only")
    ask.until(
        "stage", "root.getElementById('trial-says').textContent.includes('With only 2 cells')"
    )
    assert ask.see("stage", "#trial-says li") != without
    ask.click("stage", "#clear")
    ask.until("stage", "!root.getElementById('trial-says').textContent")


def test_dropped_picture_is_explained_and_what_is_none_is_refused_in_words(ask):
    ask.bring("<img src=x onerror=alert(1)>.png", draw_picture())
    ask.until_done("Bag")
    ask.bring("no.png", b"<svg/>")
    ask.wait("document.body.innerText.includes('this is no picture that can be read')")
    assert ask.see("stage", "#name") == ["Bag"]


def test_last_choice_counts_while_the_one_before_is_at_work(ask):
    ask.run("document.querySelectorAll('#budget input')[3].click()")
    for number in (1, 2):
        ask.click("picker", ".choice", number)
    ask.run("document.querySelectorAll('#budget input')[0].click()")
    ask.until_done("Trouser")
    time.sleep(1)
    assert ask.see("stage", "#name") == ["Trouser"]


def test_visit_is_compared_and_taken_away(ask):
    ask.click("picker", ".choice", 1)
    ask.until_done("Sandal")
    ask.open_tab(1)
    ask.until("strips", "root.querySelectorAll('h2').length === 2")
    assert "rank correlation" in ask.see("strips", ".faint")[1]
    assert ask.inside("strips", "return root.querySelectorAll('canvas').length") >= 6
    ask.open_tab(0)
    ask.run("document.querySelector('#take button').click()")
    ask.wait("document.querySelectorAll('#what input').length === 5")
    assert "load_subject('fashion-cnn')" in ask.text("take")
    ask.run("document.querySelectorAll('#what input')[3].click()")
    time.sleep(0.5)  # Gradio hears of the choice
    ask.run("document.querySelector('#save').click()")
    file, end = ask.downloads / "explanation.safetensors", time.monotonic() + 30
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert [Explanation.load(file).name(0)] == ask.see("stage", "#name")


@pytest.mark.parametrize(
    ("model", "part"), [("table", ".bar"), ("series", "#lines .line"), ("text", "mark")]
)
def test_tables_series_and_texts_are_explained(b, model, part):
    b.open_tab(0)
    b.pick("model", f":{model}")
    b.until("stage", f"root.querySelector({part!r}) && root.getElementById('viewer').offsetHeight")
    b.until_done()
    if model == "table":
        b.click("stage", ".bar .label")
        b.until("stage", "root.getElementById('trial-says').dataset.count === '1'")
        assert "<b>a</b>" in b.see("stage", ".bar .label")[0] + b.see("stage", ".bar .label")[1]
    if model == "text":
        b.run("const t = document.querySelector('#typed textarea, #typed input'); t.focus()")
        b.press("a good film")
        b.run("document.querySelector('#typed button').click()")
        b.until("stage", "root.getElementById('words').textContent === 'a good film'")


def test_results_of_a_run_are_filtered_opened_and_asked_about(b, results):
    b.open_tab(2)
    b.until("results", "root.querySelectorAll('.choice').length === 4")
    assert "7 of 7 inputs explained" in b.text("count")
    b.run("document.querySelectorAll('#which input')[1].click()")
    b.wait("document.querySelector('#count').textContent.trim().startsWith('1 shown')")
    b.click("results", ".choice")
    b.wait("document.querySelector('#said').textContent.includes('which is wrong')")
    b.until("opened", "root.querySelector('#heat').width === 28")
    b.open_tab(0)
    b.pick("model", "fashion-cnn")
    b.until_done()
    b.open_tab(2)
    b.run("document.querySelector('#ask-result').click()")
    b.wait("document.querySelectorAll('[role=tab]')[0].getAttribute('aria-selected') === 'true'")
    b.until("picker", "!root.querySelector('[aria-pressed=true]')")
    b.until_done("Sandal")


def test_every_view_fits_its_window_and_axe_finds_nothing(ask, axe):
    for number in range(3):
        ask.open_tab(number)
        for width, dark in ((400, True), (1400, False)):
            with ask.window(width, dark=dark):
                assert ask.run("return document.documentElement.scrollWidth") <= width
                time.sleep(0.7)  # colours change slowly
                # What Gradio draws is its own; what the app draws lies in these places.
                faults = [f for f in ask.find_faults(axe) if re.search(PLACES, f)]
                assert faults == []

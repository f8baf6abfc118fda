"""What a report shows as evidence, its tools, and whether everybody can use it."""

import csv
import io
import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys
from torch import nn

from sea_nn import SEA
from sea_nn.questions.curve import predict_curve
from sea_nn.show.panels import heat, paint
from sea_nn.show.slices import pick_slices, tile
from sea_nn.show.words import grade_words
from tests.helpers.browser import Browser
from tests.helpers.samples import (
    EVIL,
    build,
    explain_images,
    explain_in_budget,
    explain_series,
    explain_table,
)

TERMS = ("feature", "member", "question", "answer", "gain", "unit", "agreement", "checks")


def test_slider_reads_the_models_answers_off_the_curve(browse):
    e = explain_in_budget()
    b = browse(e)
    b.go(1)
    assert not b.driver.find_element("id", "p-says").is_displayed()
    counts = e.curve.counts.tolist()
    for k, p in list(enumerate(counts))[1:]:
        b.set("p-exact", p, "change")
        left, removed = (float(t[1, k]) for t in (e.curve.left, e.curve.removed))
        said = f"Only these left: {left:.2f}; these removed: {removed:.2f} (the model's own answers"
        assert b.text("p-says").startswith(said)
    k, p = 3, (counts[3] + counts[4]) // 2
    b.set("p-exact", p, "change")
    part = (p - counts[k]) / (counts[k + 1] - counts[k])
    middle = float(e.curve.left[1, k] * (1 - part) + e.curve.left[1, k + 1] * part)
    said = b.text("p-says")
    assert said.startswith(f"Only these left: ≈ {middle:.2f}; ")
    assert f"between the model's own answers at {counts[k]} and {counts[k + 1]}" in said
    line = float(predict_curve(e.function, e.order)[0][1, p])
    assert f"f predicts {line:.2f} and" in said
    assert f"± {float(e.predict_error[1]):.2f}" in said
    assert said in b.run("return document.getElementById('p').getAttribute('aria-valuetext')")


def test_curve_has_every_point_and_the_line_of_f(browse):
    e = explain_in_budget()
    b = browse([e, explain_images()])
    points = b.run(
        "return [...document.querySelectorAll('#curve circle.point')].map(c => [c.cx.baseVal.value,"
        " c.cy.baseVal.value])"
    )
    n = e.order.shape[1]
    across = 48 + (412 - 48) * np.sqrt(e.curve.counts.numpy() / n)
    height = 204 - (204 - 30) * e.curve.left[0].numpy()
    assert np.allclose(points, np.stack([across, height], 1), atol=0.05)
    assert b.run("return document.querySelectorAll('#curve rect.point').length") == len(points)
    line = b.run("return document.querySelector('#curve .line.left').getAttribute('d')")
    last = [float(v) for v in line.split("L")[-1].split()]
    assert np.allclose(last, [412, 204 - 174 * float(e.score[0])], atol=0.3)
    b.go(2)
    assert not b.driver.find_element("id", "curve-card").is_displayed()


def test_sums_are_checked_and_units_are_said(browse):
    e = explain_in_budget()
    b = browse(e)
    assert "Gains are in log-odds" in b.text("gains")
    assert "checked, equal" in b.text("gains")
    total = float(e.gains[0].sum())
    assert f"They sum to {total:.3g}" in b.text("gains").replace("−", "-")
    mean = float(e.gains[0].clamp(min=0).sum()) / 64
    assert f"here 1× is {mean:.3g}"[:-1] in b.text("unit")
    assert "log-odds a cell" in b.text("unit")


def test_likeliest_classes_are_listed_and_the_explained_one_is_marked(browse):
    e = explain_in_budget()
    b = browse(e)
    rows = b.texts("#classes li")
    for row, name, score in zip(
        rows, e.ranking.names[0], e.ranking.scores[0].tolist(), strict=True
    ):
        assert row.startswith(name)
        assert row.endswith(f"{score:.2f}")
    assert [("explained" in row) for row in rows] == [True, False, False, False]


def test_features_have_the_name_of_what_they_are(browse):
    b = browse(
        [explain_in_budget(), explain_images(1, 32, 32, None), explain_table(), explain_series()]
    )
    for number, noun in (
        (0, "64 cells"),
        (2, "1,024 pixels"),
        (3, "12 columns"),
        (5, "80 time steps"),
    ):
        b.go(number)
        assert noun in b.text("facts")
        assert b.text("noun") == noun.split(" ", 1)[1]
        if number > 2:
            page = b.run("return document.body.innerText")
            assert "pixel" not in page.lower()


@pytest.mark.parametrize("way", ["keyboard", "touch", "mouse"])
def test_every_term_explains_itself(browse, way):
    b = browse(explain_in_budget())
    found = {}
    for node in b.driver.find_elements("css selector", ".term"):
        if not node.is_displayed():
            continue
        b.run("arguments[0].scrollIntoView({block: 'center'})", node)
        # Scrolling hides what is shown, and is told of with the next frame.
        b.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))"
        )
        if way == "keyboard":
            b.wait(
                "(document.activeElement.blur(), arguments[0].focus(),"
                " !document.getElementById('tip').hidden)",
                2,
                node,
            )
        elif way == "touch":
            box = b.run(
                "const r = arguments[0].getBoundingClientRect(); return [r.x + 4, r.y + 4]", node
            )
            tap = {"x": box[0], "y": box[1]}
            b.driver.execute_cdp_cmd(
                "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [tap]}
            )
            b.driver.execute_cdp_cmd(
                "Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []}
            )
        else:
            pointer = ActionBuilder(b.driver)
            pointer.pointer_action.move_to_location(1, 1).move_to(node)
            pointer.perform()
        b.wait("!document.getElementById('tip').hidden", 2)
        assert node.get_attribute("aria-describedby") == "tip"
        found[node.get_attribute("data-term")] = b.text("tip")
        room = b.run(
            "const r = document.getElementById('tip').getBoundingClientRect();"
            "return Math.min(r.left, r.top, innerWidth - r.right, innerHeight - r.bottom)"
        )
        assert room >= 0
        ActionChains(b.driver).send_keys(Keys.ESCAPE).perform()
        assert not b.driver.find_element("id", "tip").is_displayed()
    assert set(TERMS) <= set(found)
    assert "64" in found["feature"]
    assert "odds" in found["unit"]


def test_zoom_by_click_button_and_key_keeps_the_point(browse):
    b = browse(explain_images())
    heat = b.driver.find_element("id", "heat")
    width = heat.size["width"]
    body = b.driver.find_element("tag name", "body")
    body.send_keys("+")
    assert b.text("zoom-value") == "1.5×"
    assert heat.size["width"] == pytest.approx(1.5 * width, abs=2)
    body.send_keys("0")
    ActionChains(b.driver).move_to_element_with_offset(heat, width // 4, 0).click().perform()
    assert b.text("zoom-value") == "2×"
    frame = b.run(
        "const p = document.getElementById('picture'); return [p.scrollLeft, p.clientWidth]"
    )
    assert (frame[0] + 0.75 * frame[1]) / 2 == pytest.approx(0.75 * frame[1], abs=3)
    b.driver.find_element("id", "zoom-out").click()
    assert b.text("zoom-value") == "1.5×"
    place = b.text("place")
    b.run("document.getElementById('picture').focus()")
    ActionChains(b.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert b.text("place") == place  # the key moves the picture, not to the next input


def test_swipe_shows_the_input_from_the_left(browse):
    b = browse([explain_images(), explain_series()])
    plain = b.driver.find_element("id", "plain")
    assert not plain.is_displayed()
    b.set("swipe", 40)
    assert plain.is_displayed()
    assert (
        b.run("return getComputedStyle(document.getElementById('plain')).clipPath")
        == "inset(0px 60% 0px 0px)"
    )
    assert b.text("swipe-value") == "40 %"
    b.go(3)
    assert not b.driver.find_element("id", "swipe-control").is_displayed()


@pytest.fixture
def download(tmp_path):
    def fetch(b, button, ending):
        where = {"behavior": "allow", "downloadPath": str(tmp_path)}
        b.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
        b.driver.find_element("id", button).click()
        end = time.monotonic() + 10
        # Chromium makes an empty file of this name before the whole one takes its place.
        while not (found := [p for p in tmp_path.glob(f"sea_*.{ending}") if p.stat().st_size]):
            assert time.monotonic() < end, "nothing was downloaded"
            time.sleep(0.05)
        return found[0]

    return fetch


def test_downloads_hold_the_map_the_order_and_the_data(browse, download):
    e = explain_in_budget()
    b = browse(e)
    b.set("opacity", 100)
    picture = np.asarray(Image.open(download(b, "save-map", "png")).convert("RGB"))
    seen = b.pixels()[..., :3]
    factor = picture.shape[0] // 32
    assert (
        np.abs(picture[factor // 2 :: factor, factor // 2 :: factor].astype(int) - seen).max() <= 1
    )
    rows = list(csv.DictReader(io.StringIO(download(b, "save-order", "csv").read_text("utf-8"))))
    assert [int(row["feature"]) for row in rows] == e.order[0].tolist()
    assert np.allclose([float(row["gain in log-odds"]) for row in rows], e.gains[0], rtol=1e-5)
    assert rows[0]["name"] == e.name_feature(int(e.order[0, 0]))
    data = json.loads(download(b, "save-data", "json").read_text("utf-8"))
    assert data["order"] == e.order[0].tolist()
    assert data["curve"]["counts"] == e.curve.counts.tolist()
    assert data["classes"][2][1] == e.ranking.names[0][2]


def test_names_in_a_downloaded_table_are_no_formulas(browse, download):
    e = explain_table()
    names = ('=cmd|"x"', "+1", "@a", EVIL, *e.feature_names[4:])
    b = browse(replace(e, feature_names=names, labels=(EVIL, "../../x")))
    path = download(b, "save-order", "csv")
    assert path.name.startswith("sea_0_")
    rows = {
        int(r["feature"]): r["name"] for r in csv.DictReader(io.StringIO(path.read_text("utf-8")))
    }
    assert [rows[k] for k in range(4)] == ['\'=cmd|"x"', "'+1", "'@a", EVIL]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sample", [explain_in_budget, explain_table, explain_series])
def test_axe_finds_nothing(browse, axe, sample, dark):
    b = browse(sample())
    for width in (400, 1400):
        with b.window(width, dark=dark):
            b.set("p-exact", 5, "change")
            assert b.find_faults(axe) == []


def test_texts_are_marked_words_above_their_bars(browse, axe):
    pytest.importorskip("transformers", reason="texts need transformers: pip install sea-nn[hf]")
    from tests.helpers.texts import make_classifier, make_tokenizer

    sea = SEA.for_text(make_classifier(), make_tokenizer(), budget=40)
    e = sea.explain(["film was not bad", "a good film"])
    b = browse(e)
    for i, one in enumerate(e):
        b.go(i)
        assert b.text("words") == "".join(one.texts[0])
        assert b.text("noun") == "words"
        levels = grade_words(one.attribution[0], one.against[0]).tolist()
        marked = {w.strip(): k for w, k in zip(one.texts[0], levels, strict=True) if k}
        seen = b.run(
            "return Object.fromEntries([...document.querySelectorAll('#words mark')].map("
            "m => [m.textContent, Number(m.className.replace('for-', '').replace('against', ''))]))"
        )
        assert seen == marked
        strongest = int(torch.maximum(one.attribution[0], one.against[0]).argmax())
        assert b.texts(".bar .label")[0] == one.name_feature(strongest)
    b.set("p-exact", 1, "change")
    assert b.run("return document.querySelectorAll('#words mark').length") <= 1
    assert b.text("words") == "".join(e[1].texts[0])
    assert b.find_faults(axe) == []


def test_volumes_are_mosaics_of_their_slices(browse):
    conv = nn.Conv3d(1, 4, 3, padding=1)
    model = build(6, conv, nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(32, 3))
    x = torch.rand(2, 1, 12, 10, 8, generator=torch.Generator().manual_seed(0)) * 3
    e = SEA(model, ("saliency",), budget=40).explain(x, target=1)
    b = browse(e)
    b.go(1)
    picked = pick_slices(e.attribution[1, 0], 9)
    assert b.texts(".channel") == [f"slice {k}" for k in picked]
    assert "9 of 12 slices" in b.text("facts")
    b.set("opacity", 100)
    shown = paint(tile(heat(e.attribution[1, 0], 0)[picked]))
    assert np.abs(b.pixels()[..., :3] / 255 - shown).max() < 0.03
    b.set("p-exact", 7, "change")
    veiled = (b.pixels()[..., 3] == 196) & (b.pixels()[..., :3].max(-1) < 16)
    assert np.array_equal(~veiled, tile(e[1].top_mask(7)[0].numpy()[picked]))


def explain_line(*weights):
    """A row of ones seen by a linear model with these weights for the class."""
    model = nn.Linear(len(weights), 2)
    model.weight.data = torch.tensor([weights, [0.0] * len(weights)])
    nn.init.zeros_(model.bias)
    return SEA(model, budget=12).explain(torch.ones(1, len(weights)), 0)


def test_bars_against_a_class_are_as_long_as_those_for_it(browse):
    e = explain_line(2.0, 1.5, -3.0)
    b = browse(e)
    shown = {
        (int(label.rsplit(" ")[-1]), side): width
        for label, side, width in b.run(
            "return [...document.querySelectorAll('.bar')].flatMap(bar =>"
            " [...bar.querySelectorAll('.fill')].map(fill => ["
            "bar.querySelector('.label').firstChild.textContent, fill.classList.contains('contra'),"
            " fill.offsetWidth / fill.parentNode.offsetWidth]))"
        )
    }
    assert shown[2, True] == pytest.approx(1, abs=0.01)  # the longest fills its track
    against, own = float(e.against[0].max()), float(e.attribution[0].max())
    assert shown[0, False] == pytest.approx(own / against, abs=0.02)


def test_gains_below_zero_take_the_sum_down_and_both_sides_are_said(browse):
    e = explain_line(1.0, -3.0, 0.0)
    b = browse(e)
    above, below = (float(side) for side in e.sum_gains())
    assert below > above > 0
    said = b.text("gains").replace("−", "-")
    sides = re.search(r"\(([\d.]+) for it, which the map has, ([\d.]+) against it\)", said)
    assert [float(side) for side in sides.groups()] == pytest.approx([above, below], abs=0.01)
    assert "checked, equal" in said
    heights = {}
    for name in ("line", "gain"):
        path = b.run(f"return document.querySelector('#gains .{name}').getAttribute('d')")
        heights[name] = [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]
    low, high = min(0, above - below), above
    places = [204 - 174 * (v - low) / (high - low) for v in e.gains[0].cumsum(0).tolist()]
    assert heights["line"] == pytest.approx(places, abs=0.2)
    zero = 204 + 174 * low / (high - low)
    assert [y < zero for y in heights["gain"]] == [g > 0 for g in e.gains[0].tolist()]
    b.set("p-exact", 3, "change")
    dot = b.run("return document.querySelector('#gains .dot').cy.baseVal.value")
    assert dot == pytest.approx(places[-1], abs=0.2)


def test_card_of_a_table_shows_what_speaks_against_the_class():
    card = explain_line(2.0, -1.0, 0.0)._repr_html_()
    rows = re.findall(r'<span>feature (\d)</span><span class="meter"><span class="(\w*)"', card)
    assert dict(rows) == {"0": "", "1": "against", "2": ""}
    assert "Striped: against the class." in card


def test_card_of_a_notebook_needs_no_script_and_passes_axe(chromium, axe, tmp_path):
    cards = (explain_in_budget(), explain_table(), explain_series())
    body = "".join(e._repr_html_() for e in cards)
    page = tmp_path / "card.html"
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>x</title>"
    policy = "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\">"
    page.write_text(f"{head}{policy}<meta name=viewport content='width=device-width'><main>{body}")
    for dark in (False, True):
        b = Browser(chromium, page.as_uri())
        for width in (400, 1400):
            with b.window(width, dark=dark):
                assert b.run("return document.documentElement.scrollWidth") <= width
                faults = [f for f in b.find_faults(axe) if "page-has-heading" not in f]
                assert faults == []


def test_paper_is_light_whatever_the_screen_is(browse):
    b = browse(explain_in_budget())
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    seen = {}
    for media in ("screen", "print"):
        b.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": dark})
        seen[media] = b.run("return getComputedStyle(document.body).color")
        shown = b.driver.find_element("id", "controls").is_displayed()
        assert shown == (media == "screen")
    b.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert seen == {"screen": "rgb(236, 236, 241)", "print": "rgb(27, 27, 32)"}

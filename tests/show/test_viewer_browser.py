"""The viewer in a browser: what a reader of a report can do and see."""

import csv
import io
import json
import re
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

from sea_nn import SEA
from sea_nn.members.run import Check
from sea_nn.questions.asked import predict_curve
from sea_nn.show.panels import heat, paint
from sea_nn.show.plots import pick_slices, tile
from sea_nn.show.viewer.describe import choose_stops
from sea_nn.show.words import grade_words
from tests.helpers.browser import Browser
from tests.helpers.samples import (
    EVIL,
    explain_images,
    explain_in_budget,
    explain_line,
    explain_series,
    explain_table,
    explain_volume,
)


def find_veiled(b):
    return (b.pixels()[..., 3] == 196) & (b.pixels()[..., :3].max(-1) < 16)


def test_each_map_is_shown_in_its_colours_and_opacity_and_says_what_it_is(browse):
    e = explain_images()
    b = browse(e)
    for opacity, least, most in ((0, 0, 0), (40, 1, 254), (100, 255, 255)):
        b.set("opacity", opacity)
        assert least <= b.pixels()[..., 3].min() <= b.pixels()[..., 3].max() <= most
    layers = torch.cat([e.attribution, e.maps, e.mean_map.unsqueeze(1)], 1)
    names = b.texts("#maps label")
    own = [k for k, name in enumerate(names) if not name.startswith("what ")]
    for k, position in zip(own, heat(layers, 2)[0], strict=False):
        b.choose(k)
        assert np.abs(b.pixels()[..., :3] / 255 - paint(position)).max() < 0.03
    assert "mean of the members' maps" in b.text("about-map")
    b.choose(own[-1])
    assert "disagree" in b.text("unit")
    assert "rank" in b.text("about-map")
    assert names[-1] == "disagreement"


@pytest.mark.parametrize("grid", [(8, 8), None])
def test_slider_lights_just_the_first_p_features(browse, grid):
    e = explain_images(2, 32, 32, grid)
    b = browse(e)
    stops, noun = choose_stops(e.order.shape[1]), "cells" if grid else "pixels"
    for number in (0, 1):
        b.go(number)
        for k in (1, 33, len(stops)):
            b.set("p", k)
            p = stops[k - 1]
            assert np.array_equal(~find_veiled(b), e[number].top_mask(p)[0].numpy())
            assert f"the first {p:,} of {e.order.shape[1]:,} {noun} (" in b.text("p-text")
        b.set("p-exact", 13, "change")
        assert np.array_equal(~find_veiled(b), e[number].top_mask(13)[0].numpy())
    b.set("p", 0)
    assert "none lit" in b.text("p-text")


def test_keys_and_links_walk_through_inputs(browse):
    from selenium.webdriver.common.keys import Keys

    b = browse(explain_images())
    assert b.text("name") == "kind <0>"
    b.press(Keys.ARROW_RIGHT)
    b.wait("document.getElementById('name').textContent === 'kind <1>'")
    b.press(Keys.ARROW_LEFT)
    b.wait("document.getElementById('name').textContent === 'kind <0>'")
    for number in (1, 2):
        b.driver.find_elements("css selector", "#list a")[number].click()
        b.wait(f"document.getElementById('name').textContent === 'kind <{number}>'")
    assert b.run("return document.querySelector('#list [aria-current]').hash") == "#2"


def test_hundreds_open_at_once_and_decode_only_what_is_seen(browse):
    b = browse([explain_images(3)] * 100)
    b.wait("document.querySelector('#list canvas')")
    assert 3 <= b.count("#list canvas") < 60
    b.go(299)
    assert b.text("name") == "kind <2>"


def test_tables_become_bars_in_the_order_of_sea(browse):
    e = explain_table(2, 30)
    b = browse(e)
    code = "return [...document.querySelectorAll('.bar .label')].map(n => n.firstChild.textContent)"
    names = [e.feature_names[k] for k in e.order[0].tolist()]
    assert b.run(code) == names[:20]
    b.set("p-exact", 6, "change")
    assert b.count(".bar.lit") == 6
    b.run("document.querySelector('#bars button').click()")
    assert b.run(code) == names


def test_evil_text_does_nothing_in_the_browser(browse):
    e = replace(explain_images(), labels=(EVIL,) * 3, methods=(EVIL, "b", "c"), images=None,
                checks=(Check("fail", EVIL, EVIL, EVIL),))  # fmt: skip
    b = browse(e, title=EVIL)
    assert b.text("name") == EVIL
    assert b.run("return document.title") == EVIL
    assert b.count("#viewer img[src=x], #viewer script") == 0


def test_costs_and_checks_are_written_in_one_form(browse):
    e = explain_images()
    checks = tuple(Check("warn", "grad_cam", f"mind {k}", "ask for n_steps") for k in range(4))
    seconds = {"integrated_gradients": 0.0946, "sea": 31.0, "total": 1145.02}
    record = replace(e.provenance, seconds=seconds, evaluations={"sea": 1250})
    b = browse(replace(e, checks=checks, provenance=record))
    costs = b.texts("#provenance details dl > *")
    for name, value in [("integrated gradients", "0.0946"), ("total", "1145.02"), ("sea", "1250")]:
        assert (name, value) in pairwise(costs)
    assert len(b.texts("#checks > li")) == 3  # the others wait behind a click
    assert "1 more" in b.text("assumed")
    assert "ask for n_steps" in b.text("checks")


def test_wishes_intervals_trust_and_assumptions_are_shown(browse):
    e = explain_in_budget()[:1]
    e = replace(e, provenance=replace(e.provenance, assumed=("Outputs are logits.", EVIL)))
    b = browse(e)
    assert {"what suffices", "what is needed"} <= set(b.texts("#maps label"))
    assert b.count("#gains .interval") == 64
    low, high = e.gain_intervals[0].T
    unsure = int(((low <= 0) & (high >= 0)).sum())
    assert b.count("#gains .unsure") == unsure > 0
    best = max(e.trust, key=lambda name: float(e.trust[name][0]))
    assert f"agree most with {best.replace('_', ' ')}" in b.text("trust")
    assert b.texts(".sentences li")[1] == EVIL
    asked = ", ".join(f"{count} for {purpose}" for purpose, count in e.evaluations.items())
    assert asked in b.text("provenance")


def test_slider_reads_the_models_answers_off_the_curve(browse):
    e = explain_in_budget()
    b = browse([e, explain_images()])
    assert not b.driver.find_element("id", "p-says").is_displayed()
    counts = e.curve.counts.tolist()
    for k, p in list(enumerate(counts))[1:]:
        b.set("p-exact", p, "change")
        said = b.text("p-says")
        found = re.match(r"Only these left: (.+); these removed: (.+) \(the model's own", said)
        wanted = [float(side[0, k]) for side in (e.curve.left, e.curve.removed)]
        assert [float(number) for number in found.groups()] == pytest.approx(wanted, abs=0.0051)
    p = (counts[3] + counts[4]) // 2
    b.set("p-exact", p, "change")
    said = b.text("p-says")
    assert f"between the model's own answers at {counts[3]} and {counts[4]}" in said
    assert f"f predicts {float(predict_curve(e.function, e.order)[0][0, p]):.2f} and" in said
    assert said in b.run("return document.getElementById('p').getAttribute('aria-valuetext')")
    points = b.run(
        "return [...document.querySelectorAll('#curve circle.point')].map(c => [c.cx.baseVal.value,"
        " c.cy.baseVal.value])"
    )
    across = 48 + (412 - 48) * np.sqrt(e.curve.counts.numpy() / e.order.shape[1])
    height = 204 - (204 - 30) * e.curve.left[0].numpy()
    assert np.allclose(points, np.stack([across, height], 1), atol=0.05)
    assert "square-root scale" in b.text("curve")
    b.go(2)
    assert not b.driver.find_element("id", "curve-card").is_displayed()


def test_sums_are_checked_and_units_and_classes_are_said(browse):
    e = explain_in_budget()
    b = browse(e)
    assert "Gains are in log-odds" in b.text("gains")
    assert "checked, equal" in b.text("gains")
    assert f"sum to {float(e.gains[0].sum()):.3g}" in b.text("gains").replace("−", "-")
    assert "log-odds a cell" in b.text("unit")
    rows, names = b.texts("#classes li"), e.ranking.names[0]
    for row, name, score in zip(rows, names, e.ranking.scores[0].tolist(), strict=True):
        assert row.startswith(name)
        assert row.endswith(f"{score:.2f}")
    assert [("explained" in row) for row in rows] == [True, False, False, False]


def test_features_have_the_name_of_what_they_are(browse):
    pixels = explain_images(1, 32, 32, None)
    b = browse([explain_in_budget(), pixels, explain_table(), explain_series()])
    nouns = {0: "64 cells", 2: "1,024 pixels", 3: "12 columns", 5: "80 time steps"}
    for number, noun in nouns.items():
        b.go(number)
        assert noun in b.text("facts")
        assert b.text("noun") == noun.split(" ", 1)[1]
    assert b.pixels().shape == (2, 40, 4)  # the series, with their lines
    assert b.count("#lines .line") == 2


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
    seen, factor = b.pixels()[..., :3], picture.shape[0] // 32
    middles = picture[factor // 2 :: factor, factor // 2 :: factor].astype(int)
    assert np.abs(middles - seen).max() <= 1
    rows = list(csv.DictReader(io.StringIO(download(b, "save-order", "csv").read_text("utf-8"))))
    assert [int(row["feature"]) for row in rows] == e.order[0].tolist()
    assert np.allclose([float(row["gain in log-odds"]) for row in rows], e.gains[0], rtol=1e-5)
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
    lines = csv.DictReader(io.StringIO(path.read_text("utf-8")))
    rows = {int(row["feature"]): row["name"] for row in lines}
    assert [rows[k] for k in range(4)] == ['\'=cmd|"x"', "'+1", "'@a", EVIL]


@pytest.mark.parametrize("sample", [explain_in_budget, explain_table, explain_series])
def test_page_fits_its_window_and_axe_finds_nothing(browse, axe, sample):
    b = browse(sample())
    for width, dark in ((400, False), (400, True), (1400, False), (1400, True)):
        with b.window(width, dark=dark):
            b.set("p-exact", 5, "change")
            assert b.run("return document.documentElement.scrollWidth") <= width
            assert b.find_faults(axe) == []


def test_texts_are_marked_words_above_their_bars(browse):
    pytest.importorskip("transformers", reason="texts need transformers: pip install sea-nn[hf]")
    from tests.helpers.texts import make_classifier, make_tokenizer

    sea = SEA.for_text(make_classifier(), make_tokenizer(), budget=40)
    e = sea.explain(["film was not bad", "a good film"])
    b = browse(e)
    for i, one in enumerate(e):
        b.go(i)
        assert b.text("words") == "".join(one.texts[0])
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
    assert b.count("#words mark") <= 1
    assert b.text("words") == "".join(e[1].texts[0])


def test_volumes_are_mosaics_of_their_slices(browse):
    e = explain_volume(2)
    b = browse(e)
    b.go(1)
    picked = pick_slices(e.attribution[1, 0], 9)
    assert b.texts(".channel") == [f"slice {k}" for k in picked]
    assert "9 of 12 slices" in b.text("facts")
    b.set("opacity", 100)
    shown = paint(tile(heat(e.attribution[1, 0], 0)[picked]))
    assert np.abs(b.pixels()[..., :3] / 255 - shown).max() < 0.03
    b.set("p-exact", 7, "change")
    assert np.array_equal(~find_veiled(b), tile(e[1].top_mask(7)[0].numpy()[picked]))


def test_bars_against_a_class_are_as_long_as_those_for_it(browse):
    e = explain_line(2.0, 1.5, -3.0)
    bars = browse(e).run(
        "return [...document.querySelectorAll('.bar')].flatMap(bar =>"
        " [...bar.querySelectorAll('.fill')].map(fill => ["
        "bar.querySelector('.label').firstChild.textContent, fill.classList.contains('contra'),"
        " fill.offsetWidth / fill.parentNode.offsetWidth]))"
    )
    shown = {(int(label.rsplit(" ")[-1]), side): width for label, side, width in bars}
    against, own = float(e.against[0].max()), float(e.attribution[0].max())
    assert shown[2, True] == pytest.approx(1, abs=0.01)  # the longest fills its track
    assert shown[0, False] == pytest.approx(own / against, abs=0.02)


def test_gains_below_zero_are_drawn_and_both_sides_are_said(browse):
    e = explain_line(1.0, -3.0, 0.0)
    b = browse(e)
    above, below = (float(side) for side in e.sum_gains())
    said = b.text("gains").replace("−", "-")
    sides = re.search(r"\(([\d.]+) for it, which the map has, ([\d.]+) against it\)", said)
    assert [float(side) for side in sides.groups()] == pytest.approx([above, below], abs=0.01)
    assert "checked, equal" in said
    path = b.run("return document.querySelector('#gains .gain').getAttribute('d')")
    heights = [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]
    low, high = min(0, float(e.gain_intervals.min())), float(e.gain_intervals.max())
    places = [204 - 174 * (v - low) / (high - low) for v in e.gains[0].tolist()]
    assert heights == pytest.approx(places, abs=0.2)


def test_card_of_a_notebook_is_the_same_viewer_in_a_frame(chromium, tmp_path):
    e = replace(explain_in_budget(), labels=(EVIL,) * len(explain_in_budget()))
    page = tmp_path / "card.html"
    page.write_text(f"<!doctype html><title>x</title>{e._repr_html_()}")
    b = Browser(chromium, page.as_uri())
    assert b.run("return document.scripts.length") == 0
    frame = b.driver.find_element("tag name", "iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts allow-downloads"
    b.driver.switch_to.frame(frame)
    try:
        b.wait("document.getElementById('viewer').dataset.ready === '0'")
        assert b.text("name") == EVIL
        assert b.pixels().any()
    finally:
        b.driver.switch_to.default_content()
    assert b.errors() == []


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

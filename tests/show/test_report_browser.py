"""The report in a browser: what a reader can do and see."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sea_nn.members.checks import Check
from sea_nn.show.panels import heat, paint
from sea_nn.show.report.encode import choose_stops
from tests.helpers.samples import EVIL, explain_images, explain_series, explain_table


def test_opacity_goes_from_the_image_to_the_map(browse):
    b = browse(explain_images())
    b.set("opacity", 0)
    assert (b.pixels()[..., 3] == 0).all()
    b.set("opacity", 40)
    some = b.pixels()[..., 3]
    assert some.min() > 0
    assert some.max() < 255
    b.set("opacity", 100)
    assert (b.pixels()[..., 3] == 255).all()
    assert "100" in b.text("opacity-value")


def test_switch_shows_each_map_in_its_colours(browse):
    e = explain_images()
    b = browse(e)
    b.set("opacity", 100)
    layers = torch.cat([e.attribution, e.maps, e.mean_map.unsqueeze(1)], 1)
    seen = []
    for k, position in enumerate(heat(layers, 2)[0]):
        b.choose(k)
        seen.append(b.pixels())
        assert np.abs(seen[-1][..., :3] / 255 - paint(position)).max() < 0.03
    b.choose(5)
    seen.append(b.pixels())
    assert "disagree" in b.text("unit")
    assert all((one != two).any() for k, one in enumerate(seen) for two in seen[:k])


def test_switch_says_what_maps_are_that_no_member_made(browse):
    b = browse(explain_images())
    names = "return [...document.querySelectorAll('#maps label')].map(n => n.textContent)"
    members = ["SEA", "saliency", "integrated gradients", "occlusion"]
    assert b.run(names) == [*members, "Agg-Mean", "disagreement"]
    assert not b.driver.find_element("id", "about-map").is_displayed()
    titles = b.run("return [...document.querySelectorAll('#maps label')].map(n => n.title)")
    assert titles[:4] == [""] * 4
    assert "mean of the members' maps" in titles[4]
    assert "rank" in titles[5]
    b.choose(4)
    assert b.driver.find_element("id", "about-map").is_displayed()
    assert b.text("about-map") == f"Agg-Mean: {titles[4]}."
    assert "questions" not in b.text("provenance")


@pytest.mark.parametrize("grid", [(8, 8), None])
def test_slider_lights_just_the_first_p_features(browse, grid):
    e = explain_images(2, 32, 32, grid)
    b = browse(e)
    stops, noun = choose_stops(e.order.shape[1]), "cells" if grid else "pixels"
    for number in (0, 1):
        b.go(number)
        for k in (1, 7, 33, len(stops)):
            b.set("p", k)
            p = stops[k - 1]
            veiled = (b.pixels()[..., 3] == 196) & (b.pixels()[..., :3].max(-1) < 16)
            assert np.array_equal(~veiled, e[number].top_mask(p)[0].numpy())
            assert f"the first {p:,} of {e.order.shape[1]:,} {noun} (" in b.text("p-text")
        b.set("p-exact", 13, "change")
        veiled = (b.pixels()[..., 3] == 196) & (b.pixels()[..., :3].max(-1) < 16)
        assert np.array_equal(~veiled, e[number].top_mask(13)[0].numpy())
    b.set("p", 0)
    assert not (b.pixels()[..., 3] == 196).all()
    assert "none lit" in b.text("p-text")


def test_keys_walk_through_inputs_and_maps(browse):
    from selenium.webdriver.common.keys import Keys

    e = explain_images()
    b = browse(e)
    body = b.driver.find_element("tag name", "body")
    assert b.text("place") == "1 of 3"
    body.send_keys(Keys.ARROW_RIGHT)
    b.wait("document.getElementById('place').textContent === '2 of 3'")
    assert b.text("name") == "kind <1>"
    body.send_keys("j")
    b.wait("document.getElementById('place').textContent === '3 of 3'")
    body.send_keys(Keys.ARROW_LEFT)
    b.wait("document.getElementById('place').textContent === '2 of 3'")
    body.send_keys("3")
    assert b.run("return document.querySelector('#maps input:checked').value") == "2"
    b.driver.find_element("id", "next").click()
    b.wait("document.getElementById('name').textContent === 'kind <2>'")
    assert b.run("return document.querySelector('#list [aria-current]').hash") == "#2"


def test_hundreds_open_at_once_and_decode_only_what_is_seen(browse):
    e = explain_images(3)
    b = browse([e] * 100)
    b.wait("document.querySelector('#list canvas').width === 152")
    drawn = b.run(
        "return [...document.querySelectorAll('#list canvas')].filter(c => c.width === 152).length"
    )
    assert 3 <= drawn < 60
    b.set("filter", "<1>")
    assert b.text("found") == "100 of 300 inputs"
    b.set("filter", "")
    b.set("sort", "score", "change")
    first = b.run("return Number(document.querySelector('#list a').hash.slice(1))")
    assert e.score[first % 3] == e.score.min()
    b.go(299)
    assert b.text("name") == "kind <2>"


def test_tables_become_bars_in_the_order_of_sea(browse):
    e = explain_table(2, 30)
    b = browse(e)
    code = "return [...document.querySelectorAll('.bar .label')].map(n => n.firstChild.textContent)"
    names = [e.feature_names[k] for k in e.order[0].tolist()]
    assert b.run(code) == names[:20]
    b.set("p-exact", 6, "change")
    assert b.run("return document.querySelectorAll('.bar.lit').length") == 6
    b.run("document.querySelector('#bars button').click()")
    assert b.run(code) == names


def test_series_are_drawn_with_their_lines(browse):
    b = browse(explain_series())
    assert b.pixels().shape == (2, 40, 4)
    lines = b.driver.find_element("id", "lines")
    assert lines.is_displayed()
    assert b.run("return document.querySelectorAll('#lines .line').length") == 2


def test_evil_text_does_nothing_in_the_browser(browse):
    e = replace(explain_images(), labels=(EVIL,) * 3, methods=(EVIL, "b", "c"), images=None,
                checks=(Check("fail", EVIL, EVIL, EVIL),))  # fmt: skip
    b = browse(e, title=EVIL)
    assert b.text("name") == EVIL
    assert b.run("return document.title") == EVIL
    assert b.run("return document.querySelectorAll('main img[src=x], main script').length") == 0


def crowd(many):
    """An explanation of ``many`` members, some of which go against the others."""
    e = explain_images()
    maps = e.maps[:, [k % 3 for k in range(many)]].clone()
    maps[:, 3] = 1 - maps[:, 3]
    names = ("saliency", "integrated_gradients", "smoothgrad", "grad_cam", "occlusion")
    names = (*names, "guided_backprop", *(f"deep_lift_{k}" for k in range(many)))[:many]
    record = replace(
        e.provenance,
        seconds={
            "saliency": 0.0946,
            "smoothgrad": 2.16,
            "grad_cam": 0.9961,
            "sea": 31.0,
            "total": 1145.02,
        },
        evaluations={"saliency": 3, "smoothgrad": 1250, "sea": 90},
    )
    copy = Check("warn", "grad_cam", "its map equals integrated_gradients's", "ask for n_steps")
    return replace(e, maps=maps, methods=names, checks=(copy,), provenance=record)


@pytest.mark.parametrize("width", [375, 1024, 1280])
def test_agreement_of_eight_rows_fits_and_more_say_how_to_see_them(browse, width):
    for many in (7, 24):
        b = browse(crowd(many))
        with b.window(width):
            fits = "document.getElementById('agreement').scrollWidth <="
            fits += " document.getElementById('agreement').clientWidth"
            b.wait(fits if many == 7 else f"!({fits})")
            hint = b.driver.find_element("id", "sideways")
            b.wait(f"document.getElementById('sideways').hidden === {str(many == 7).lower()}")
            assert hint.is_displayed() == (many > 7)
            assert b.run("return document.querySelector('#provenance thead').offsetHeight") < 32


def test_agreement_costs_and_checks_are_written_in_one_form(browse):
    e = crowd(7)
    b = browse(e)
    cells = "return [...document.querySelectorAll('%s')].map(n => n.textContent)"
    assert b.run(cells % "#agreement thead th") == [str(k) for k in range(8)]
    names = [name.replace("_", " ") for name in ("SEA", *e.methods)]
    assert b.run(cells % "#agreement tbody th") == [f"{k} {n}" for k, n in enumerate(names)]
    expected = [f"{v:.2f}".replace("-", "\u2212") for v in e.agreement_with_sea[0].flatten()]
    expected = [text.replace("\u22120.00", "0.00") for text in expected]
    assert b.run(cells % "#agreement tbody td") == expected
    costs = b.run(cells % "#provenance tbody tr > *")
    assert list(zip(*[iter(costs)] * 3, strict=True)) == [
        ("saliency", "0.09", "3"),
        ("smoothgrad", "2.2", "1,250"),
        ("grad cam", "1.0", "\u2013"),
        ("SEA and its questions", "31.0", "90"),
        ("total", "1,145.0", "1,343"),
    ]
    assert "grad cam: its map equals integrated gradients's" in b.text("checks")
    assert "ask for n_steps" in b.text("checks")


@pytest.mark.parametrize("sample", [explain_images, explain_table, explain_series])
@pytest.mark.parametrize("width", [375, 1280])
def test_page_fits_its_window_and_names_its_controls(browse, sample, width):
    b = browse(sample())
    with b.window(width):
        assert b.run("return document.documentElement.scrollWidth") <= width
        nameless = b.run(
            "return [...document.querySelectorAll('input, select, button')].filter(c =>"
            " !(c.labels && [...c.labels].some(l => l.textContent.trim())) &&"
            " !c.getAttribute('aria-label') && !c.textContent.trim()).map(c => c.id)"
        )
        assert nameless == []

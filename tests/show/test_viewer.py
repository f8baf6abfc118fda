from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
import torch
from rich.console import Console

from sea_nn import SEA
from sea_nn.errors import InputError
from sea_nn.explanation.fields import Provenance
from sea_nn.members.run import Check
from sea_nn.show.panels import heat, paint
from sea_nn.show.plots import paint_slices, pick_slices, tile
from sea_nn.show.viewer import write_report
from sea_nn.show.viewer.describe import choose_stops
from sea_nn.show.words import grade_words, print_words
from tests.helpers.samples import EVIL, explain_images, explain_table, explain_volume
from tests.show.test_plots import assert_readable, read


class Page(HTMLParser):
    """Every element with its attributes, and the text of every script and style."""

    def __init__(self, path):
        super().__init__()
        self.elements, text = [], path.read_text("utf-8")
        self.blocks = re.findall(r"<(script|style)([^>]*)>(.*?)</\1>", text, re.DOTALL)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def data(self, name):
        (text,) = [text for _, attrs, text in self.blocks if f'id="{name}"' in attrs]
        return json.loads(text)


def unpack(text, dtype):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "report.html"
    return lambda explanations, **options: Page(write_report(explanations, path, **options))


def test_policy_allows_its_own_style_and_script_and_nothing_else(page):
    found = page(explain_images())
    (policy,) = [
        attrs["content"]
        for tag, attrs in found.elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for rule, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = [t for kind, attrs, t in found.blocks if kind == tag and not attrs]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[rule]
    assert "unsafe" not in policy


def test_text_from_outside_stays_text(page):
    e = replace(
        explain_images(),
        labels=(EVIL,) * 3,
        methods=(EVIL, "b", "c"),
        checks=(Check("fail", EVIL, EVIL, EVIL), Check("fail", "input 1", "of one")),
        provenance=Provenance(config={EVIL: EVIL}, model=EVIL),
    )
    plain = page(explain_images(), title="plain")
    found = page(e, title=EVIL)
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert found.data("index")["inputs"][0]["name"] == EVIL
    (check,) = found.data("group-0")["checks"]
    assert check["advice"] == EVIL
    assert found.data("input-0")["checks"] == []
    assert [c["subject"] for c in found.data("input-1")["checks"]] == ["this input"]


def test_order_and_maps_arrive_whole(page):
    e = explain_images()
    found = page(e)
    group = found.data("group-0")
    assert unpack(group["features"], "<u4").tolist() == e.features[0].flatten().tolist()
    for i in range(3):
        one = found.data(f"input-{i}")
        assert unpack(one["order"], "<u4").tolist() == e.order[i].tolist()
        planes = unpack(one["maps"], "u1").reshape(6, 32, 32)
        sea = e.attribution[i, 0] / e.attribution[i, 0].mean()
        expected = (sea / 10).clamp(0, 1).sqrt() * 255
        assert np.abs(planes[0] - expected.numpy()).max() <= 0.5 + 1e-3
        assert np.abs(planes[-1] / 510 - e.disagreement[i].numpy()).max() <= 0.002
        assert np.array_equal(unpack(one["gains"], "<f4"), e.gains[i].float().numpy())


def test_large_maps_shrink_and_keep_their_features(page):
    e = explain_images(1, 64, 48, None)
    found = page(e, side=32)
    group = found.data("group-0")
    assert group["map"] == [32, 24]
    assert unpack(found.data("input-0")["maps"], "u1").size == 6 * 32 * 24
    own = replace(e, features=torch.arange(64 * 48).reshape(1, 64, 48))
    features = unpack(page(own, side=32).data("group-0")["features"], "<u4").reshape(32, 24)
    assert (features // 48 // 2 == np.arange(32)[:, None]).all()
    assert (features % 48 // 2 == np.arange(24)).all()


def test_own_features_travel_with_each_input_which_knows_its_group(page):
    e = explain_images()
    groups = torch.randint(0, 64, (3, 32, 32), generator=torch.Generator().manual_seed(0))
    found = page([replace(e, features=groups), explain_table()])
    rows = found.data("index")["inputs"]
    assert [row["group"] for row in rows] == [0, 0, 0, 1, 1]
    assert [row["name"] for row in rows[:3]] == list(e.labels)
    assert found.data("group-0")["features"] is None
    for i in range(3):
        own = unpack(found.data(f"input-{i}")["features"], "<u4")
        assert own.tolist() == groups[i].flatten().tolist()


def test_nan_and_infinity_become_null(page):
    odd = Provenance(seconds={"saliency": float("inf")}, config={"x": [float("nan")]})
    found = page(replace(explain_images(1), provenance=odd, score=torch.tensor([torch.nan])))
    assert found.data("index")["inputs"][0]["score"] is None
    told = found.data("group-0")["provenance"]
    assert (told["config"], told["seconds"]) == ({"x": [None]}, {"saliency": None})


def test_stops_are_exact_at_first_and_end_at_n():
    for n in (1, 2, 30, 784, 50176):
        stops = choose_stops(n)
        assert stops[-1] == n
        assert list(stops[: min(n, 40)]) == list(range(1, min(n, 40) + 1))
        assert all(a < b for a, b in pairwise(stops))
    assert len(choose_stops(50176)) < 300


def test_report_refuses_what_it_cannot_show(tmp_path):
    path = tmp_path / "r.html"
    with pytest.raises(InputError, match="at least one explanation"):
        write_report([], path)
    assert list(tmp_path.iterdir()) == []


def test_page_grows_by_its_inputs_alone(tmp_path):
    e = explain_images(1, 64, 64, None)
    sizes = [
        write_report([e] * count, tmp_path / "r.html").stat().st_size for count in (1, 2, 48, 100)
    ]
    each = sizes[1] - sizes[0]
    assert sizes[0] - each < 90_000  # style, scripts and colours
    assert each < 10 * 64 * 64 * 1.4 + 10_000  # six maps, the order, gains and places
    assert sizes[2] == pytest.approx(sizes[0] + 47 * each, rel=0.01)
    assert sizes[3] <= sizes[0] + 99 * each * 1.01


FOR = torch.tensor([0.0, 0.1, 0.0, 0.0, 3.0, 0.0])
AGAINST = torch.tensor([0.0, 0.0, 0.0, 1.5, 0.0, 0.0])


def test_levels_follow_the_colour_scale_and_the_side():
    levels = grade_words(FOR, AGAINST)
    expected = 8 * heat((FOR - AGAINST).abs(), 0)
    assert np.abs(np.abs(levels) - expected).max() <= 0.5
    assert levels[4] > 0 > levels[3]
    assert grade_words(torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("colour", [True, False])
def test_terminal_underlines_with_and_without_colour(colour):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, no_color=not colour, width=200)
    console.print(print_words(["[bold]good ", "bad ", "so"], *torch.eye(3)[:2]))
    said = stream.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", said) == "[bold]good bad so\n"
    good, bad, so = (said.split(word)[0].rsplit(" ", 1)[-1] for word in ("[bold]", "bad", "so"))
    assert re.search(r"\x1b\[(1;)?4[;m]", good)  # underlined
    assert re.search(r"\x1b\[(1;)?21[;m]", bad)  # doubly
    assert "\x1b" not in so.replace("\x1b[0m", "")


def test_texts_in_a_figure_are_bars_of_their_words():
    pytest.importorskip("transformers", reason="texts need transformers: pip install sea-nn[hf]")
    from tests.helpers.texts import make_classifier, make_tokenizer

    long = "the film was not bad, very good acting! " * 8 + "$x_1$"
    e = SEA.for_text(make_classifier(), make_tokenizer(), budget=40).explain([long, "a film"])
    figure = e.plot()
    assert_readable(figure)
    drawn = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert sorted(drawn) == ["a", "film"]
    assert any("features hold" in text for text in read(figure))  # of the long one


def test_slices_are_spread_and_miss_no_spot():
    volume = torch.zeros(20, 4, 4)
    spots = [2, 7, 19]
    volume[spots] = 1.0
    picked = pick_slices(volume, 4)
    assert set(spots) <= set(picked)
    assert picked == sorted(picked)
    assert [k // 5 for k in picked] == [0, 1, 2, 3]
    assert pick_slices(volume[:2], 6) == [0, 1]


def test_slices_share_the_colours_of_the_volume():
    volume = torch.rand(5, 4, 6, generator=torch.Generator().manual_seed(0))
    assert np.allclose(paint_slices(volume, [1, 3]), paint(heat(volume, 0)[[1, 3]]))


def test_what_lies_below_the_hottest_block_of_a_slice_is_still_seen():
    volume, images = torch.zeros(1, 4, 40), torch.zeros(1, 4, 40, 3, dtype=torch.uint8)
    volume[:, :, :2] = 1.0
    images[:, :, 1:] = 255
    dark, light = paint_slices(volume, [0], images)[0, 0, :2]
    assert (light - dark >= 80 / 255).all()


def test_tiles_lie_row_by_row():
    slices = np.arange(5 * 6).reshape(5, 2, 3)
    whole = tile(slices)
    assert whole.shape == (4, 9)
    assert np.array_equal(whole[:2, 3:6], slices[1])
    assert np.array_equal(whole[2:, :3], slices[3])
    assert (whole[2:, 6:] == 0).all()


def test_figure_of_volumes_names_its_slices():
    e = explain_volume(2)
    named = [text for text in read(e.plot()) if text.startswith("slice")]
    assert named == [f"slice {k}" for volume in e.attribution for k in pick_slices(volume[0])]

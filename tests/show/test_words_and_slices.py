"""Texts as marked words, volumes as slices."""

import io
import re

import numpy as np
import pytest
import torch
from rich.console import Console

from sea_nn import SEA
from sea_nn.show.panels import heat, paint
from sea_nn.show.plots import paint_slices, pick_slices, tile
from sea_nn.show.words import grade_words, print_words
from tests.helpers.samples import explain_volume
from tests.show.test_plots import assert_readable, read

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

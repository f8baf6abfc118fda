from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib import rcParams
from matplotlib._pylab_helpers import Gcf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image
from torch import nn

from sea_nn import SEA, About, SEAConfig
from sea_nn.errors import InputError
from sea_nn.features import Kind
from sea_nn.show import panels
from sea_nn.show.panels import LIMIT, SIZE, SMALLEST, blend, heat, measure, paint, panel_grid, wrap
from sea_nn.show.plots import (
    plot_agreement,
    plot_bars,
    plot_class_map,
    plot_gains,
    plot_series,
    plot_strip,
    plot_top,
)
from tests.helpers.samples import (
    build,
    explain_images,
    explain_in_budget,
    explain_series,
    explain_table,
)

KINDS = ("strip", "overlay", "top", "gains", "agreement")
SAMPLES = {"images": explain_images, "table": explain_table, "series": explain_series}
MANY = (
    *("saliency", "integrated_gradients", "occlusion", "smooth_ig", "smoothgrad", "deeplift"),
    *("input_x_gradient", "guided_backprop", "deconvolution", "grad_cam", "lime", "kernel_shap"),
)
LONG = "a very long name of a class, such as black-and-tan coonhound $x_1$ & $y"


def texts(figure):
    """All visible texts with the box each takes, in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Axes keep spare ticks that they do not draw: leave out the labels of those.
    spare, drawn = set(), set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            spare |= {
                id(x) for t in [*axis.majorTicks, *axis.minorTicks] for x in (t.label1, t.label2)
            }
            if not axes.axison:
                continue
            drawn |= {id(x) for t in axis._update_ticks() for x in (t.label1, t.label2)}
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    found = [t for t in found if id(t) in drawn or id(t) not in spare]
    return [(t, t.get_window_extent(renderer)) for t in found]


def assert_readable(figure):
    """No text leaves the figure, and no two level texts overlap."""
    width, height = figure.get_size_inches() * figure.dpi
    boxes = texts(figure)
    assert boxes
    for text, box in boxes:
        inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
        assert inside, f"{text.get_text()!r} leaves the figure: {box} of {width} x {height}"
    level = [(t, b) for t, b in boxes if t.get_rotation() in (0.0, 90.0)]
    for (one, a), (two, b) in combinations(level, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        tall = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 1 or tall <= 1, f"{one.get_text()!r} lies on {two.get_text()!r}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_every_kind_draws_every_sample_readably(kind, sample, tmp_path):
    e = SAMPLES[sample]()[:2]
    path = tmp_path / "new" / "figure.png"
    figure = e.plot(kind, path=path)
    assert_readable(figure)
    with Image.open(path) as picture:
        assert picture.width == pytest.approx(figure.get_size_inches()[0] * 200, abs=1)
        assert picture.width <= 1801
        assert np.asarray(picture.convert("L")).std() > 5


@pytest.mark.parametrize("kind", KINDS)
def test_long_names_and_many_members_stay_readable(kind):
    e = explain_images()
    many = 8
    crowded = replace(
        e,
        maps=e.maps[:, [k % 3 for k in range(many)]],
        methods=tuple(f"a_rather_long_method_name_{k}" for k in range(many)),
        labels=(LONG, "x", LONG),
    )
    assert_readable(crowded[:2].plot(kind))


@pytest.mark.parametrize("kind", ["strip", "overlay"])
def test_many_members_take_a_second_line_below_their_own_titles(kind):
    e = explain_images()
    maps = e.maps[:, [k % 3 for k in range(len(MANY))]]
    figure = replace(e, maps=maps, methods=MANY)[:2].plot(kind)
    assert_readable(figure)
    panels = [axes.get_window_extent() for axes in figure.axes[:30]]
    titles = ["input", "SEA", *(name.replace("_", " ") for name in MANY), "Agg-Mean"]
    boxes = [(t.get_text().replace("\n", " "), box) for t, box in texts(figure)]
    for k, panel in enumerate(panels):
        title = titles[k % 15]
        mine = [
            box
            for text, box in boxes
            if text == title and 0 <= box.y0 - panel.y1 < 25 and panel.x0 < box.x1 < panel.x1 + 1
        ]
        assert len(mine) == 1, f"panel {k} has no title {title!r}"
    lines = [round(panel.y0) for panel in panels]
    assert lines[:8] == [lines[0]] * 8
    assert lines[8:15] == [lines[8]] * 7
    assert len(set(lines)) == 4
    assert sorted(lines, reverse=True) == lines


def test_titles_shrink_before_a_word_is_broken():
    titles = ["input", "SEA", *(name.replace("_", " ") for name in MANY), "x" * 60]
    figure, _ = panel_grid(titles, ["a row"])
    assert_readable(figure)
    written = {t.get_text().replace("\n", " "): t.get_fontsize() for t, _ in texts(figure)}
    assert set(titles[:-1]) <= set(written)
    sizes = {written[title] for title in titles[:-1]}
    assert len(sizes) == 1
    assert SMALLEST <= sizes.pop() < SIZE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", [explain_table, explain_series])
def test_long_feature_names_stay_readable(kind, sample):
    e = sample()
    names = tuple(f"{LONG} {k}" for k in range(len(e.feature_names)))
    assert_readable(replace(e, feature_names=names, labels=(LONG, LONG)).plot(kind))


@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_wide_and_tall_images_keep_their_shape(shape):
    e = explain_images(2, *shape, (4, 4))
    figure = e.plot("strip")
    assert_readable(figure)
    panel = figure.axes[0].get_window_extent()
    assert panel.height / panel.width == pytest.approx(shape[0] / shape[1], rel=0.02)


def test_strip_shows_input_sea_members_and_mean_in_this_order():
    e = explain_images()
    figure = e.plot("strip")
    shown = [axes.get_images()[0].get_array() for axes in figure.axes[:6]]
    layers = torch.cat([e.attribution, e.maps, e.mean_map.unsqueeze(1)], 1)
    assert np.array_equal(shown[0], e.images[0].numpy())
    for picture, layer in zip(shown[1:], heat(layers, 2)[0], strict=True):
        assert np.allclose(picture, paint(layer))
    titles = sorted((b.x0, t.get_text()) for t, b in texts(figure) if t.get_text() != "")
    names = [
        text for _, text in titles if text in ("input", "SEA", "saliency", "occlusion", "Agg-Mean")
    ]
    assert names == ["input", "SEA", "saliency", "occlusion", "Agg-Mean"]


def test_colour_means_the_same_share_whatever_the_map():
    sharp, flat = torch.zeros(1, 10, 10), torch.ones(1, 10, 10)
    sharp[0, 0, :4] = 1.0
    assert float(heat(flat, 1).max()) == pytest.approx((1 / LIMIT) ** 0.5)
    assert float(heat(sharp, 1).max()) == 1  # 25 times its mean: beyond the scale
    assert np.allclose(heat(flat, 1), heat(flat * 1e-6, 1))


def test_blend_covers_the_image_more_where_it_is_hotter():
    image = np.full((1, 16, 3), 200, np.uint8)
    positions = np.linspace(0, 1, 16)[None]
    share = (blend(image, positions) - 200 / 255) / (paint(positions) - 200 / 255)
    assert (np.diff(share[..., 2]) > 0).all()
    assert 0.09 < share.min() < share.max() < 0.95


def test_top_lights_the_pixels_of_its_masks():
    e = explain_images(1)
    sizes = [2, 9]
    masks = e.member_top_masks(sizes)
    figure = plot_top(e.attribution, e.maps, e.methods, masks, ["2", "9"], e.images)
    dark = np.asarray(figure.axes[1].get_images()[0].get_array())
    bright = dark.max(-1) > 0.45
    assert np.array_equal(bright, masks[0, 0, 0].numpy())


def test_top_says_which_rows_are_whose():
    e = explain_images(3)[:2]
    figure = e.plot("top", p=[2])
    assert_readable(figure)
    names = [f"{e.name(i)} {float(e.score[i]):.2f}" for i in range(2)]
    heights = {t.get_text(): box.y0 for t, box in texts(figure) if t.get_text() in names}
    tops = [axes.get_window_extent().y1 for axes in figure.axes[:20]]
    assert heights[names[0]] > max(tops[:10])
    assert min(tops[:10]) > heights[names[1]] > max(tops[10:])
    alone = [t.get_text() for t, _ in texts(e[:1].plot("top", p=[2]))]
    assert names[0] not in alone
    masks = e.member_top_masks([2])
    bare = plot_top(e.attribution, e.maps, e.methods, masks, ["2"])
    assert {"input 0", "input 1"} <= {t.get_text() for t, _ in texts(bare)}


def test_top_draws_very_small_sets_large_enough_to_see():
    side = 224
    masks = torch.zeros(1, 3, 3, side, side, dtype=torch.bool)
    masks[:, :, 0, 100, 50] = True
    masks[:, :, 1, 0, 0] = True
    masks[:, :, 2, 7, :150] = True
    ones = torch.ones(1, 1, side, side)
    figure = plot_top(ones, ones, ("a",), masks, ["inside", "corner", "more"])
    inside, corner, more = (
        np.asarray(axes.get_images()[0].get_array()).max(-1) > 0.45 for axes in figure.axes[1:4]
    )
    assert inside.sum() == inside[99:102, 49:52].sum() == 9
    assert corner.sum() == corner[:2, :2].sum() == 4
    assert np.array_equal(more, masks[0, 0, 2].numpy())


def test_top_names_its_sizes_with_digits_that_count():
    e = explain_images(1, 128, 128, None)
    written = [t.get_text().replace("\n", " ") for t, _ in texts(e.plot("top", p=[7, 420]))]
    assert "7 of 16,384 (0.043\u00a0%)" in written
    assert "420 of 16,384 (2.6\u00a0%)" in written


def test_wrap_keeps_what_fits_and_never_parts_a_number_from_its_unit():
    assert [wrap("two words", 9.0), wrap("", 1.0)] == ["two words", ""]
    assert wrap("half of 10.0\u00a0%", measure("half of 10.0")) == "half of\n10.0\u00a0%"


@pytest.mark.parametrize("steps", [1, 2, 18, 40])
def test_time_steps_are_whole_numbers(steps):
    figure = plot_series(torch.rand(1, 1, steps))
    assert_readable(figure)  # without values too
    ticks = figure.axes[0].get_xticks()
    assert len(ticks)
    assert (ticks == ticks.round()).all()


def test_gains_survive_zeros_and_a_single_feature():
    assert_readable(plot_gains(torch.tensor([[3.0, 1.0, 0.0, 0.0]])))
    assert_readable(plot_gains(torch.tensor([[2.0]])))
    assert_readable(plot_gains(torch.zeros(1, 5)))
    assert_readable(plot_gains(torch.rand(12, 30), [LONG] * 12))


def test_agreement_prints_numbers_and_a_dash_for_constant_maps():
    matrix = torch.tensor([[[1.0, -0.004], [-0.004, torch.nan]]])
    figure = plot_agreement(matrix, ("SEA", "flat"), torch.rand(1, 8, 8))
    written = [t.get_text() for t, _ in texts(figure)]
    for text in ("1.00", "0.00", "–"):
        assert text in written


def test_bars_say_what_they_leave_out():
    e = explain_table(1, 50)
    figure = plot_bars(e.attribution, e.maps, e.methods, e.feature_names)
    assert any("the other 30 features hold" in t.get_text() for t, _ in texts(figure))


def test_class_map_lies_over_examples(tmp_path):
    e = explain_images(3)
    figure = plot_class_map(e.attribution[0], e.images, LONG, tmp_path / "c.pdf", examples=2)
    assert_readable(figure)
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    pictures = [a.get_images()[0].get_array() for a in figure.axes if a.get_images()]
    assert np.allclose(pictures[1], blend(e.images[0].numpy(), heat(e.attribution[0, 0], 0)))


def test_figures_show_themselves_in_notebooks_and_leave_pyplot_alone():
    figures, settings = dict(Gcf.figs), dict(rcParams)
    for kind in KINDS:
        assert explain_table().plot(kind)._repr_png_().startswith(b"\x89PNG")
    assert dict(Gcf.figs) == figures
    assert dict(rcParams) == settings


@pytest.mark.parametrize(("width", "lines"), [(0.5, 2), (1.0, 1), (3.0, 3), (0.05, 2)])
def test_wrapped_lines_fit(width, lines):
    wrapped = wrap(LONG, width, lines=lines).split("\n")
    assert len(wrapped) <= lines
    for line in wrapped:
        assert len(line) <= 2 or measure(line, SIZE) <= width


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.plot("pie"), "choose one of: strip, overlay"),
        (lambda e: explain_table(33).plot(), "plot a slice"),
        (lambda e: replace(e, images=None).plot("overlay"), "needs images"),
        (lambda e: plot_strip(e.attribution, e.maps, ("a",)), "one a method"),
        (lambda e: plot_strip(e.attribution[:1], e.maps, e.methods), "does not fit maps"),
        (
            lambda e: plot_strip(e.attribution, e.maps, e.methods, e.images[:2], overlay=True),
            "images must be",
        ),
        (lambda e: plot_agreement(e.agreement, ("a",), e.disagreement), "one row and column"),
        (lambda e: plot_bars(torch.rand(1, 3), torch.rand(1, 1, 3), ("a",), ("b",)), "3 features"),
        (lambda e: plot_series(torch.rand(1, 2, 9), torch.rand(1, 2, 8)), "values must be"),
        (lambda e: plot_top(e.attribution, e.maps, e.methods, torch.zeros(3, 1, 1, 2, 2), ["1"]),
         "masks must be"),
        (lambda e: plot_top(e.attribution, e.maps, e.methods, e.member_top_masks([2]), ["2"],
                            labels=["a"]), "3 inputs to name; got 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_said(call, message):
    with pytest.raises(InputError, match=message):
        call(explain_images())


def test_an_unknown_suffix_names_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"'\.nope'; choose one of: .*\.png"):
        explain_table().plot("gains", tmp_path / "x.nope")
    explain_table().plot("gains", tmp_path / "bare")
    assert [file.name for file in tmp_path.iterdir()] == ["bare.png"]


def test_a_label_of_1000_letters_takes_no_longer_than_others(monkeypatch):
    calls = []
    monkeypatch.setattr(panels, "measure", lambda *a: calls.append(a) or measure(*a))
    for text in ("a" * 1000, "ab " * 333):
        rows = wrap(text, 1.0).split("\n")
        assert len(rows) == 3
        assert all(measure(row) <= 1.0 for row in rows)
    assert len(calls) < 200


@pytest.mark.parametrize(("view", "shape"), [("bars", (2, 4, 5)), ("lines", (2, 3, 4, 5))])
def test_a_kind_of_ones_own_with_channels_is_drawn(view, shape, tmp_path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape[1:]), 3))
    kind = Kind("spots", len(shape), channels=1, view=view)
    sea = SEA(model, ("saliency", "input_x_gradient"), SEAConfig(epochs=2))
    explanation = sea.explain(torch.rand(shape), about=About(kind=kind))
    explanation.plot("strip", tmp_path / "strip.png")
    assert (tmp_path / "strip.png").stat().st_size > 1000


def test_curve_draws_points_lines_and_bands_readably():
    e = explain_in_budget()
    figure = e.plot("curve")
    assert_readable(figure)
    left = figure.axes[0].get_lines()[0]
    assert np.allclose(left.get_xdata(), e.curve.counts)
    assert np.allclose(left.get_ydata(), e.curve.left[0])
    with pytest.raises(InputError, match="no curve without a budget"):
        explain_images().plot("curve")


def test_colour_bar_of_one_input_says_what_the_mean_is():
    e = explain_in_budget()
    mean = float(e.gains[0].clamp(min=0).sum()) / 64
    words = [t.get_text().replace("\n", " ") for t, _ in texts(e[0].plot("strip"))]
    assert any(f"1× is {mean:.2g} a cell" in text for text in words)
    assert not any("1× is" in t.get_text() for t, _ in texts(e.plot("strip")))


@pytest.mark.parametrize("kind", ["strip", "top", "gains", "agreement", "curve"])
def test_volumes_are_drawn(kind):
    conv = nn.Conv3d(1, 4, 3, padding=1)
    model = build(6, conv, nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(32, 3))
    x = torch.rand(1, 1, 8, 10, 8, generator=torch.Generator().manual_seed(0)) * 3
    e = SEA(model, ("saliency",), budget=40).explain(x)
    assert e.images.shape == (1, 8, 10, 8, 3)
    assert_readable(e.plot(kind))


def test_evidence_against_a_class_is_drawn_to_the_left():
    sea, contra = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 2.0]])
    figure = plot_bars(sea, sea[:, None], ["m"], ["a", "b", "c"], against=contra)
    assert_readable(figure)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert np.allclose(widths, [0.75, 0.0, 0.25, 0.0, -0.5, 0.0])  # the strongest first


@pytest.mark.parametrize("unit", ["", "value"])
def test_gains_below_zero_are_drawn_and_taken_off_the_sum(unit):
    gains = torch.tensor([[3.0, 1.0, -2.0], [0.0, -1.0, -3.0]])
    figure = plot_gains(gains, ["a", "b"], unit=unit)
    assert_readable(figure)
    left, right = figure.axes
    drawn = [line.get_ydata().tolist() for line in left.lines if len(line.get_ydata())]
    assert drawn == [[3.0, 1.0], [2.0], [1.0, 3.0]]
    sums = [line.get_ydata() for line in right.lines[:2]]
    wanted = [[3.0, 4.0, 2.0], [0.0, -1.0, -4.0]]
    assert np.allclose(sums, wanted if unit else np.array(wanted) / 4)
    assert right.get_ylim()[0] <= (-4 if unit else -1)


def test_bars_in_a_unit_show_what_is_against_though_nothing_is_for():
    sea, contra = torch.zeros(1, 30), torch.zeros(1, 30)
    contra[0, 29] = 5.0
    figure = plot_bars(sea, torch.rand(1, 1, 30), ["m"], against=contra, unit="value")
    assert_readable(figure)
    assert min(bar.get_width() for bar in figure.axes[0].patches) == -5

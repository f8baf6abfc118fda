"""Figures: every kind of every input is readable, and shows what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

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
from sea_nn.features import Kind
from sea_nn.show import panels
from sea_nn.show.panels import LIMIT, SIZE, SMALLEST, blend, heat, measure, paint, panel_grid, wrap
from sea_nn.show.plots import plot_class_map
from tests.helpers.samples import (
    explain_images,
    explain_in_budget,
    explain_line,
    explain_series,
    explain_table,
    explain_volume,
)

KINDS = ("strip", "overlay", "gains", "agreement")
SAMPLES = [
    ("top", explain_images),
    *product(KINDS, (explain_images, explain_table, explain_series)),
    *product(("strip", "gains", "agreement", "curve"), (explain_volume,)),
]
LONG = "a very long name of a class, such as black-and-tan coonhound $x_1$ & $y"
MANY = (
    *("saliency", "integrated_gradients", "occlusion", "smooth_ig", "smoothgrad", "deeplift"),
    *("input_x_gradient", "guided_backprop", "deconvolution", "grad_cam", "lime", "kernel_shap"),
)


def texts(figure):
    """All visible texts with the box each takes, in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Axes keep spare ticks that they do not draw: leave out the labels of those.
    spare, drawn = set(), set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [*axis.majorTicks, *axis.minorTicks]
            spare |= {id(label) for t in ticks for label in (t.label1, t.label2)}
            if axes.axison:
                ticks = axis._update_ticks()
                drawn |= {id(label) for t in ticks for label in (t.label1, t.label2)}
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    found = [t for t in found if id(t) in drawn or id(t) not in spare]
    return [(t, t.get_window_extent(renderer)) for t in found]


def read(figure):
    """The figure's texts, each in one line."""
    return [" ".join(t.get_text().split("\n")) for t, _ in texts(figure)]


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


def pictures(figure):
    """What each panel shows, in their order."""
    return [np.asarray(a.get_images()[0].get_array()) for a in figure.axes if a.get_images()]


@pytest.mark.parametrize(("kind", "sample"), SAMPLES)
def test_long_names_and_many_members_are_readable_in_every_kind(kind, sample, tmp_path):
    e = sample()[:2]
    if sample is explain_images:
        names = tuple(f"a_rather_long_method_name_{k}" for k in range(8))
        e = replace(e, maps=e.maps[:, [k % 3 for k in range(8)]], methods=names)
    elif e.feature_names is not None:
        e = replace(e, feature_names=[f"{LONG} {k}" for k in range(len(e.feature_names))])
    path = tmp_path / "new" / "figure.png"
    figure = replace(e, labels=(LONG, "x")[: len(e)]).plot(kind, path=path)
    with Image.open(path) as picture:
        assert picture.width == pytest.approx(figure.get_size_inches()[0] * 200, abs=1)
        assert picture.width <= 1801
        assert np.asarray(picture.convert("L")).std() > 5
    assert_readable(figure)


def test_many_members_stand_beside_each_other():
    e = explain_images()
    maps = e.maps[:, [k % 3 for k in range(len(MANY))]]
    figure = replace(e, maps=maps, methods=MANY)[:2].plot("strip")
    assert_readable(figure)
    titles = ["input", "SEA", *(name.replace("_", " ") for name in MANY), "Agg-Mean"]
    assert set(titles) <= set(read(figure))
    assert figure.get_size_inches()[0] <= 9


def test_titles_shrink_before_a_word_is_broken():
    titles = ["input", "SEA", *(name.replace("_", " ") for name in MANY[:10]), "x" * 60]
    figure, _ = panel_grid([[np.zeros((9, 9))] * len(titles)], titles, ["a row"])
    assert_readable(figure)
    written = {t.get_text().replace("\n", " "): t.get_fontsize() for t, _ in texts(figure)}
    assert set(titles[:-1]) <= set(written)
    (size,) = {written[title] for title in titles[:-1]}
    assert SMALLEST <= size < SIZE


@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_wide_and_tall_images_keep_their_shape(shape):
    figure = explain_images(2, *shape, (4, 4)).plot("strip")
    assert_readable(figure)
    panel = figure.axes[0].get_window_extent()
    assert panel.height / panel.width == pytest.approx(shape[0] / shape[1], rel=0.02)


def test_strip_shows_input_sea_members_and_mean_in_this_order():
    e = explain_images()
    figure = e.plot("strip")
    shown = pictures(figure)
    layers = torch.cat([e.attribution, e.maps, e.mean_map.unsqueeze(1)], 1)
    assert np.array_equal(shown[0], e.images[0].numpy())
    for picture, layer in zip(shown[1:6], heat(layers, 2)[0], strict=True):
        assert np.allclose(picture, paint(layer))
    wanted = ["input", "SEA", "saliency", "occlusion", "Agg-Mean"]
    titles = sorted((box.x0, t.get_text()) for t, box in texts(figure) if t.get_text() in wanted)
    assert [title for _, title in titles] == wanted
    overlay = pictures(e.plot("overlay"))
    assert np.allclose(overlay[1], blend(e.images[0].numpy(), heat(layers, 2)[0, 0]))


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


def test_top_lights_the_first_features_of_each_map_and_says_which_rows_are_whose():
    e = explain_images(3)[:2]
    e = replace(e, maps=e.maps.index_fill(1, torch.tensor(1), 0))  # a map without a top
    figure = e.plot("top", p=[2])
    assert_readable(figure)
    assert "2 of 64 (3.1\u00a0%)" in read(figure)
    lit = [torch.tensor(panel.max(-1) > 0.45) for panel in pictures(figure)[1::2]]
    means = e.average(torch.cat([e.maps, e.mean_map.unsqueeze(1)], 1))
    for i, (own, *others) in enumerate((lit[:5], lit[5:])):
        assert torch.equal(own, e.top_mask(2)[i])
        assert not others[1].any()
        for r in (0, 2, 3):
            cells = set(means[i, r].topk(2).indices.tolist())
            assert set(e.features[0][others[r]].tolist()) == cells
    name = f"{e.name(0)} {e.write_score(0)}"
    assert f"{name}: SEA" in read(figure)
    assert name not in read(e[:1].plot("top", p=[2]))


@pytest.mark.parametrize(("width", "lines"), [(0.5, 2), (1.0, 1), (3.0, 3), (0.05, 2)])
def test_wrapped_lines_fit_and_long_labels_take_no_longer(monkeypatch, width, lines):
    calls = []
    monkeypatch.setattr(panels, "measure", lambda *a: calls.append(a) or measure(*a))
    for text in (LONG, "a" * 1000, "ab " * 333):
        wrapped = wrap(text, width, lines=lines).split("\n")
        assert len(wrapped) <= lines
        assert all(len(line) <= 2 or measure(line, SIZE) <= width for line in wrapped)
    assert len(calls) < 800
    assert wrap("half of 10.0\u00a0%", measure("half of 10.0"), lines=2) == "half of\n10.0\u00a0%"


@pytest.mark.parametrize("steps", [1, 2, 18, 40])
def test_time_steps_are_whole_numbers(steps):
    figure = replace(explain_series(1, 1, steps), values=None).plot()
    assert_readable(figure)  # without values too
    ticks = figure.axes[0].get_xticks()
    assert len(ticks)
    assert (ticks == ticks.round()).all()


def with_gains(gains, **others):
    """A table's explanation with these gains [N, n]."""
    e = explain_table(len(gains), len(gains[0]))
    gains = torch.tensor(gains)
    maps = torch.zeros_like(e.attribution).scatter(1, e.order, gains.clamp(min=0))
    return replace(e, gains=gains, attribution=maps, **others)


@pytest.mark.parametrize(
    "gains", [[[3.0, 1.0, 0.0, 0.0]], [[2.0, 0.0]], [[0.0] * 5], [[1.0] * 30] * 12]
)
def test_gains_survive_zeros_and_many_inputs(gains):
    assert_readable(with_gains(gains, labels=[LONG] * len(gains)).plot("gains"))


def test_gains_below_zero_are_drawn():
    e = explain_line(3.0, 1.0, -2.0)
    figure = e.plot("gains")
    assert_readable(figure)
    (axes,) = figure.axes
    assert np.allclose(axes.lines[0].get_ydata(), e.gains[0])
    assert axes.get_ylim()[0] < float(e.gains.min())


def test_agreement_prints_numbers_and_a_dash_for_constant_maps():
    e = explain_images(1)
    maps = e.maps.index_fill(1, torch.tensor(1), 0.5)
    written = read(replace(e, maps=maps).plot("agreement"))
    assert {"1.00", "–", f"{float(e.agreement_with_sea[0, 0, 1]):.2f}"} <= set(written)


def test_bars_say_what_they_leave_out():
    e = explain_table(1, 50)
    assert any("the other 30 features hold" in text for text in read(e.plot()))


def test_evidence_against_a_class_is_drawn_to_the_left():
    e = explain_line(3.0, 1.0, -2.0)
    figure = e.plot()
    assert_readable(figure)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    own, against = e.attribution[0], e.against[0]
    assert np.allclose(widths, [own[0], 0, own[1], 0, -against[2], 0], atol=0.1)
    whiskers = figure.axes[0].collections[0].get_segments()
    expected = e.gain_intervals[0, e.order[0].argsort()]
    assert np.allclose([line[:, 0] for line in whiskers], expected[[0, 2, 1]], atol=0.1)
    against_alone = explain_line(*[0.0] * 29, -5.0).plot()
    assert_readable(against_alone)
    assert min(bar.get_width() for bar in against_alone.axes[0].patches) < -1


def test_class_map_lies_over_examples(tmp_path):
    e = explain_images(3)
    figure = plot_class_map(e.attribution[0], e.images, LONG, tmp_path / "c.pdf", examples=2)
    assert_readable(figure)
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    figure.write(tmp_path / "bare")
    assert (tmp_path / "bare.png").is_file()
    wanted = blend(e.images[0].numpy(), heat(e.attribution[0, 0], 0))
    assert np.allclose(pictures(figure)[1], wanted)


def test_figures_show_themselves_in_notebooks_and_leave_pyplot_alone():
    figures, settings = dict(Gcf.figs), dict(rcParams)
    for kind in KINDS:
        assert explain_table().plot(kind)._repr_png_().startswith(b"\x89PNG")
    assert dict(Gcf.figs) == figures
    assert dict(rcParams) == settings


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.plot("pie"), "choose one of: strip, overlay"),
        (lambda e: replace(e, images=None).plot("overlay"), "needs images"),
        (lambda e: explain_table().plot("top"), "plot the strip, or e.top"),
        (lambda e: e.plot("curve"), "no curve without a budget"),
        (lambda e: e.plot("strip", "x.nope"), "'nope' is not supported .*png"),
    ],
)
def test_what_cannot_be_drawn_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call(explain_images())


@pytest.mark.parametrize(("view", "shape"), [("bars", (2, 4, 5)), ("lines", (2, 3, 4, 5))])
def test_a_kind_of_ones_own_with_channels_is_drawn(view, shape):
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape[1:]), 3))
    kind = Kind("spots", len(shape), channels=1, view=view)
    sea = SEA(model, ("saliency", "input_x_gradient"), SEAConfig(epochs=2))
    assert_readable(sea.explain(torch.rand(shape), about=About(kind=kind)).plot("strip"))


def test_curve_draws_points_lines_and_bands_readably():
    e = explain_in_budget()
    figure = e.plot("curve")
    assert_readable(figure)
    left = figure.axes[0].get_lines()[0]
    assert np.allclose(left.get_xdata(), e.curve.counts)
    assert np.allclose(left.get_ydata(), e.curve.left[0])


def test_colour_bar_of_one_input_says_what_the_mean_is():
    e = explain_in_budget()
    mean = float(e.gains[0].clamp(min=0).sum()) / 64
    assert any(f"1× is {mean:.2g} a cell" in text for text in read(e[0].plot("strip")))
    assert not any("1× is" in text for text in read(e.plot("strip")))

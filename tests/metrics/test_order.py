"""The functions without a model against plain loops; every metric equals its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sea_nn.errors import InputError, KindError
from sea_nn.metrics import (
    METRICS,
    PERTURBATIONS,
    Scores,
    bootstrap_difference,
    bootstrap_mean,
    get_metric,
    score_maps,
)
from sea_nn.metrics.catalogue import simpson
from sea_nn.metrics.positions import (
    SHARES,
    count_top,
    gini,
    jaccard,
    pixel_steps,
    pointing_game,
    rank_accuracy,
    rank_positions,
    relevance_mass,
    top_sets,
    window_steps,
)
from sea_nn.questions.absent import prepare
from tests.helpers.scoring import draw, small_model
from tests.reference import metrics as slow


def draw_maps(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_ties_go_in_a_random_order_shared_by_methods_and_fixed_by_the_seed():
    maps = torch.ones(200, 2, 6)
    maps[:, 1] = 5.0
    place = rank_positions(maps, seed=1)
    assert torch.equal(place[:, 0], place[:, 1])
    assert torch.equal(place, rank_positions(maps, seed=1))
    assert torch.equal(place[150:], rank_positions(maps[150:], seed=1, first=150))
    assert not torch.equal(place, rank_positions(maps, seed=2))
    first = torch.bincount((place[:, 0] == 0).long().argmax(1), minlength=6)
    assert first.min() > 15  # 33 expected at every index; by index it would be 200 at the first
    for seed in range(10):
        some = rank_positions(torch.tensor([[[0.5, 0.9, 0.5, 0.1, 0.5]]]), seed=seed)[0, 0]
        assert (some[1], some[3]) == (0, 4)


@given(n=st.integers(1, 40), steps=st.integers(1, 40))
def test_equal_steps_hide_a_share_of_all_positions_each(n, steps):
    maps = draw_maps(1, 2, n)
    step_maps = pixel_steps(maps, steps)
    for step in range(steps + 1):
        assert ((step_maps <= step).sum(-1) == step * n // steps).all()
    assert torch.equal(step_maps.long().argsort(), step_maps.argsort())


@pytest.mark.parametrize("edge", [True, False])
@pytest.mark.parametrize(("shape", "size"), [((28, 28), 8), ((9, 14), 3), ((5, 5), 4)])
def test_windows_equal_the_greedy_loop(shape, size, edge):
    (maps,) = draw_maps(1, 6, *shape)
    (steps,), (found,) = window_steps(maps[None], size, 7, edge=edge)
    for one, own, count in zip(maps, steps, found.tolist(), strict=True):
        expected = torch.full(shape, 8, dtype=torch.int16)
        corners = slow.windows(one, size, 7, edge)
        for step, (row, column) in enumerate(corners, 1):
            expected[row : row + size, column : column + size] = step
        assert torch.equal(own, expected)
        assert count == len(corners)


def test_top_sets_hold_the_k_largest_and_refuse_more_than_there_are():
    maps = draw_maps(2, 2, 30)
    assert torch.equal(top_sets(maps, 7), maps >= maps.topk(7).values[..., -1:])
    assert count_top(0.5, 30) == 15
    for k in (31, 0, 1.5):
        with pytest.raises(InputError, match="of the 30 positions"):
            count_top(k, 30)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_simpsons_areas_equal_the_plain_sums_and_can_stop_early(points):
    counts = range(2, len(points) + 1)
    curves = torch.tensor([points], dtype=torch.float64).expand(len(counts), -1)
    expected = [slow.simpson(points[:count]) for count in counts]
    assert simpson(curves, torch.tensor(counts)).tolist() == pytest.approx(expected, abs=1e-9)
    assert simpson(curves[:1], torch.tensor([1])).tolist() == [0]


def test_gini_of_nothing_of_one_position_and_of_an_even_map():
    maps = torch.stack([torch.zeros(10), torch.eye(10)[3] * 2, torch.ones(10)])[:, None]
    expected = torch.tensor([[torch.nan], [0.9], [0.0]])
    torch.testing.assert_close(gini(maps), expected, equal_nan=True)


def test_tied_maxima_count_by_their_share_inside_and_an_empty_mask_gives_nan():
    masks = torch.tensor([[True, False, False, False]])
    assert float(pointing_game(torch.ones(1, 1, 4), masks)) == 0.25
    for score in (relevance_mass, rank_accuracy, pointing_game, jaccard):
        assert score(torch.ones(1, 1, 4), masks & False).isnan().all()


def test_masks_must_be_binary_and_fit():
    maps = draw_maps(2, 1, 4, 4)
    with pytest.raises(KindError, match="only 0 and 1"):
        relevance_mass(maps, draw_maps(2, 4, 4))
    with pytest.raises(InputError, match=r"expected \[2, 4, 4\], got \[2, 4, 5\]"):
        pointing_game(maps, torch.ones(2, 4, 5, dtype=torch.bool))
    with pytest.raises(InputError, match="not negative"):
        gini(maps - 0.5)
    whole = torch.ones(2, 4, 4)
    assert relevance_mass(maps, whole).allclose(torch.ones(2, 1))


def test_jaccard_takes_a_mask_whole_and_never_positions_nobody_marked():
    maps = torch.tensor([[[4.0, 3.0, 2.0, 1.0]]])
    mask = torch.tensor([[True, True, False, False]])
    for dtype in (torch.bool, torch.float32, torch.uint8):
        assert jaccard(maps, mask.to(dtype), [1, 2, 4])[0, 0].tolist() == [0.5, 1.0, 0.5]
    graded = torch.tensor([[0.9, 0.2, 0.0, 0.0]])
    assert jaccard(maps, graded, [1, 2, 4])[0, 0].tolist() == [1.0, 1.0, 0.5]
    with pytest.raises(InputError, match="of the 4 positions"):
        jaccard(maps, mask, [5])


def test_bootstrap_interval_is_that_of_a_plain_resampling_loop():
    scores = draw_maps(40, 3).double()
    estimate = bootstrap_mean(scores, resamples=4000, seed=3)
    generator = np.random.default_rng(0)
    means = [
        scores[torch.from_numpy(generator.integers(40, size=40))].mean(0).numpy()
        for _ in range(4000)
    ]
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    torch.testing.assert_close(estimate.mean, scores.mean(0))
    np.testing.assert_allclose(estimate.low, low, atol=0.008)
    np.testing.assert_allclose(estimate.high, high, atol=0.008)


def test_paired_differences_cancel_what_inputs_have_in_common():
    hard = draw_maps(50, 1) * 10
    scores = torch.cat([hard, hard + 0.1], 1)
    mean = bootstrap_mean(scores)
    assert mean.low[1] < mean.high[0]  # the intervals of the means overlap
    apart = bootstrap_difference(scores, 0)
    assert apart.low[1] == pytest.approx(0.1, abs=1e-5)
    assert apart.high[1] == pytest.approx(0.1, abs=1e-5)
    assert apart.mean[0] == 0


def test_bootstrap_leaves_undefined_inputs_out_for_all_methods():
    scores = torch.tensor([[1.0, 2.0], [torch.nan, 9.0], [3.0, 4.0]])
    estimate = bootstrap_mean(scores)
    assert estimate.n_inputs == 2
    assert estimate.mean.tolist() == [2.0, 3.0]
    assert bootstrap_mean(scores[1:2]).mean.isnan().all()
    assert torch.equal(bootstrap_mean(scores, seed=4).low, bootstrap_mean(scores, seed=4).low)
    with pytest.raises(InputError, match="resamples"):
        bootstrap_mean(scores, resamples=0)
    with pytest.raises(InputError, match="0 to 1"):
        bootstrap_difference(scores, 2)


def test_what_differs_by_rounding_is_equal_and_the_first_of_equals_is_best():
    first = draw_maps(20, 1).double()
    values = torch.cat([first, first * (1 + 1e-14), first * 1.001], 1)
    apart = bootstrap_difference(values, 0)
    assert apart.low[1] == apart.high[1] == 0
    assert apart.low[2] > 0
    scores = Scores(("a", "b", "c"), {"gini": get_metric("gini")}, {"gini": values})
    assert [scores.best("gini"), scores.best("gini", without=["c"])] == ["c", "a"]


def test_windows_that_tie_go_in_the_order_of_positions_that_tie():
    maps, size = torch.ones(5, 1, 9, 9), 3
    steps, _ = window_steps(maps, size, 1, seed=4, first=2)
    columns = 9 - size + 1
    best = rank_positions(torch.ones(5, 1, columns**2), seed=4, first=2).argmin(-1).squeeze(1)
    for one, corner in zip(steps[:, 0], best.tolist(), strict=True):
        row, column = divmod(corner, columns)
        assert (one[row : row + size, column : column + size] == 1).all()


class Given(NamedTuple):
    """What a reference may need: a model, an input with its map, masks."""

    model: nn.Module
    image: Tensor
    target: int
    fill: Callable[[Any], Tensor]
    heatmap: Tensor
    mask: Tensor

    @property
    def order(self) -> list[int]:
        return slow.order_of(self.heatmap)

    @property
    def values(self) -> list[float]:
        return self.heatmap.flatten().tolist()

    @property
    def inside(self) -> set[int]:
        return set(self.mask.flatten().nonzero().flatten().tolist())


def area(points: list[float]) -> tuple[float, list[float]]:
    return slow.trapezoid(points, 1 / (len(points) - 1)), points


def by_pixels(insert: bool, steps: int):
    return lambda g: area(slow.curve(*g[:4], g.order, steps, insert))


def by_windows(g: Given) -> float:
    curve = slow.window_curve(*g[:5], 4, 7, True, "probability")
    return slow.trapezoid(curve + curve[-1:] * (8 - len(curve)))  # what does not fit hides nothing


def by_authors(g: Given) -> float:
    curve = slow.window_curve(*g[:5], 4, 7, False, "logit")
    return slow.simpson([point / abs(curve[0]) for point in curve])


def by_overlap(g: Given) -> tuple[float, list[float]]:
    curve = [slow.jaccard(set(g.order[: max(1, round(144 * k))]), g.inside) for k in SHARES]
    return sum(curve) / len(curve), curve


VERBS = (("deletion", False), ("insertion", True))
CASES: dict[str, tuple[str, Callable[[Given], Any]]] = {
    **{
        f"{verb}:{kind}": (kind, by_pixels(insert, 28))
        for kind in PERTURBATIONS
        for verb, insert in VERBS
    },
    "aupc_pixels:mean": ("mean", lambda g: 28 * by_pixels(False, 28)(g)[0]),
    **{f"aupc_windows:{kind}": (kind, by_windows) for kind in ("black", "noise")},
    **{f"aupc_authors:{kind}": (kind, by_authors) for kind in ("black", "noise")},
    "jaccard": ("mean", by_overlap),
    "relevance_mass": ("mean", lambda g: slow.mass(g.values, g.inside)),
    "rank_accuracy": (
        "mean",
        lambda g: len(set(g.order[: len(g.inside)]) & g.inside) / len(g.inside),
    ),
    "pointing_game": ("mean", lambda g: float(g.order[0] in g.inside)),
    "gini": ("mean", lambda g: slow.gini(g.values)),
}


@pytest.fixture(scope="module")
def case():
    """A model, three colour images, two methods' maps without ties; the scores of all metrics."""
    model, x = small_model(5), draw(3, 3, 12, 12)
    maps = {name: draw(3, 12, 12, seed=k) ** 3 for k, name in enumerate("ab", 1)}
    masks = draw(3, 12, 12, seed=4) > 0.7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sea_nn.metrics.catalogue.SMALL_SIDE", 4)
        scores = score_maps(model, x, None, maps, list(CASES), random=False, masks=masks)
    return model, x, maps, masks, scores


@pytest.mark.parametrize("name", CASES)
def test_a_metric_equals_its_plain_loop(case, name):
    model, x, maps, masks, scores = case
    kind, reference = CASES[name]
    perturbation = prepare(x, kind)
    for i, j in ((i, j) for i in range(3) for j in range(2)):
        label = list(maps)[j]

        def fill(hidden, i=i):
            flat = torch.zeros(1, 144, dtype=torch.bool)
            flat[0, list(hidden)] = True
            return perturbation.hide(flat.view(1, 1, 12, 12), torch.tensor([i]))[0]

        expected = reference(
            Given(
                *(model, x[i], int(model(x[i : i + 1]).argmax()), fill, maps[label][i]),
                masks[i],
            )
        )
        if isinstance(expected, tuple):
            expected, curve = expected
            assert scores.curves[name][i, j].tolist() == pytest.approx(curve, abs=1e-5)
        assert float(scores.values[name][i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_every_metric_is_compared_on_inputs_that_tell_results_apart(case):
    *_, scores = case
    assert {name.partition(":")[0] for name in CASES} == set(METRICS)
    assert all(len(values.unique()) > 1 for values in scores.values.values())
    assert "fewer than 7 windows" in str(scores.notes["aupc_authors:black"])

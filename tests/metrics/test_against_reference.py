"""Every metric equals its plain loop over one input, map and step at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from sea_nn.metrics import METRICS, PERTURBATIONS, score_maps
from sea_nn.metrics.positions import SHARES
from sea_nn.questions.absent import prepare
from tests.helpers.scoring import draw, small_model
from tests.reference import metrics as slow


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


def jaccard(g: Given) -> tuple[float, list[float]]:
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
    "jaccard": ("mean", jaccard),
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

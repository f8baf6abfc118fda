"""Every member that Captum has equals Captum's own class, called by hand with the same draws."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import captum.attr as captum
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso
from captum.attr._core.lime import get_exp_kernel_similarity_function
from torch import Tensor, nn

from sea_nn.features import Features
from sea_nn.members.registry import names
from sea_nn.members.run import compute_maps
from tests.helpers.by_hand import by_hand, pick, same

ALL = ("image", "series", "table")
IMAGE = ("image",)


class Case(NamedTuple):
    """A member with options; Captum's class with options; what to compare them on."""

    name: str
    options: dict[str, Any]
    build: Callable[[nn.Module], Any]
    theirs: dict[str, Any]
    kinds: tuple[str, ...] = ALL
    tolerance: float = 1e-6
    drawn: bool = False  # random: Captum gets the inputs one by one, with the draws of each
    finish: Callable[[Tensor, Tensor], Tensor] = lambda maps, x: maps


class Step(nn.Module):
    def forward(self, x):
        return x * 1


def space(model: nn.Sequential) -> captum.DeepLift:
    """Put a step between all layers: Captum reads a gradient too early where two rules meet.

    (It takes the gradient at a rectifier's output before the pooling after it has changed it; its
    maps then no longer add up to the difference of the scores.)
    """
    return captum.DeepLift(nn.Sequential(*(part for layer in model for part in (layer, Step()))))


def draw(n: int) -> Callable[[Tensor], Tensor]:
    """Baselines for whatever the input is."""
    seed = torch.Generator().manual_seed(n)
    return lambda x: torch.rand(n, *x.shape[1:], generator=seed.manual_seed(n), dtype=x.dtype)


def resize(maps: Tensor, x: Tensor) -> Tensor:
    return captum.LayerAttribution.interpolate(maps, x.shape[2:], "bilinear")


def cam(layer: int) -> Callable[[nn.Sequential], captum.LayerGradCam]:
    return lambda model: captum.LayerGradCam(model, model[layer])


def hide(kind: str, shape: tuple[int, ...], strides: tuple[int, ...], **options) -> Case:
    theirs = {"sliding_window_shapes": shape, "strides": strides, "baselines": 0.5}
    return Case("occlusion", {**options, "baselines": 0.5}, captum.Occlusion, theirs, (kind,))


def lime(model: nn.Module) -> captum.Lime:
    return captum.Lime(
        model,
        interpretable_model=SkLearnLasso(alpha=0.001, tol=1e-12, max_iter=100_000),
        similarity_func=get_exp_kernel_similarity_function("cosine", kernel_width=0.25),
    )


def smooth(attribution: type) -> Callable[[nn.Module], captum.NoiseTunnel]:
    return lambda model: captum.NoiseTunnel(attribution(model))


INDEX = torch.arange(16) // 4
GRID = {"feature_mask": (INDEX[:, None] * 4 + INDEX).view(1, 1, 16, 16)}
IG, FULL = captum.IntegratedGradients, {"relu_attributions": True}
CASES = [
    Case("saliency", {}, captum.Saliency, {"abs": False}, tolerance=1e-12),
    Case("input_x_gradient", {}, captum.InputXGradient, {}, tolerance=1e-12),
    *(
        Case("integrated_gradients", {"n_steps": 20, **base}, IG, {"n_steps": 20, **base})
        for base in ({}, {"baselines": 0.3}, {"baselines": draw(1)})
    ),
    Case(
        *("smooth_ig", {"n_samples": 4, "stdev": 0.5, "n_steps": 10, "baselines": 0.25}),
        *(smooth(IG), {"nt_samples": 4, "stdevs": 0.5, "n_steps": 10, "baselines": 0.25}),
        drawn=True,
    ),
    Case("smooth_ig", {"n_samples": 3, "stdev": 1.0}, smooth(IG), {"nt_samples": 3}, drawn=True),
    Case(
        *("smoothgrad", {"n_samples": 6, "stdev": 0.5}, smooth(captum.Saliency)),
        {"nt_samples": 6, "stdevs": 0.5, "abs": False},
        drawn=True,
    ),
    Case(
        *("gradient_shap", {"baselines": draw(1), "n_samples": 9, "stdev": 0.25}),
        *(captum.GradientShap, {"baselines": draw(1), "n_samples": 9, "stdevs": 0.25}),
        drawn=True,
    ),
    Case("guided_backprop", {}, captum.GuidedBackprop, {}, IMAGE, 1e-12),
    Case("deconvolution", {}, captum.Deconvolution, {}, IMAGE, 1e-12),
    Case("deeplift", {}, space, {}),
    Case("deeplift", {"baselines": draw(1)}, space, {"baselines": draw(1)}),
    Case("grad_cam", {}, cam(3), FULL, IMAGE, 1e-12, finish=resize),
    Case("grad_cam", {"layer": "1"}, cam(1), FULL, IMAGE, 1e-12),
    Case(
        *("grad_cam", {}, cam(0), FULL, ("series",), 1e-12),
        finish=lambda maps, x: maps.expand_as(x),  # the same in every channel
    ),
    Case(
        *("guided_grad_cam", {}, lambda model: captum.GuidedGradCam(model, model[3])),
        *({"interpolate_mode": "bilinear"}, IMAGE, 1e-12),
    ),
    *(
        hide("image", (3, size, size), (3, step, step), window=size, stride=step)
        for size, step in ((4, 2), (5, 3), (16, 1))
    ),
    hide("series", (2, 3), (2, 2)),
    hide("table", (1,), (1,)),
    Case(
        *("lime", {"baselines": 0.1, "alpha": 0.001, "n_samples": 60, **GRID}, lime),
        *({"baselines": 0.1, "n_samples": 60, **GRID}, IMAGE, 1e-4, True),
    ),
    Case(
        *("kernel_shap", {"n_samples": 80, **GRID}, captum.KernelShap, {"n_samples": 80, **GRID}),
        *(IMAGE, 1e-3, True),
    ),
]


@pytest.mark.parametrize(
    ("case", "kind"),
    [pytest.param(c, k, id=f"{i}-{c.name}-{k}") for i, c in enumerate(CASES) for k in c.kinds],
)
def test_a_member_equals_captum_in_one_pass_or_many(case, kind):
    model, x, target = pick(kind)
    mine, theirs = (
        {name: value(x) if callable(value) else value for name, value in options.items()}
        for options in (case.options, case.theirs)
    )
    expected = by_hand(case.build(copy.deepcopy(model)), x, target, case.drawn, 3, **theirs)
    expected = case.finish(expected.to(x.dtype), x)
    features = Features.of(x, feature_mask=mine.pop("feature_mask", None))
    for limit in (None, 7):
        found = compute_maps(
            *(model, x, target, [(case.name, mine)]),
            seed=3,
            features=features,
            limit=limit,
        )
        assert same(found.maps[case.name], expected, case.tolerance)


def test_every_member_that_captum_has_is_compared():
    own = {"rise", "presence_gradient", "attention_rollout", "attention_gradient", "attention_lrp"}
    assert set(names()) - {case.name for case in CASES} == own

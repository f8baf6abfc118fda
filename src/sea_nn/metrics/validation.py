"""Check a call before any time is spent on it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import Kind, find_kind
from sea_nn.features.kinds import UNKNOWN
from sea_nn.metrics.catalogue import get_metric
from sea_nn.metrics.metric import Metric
from sea_nn.metrics.sensitivity import Recompute, drop_channel

IMAGE_METRICS = ("aupc_windows:black", "aupc_windows:noise", "deletion:blur", "insertion:blur")
OTHER_METRICS = ("deletion:mean", "insertion:mean")


def check_kind(x: Tensor, kind: Kind | None) -> Kind:
    """Return the kind of the inputs, or say why they have none."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise KindError(f"x must be a floating-point tensor [N, ...]; got {got}")
    kind = find_kind(x) if kind is None else kind
    if kind.name == UNKNOWN or x.numel() == 0:
        raise InputError(
            f"x must be [N, F], [N, C, T], [N, C, H, W] or [N, C, D, H, W] with N >= 1; got "
            f"{list(x.shape)}"
        )
    return kind


def choose_metrics(metrics: Sequence[str | Metric] | None, kind: Kind) -> list[Metric]:
    """Return the metrics asked for, each once, or those that suit the kind of input."""
    if isinstance(metrics, str | Metric):
        metrics = (metrics,)
    if metrics is None:
        metrics = IMAGE_METRICS if kind.view == "picture" else OTHER_METRICS
    chosen: dict[str, Metric] = {}
    for given in metrics:
        metric = get_metric(given)
        if isinstance(given, Metric) and chosen.get(metric.name, metric) is not metric:
            raise InputError(
                f"two metrics are called {metric.name!r}: give one another name, with "
                "dataclasses.replace(metric, name=...)"
            )
        chosen[metric.name] = metric
    if not chosen:
        raise InputError("metrics must name at least one metric")
    return list(chosen.values())


def check_maps(
    x: Tensor, maps: Mapping[str, Tensor], random: bool, allow_zero: bool, kind: Kind
) -> dict[str, Tensor]:
    """Return the maps as floats [N, *positions], or say what is wrong with them."""
    if not isinstance(maps, Mapping):
        raise KindError(
            f"maps must be a dict from method to maps [N, *positions]; got {type(maps).__name__}"
        )
    if not maps and not random:
        raise InputError("maps must hold at least one method's maps")
    expected = (len(x), *kind.map_shape(x))
    checked: dict[str, Tensor] = {}
    for name, values in maps.items():
        if not isinstance(values, Tensor) or values.is_complex() or values.is_meta:
            raise KindError(f"the maps of {name!r} must be a real tensor that holds numbers")
        one = drop_channel(values.detach(), len(expected))
        if one.shape != expected:
            raise InputError(
                f"the maps of {name!r} are {list(values.shape)}, and x is {list(x.shape)}: "
                f"expected maps {list(expected)}. Sum channels with "
                "sea_nn.paper.heatmaps.reduce_channels, bring "
                "coarse maps to the input's size with sea_nn.paper.heatmaps.upsample"
            )
        checked[name] = one.to(torch.promote_types(one.dtype, torch.float32))
    for name, (finite, zeros) in zip(checked, _inspect(checked), strict=True):
        if not finite:
            raise InputError(f"the maps of {name!r} hold nan or infinite values")
        if zeros and not allow_zero:
            rows = (checked[name] == 0).flatten(1).all(1).nonzero()
            raise InputError(
                f"the map of {name!r} is zero everywhere on {len(rows)} of {len(x)} inputs (first: "
                f"input {int(rows[0])}), so it ranks nothing. Leave these inputs or this method "
                "out, or pass allow_zero=True to rank such maps at random"
            )
    return checked


def _inspect(maps: Mapping[str, Tensor]) -> list[list[bool]]:
    """For each method, whether its maps are finite, and whether one is zero; asked for at once."""
    if not maps:
        return []
    found = [
        torch.stack([one.isfinite().all(), (one.flatten(1) == 0).all(1).any()])
        for one in maps.values()
    ]
    # Maps may lie on different devices.
    answers: list[list[bool]] = torch.stack([one.to(found[0].device) for one in found]).tolist()
    return answers


def check_needs(
    metrics: Sequence[Metric],
    x: Tensor,
    kind: Kind,
    model: Any,
    masks: Tensor | None,
    recompute: Recompute | None,
    without: Mapping[str, Tensor] | None,
) -> None:
    """Refuse metrics that lack something, before any of them is computed."""
    given = {
        "model": (model is not None, "a model: pass it as the first argument"),
        "masks": (masks is not None, "masks: pass masks=, bool [N, *positions]"),
        "recompute": (recompute is not None, "recompute=, a function from inputs to maps"),
        "without": (without is not None, "without=, maps of the inputs without the object"),
        "image": (kind.view == "picture", f"images [N, C, H, W], and x is {list(x.shape)}"),
    }
    for need, (there, what) in given.items():
        lacking = [metric.name for metric in metrics if need in metric.needs]
        if lacking and not there:
            raise InputError(f"{', '.join(lacking)} cannot be scored without {what}")


def match_masks(masks: Tensor | None, x: Tensor, kind: Kind) -> Tensor | None:
    """Return the masks as [N, *positions]."""
    if masks is None:
        return None
    expected = (len(x), *kind.map_shape(x))
    one = drop_channel(masks, len(expected))
    if one.shape != expected:
        raise InputError(f"masks must be {list(expected)}, as x has it; got {list(masks.shape)}")
    return one


def check_without(
    without: Mapping[str, Tensor], maps: Mapping[str, Tensor], x: Tensor, kind: Kind
) -> dict[str, Tensor]:
    """Return the maps of the inputs without the object, for the same methods."""
    missing = [name for name in maps if name not in without]
    if missing:
        raise InputError(f"without= has no maps for {', '.join(map(repr, missing))}")
    return check_maps(x, {name: without[name] for name in maps}, True, True, kind)

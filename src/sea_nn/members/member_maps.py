"""What the members of one call said: their maps, what they cost, and what the model answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sea_nn.features import KINDS, Kind
from sea_nn.model.outputs import Output
from sea_nn.paper.heatmaps import FLAT, to_heatmap


@dataclass(frozen=True)
class MemberMaps:
    """What the members said about N inputs.

    Attributes:
        maps: raw attributions by member, each of the input's shape or, of images by members
            without channels, [N, 1, H, W]. Signed where the member is.
        seconds: the time each member took.
        evaluations: the model evaluations each member made for all N inputs; one evaluation is one
            forward, or forward and backward, pass of one input. Shared work counts once.
        failed: why a member has no map and what to do, with `on_error="skip"`.
        target: the class explained, [N], or a pair (a and not b), [N, 2].
        outputs: the model's answers, [N, classes].
        output: what these answers are.
        options: the options that each member ran with, its defaults among them.
        missed: the share of f(x) - f(baseline) by which a map fails to add up to it, [N], for the
            members that should (DeepLIFT).
        kind: of the inputs; it says which axis of the maps is channels.
        given: the inputs and whatever else the maps depend on, beside the model and the target.
        reused: whether they are those of an earlier call, and cost this one nothing.
    """

    maps: dict[str, Tensor]
    seconds: dict[str, float]
    evaluations: dict[str, int]
    failed: dict[str, str]
    target: Tensor
    outputs: Tensor
    output: Output
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kind: Kind = KINDS["image"]
    missed: Mapping[str, Tensor] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    reused: bool = False

    def is_of(self, given: Mapping[str, Any], target: Tensor, outputs: Tensor) -> bool:
        """Whether these are the maps of this target, of all that is given, of such a model."""
        if not _alike((self.given, self.target), (given, target)):
            return False
        rounding = 1e-4 if given["autocast"] is None else 0.02
        return torch.allclose(outputs, self.outputs, rtol=rounding, atol=rounding)

    def duplicates(self, threshold: float = 0.9999) -> list[tuple[str, str, Tensor]]:
        """Return pairs of members whose maps point the same way, and for which inputs, bool [N].

        Such a pair has one vote too many: a method may fall back to another on some models.
        """
        flat = {
            name: torch.nn.functional.normalize(m.abs().flatten(1), dim=1)
            for name, m in self.maps.items()
        }
        found = [
            (a, b, (flat[a] * flat[b]).sum(1) >= threshold)
            for a, b in combinations(flat, 2)
            if flat[a].shape == flat[b].shape
        ]
        return [(a, b, same) for a, b, same in found if bool(same.any())]


def to_heatmaps(found: MemberMaps) -> Tensor:
    """Members' raw maps as heatmaps: |.|, channels summed, scaled to [0, 1]: [N, m, *shape]."""
    if not found.maps:
        x = found.given["x"]
        return torch.zeros(len(x), 0, *found.kind.map_shape(x), dtype=x.dtype, device=x.device)
    return torch.stack([to_heatmap(raw, found.kind.channels) for raw in found.maps.values()], 1)


def to_signed(found: MemberMaps) -> Tensor:
    """What members say of each position, evidence against below 0: [N, m, *shape].

    Channels are summed with their signs, and each map is divided by its largest magnitude. The maps
    of members that are the same everywhere are 0.
    """
    shape = found.kind.map_shape(found.given["x"])
    signed = [sum_channels(raw, found.kind.channels) for raw in found.maps.values()]
    if not signed:
        x = found.given["x"]
        return torch.zeros(len(x), 0, *shape, dtype=torch.float64, device=x.device)
    maps = torch.stack(signed, 1).double()
    low, high = maps.flatten(2).aminmax(dim=2)
    largest = torch.maximum(low.abs(), high.abs())
    flat = (high - low <= FLAT * largest) & (maps[0, 0].numel() > 1)
    factor = torch.where(flat | (largest == 0), 0.0, 1 / largest)
    return maps * factor.view(*factor.shape, *(1,) * len(shape))


def sum_channels(raw: Tensor, channels: int | None) -> Tensor:
    """Raw maps with their channels added up: [N, *shape]."""
    return raw if channels is None else raw.sum(channels)


def reduce_heat(signed: Tensor, weights: Tensor) -> Tensor:
    """ONE LINE TO SWAP: members' signed maps as the one heat >= 0 that the learner takes today.

    Where the learner takes [N, m, *shape] as it is, hand it ``to_signed(found)`` and delete this.
    """
    return torch.einsum("nm,nm...->n...", weights, signed.clamp(min=0).to(weights))


def _alike(a: Any, b: Any) -> bool:
    """Whether two values are the same, tensors and whatever holds them included."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_alike, a, b))
    return a is b or (not isinstance(a, Tensor) and type(a) is type(b) and bool(a == b))


def copy_tensors(value: Any) -> Any:
    """The same with tensors of its own, which nobody changes."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: copy_tensors(part) for key, part in value.items()}
    return type(value)(map(copy_tensors, value)) if type(value) in (tuple, list) else value

"""What an ``Explanation`` holds: one table of its tensors, and the parts that are none.

The table says of each tensor its shape, its type, and its type in a file. By it explanations are
checked, cut to some of their inputs, and written to files.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import KINDS, VIEWS, Kind, find_kind, scale
from sea_nn.function.function import SetFunction
from sea_nn.function.several import SeveralFunctions
from sea_nn.members.run import Check, MemberMaps
from sea_nn.questions.asked import Asked, Curve
from sea_nn.version import find_version

VERSIONS = {
    "sea_nn": find_version(),
    "torch": torch.__version__,
    "python": platform.python_version(),
}
"""Of what explanations stand on."""


class Field(NamedTuple):
    """A tensor of an explanation.

    Attributes:
        shape: its axes: N inputs, m members, n features, "map" those of the map and "own" those of
            the attribution; any other letter is as long as where it comes first.
        type: of its numbers; None for floats of any precision.
        stored: their type in a file; "index" is the narrowest unsigned one, "sets" a bit a feature.
    """

    shape: str
    type: torch.dtype | None = None
    stored: Any = np.float32


FIELDS = {
    "attribution": Field("N own"),
    "maps": Field("N m map", stored=np.float16),
    "target": Field("N", torch.int64, np.int64),
    "score": Field("N"),
    "order": Field("N n", torch.int64, "index"),
    "gains": Field("N n"),
    "features": Field("G map", None, "index"),
    "images": Field("N map 3", torch.uint8, np.uint8),
    "values": Field("N map"),
    "predict_error": Field("N"),
    "rival": Field("N", torch.int64, np.int64),
    "against": Field("N own"),
    "keep_map": Field("N own"),
    "remove_map": Field("N own"),
    "trusted": Field("N m"),
    "asked.sets": Field("N R n", None, "sets"),
    "asked.answers": Field("N R", torch.float64, np.float64),
    "asked.keep": Field("N n", torch.int64, "index"),
    "asked.remove": Field("N n", torch.int64, "index"),
    "curve.counts": Field("P", torch.int64, np.int64),
    "curve.left": Field("N P"),
    "curve.removed": Field("N P"),
    "ranking.classes": Field("N k", torch.int64, np.int64),
    "ranking.scores": Field("N k"),
}


@dataclass(frozen=True)
class Ranking:
    """The first k classes of N inputs, the likeliest first.

    Attributes:
        classes: their numbers, int64 [N, k].
        scores: their probabilities, [N, k].
        names: their names, N tuples of k.
    """

    classes: Tensor
    scores: Tensor
    names: tuple[tuple[str, ...], ...]

    def rows(self, which: Tensor) -> Ranking:
        """The classes of some of the inputs."""
        names = tuple(self.names[i] for i in which.tolist())
        return Ranking(self.classes[which], self.scores[which], names)


@dataclass(frozen=True)
class Part:
    """One of several inputs.

    Attributes:
        name: its argument's, or "input 0", "input 1", …
        kind: of input.
        view: how it is shown.
        shape: of one such input, channels included.
        channels: the axis of ``shape`` along which values belong to one position, from 1; None:
            there is none.
    """

    name: str
    kind: str
    view: str
    shape: tuple[int, ...]
    channels: int | None = None


@dataclass(frozen=True)
class Provenance:
    """Where an explanation comes from: enough to make it again.

    Values become plain JSON (tuples turn into lists, tensors into their shape, other objects into
    text), so that an explanation that was saved and loaded says the same as before.

    Attributes:
        config: the settings of SEA.
        members: by member, the options it ran with, its defaults among them.
        call: what else decides the maps: baselines, feature mask, precision.
        versions: of this package and those it stands on.
        seed: what random draws start from.
        seconds: by member, the time taken.
        evaluations: by member, the model evaluations made for all inputs; "sea" are the others.
        by_purpose: the evaluations an input: "members", "questions" and "checks".
        assumed: what was not said and how it was taken, in sentences.
        model: its name.
        device: where it ran.
        created: when.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    evaluations: Mapping[str, int] = field(default_factory=dict)
    by_purpose: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    model: str = ""
    device: str = ""
    created: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "assumed", tuple(map(to_text, self.assumed)))
        for name, value in vars(self).items():
            if isinstance(value, Mapping):
                plain = json.loads(json.dumps(dict(value), default=_describe))
                object.__setattr__(self, name, plain)
        for name in ("model", "device", "created"):
            object.__setattr__(self, name, to_text(getattr(self, name)))


def to_text(name: Any) -> str:
    r"""Return a name as text that can be written anywhere: half of a character becomes "?".

    >>> to_text(7), to_text("\ud800x")
    ('7', '?x')
    """
    return str(name).encode("utf-8", "replace").decode()


def _describe(value: Any) -> Any:
    """What JSON does not know, in words."""
    if isinstance(value, Tensor):
        return value.item() if value.ndim == 0 else f"tensor {list(value.shape)}"
    if isinstance(value, Mapping):
        return dict(value)
    return getattr(value, "__name__", None) or str(value)


@dataclass(frozen=True, eq=False, repr=False)
class Contents:
    """What an ``Explanation`` holds; its docstring says what each attribute is."""

    attribution: Tensor
    maps: Tensor
    methods: tuple[str, ...]
    target: Tensor
    score: Tensor
    order: Tensor
    gains: Tensor
    feature_shape: tuple[int, ...]
    features: Tensor | None = None
    images: Tensor | None = None
    labels: tuple[str, ...] | None = None
    checks: tuple[Check, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    values: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    function: SetFunction | SeveralFunctions | None = None
    predict_error: Tensor | None = None
    kind: str = ""
    view: str = ""
    curve: Curve | None = None
    ranking: Ranking | None = None
    rival: Tensor | None = None
    texts: tuple[tuple[str, ...], ...] | None = None
    asked: Asked | None = None
    against: Tensor | None = None
    keep_map: Tensor | None = None
    remove_map: Tensor | None = None
    trusted: Tensor | None = None
    parts: tuple[Part, ...] = ()
    members: tuple[MemberMaps, ...] = ()

    def __post_init__(self) -> None:
        known = KINDS.get(self.kind) or find_kind(self.attribution)
        made: dict[str, Any] = {"kind": self.kind or known.name, "view": self.view or known.view}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                made[name] = value.detach()
            elif isinstance(value, list):
                made[name] = tuple(value)
            if name in ("methods", "labels", "feature_names") and value is not None:
                made[name] = tuple(map(to_text, value))
        if self.texts is not None:
            made["texts"] = tuple(tuple(map(to_text, text)) for text in self.texts)
        vars(self).update(made)
        for misfit in find_misfits(self):
            raise InputError(misfit)

    def __len__(self) -> int:
        return self.order.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one map: (H, W), (F,), (C, T) or (D, H, W)."""
        return tuple(self.maps.shape[2:])


def list_tensors(e: Any) -> Iterator[tuple[str, Field, Any]]:
    """Each tensor that an explanation has: its name in the table, its field, itself."""
    for name, one in FIELDS.items():
        head, _, tail = name.partition(".")
        value = getattr(e, head)
        if tail and value is not None:
            value = getattr(value, tail)
        if value is not None:
            yield name, one, value


def spread(values: Tensor, features: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Give every position of a map its feature's value: [N, n] -> [N, *shape]."""
    if features is not None:
        index = features.flatten(1).expand(len(values), -1).to(values.device, torch.int64)
        values = values.gather(1, index)
    return values.reshape(len(values), *shape)


def find_misfits(e: Any) -> Iterator[str]:
    """What of an ``Explanation`` does not fit together; what comes later may rest on the first."""
    if not (e.maps.ndim >= 3 and 2 <= e.attribution.ndim <= e.maps.ndim):
        yield (
            "attribution must be [N, 1, H, W], [N, C, T], [N, F] or [N, 1, D, H, W], and maps "
            f"[N, m, ...]; got {list(e.attribution.shape)} and {list(e.maps.shape)}"
        )
    if e.view not in VIEWS:
        yield f"view must be one of {', '.join(VIEWS)}; got {e.view!r}"
    count, m, n = len(e.attribution), len(e.methods), math.prod(e.feature_shape)
    if count < 1 or (m < 1 and e.function is None):
        yield f"an explanation needs an input and a method; got {count} and {m}"
    one_channel = e.attribution.ndim == e.maps.ndim  # it stands for all
    shape = e.attribution.shape[2 if one_channel else 1 :]
    known = {"N": [count], "m": [m], "n": [n], "3": [3], "map": [*shape]}
    known["own"] = [1, *shape] if one_channel else [*shape]
    for name, one, value in list_tensors(e):
        if not isinstance(value, Tensor):
            raise KindError(f"{name} must be a tensor; got {type(value).__name__}")
        wanted: list[int] = []
        for axis in one.shape.split():
            wanted += known.setdefault(axis, [*value.shape[len(wanted) :][:1]])
        if list(value.shape) != wanted:
            yield f"{name} must be {wanted}; got {list(value.shape)}"
        if one.type not in (None, value.dtype):
            yield f"{name} must be of dtype {one.type}; got {value.dtype}"
    low, high = map(float, e.maps.aminmax()) if m else (0.0, 1.0)
    if not (low >= 0 and high <= 1 + 1e-6):
        yield f"maps must lie in [0, 1], without nan; got {low} to {high}"
    if not float(e.attribution.min()) >= 0:
        yield "attribution must be >= 0 and without nan"
    if not torch.equal(e.order.sort(1).values, torch.arange(n).to(e.order).expand(count, -1)):
        yield f"order must hold each feature 0 … {n - 1} once in every row"
    if e.features is None and n != math.prod(shape):
        yield (
            f"feature_shape {e.feature_shape} has {n} features and a map {math.prod(shape)} "
            "positions: pass features, the feature of each position"
        )
    if e.features is not None:
        first, last = map(int, e.features.aminmax())
        if len(e.features) not in (1, count) or first < 0 or last >= n:
            yield (
                f"features must lie in 0 … {n - 1}, of {count} inputs or of 1; those of "
                f"{len(e.features)} run from {first} to {last}"
            )
    for name, many in (("labels", count), ("texts", count), ("feature_names", shape[0])):
        names = getattr(e, name)
        if names is not None and len(names) != many:
            yield f"{name} must name the {many} it is of; got {len(names)}"
    if e.texts is not None and max(map(len, e.texts)) != shape[0]:
        yield f"texts must have up to {shape[0]} pieces; got {max(map(len, e.texts))}"
    if e.ranking is not None:
        widths = {len(e.ranking.classes[0]), *map(len, e.ranking.names)}
        if len(widths) > 1 or len(e.ranking.names) != count:
            yield f"ranking.names must be of {count} inputs; got {e.ranking.names!r}"


def show_input(x: Tensor, kind: Kind | None = None) -> Tensor | None:
    """Images and volumes of 1 or 3 channels as pictures, from least to largest value."""
    kind = find_kind(x) if kind is None else kind
    axis = kind.channels
    if axis is None or kind.view not in ("picture", "slices") or x.shape[axis] not in (1, 3):
        return None
    stretched = scale(x.detach().float()).mul(255).round().to(torch.uint8)
    colours = stretched if x.shape[axis] == 3 else stretched.repeat_interleave(3, axis)
    return colours.movedim(axis, -1).contiguous().cpu()

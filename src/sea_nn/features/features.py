"""Features: what of an input is attributed, made once and used by every room.

A map has positions: pixels, voxels, columns, values of a series. One or more of them are a
*feature*: a cell of a grid, a superpixel, the columns of a one-hot code, a span of time.

>>> import torch
>>> features = Features.of(torch.zeros(2, 3, 8, 8)).on_grid((2, 2))
>>> features.shape, features.n
((8, 8), 4)
>>> kept = features.expand(torch.tensor([[True, False, False, False]]))
>>> features.kind.over_input(kept).shape, int(kept.sum())
(torch.Size([1, 1, 8, 8]), 16)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sea_nn.errors import InputError, KindError

MOST_CELLS = 64
"""How many features a table or series has by default when the model is asked."""
MOST_PATCHES, LEAST_PATCHES = 8, 4
"""Cells along a side of an image, made of a vision transformer's patches."""
UNKNOWN = "values"  # the kind of inputs with more axes than any other
VIEWS = ("bars", "lines", "picture", "slices", "words", "parts")


@dataclass(frozen=True)
class Kind:
    """A kind of inputs; a kind of your own is one more of these (docs/how-to/features.md).

    Attributes:
        name: what it is called in reports and files.
        axes: of a batch of such inputs, its own included.
        channels: the axis of a batch along which values belong to one position, as the colours of
            a pixel do; None where every value is a position of its own.
        view: how its maps are shown: "bars" [F], "lines" [C, T], "picture" [H, W], "slices"
            [D, H, W], "words" [F], or "parts" (several inputs).
        absent: what features become that are left out of a question; see
            ``sea_nn.questions.absent``.
        neighbours: the axes along which positions have neighbours: time, rows and columns, depth.
        scale_axes: the axes of values in one unit: a channel's own, or all of an input without
            neighbours. An input's own mean and extremes are taken along these.

    >>> [kind.neighbours for kind in (TABLE, SERIES, IMAGE)]
    [(), (2,), (2, 3)]
    """

    name: str
    axes: int
    channels: int | None = None
    view: str = "bars"
    absent: str = "baseline"
    neighbours: tuple[int, ...] = field(init=False)
    scale_axes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise InputError(f"a view is one of {', '.join(VIEWS)}; got {self.view!r}")
        if self.channels is not None and not 1 <= self.channels < self.axes:
            raise InputError(
                f"channels is an axis from 1 to {self.axes - 1}, or None; got {self.channels}"
            )
        first = self.channels or 1
        neighbours = (*range(2, first), *range(first + 1, self.axes))
        object.__setattr__(self, "neighbours", neighbours)
        object.__setattr__(self, "scale_axes", neighbours or tuple(range(1, self.axes)))

    def map_shape(self, x: Tensor) -> tuple[int, ...]:
        """The shape of one map of inputs ``x``: (F,), (C, T), (H, W), (D, H, W)."""
        before = self.channels or x.ndim
        return (*x.shape[1:before], *x.shape[before + 1 :])

    def over_input(self, mask: Tensor) -> Tensor:
        """A mask over maps, [P, *shape], as one that broadcasts to inputs."""
        return mask if self.channels is None else mask.unsqueeze(self.channels)


TABLE = Kind("table", 2)
SERIES = Kind("series", 3, view="lines", absent="blur")
IMAGE = Kind("image", 4, 1, "picture", "blur")
VOLUME = Kind("volume", 5, 1, "slices", "blur")
TEXT = Kind("text", 2, view="words", absent="mask")
SEVERAL = Kind("several", 2, view="parts")
"""Several inputs of one call, their values side by side: [N, V]."""
KINDS = {kind.name: kind for kind in (TABLE, SERIES, IMAGE, VOLUME, TEXT, SEVERAL)}


def find_kind(x: Tensor) -> Kind:
    """The kind of inputs with as many axes as ``x``: the one place where axes tell it."""
    for kind in KINDS.values():
        if kind.axes == x.ndim:
            return kind
    return Kind(UNKNOWN, x.ndim)


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a batch of inputs of one shape.

    Attributes:
        kind: of the inputs.
        shape: of one map: (F,), (C, T), (H, W), (D, H, W).
        groups: the feature of each position, int64 [1, *shape], on the CPU; None: one each.
        layout: the shape of the grid that features lie in; None where they have no neighbours.
        names: of a table's columns or a series' channels; of several inputs, the inputs' own.
        input_shape: of one input, channels included.
        parts: of several inputs, the features of each; their values lie side by side in one row.
    """

    kind: Kind
    shape: tuple[int, ...]
    groups: Tensor | None = None
    layout: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    input_shape: tuple[int, ...] = ()
    parts: tuple[Features, ...] = ()

    @classmethod
    def of(
        cls,
        x: Tensor,
        *,
        kind: Kind | None = None,
        feature_mask: Tensor | None = None,
        names: Sequence[str] | None = None,
    ) -> Features:
        """The features of inputs ``x``, [N, ...].

        Args:
            x: the inputs.
            kind: left out, it is found from the number of axes.
            feature_mask: whole numbers that broadcast to the map: equal ones are one feature.
            names: of columns or channels.
        """
        kind = find_kind(x) if kind is None else kind
        if not isinstance(kind, Kind):
            raise KindError(f'kind must be a Kind, such as Kind("image", 4, 1); got {kind!r}')
        if kind.name == UNKNOWN:
            raise InputError(
                f"inputs are columns [N, F], series [N, C, T], images [N, C, H, W] or volumes "
                f"[N, C, D, H, W]; got {list(x.shape)}: give their kind="
            )
        if kind.axes != x.ndim:
            raise InputError(
                f"inputs of the kind {kind.name!r} have {kind.axes} axes; x is {list(x.shape)}"
            )
        shape = kind.map_shape(x)
        return cls(
            kind,
            shape,
            None if feature_mask is None else group_features(feature_mask, shape),
            names=None if names is None else tuple(map(str, names)),
            input_shape=tuple(x.shape[1:]),
        )

    @classmethod
    def join(cls, parts: Sequence[Features], names: Sequence[str]) -> Features:
        """The features of several inputs together: every part's own, one after another.

        A map of them has every value of every input as a position, [V]; the channels of a pixel
        are one feature.
        """
        numbers, first = [], 0
        for part in parts:
            own = torch.arange(part.n).view(1, *part.shape) if part.groups is None else part.groups
            wide = part.kind.over_input(own).expand(1, *part.input_shape)
            numbers.append(wide.flatten() + first)
            first += part.n
        groups = torch.cat(numbers).unsqueeze(0)
        shape = (groups.shape[1],)
        joined = None if first == shape[0] else groups
        return cls(SEVERAL, shape, joined, None, tuple(names), shape, tuple(parts))

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows of several inputs' values, [N, V], as the inputs themselves."""
        sizes = [math.prod(part.input_shape) for part in self.parts]
        pairs = zip(rows.split(sizes, 1), self.parts, strict=True)
        return [values.reshape(-1, *part.input_shape) for values, part in pairs]

    @property
    def n(self) -> int:
        """How many features there are."""
        return math.prod(self.shape) if self.groups is None else int(self.groups.max()) + 1

    def on_grid(self, grid: Sequence[int]) -> Features:
        """The same map with the cells of a grid as features."""
        if len(grid) != len(self.shape):
            raise InputError(
                f"a grid has a number for each axis of the map {list(self.shape)}; got {list(grid)}"
            )
        cells = tuple(map(min, grid, self.shape))
        numbers = None if cells == self.shape else number_cells(cells, self.shape).unsqueeze(0)
        return replace(self, groups=numbers, layout=cells)

    def to_ask_about(self, grid: Sequence[int] | None = None) -> Features:
        """The features that a budget's questions are about: a mask's, or few enough cells.

        >>> Features.of(torch.zeros(1, 3, 100)).to_ask_about().layout
        (3, 21)
        """
        if self.parts:
            return Features.join([part.to_ask_about() for part in self.parts], self.names or ())
        if self.groups is not None:
            return self
        if len(self.shape) == 1:  # without neighbours: bands of columns only where they are many
            cells = grid or (min(self.shape[0], MOST_CELLS),)
            return replace(self.on_grid(cells), layout=None)
        if grid is None:
            rows, axes = min(8, self.shape[0]), len(self.shape)
            side = int(MOST_CELLS ** (1 / axes) + 1e-9)
            grid = (rows, MOST_CELLS // rows) if axes == 2 else (side,) * axes
            grid = self.shape if math.prod(self.shape) <= MOST_CELLS else grid
        return self.on_grid(grid)

    def expand(self, values: Tensor) -> Tensor:
        """Give every position its feature's value: [..., n] -> [..., *shape]."""
        if self.groups is None:
            return values.reshape(*values.shape[:-1], *self.shape)
        return values[..., self.groups[0].to(values.device)]

    def sum(self, maps: Tensor) -> Tensor:
        """Sums over each feature's positions: [N, *shape] -> [N, n]."""
        flat = maps.flatten(1)
        if self.groups is None:
            return flat
        groups = self.groups.flatten().to(flat.device)
        return flat.new_zeros(len(maps), self.n).index_add_(1, groups, flat)

    def count(self) -> Tensor:
        """How many positions each feature has: int64 [n]."""
        if self.groups is None:
            return torch.ones(self.n, dtype=torch.int64)
        return torch.bincount(self.groups.flatten(), minlength=self.n)


def group_features(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A feature mask as group numbers 0 … k-1 over the map: int64 [1, *shape]."""
    mask = read_tensor(mask, "feature_mask must be a tensor of whole numbers")
    if mask.is_floating_point() or mask.is_complex():
        raise KindError(f"feature_mask must hold whole numbers; got {mask.dtype}")
    while mask.ndim > len(shape) and bool((mask == mask[:1]).all()):
        mask = mask[0]
    try:
        mask = mask.expand(shape)
    except RuntimeError as error:
        raise InputError(
            f"feature_mask must broadcast to the map {list(shape)}, and be the same for all inputs "
            f"(and channels); got {list(mask.shape)}. Explain inputs with masks of their own one "
            "by one"
        ) from error
    groups: Tensor = mask.unique(return_inverse=True)[1]
    return groups.reshape(1, *shape).cpu()


def read_tensor(values: Any, must: str) -> Tensor:
    """Values as a tensor; ``must`` says what they must be, for the error where they are none."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"{must}; got {type(values).__name__}") from error


def expand_mask(mask: Tensor, name: str, count: int, shape: tuple[int, ...]) -> Tensor:
    """A bool mask over the map, for all inputs or for each, as [N, *shape]; errors name it."""
    mask = read_tensor(mask, f"{name} must be a bool mask of shape {shape}")
    if mask.dtype != torch.bool or tuple(mask.shape) not in (shape, (count, *shape)):
        raise InputError(
            f"{name} must be a bool mask of shape {shape} or {(count, *shape)}; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.expand(count, *shape)


def number_cells(grid: Sequence[int], shape: Sequence[int]) -> Tensor:
    """The cell of a grid that each position belongs to, row by row: int64 of this shape.

    Along an axis, cells differ by at most one position.

    >>> number_cells((2, 2), (2, 4)).tolist()
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    numbers = torch.zeros((), dtype=torch.int64)
    for size, cells in zip(shape, grid, strict=True):
        own = torch.arange(size) * cells // size
        numbers = numbers.unsqueeze(-1) * cells + own
    return numbers


def sum_cells(maps: Tensor, grid: Sequence[int]) -> Tensor:
    """Sum over each cell of the grid: [..., H, W] -> [..., rows, columns]."""
    sizes = maps.shape[-2:]
    left, right = (
        functional.one_hot(number_cells((cells,), (size,)), cells).to(maps)
        for cells, size in zip(map(min, grid, sizes), sizes, strict=True)
    )
    return left.mT @ maps @ right


def scale(maps: Tensor, batch_axes: int = 1) -> Tensor:
    """Min-max scale each map to [0, 1]; a constant map becomes zero.

    Maps are [N, *shape], or [N, m, *shape] with ``batch_axes=2``.
    """
    flat = maps.reshape(*maps.shape[:batch_axes], -1)
    low, high = flat.aminmax(dim=-1, keepdim=True)
    span = torch.where(high > low, high - low, 1)
    return ((flat - low) / span).reshape(maps.shape)


def smooth(values: Tensor, axis: int, sigma: float) -> Tensor:
    """Blur along one axis by a Gaussian, cut off and renormalised at the ends."""
    place = torch.arange(values.shape[axis], dtype=torch.float64, device=values.device)
    # Relative to the centre's weight: with a tiny sigma only that one remains.
    weight = torch.exp(-((place[:, None] - place) / sigma).square() / 2)
    weight = (weight / weight.sum(1, keepdim=True)).to(values.dtype)
    return (values.movedim(axis, -1) @ weight.mT).movedim(-1, axis)


def find_patches(model: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Cells of whole patches, at most 8 along a side of images (H, W); None if there are none.

    A transformer's first convolution takes steps of its own size: one patch each. Where there are
    more than eight along a side, neighbours go together: 14 patches are seven cells.

    >>> stem = nn.Conv2d(3, 8, 16, stride=16)
    >>> find_patches(nn.Sequential(stem, nn.MultiheadAttention(8, 2)), (224, 224))
    (7, 7)
    >>> find_patches(stem, (224, 224)) is None  # no attention: no transformer
    True
    """
    if not isinstance(model, nn.Module) or len(shape) != 2 or not attends(model):
        return None
    stem = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if stem is None or tuple(stem.kernel_size) != tuple(stem.stride) or max(stem.stride) == 1:
        return None
    counts = tuple(map(divmod, shape, stem.stride))
    if any(rest for _, rest in counts):  # patches that are not whole
        return None
    sides = tuple(max(k for k in range(1, MOST_PATCHES + 1) if n % k == 0) for n, _ in counts)
    return sides if min(sides) >= LEAST_PATCHES else None


def attends(model: nn.Module) -> bool:
    """Whether a model has attention, by its layers' names."""
    return any("Attention" in type(module).__name__ for module in model.modules())


def check_input(x: Any) -> None:
    """Refuse inputs that nobody could explain: ``x`` is a batch of finite floating-point ones."""
    if not isinstance(x, Tensor):
        raise KindError(f"x must be a torch.Tensor [N, ...], got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested or x.is_meta:
        raise KindError(
            "x must be a dense tensor [N, ...] on cpu or cuda; this one is sparse or nested, or on "
            "the meta device and holds no numbers"
        )
    if not x.is_floating_point():
        raise KindError(
            f"x must hold floating-point numbers, got {x.dtype}; for token ids explain the "
            "embeddings instead"
        )
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(
            f"x must hold at least one input: [N, F], [N, C, T] or [N, C, H, W] with N >= 1; got "
            f"shape {list(x.shape)}. For a single input use x.unsqueeze(0)"
        )
    if x.ndim == IMAGE.axes:
        first, second, last = x.shape[1:]  # rows, columns and channels of a picture of usual size?
        if min(first, second) >= 16 and (last == 3 or (last in (1, 4) and first == second)):
            raise InputError(
                f"images are [N, C, H, W], and x {list(x.shape)} looks like [N, H, W, C]: give "
                "x.permute(0, 3, 1, 2); if the model itself wants channels last, wrap it: "
                "lambda x: model(x.permute(0, 2, 3, 1))"
            )
    finite = x.isfinite()
    if not bool(finite.all()):
        bad = (~finite).any(0).nonzero().flatten().tolist() if x.ndim == TABLE.axes else []
        more = ", …" if len(bad) > 5 else ""
        where = f" (columns {', '.join(map(str, bad[:5]))}{more})" if bad else ""
        raise InputError(f"x holds NaN or infinite values{where}; clean the input first")

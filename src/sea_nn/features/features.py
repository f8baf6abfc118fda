"""Features: what of an input is attributed, made once and used by every room.

A map has positions: pixels, voxels, columns, values of a series. One or more of them are a
*feature*: a cell of a grid, a superpixel, the columns of a one-hot code, a span of time.

>>> import torch
>>> features = Features.of(torch.zeros(2, 3, 8, 8), grid=(2, 2))
>>> features.shape, features.n
((8, 8), 4)
>>> kept = features.expand(torch.tensor([[True, False, False, False]]))
>>> features.over_input(kept).shape, int(kept.sum())
(torch.Size([1, 1, 8, 8]), 16)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features.groups import clip_grid, group_features, number_cells
from sea_nn.features.kinds import SEVERAL, UNKNOWN, Kind, find_kind
from sea_nn.features.patches import find_patches

MOST_CELLS = 64
"""How many features a table or series has by default when the model is asked."""
EVEN = 0.5  # the part of a feature's gain that all its positions share alike


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a batch of inputs of one shape.

    Attributes:
        kind: of the inputs.
        shape: of one map: (F,), (C, T), (H, W), (D, H, W).
        groups: the feature of each position, int64 [1, *shape]; None: one each.
        layout: the shape of the grid that features lie in; None where they have no neighbours.
        names: of a table's columns or a series' channels; of several inputs, the inputs' own.
        input_shape: of one input, channels included.
        parts: of several inputs, the features of each; their values lie side by side in one row.
        patches: the grid of a vision transformer's patches; questions go by it.
    """

    kind: Kind
    shape: tuple[int, ...]
    groups: Tensor | None = None
    layout: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    input_shape: tuple[int, ...] = ()
    parts: tuple[Features, ...] = ()
    patches: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        x: Tensor,
        *,
        kind: Kind | None = None,
        feature_mask: Tensor | None = None,
        grid: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        model: Any = None,
    ) -> Features:
        """The features of inputs ``x``, [N, ...].

        Args:
            x: the inputs.
            kind: left out, it is found from the number of axes.
            feature_mask: whole numbers that broadcast to the map: equal ones are one feature.
            grid: cells along each axis of the map, instead of a mask.
            names: of columns or channels.
            model: whose patches questions about images go by, if it is a vision transformer.
        """
        kind = find_kind(x) if kind is None else kind
        if not isinstance(kind, Kind):
            raise KindError(
                f'kind must be a Kind, such as Kind("image", axes=4, channels=1); got {kind!r}'
            )
        if kind == find_kind(x) and kind.name == UNKNOWN:
            raise InputError(
                f"inputs are columns [N, F], series [N, C, T], images [N, C, H, W] or volumes "
                f"[N, C, D, H, W]; got {list(x.shape)}: give their kind="
            )
        if kind.axes != x.ndim:
            raise InputError(
                f"inputs of the kind {kind.name!r} have {kind.axes} axes; x is {list(x.shape)}"
            )
        shape = kind.map_shape(x)
        if isinstance(names, str) or not (names is None or isinstance(names, Iterable)):
            raise KindError(f"names must be a list of names; got {names!r}")
        named = None if names is None else tuple(map(str, names))
        if feature_mask is not None:
            groups = group_features(feature_mask, shape).to(x.device)
            return cls(kind, shape, groups, names=named, input_shape=tuple(x.shape[1:]))
        patches = find_patches(model, shape) if kind.view == "picture" else None
        single = cls(kind, shape, names=named, input_shape=tuple(x.shape[1:]), patches=patches)
        return single if grid is None else single.on_grid(grid, x.device)

    @classmethod
    def join(
        cls, parts: Sequence[Features], names: Sequence[str], device: torch.device | None = None
    ) -> Features:
        """The features of several inputs together: every part's own, one after another.

        A map of them has every value of every input as a position, [V]; the channels of a pixel
        are one feature.
        """
        numbers, first = [], 0
        for part in parts:
            own = torch.arange(part.n).view(1, *part.shape) if part.groups is None else part.groups
            wide = part.over_input(own.to(device)).expand(1, *part.input_shape)
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

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of the feature space; its product is n."""
        return self.shape if self.groups is None else self.layout or (self.n,)

    def on_grid(self, grid: Sequence[int], device: torch.device | None = None) -> Features:
        """The same map with the cells of a grid as features."""
        if len(grid) != len(self.shape):
            raise InputError(
                f"a grid has a number for each axis of the map {list(self.shape)}; got {list(grid)}"
            )
        cells = clip_grid(grid, self.shape)
        if cells == self.shape:
            return replace(self, groups=None, layout=cells)
        numbers = number_cells(cells, self.shape, device).unsqueeze(0)
        return replace(self, groups=numbers, layout=cells)

    def to_ask_about(
        self, grid: Sequence[int] | None = None, device: torch.device | None = None
    ) -> Features:
        """The features that a budget's questions are about: a mask's, or few enough cells.

        >>> Features.of(torch.zeros(1, 3, 100)).to_ask_about().layout
        (3, 21)
        """
        if self.parts:
            parts = [part.to_ask_about(None, device) for part in self.parts]
            return Features.join(parts, self.names or (), device)
        if self.groups is not None:
            return self
        if len(self.shape) == 1:  # without neighbours: bands of columns only where they are many
            count = min(math.prod(self.shape), MOST_CELLS) if grid is None else min(grid[-1:])
            return replace(self.on_grid((count,), device), layout=None)
        grid = grid or self.patches
        if grid is None:
            rows, axes = min(8, self.shape[0]), len(self.shape)
            side = int(MOST_CELLS ** (1 / axes) + 1e-9)
            grid = (rows, MOST_CELLS // rows) if axes == 2 else (side,) * axes
            grid = self.shape if math.prod(self.shape) <= MOST_CELLS else grid
        return self.on_grid(grid, device)

    def over_input(self, mask: Tensor) -> Tensor:
        """A mask over maps, [P, *shape], as one that broadcasts to the inputs."""
        return self.kind.over_input(mask)

    def mask_input(self) -> Tensor | None:
        """The features' numbers, shaped to broadcast to the inputs, for members; None: one each."""
        return None if self.groups is None else self.over_input(self.groups)

    def add_channel(self, maps: Tensor) -> Tensor:
        """Maps [N, *shape] as attributions: [N, 1, *shape] where channels go together."""
        return maps if self.kind.channels is None else maps.unsqueeze(1)

    def expand(self, values: Tensor) -> Tensor:
        """Give every position its feature's value: [..., n] -> [..., *shape]."""
        if self.groups is None:
            return values.reshape(*values.shape[:-1], *self.shape)
        return values[..., self.groups[0]]

    def sum(self, maps: Tensor) -> Tensor:
        """Sums over each feature's positions: [N, *shape] -> [N, n]."""
        flat = maps.flatten(1)
        if self.groups is None:
            return flat
        return flat.new_zeros(len(maps), self.n).index_add_(1, self.groups.flatten(), flat)

    def count(self) -> Tensor:
        """How many positions each feature has: int64 [n]."""
        if self.groups is None:
            return torch.ones(self.n, dtype=torch.int64)
        return torch.bincount(self.groups.flatten(), minlength=self.n)

    def paint(self, gains: Tensor, heat: Tensor) -> Tensor:
        """Gains by feature [N, n] over the positions, half alike and half by heat: [N, *shape]."""
        warm, own = self.sum(heat), self.count().to(heat)
        index = torch.arange(self.n) if self.groups is None else self.groups.flatten()
        index = index.to(heat.device)
        alike = (1 / own)[index]
        by_heat = torch.where(warm > 0, 1 / warm.clamp(min=1e-300), 0.0)[:, index] * heat.flatten(1)
        by_heat = torch.where((warm > 0)[:, index], by_heat, alike)
        share = EVEN * alike + (1 - EVEN) * by_heat
        return (gains[:, index] * share).reshape(heat.shape)

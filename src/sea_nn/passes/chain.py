"""Forward passes over points of which each is much like the one before: compute what differs.

A curve of single pixels asks a model about hundreds of pictures that differ from one to the next in
one place. Behind a convolution they differ in as many places as its window has, and everything else
is what it was. So the layers that a model starts with (convolutions, activations, norms, pooling)
run on *events* alone: a point, and a position at which something that is read there has changed. A
table holds the number of the last event for every point and position; what an event reads is looked
up in it, and multiplied by the layer's weights as one matrix. Nothing is approximated: each number
is the one that the layer would compute, by the same products, added up in another order.

It pays on a CPU where differences are small and stay so. Deeper, where most positions have an
event, the model goes on by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from sea_nn.passes.cuda_graphs import is_heard
from sea_nn.passes.layer_reads import Readers
from sea_nn.passes.norm_folding import agrees, is_sealed, passing
from sea_nn.passes.windows import WINDOWS, Geometry, find_shape, is_local, measure

if TYPE_CHECKING:
    from sea_nn.passes.evaluator import Evaluator

CHANGED = 0.05
"""The largest share of positions that may differ from point to point for a closer look."""
COST = 2.0
"""What a multiplication at an event costs, in multiplications of a layer that runs as it is."""
ACCOUNT = 1000
"""What keeping account of one position of one point costs, in the same."""
GAIN = 0.25
"""The least share of a model's multiplications to be saved."""
BLOCK = 1 << 19
"""Numbers that are gathered at once for a product: they should stay in the cache."""
LARGEST = 1 << 16
"""The largest number of positions of an image: tables of who reads whom grow with it."""
POSITIONS, MOST = 1 << 20, 1024
"""Positions of all points that are looked at together, and the most points."""
PROBES = ((0.0, 0.0), (0.5, 0.4), (1.0, 0.7))
"""Where an input is changed to see whether a chain says what the model says."""
SAME = 1e-4
"""How far the two may be apart, relative to the largest logit."""


class Chain:
    """The layers that a model starts with, one after the other, for images of one shape.

    Args:
        layers: from the input on; each alone reads what the one before gives.
        shape: of the images, (H, W).
        total: multiplications of the whole model for one image.
    """

    def __init__(self, layers: list[nn.Module], shape: tuple[int, int], total: float) -> None:
        self.layers, self.shape, self.total = layers, shape, total
        self.works: list[int] = []  # multiplications of each layer for one image
        self.costs: list[int] = []  # of keeping account of its answers
        self.trusted: dict[int, bool] = {}  # whether the model goes on well behind so many layers
        self.shapes: list[tuple[int, int]] = []  # of what each reads
        for layer in layers:
            self.shapes.append(shape)
            shape = find_shape(layer, shape) if isinstance(layer, WINDOWS) else shape
            matrix = layer.weight.numel() if isinstance(layer, nn.Conv2d) else 0
            self.works.append(matrix * shape[0] * shape[1])
            self.costs.append(ACCOUNT * shape[0] * shape[1] if matrix else 0)

    @cached_property
    def geometries(self) -> list[Geometry | None]:
        """What the answers of each layer read."""
        return [
            measure(layer, shape) if isinstance(layer, WINDOWS) else None
            for layer, shape in zip(self.layers, self.shapes, strict=True)
        ]

    def may_pay(self) -> bool:
        """Whether it would pay if hardly anything changed."""
        gains = zip(self.works, self.costs, strict=True)
        most = max(accumulate(work - cost for work, cost in gains), default=0)
        return most > 0 and most >= GAIN * self.total

    def plan(self, points: Tensor) -> list[_Events] | None:
        """Return the events in `points` [P, C, H, W] and behind each layer that is to run on them.

        None if the points differ too much for this to pay.
        """
        first = _compare(points)
        if first is None or not first.is_small():
            return None
        found, saved, best, depth = [first], 0.0, 0.0, 0
        for work, cost, events in zip(self.works, self.costs, self.follow(first), strict=True):
            found.append(events)
            saved += work * (1 - COST * events.share) - cost
            if saved >= best:
                best, depth = saved, len(found)
        return found[:depth] if best and best >= GAIN * self.total else None

    def follow(self, events: _Events) -> Iterator[_Events]:
        """Yield the events behind each layer, given those in the points."""
        for geometry in self.geometries:
            events = events if geometry is None else events.spread(geometry)
            yield events

    def run(self, points: Tensor, plan: list[_Events]) -> Tensor:
        """Return what the first layers make of `points`, as many as are planned."""
        rows = _Rows.of_points(points)
        shape = self.shape
        for layer, geometry, events in zip(self.layers, self.geometries, plan[1:], strict=False):
            if geometry is None:
                rows = replace(rows, values=layer(rows.values[:, :, None, None])[:, :, 0, 0])
            else:
                rows, shape = _apply(layer, rows, events, geometry), geometry.shape
        dense: Tensor = rows.spread_out(len(points)).unflatten(1, shape)
        return dense.permute(0, 3, 1, 2)

    @property
    def size(self) -> int:
        """How many points to run together."""
        return max(16, min(MOST, POSITIONS // (self.shape[0] * self.shape[1])))

    def forward(self, task: Evaluator, points: Tensor, rows: Tensor) -> Tensor:
        """Return the logits of `points` [P, C, H, W], variants of the task's inputs `rows`."""
        plan = self.plan(points)
        count = 0 if plan is None else len(plan) - 1
        if plan is None or self.trusted.get(count) is False:
            return _in_parts(task, points, rows)
        made = self.run(points, plan)
        try:
            with self.removed(count):
                found = _in_parts(task, made, rows)
        except Exception:  # the model did not expect to start there
            if count in self.trusted:
                raise
            self.trusted[count] = False
            return _in_parts(task, points, rows)
        if count not in self.trusted:
            some = slice(-len(PROBES), None)
            self.trusted[count] = agrees(found[some], task.forward(points[some], rows[some]), SAME)
        return found if self.trusted[count] else _in_parts(task, points, rows)

    @contextmanager
    def removed(self, count: int) -> Iterator[None]:
        """Make the first `count` layers pass on what they are given: the model starts behind."""
        with ExitStack() as stack:
            for layer in self.layers[:count]:
                stack.enter_context(passing(layer))
            yield


class _Events:
    """Points and positions whose value differs from the one that the point before has there.

    Args:
        where: bool [P, n], True for all positions of the first point.
    """

    def __init__(self, where: Tensor) -> None:
        self.count, self.size = where.shape
        places = where.reshape(-1).nonzero().view(-1).int()  # half as much to move as int64
        self.points = places.div(self.size, rounding_mode="floor")
        self.positions = places - self.points * self.size

    @property
    def share(self) -> float:
        return len(self.points) / (self.count * self.size)

    def is_small(self) -> bool:
        """Whether there are few but for the first point's, which are all."""
        return len(self.points) <= (1 + CHANGED * self.count) * self.size

    def spread(self, geometry: Geometry) -> _Events:
        """Return the events behind a layer: answers that read a position with an event."""
        size = len(geometry.reads)
        where = torch.zeros(self.count, size + 1, dtype=torch.bool)
        readers = geometry.readers.index_select(0, self.positions)
        readers += (self.points * (size + 1)).unsqueeze(1)
        where.view(-1).index_fill_(0, readers.view(-1), True)
        where[0] = True  # also of answers that read nothing but padding
        return _Events(where[:, :size])

    def tabulate(self) -> Tensor:
        """Return the number of the last event at every point and position, int32 [P, n + 1].

        The last column stands for what lies in the padding, and has a number of its own.
        """
        events = len(self.points)
        table = torch.zeros(self.count, self.size + 1, dtype=torch.int32)
        places = self.points * (self.size + 1) + self.positions
        table.view(-1)[places] = torch.arange(events, dtype=torch.int32)
        table[0, -1] = events
        # Numbers grow with points, so the largest so far is the last: of 2, 4, 8, ... points.
        other, step = torch.empty_like(table), 1
        while step < self.count:
            other[:step] = table[:step]
            torch.maximum(table[step:], table[:-step], out=other[step:])
            table, other, step = other, table, 2 * step
        return table


def _compare(points: Tensor) -> _Events | None:
    """Return where each point [P, C, H, W] differs from the one before; None for a single one."""
    if len(points) < 2:
        return None
    differ = torch.ones(len(points), points[0, 0].numel(), dtype=torch.bool)
    differ[1:] = (points[1:] != points[:-1]).any(1).flatten(1)
    return _Events(differ)


@dataclass(frozen=True)
class _Rows:
    """What a layer gives, and where to find it.

    Attributes:
        values: numbers [R, C] at events, and last a row for the padding; or at every point and
            position, and after each point's a row for the padding.
        table: the row of each point and position, int32 [P, n + 1], if not its own.
        void: the rows for the padding.
    """

    values: Tensor
    table: Tensor | None
    void: slice

    @classmethod
    def of_points(cls, points: Tensor) -> _Rows:
        count, channels = points.shape[:2]
        flat = points.permute(0, 2, 3, 1).reshape(count, -1, channels)
        n = flat.shape[1]
        return cls(pad(flat, (0, 0, 0, 1)).view(-1, channels), None, slice(n, None, n + 1))

    def find(self, places: Tensor) -> Tensor:
        """Return the values at places, point * (n + 1) + position."""
        numbers = places if self.table is None else self.table.view(-1).index_select(0, places)
        return self.values.index_select(0, numbers)

    def spread_out(self, count: int) -> Tensor:
        """Return the values of all positions of `count` points, [P, n, C]."""
        channels = self.values.shape[1]
        if self.table is None:
            return self.values.view(count, -1, channels)[:, :-1]
        numbers = self.table[:, :-1].reshape(-1)
        return self.values.index_select(0, numbers).view(count, -1, channels)


def _apply(layer: nn.Module, rows: _Rows, events: _Events, geometry: Geometry) -> _Rows:
    """Return what a layer gives at events."""
    n_in, (width, channels) = len(geometry.readers), (geometry.reads.shape[1], rows.values.shape[1])
    rows.values[rows.void] = 0  # whatever norms and activations have made of it
    matrix: Tensor | None = None
    if isinstance(layer, nn.Conv2d):
        matrix = layer.weight.permute(2, 3, 1, 0).reshape(width * channels, -1)
        bias = matrix.new_zeros(1) if layer.bias is None else layer.bias
    total = len(events.points)
    answers = rows.values.new_empty(total + 1, channels if matrix is None else matrix.shape[1])
    block = max(1, BLOCK // (width * channels))
    for start in range(0, total, block):
        part = slice(start, min(start + block, total))
        places = geometry.reads.index_select(0, events.positions[part])
        places += (events.points[part] * (n_in + 1)).unsqueeze(1)
        read = rows.find(places.view(-1))
        if matrix is not None:
            torch.addmm(bias, read.view(-1, width * channels), matrix, out=answers[part])
        elif isinstance(layer, nn.MaxPool2d):
            torch.amax(read.view(-1, width, channels), 1, out=answers[part])
        else:
            torch.mean(read.view(-1, width, channels), 1, out=answers[part])
    return _Rows(answers, events.tabulate(), slice(total, None))


def _in_parts(task: Evaluator, points: Tensor, rows: Tensor) -> Tensor:
    """Return the model's logits, asked about no more at once than it is asked about elsewhere."""
    size = task.limit or len(points)
    parts = zip(points.split(size), rows.split(size), strict=True)
    return torch.cat([task.forward(some, which) for some, which in parts])


def are_alike(points: Tensor) -> bool:
    """Whether points [P, ...] differ from one to the next in so little that a chain may pay."""
    first = _compare(points) if points.ndim == 4 else None
    return first is not None and first.is_small()


def find_chain(task: Evaluator) -> Chain | None:
    """Return the layers that the task's model starts with, or None if there is none to gain from.

    They are taken as long as each alone reads what the one before gives.
    """
    x = task.x[:1]
    if task.module is None or task.args or task.autocast is not None or is_heard(task):
        return None
    if x.ndim != 4 or x.device.type != "cpu" or x[0, 0].numel() > LARGEST:
        return None
    if any(is_sealed(m) for m in task.modules):
        return None
    layers = [m for m in task.modules if is_local(m)]
    one = task.arrange(x)
    rows = torch.zeros(len(PROBES) + 1, dtype=torch.long)
    try:
        with torch.no_grad():
            with Readers(layers) as readers:
                readers.watch(one)
                task.forward(one, rows[:1])
            shape = (x.shape[2], x.shape[3])
            chain = Chain(_follow(readers, one, layers), shape, _count(task, one))
            if not chain.may_pay():
                return None
            points = task.arrange(_probe(x))
            first = _compare(points)
            if first is None:
                return None
            made = chain.run(points, [first, *chain.follow(first)])
            with chain.removed(len(chain.layers)):
                answer = task.forward(made, rows)
            return chain if agrees(answer, task.forward(points, rows), SAME) else None
    except Exception:  # a shape that was not expected: the layers stay where they are
        return None


def _count(task: Evaluator, x: Tensor) -> int:
    """Return the multiplications of the model's convolutions and linear layers for x [1, ...]."""
    total = 0

    def add(layer: Any, given: Any, output: Tensor) -> None:
        nonlocal total
        total += layer.weight.numel() * output.numel() // len(layer.weight)

    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    handles = [m.register_forward_hook(add) for m in task.modules if isinstance(m, kinds)]
    try:
        task.forward(x, torch.zeros(1, dtype=torch.long))
    finally:
        for handle in handles:
            handle.remove()
    return total


def _follow(readers: Readers, x: Tensor, layers: list[nn.Module]) -> list[nn.Module]:
    """Return the layers from the input on, each the only reader of what comes before it."""
    chain: list[nn.Module] = []
    found = readers.of(x)
    while len(found) == 1:
        layer = next(iter(found))
        if layer not in layers or readers.calls[layer] != 1 or layer in chain:
            break
        chain.append(layer)
        found = readers.of_output(layer)
    return chain


def _probe(x: Tensor) -> Tensor:
    """Return the input x [1, C, H, W] and what it is with one more pixel changed, and another."""
    points = x.repeat(len(PROBES) + 1, 1, 1, 1)
    for number, (row, column) in enumerate(PROBES, 1):
        place = int(row * (x.shape[2] - 1)), int(column * (x.shape[3] - 1))
        points[number:, :, place[0], place[1]] += 1 + x.abs().max()
    return points

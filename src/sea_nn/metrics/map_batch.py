"""What a metric is, and the batch it scores: inputs with their maps, and what metrics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from sea_nn.metrics.positions import pixel_steps
from sea_nn.model.outputs import take
from sea_nn.model.probe import Probe
from sea_nn.questions.absent import Bounds, prepare

PerturbationKind = str | Tensor


@dataclass(frozen=True)
class MetricValues:
    """What a metric says about N inputs and m maps of each.

    Attributes:
        values: [N, m]; nan where the metric is undefined.
        curve: the numbers behind them, [N, m, points], if there are any.
        notes: what a reader should know about these values.
    """

    values: Tensor
    curve: Tensor | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PointOutputs:
    """What the model says about the explained class, in tensors of one shape.

    Attributes:
        score: its probability; of a model of values, the value.
        logit: the model's output itself.
        predicted: whether the model predicts the class; False of a model of values.
    """

    score: Tensor
    logit: Tensor
    predicted: Tensor

    @classmethod
    def of(cls, table: Tensor) -> PointOutputs:
        """From what ``read`` returns, [..., 3]."""
        score, logit, predicted = table.unbind(-1)
        return cls(score, logit, predicted > 0)


def read(probe: Probe, outputs: Tensor, rows: Tensor) -> Tensor:
    """Score, output and whether the class is predicted, of outputs [P, K] about inputs [P]."""
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    kind, target = probe.output, probe.target[rows]
    logit = take(outputs, target)
    if kind.kind == "value":
        return torch.stack([logit, logit, torch.zeros_like(logit)], 1)
    return torch.stack([kind.score(outputs, target), logit, kind.predicts(outputs, target)], 1)


@dataclass
class MapBatch:
    """N inputs, m maps of each, and the model to ask.

    Attributes:
        x: inputs [N, ...].
        maps: [N, m, *positions].
        methods: the m names.
        probe: asks the model about variants of the inputs; None if no metric needs it.
        masks: bool, or graded annotations, [N, *positions]; None if no metric needs them.
        bounds: the lowest and highest value of each channel.
        seed: of every random draw.
        first: the number of the first input in the whole set.
        part: which of the inputs of the call these are.
    """

    x: Tensor
    maps: Tensor
    methods: tuple[str, ...]
    probe: Any = None
    masks: Any = None
    bounds: Bounds | None = None
    seed: int = 0
    first: int = 0
    part: slice = field(default_factory=lambda: slice(None))
    _traces: dict[Any, PointOutputs] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of positions."""
        return self.maps[0, 0].numel()

    def ask(self, how: PerturbationKind, count: int, hidden: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what the model says about variants of the inputs, [N, count, 3], see ``read``.

        Args:
            how: how positions are hidden.
            count: the variants of each input.
            hidden: which positions are hidden, bool [P, *positions], in variants [P]; they are
                numbered from 0 to N * count. Called for as many as fit into a pass.
        """
        if isinstance(how, Tensor) and how.ndim == self.x.ndim and len(how) > 1:
            how = how[self.part]  # values of each input's own
        draws: Any = {"bounds": self.bounds, "seed": self.seed, "first": self.first}
        probe, kind = self.probe, self.probe.features.kind
        hiding = prepare(self.x, how, kind=kind, **draws)
        numbers = torch.arange(len(self.x) * count, device=self.x.device)
        rows = numbers // count

        def build(part: slice) -> Tensor:
            return hiding.hide(kind.over_input(hidden(numbers[part])), rows[part])

        table: Tensor = probe.ask_points(rows, build, read=lambda *said: read(probe, *said))
        return table.view(len(self.x), count, 3)

    def trace_pixels(self, how: PerturbationKind, steps: int, insert: bool = False) -> PointOutputs:
        """Return the answers as positions go, or come, in equal steps: [N, m, steps + 1].

        Metrics share them: what was asked once is not asked again.
        """
        key = ("pixels", steps, how if isinstance(how, str) else id(how), insert)
        if key not in self._traces:
            step_maps = pixel_steps(self.maps.flatten(2), steps, self.seed, self.first)
            self._traces[key] = self.trace(how, step_maps, steps, insert)
        return self._traces[key]

    def trace(
        self, how: PerturbationKind, step_maps: Tensor, steps: int, insert: bool = False
    ) -> PointOutputs:
        """Return the answers after 0, 1, ..., ``steps`` steps; see ``positions`` for step maps.

        To ``insert``, everything is hidden at first, and each step shows what it would hide. The
        intact input, at the other end, has answered already.
        """
        probe, (count, m) = self.probe, step_maps.shape[:2]
        flat = step_maps.reshape(count * m, *self.maps.shape[2:])

        def hidden(numbers: Tensor) -> Tensor:
            last = (numbers % steps + (not insert)).to(flat.dtype)
            gone = flat[numbers // steps] <= last.view(-1, *(1,) * (flat.ndim - 1))
            return gone ^ insert

        table = self.ask(how, m * steps, hidden).view(count, m, steps, 3)
        rows = torch.arange(count, device=flat.device)
        intact = read(probe, probe.whole, rows).to(table)[:, None, None]
        ends = [intact.expand(-1, m, -1, -1), table]
        return PointOutputs.of(torch.cat(ends[::-1] if insert else ends, 2))


@dataclass(frozen=True)
class Metric:
    """A way to score maps.

    Attributes:
        name: its name with the perturbation, as ``get_metric`` takes it.
        direction: "higher" or "lower": which is better.
        range: the least and the greatest value it can have.
        measures: one sentence on what it measures.
        needs: of "model", "masks" and "image", what it lacks otherwise.
        compute: from a batch to its values.
        middle: how inputs are summed up: the "mean" of their values, or the "median" where single
            inputs can be off without limit.
    """

    name: str
    direction: Literal["higher", "lower"]
    range: tuple[float, float]
    measures: str
    needs: frozenset[str]
    compute: Callable[[MapBatch], MetricValues]
    middle: Literal["mean", "median"] = "mean"

    @property
    def arrow(self) -> str:
        """An arrow in the direction that is better."""
        return "↑" if self.direction == "higher" else "↓"


def ask_sets(batch: MapBatch, how: PerturbationKind, sets: Tensor, keep: bool) -> PointOutputs:
    """Return the answers with only the sets, bool [N, k, *positions], kept or hidden, [N, k]."""
    flat = sets.flatten(0, 1)
    return PointOutputs.of(batch.ask(how, sets.shape[1], lambda numbers: flat[numbers] ^ keep))

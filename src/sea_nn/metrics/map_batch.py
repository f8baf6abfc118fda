"""What a metric is, and the batch it scores: inputs with their maps, and what metrics share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.features import Kind, find_kind
from sea_nn.metrics import curve, order
from sea_nn.metrics.curve import PointOutputs, ask_about, ask_hidden
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.probe import Perturbation
from sea_nn.questions.absent import Bounds, prepare

T = TypeVar("T")
PerturbationKind = str | Tensor


@dataclass(frozen=True)
class MetricValues:
    """What a metric says about N inputs and m maps of each.

    Attributes:
        values: [N, m]; nan where the metric is undefined.
        curve: the numbers behind them, [N, m, points], if there are any.
        axis: where on the horizontal axis these points lie.
        notes: what a reader should know about these values.
    """

    values: Tensor
    curve: Tensor | None = None
    axis: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class MapBatch:
    """N inputs, m maps of each, and the model to ask.

    Attributes:
        x: inputs [N, ...].
        maps: [N, m, *positions].
        methods: the m names.
        evaluator: asks the model about variants of the inputs; None if no metric needs it.
        masks: bool, or graded annotations, [N, *positions].
        bounds: the lowest and highest value of each channel.
        seed: of every random draw.
        first: the number of the first input in the whole set.
        part: which of the inputs of the call these are.
        kind: of the inputs; None: found from x.
    """

    x: Tensor
    maps: Tensor
    methods: tuple[str, ...]
    evaluator: Evaluator | None = None
    masks: Tensor | None = None
    bounds: Bounds | None = None
    seed: int = 0
    first: int = 0
    part: slice = field(default_factory=lambda: slice(None))
    kind: Kind | None = None
    _shared: dict[Any, Any] = field(default_factory=dict)

    def perturbation(self, kind: PerturbationKind) -> Perturbation:
        """Return a way of hiding positions, prepared once."""
        values = kind
        if isinstance(kind, Tensor) and kind.ndim == self.x.ndim and len(kind) > 1:
            values = kind[self.part]
        return self._share(
            ("perturbation", _key(kind)),
            lambda: prepare(
                self.x,
                values,
                bounds=self.bounds,
                seed=self.seed,
                first=self.first,
                kind=self.kind,
            ),
        )

    def pixel_steps(self, steps: int) -> tuple[Tensor, int]:
        """Return the step maps that hide pixels in equal steps, and the last step."""
        flat = self.maps.flatten(2)
        return self._share(
            ("pixels", steps),
            lambda: (order.pixel_steps(flat, steps, self.seed, self.first), steps),
        )

    def window_steps(self, size: int, count: int, edge: bool) -> tuple[Tensor, Tensor]:
        """Return the step maps of the greedy windows and their numbers."""
        return self._share(
            ("windows", size, count, edge),
            lambda: order.window_steps(
                self.maps, size, count, edge=edge, seed=self.seed, first=self.first
            ),
        )

    def trace(
        self, key: Any, kind: PerturbationKind, step_maps: Tensor, steps: int, insert: bool = False
    ) -> PointOutputs:
        """Return the model's answers along step maps; ``key`` names these maps."""
        return self._share(
            ("trace", key, _key(kind), insert),
            lambda: curve.trace(
                self.need_model(),
                self.perturbation(kind),
                step_maps.flatten(2),
                steps,
                kind=self.find_kind(),
                insert=insert,
                whole=lambda: self.whole(kind),
            ),
        )

    def whole(self, kind: PerturbationKind) -> PointOutputs:
        """Return the answers about the inputs hidden altogether."""
        return self._share(
            ("whole", _key(kind)), lambda: ask_hidden(self.need_model(), self.perturbation(kind))
        )

    def need_model(self) -> Evaluator:
        """Return the evaluator, which must be there."""
        if self.evaluator is None:
            raise InputError("this metric asks the model, and none was given")
        return self.evaluator

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the positions."""
        return self.find_kind().map_shape(self.x)

    def find_kind(self) -> Kind:
        """The inputs' kind."""
        return find_kind(self.x) if self.kind is None else self.kind

    @property
    def n(self) -> int:
        """The number of positions."""
        return self.maps[0, 0].numel()

    def _share(self, key: Any, compute: Callable[[], T]) -> T:
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Metric:
    """A way to score maps.

    Attributes:
        name: its name with perturbation and options, as ``get_metric`` takes it.
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


def ask_sets(batch: MapBatch, kind: PerturbationKind, sets: Tensor, keep: bool) -> PointOutputs:
    """Return the answers with only the sets, bool [N, k, *positions], kept or hidden, [N, k]."""
    perturbation, count = batch.perturbation(kind), sets.shape[1]
    rows = torch.arange(len(sets), device=sets.device).repeat_interleave(count)
    hidden = sets.flatten(0, 1)
    hidden = batch.find_kind().over_input(~hidden if keep else hidden)
    answers = ask_about(
        batch.need_model(), rows, lambda part: perturbation.hide(hidden[part], rows[part])
    )
    return answers.map(lambda table: table.view(-1, count))


def _key(kind: PerturbationKind) -> Any:
    return kind if isinstance(kind, str) else ("tensor", id(kind))

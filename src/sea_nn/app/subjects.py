"""Subjects: a model together with the inputs it takes, so that the page need not know its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sea_nn.call import About, Running
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.model.outputs import Output, Progress, find_output, predict
from sea_nn.questions.absent import prepare
from sea_nn.sea import SEA


@dataclass(frozen=True)
class Given:
    """One input: its name, its tensor [1, ...] or text, and of pictures what to draw, [H, W, 3].

    ``code`` is the Python that makes it of a ``subject``; an upload is known by its name alone.
    """

    name: str
    x: Tensor
    image: Tensor | None = None
    text: str = ""
    code: str = ""


@dataclass(frozen=True)
class Subject:
    """A model with its inputs.

    Attributes:
        name: what the model was asked for by.
        kind: of its inputs.
        model: in evaluation mode.
        labels: class names; may be empty.
        read: turns an upload into inputs, or raises ``InputError``.
        examples: inputs to begin with.
        feature_names: of columns or channels.
        output: what the model's outputs are; None to find out.
        members: attribution methods to choose from, instead of SEA's own choice; may be empty.
    """

    name: str
    kind: Literal["image", "table", "series", "text"]
    model: nn.Module
    labels: tuple[str, ...]
    read: Callable[[str, bytes], Sequence[Given]]
    examples: tuple[Given, ...] = ()
    feature_names: tuple[str, ...] | None = None
    output: str | None = None
    members: tuple[str, ...] = ()

    def label(self, target: int) -> str:
        """The name of a class, or "class 7"."""
        return self.labels[target] if 0 <= target < len(self.labels) else f"class {target}"

    def run(self, given: Given) -> tuple[Tensor, Output]:
        """The model's outputs of an input, [K], and what they are."""
        outputs = predict(self.model, given.x)
        return outputs[0].cpu(), find_output(outputs, self.output)

    def explain(
        self,
        given: Given,
        target: int | tuple[int, int],
        budget: int,
        methods: Sequence[str] | None = None,
        progress: Progress | None = None,
        on_round: Callable[[Explanation], bool] | None = None,
        previous: Explanation | None = None,
    ) -> Explanation:
        """The input's explanation with this many evaluations, as ``SEA.explain`` has it."""
        return SEA(self.model, methods, budget=budget, output=self.output).explain(
            given.x,
            target,
            labels=self.labels or None,
            about=About(
                images=None if given.image is None else given.image.unsqueeze(0),
                feature_names=self.feature_names,
                model_name=self.name,
            ),
            previous=previous,
            running=Running(progress=progress, on_round=on_round),
        )

    def ask(self, given: Given, e: Explanation, sets: Tensor) -> Tensor:
        """The model's outputs with only these features left: bool [R, n] -> [R, K]."""
        left = torch.cat([e.spread(row.unsqueeze(0)) for row in sets.to(given.x.device)])
        hidden = ~Features.of(given.x).over_input(left)
        first = torch.zeros(len(left), dtype=torch.long, device=given.x.device)
        way = Features.of(given.x).kind.absent  # as SEA hides them by default
        return predict(self.model, prepare(given.x, way).hide(hidden, first)).cpu()

"""The classes a model finds likeliest, whichever was explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sea_nn.explanation.provenance import to_text
from sea_nn.model.outputs import Output

COUNT = 5


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


def rank_classes(outputs: Tensor, kind: Output, labels: Sequence[str] | None) -> Ranking | None:
    """The first classes of outputs [N, K], named by ``labels``; None of values or one class.

    >>> import torch
    >>> rank_classes(torch.tensor([[0.0, 3.0]]), Output("logits"), ["cat", "dog"]).names
    (('dog', 'cat'),)
    """
    if kind.kind == "value" or outputs.shape[1] < 2:
        return None
    best = kind.scores(outputs.float()).topk(min(COUNT, outputs.shape[1]))
    names = tuple(tuple(name_class(labels, k) for k in row) for row in best.indices.tolist())
    return Ranking(best.indices, best.values, names)


def name_class(labels: Sequence[str] | None, k: int) -> str:
    """The name of class k, or its number."""
    return to_text(labels[k]) if labels is not None and k < len(labels) else f"class {k}"

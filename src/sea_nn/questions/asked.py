"""What a model was asked about sets of features, and said, kept with an explanation.

A ``Curve`` has its answers along an order: only the first p features left, and these removed. They
are asked last, about the final order, and no function learns from them: they show how far what was
learned from other sets can be believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.function.function import Link, SetFunction, find_r2, list_chain
from sea_nn.function.several import SeveralFunctions
from sea_nn.model.outputs import Output

SAME = 1e-3
BASES = (
    "other inputs",
    "another way to be absent (absent, baselines or background)",
    "other groups of features (feature_mask or grid)",
)


@dataclass(frozen=True)
class Asked:
    """The questions about N inputs of n features, and what the model said.

    Attributes:
        sets: what was left, bool [N, R, n], or the share of each feature, 0 to 1, where halves
            of images were asked about; the first is the empty set.
        answers: the log-odds (or value) of what is explained, float64 [N, R].
        keep: features in the order that keeps the score best, int64 [N, n].
        remove: features in the order whose removal breaks it first, int64 [N, n].
        outputs: the model's own outputs about the sets, [N, R, draws, K], with as many draws of
            what is absent; None of a loaded explanation.
        whole: the same about the whole inputs, [N, K].
        basis: what the questions were about, int64 [N, 3], see ``BASES``; None if unknown.
    """

    sets: Tensor
    answers: Tensor
    keep: Tensor
    remove: Tensor
    outputs: Tensor | None = None
    whole: Tensor | None = None
    basis: Tensor | None = None

    def rows(self, which: Tensor | slice) -> Asked:
        """Those about some of the inputs."""
        cut: dict[str, Any] = {name: part[which] for name, part in self.parts().items()}
        return replace(self, **cut)

    def cut(self, count: int) -> Asked:
        """The first questions about each input."""
        names = [name for name in ("sets", "answers", "outputs") if name in self.parts()]
        return replace(self, **{name: getattr(self, name)[:, :count] for name in names})

    def parts(self) -> dict[str, Tensor]:
        """The tensors by name."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: part for name, part in found if part is not None}

    def compute_r2(self, error: Tensor, link: Link) -> Tensor:
        """R² of predicted scores with these errors; see ``find_r2``. The empty set counts not."""
        return find_r2(self.answers[:, 1:], error, link)

    def read(self, output: Output, target: Tensor, whole: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The outputs, and what they say of another target of the same inputs, [N, R].

        Args:
            output: what the model's outputs are.
            target: the classes, [N], or pairs, [N, 2].
            whole: what the model says of the inputs now, [N, K].
            n: the number of features now.
        """
        if self.outputs is None or self.whole is None:
            raise InputError(
                "previous was loaded from a file, which does not hold the model's outputs: give "
                "an explanation that was made, not loaded"
            )
        count, per_input = self.sets.shape[:2]
        if self.sets.shape[2] != n or self.whole.shape != whole.shape:
            raise InputError(
                f"previous is of {count} inputs with {self.sets.shape[2]} features, and now there "
                f"are {len(whole)} with {n}: explain the same inputs with the same features"
            )
        if not torch.allclose(self.whole, whole.to(self.whole), rtol=SAME, atol=SAME):
            raise InputError("previous is of other inputs or of another model: its answers differ")
        draws = self.outputs.shape[2]
        flat = target.repeat_interleave(per_input * draws, 0)
        score = output.score(self.outputs.flatten(0, 2), flat)
        return self.outputs, score.view(count, per_input, draws).mean(2)

    def check_basis(self, now: Tensor) -> None:
        """Refuse to go on from questions that were about something else than ``now``."""
        if self.basis is None:
            return
        same = (self.basis == now.to(self.basis)).all(0).tolist()
        for own, what in zip(same, BASES, strict=True):
            if not own:
                raise InputError(
                    f"previous was asked about {what}: explain the same inputs in the same way"
                )


@dataclass(frozen=True)
class Curve:
    """What the model said of N inputs along their orders, as scores (probabilities or values).

    Attributes:
        counts: p, int64 [P], from 0 to n.
        left: with only the first p features of the order left, [N, P].
        removed: with these removed, [N, P].
    """

    counts: Tensor
    left: Tensor
    removed: Tensor

    def find(self, p: float) -> int | None:
        """The place in ``counts`` nearest to p features, of those between none and all."""
        inner = range(1, len(self.counts) - 1)
        return min(inner, key=lambda k: abs(math.log(float(self.counts[k]) / p)), default=None)

    def rows(self, which: Tensor | slice) -> Curve:
        """The curves of some of the inputs."""
        return Curve(self.counts, self.left[which], self.removed[which])


def predict_curve(f: SetFunction | SeveralFunctions, order: Tensor) -> tuple[Tensor, Tensor]:
    """What f says along orders [N, n]: the first 0, 1, …, n left, and these removed, [N, n + 1]."""
    left, removed = list_chain(order).chunk(2, 1)
    return f.score(left), f.score(removed)

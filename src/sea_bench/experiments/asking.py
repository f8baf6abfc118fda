"""Asking: SEA as users call it, and a model about sets in the most obvious way there is.

Scores of orders and predictions, and the rivals' own questions, go through ``make_score``, which
shares no code with the questions that SEA asks but what absent features look like.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.questions.absent import prepare
from sea_nn.sea import SEA

ScoreSets = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to what the model says with only these features left, [N, R]."""
VALUES, ROWS = 2**24, 4096  # numbers, and inputs, in one pass of the model at most


def explain(
    model: Callable[..., Any],
    x: Any,
    target: Any = None,
    *,
    given: Any = None,
    **how: Any,
) -> Explanation:
    """What ``SEA(model, **how).explain(x, target, **given)`` gives, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SEA(model, **how).explain(x, target, **(given or {}))


def fill_all(
    x: Tensor, features: Features, way: str, background: Tensor | None = None, draws: int = 1
) -> list[Tensor]:
    """What inputs look like with every feature absent, once for each draw: [N, ...] each.

    ``way`` is "blur", "mean", "baseline" or another name of a way that does not depend on what is
    left; "background_mean" and "background" take the values of other inputs.
    """
    if way == "background_mean" and background is not None:
        return [background.mean(0).expand_as(x)]
    if way == "background" and background is not None:
        return [row.expand_as(x) for row in background[:draws]]
    hiding = prepare(x, way, kind=features.kind)
    rows = torch.arange(len(x), device=x.device)
    return [hiding.hide(torch.ones_like(x, dtype=torch.bool), rows)]


def make_score(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    target: Tensor,
    features: Features,
    fills: Sequence[Tensor],
    output: str = "logits",
) -> ScoreSets:
    """Return a function from sets to the model's score of the target with only these left.

    The score is a probability, or of ``output="value"`` the first column; with several fills it is
    the mean over them.
    """

    @torch.no_grad()
    def score(sets: Tensor) -> Tensor:
        count, per_input = sets.shape[:2]
        left = features.kind.over_input(features.expand(sets.to(x.device)).flatten(0, 1))
        rows = torch.arange(count, device=x.device).repeat_interleave(per_input)
        answers, size = [], max(1, min(ROWS, VALUES // x[0].numel()))
        for part in torch.arange(len(rows), device=x.device).split(size):
            own, kept = rows[part], left[part]
            said = [
                read_output(model(torch.where(kept, x[own], fill[own])), target[own], output)
                for fill in fills
            ]
            answers.append(torch.stack(said).mean(0))
        return torch.cat(answers).view(count, per_input)

    return score


def read_output(said: Tensor, target: Tensor, output: str) -> Tensor:
    """The score of each row's target in what a model says, float64 [rows]."""
    said = said.double()
    if output == "value":
        return said.reshape(len(said), -1)[:, 0]
    chance = said.softmax(1) if output == "logits" else said
    return chance.gather(1, target[:, None])[:, 0]


def to_log_odds(chance: Tensor, least: float = 1e-6) -> Tensor:
    """The log-odds of probabilities, which are kept this far from 0 and 1."""
    return chance.double().clamp(least, 1 - least).logit()

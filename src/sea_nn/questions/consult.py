"""Ask the model where heatmaps say that its evidence is, and join what it says to them."""

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.ensembling.ensemble import ensemble
from sea_nn.questions.answers import Ask, Asking, HalfAnswers, join_answers


def consult(
    ask: Ask, heatmaps: Tensor, weights: Tensor, config: SEAConfig, asking: Asking
) -> tuple[Tensor, Tensor, HalfAnswers]:
    """Ask, join the answers to the heatmaps, learn a map from both, and ask again about that.

    Args:
        ask: see ``make_ask``.
        heatmaps: [N, m, *shape].
        weights: how much each counts, [N, m].
        config: ``rounds`` and ``regions`` say how often and about how many regions.
        asking: how much the answers weigh.

    Returns:
        heatmaps and weights with the answers' own added, and the answers.
    """
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    heat = torch.einsum("nm,nm...->n...", share, heatmaps.to(share))
    answers = HalfAnswers.of(ask, heat, config.regions, asking)
    rows, counted = join_answers(answers, heatmaps, weights)
    for _ in range(1, config.rounds or 1):
        heat = ensemble(rows, config, weights=counted, keep_scorer=False, quiet=True).attribution
        answers = answers + HalfAnswers.of(ask, heat, config.regions, asking)
        rows, counted = join_answers(answers, heatmaps, weights)
    return rows, counted, answers

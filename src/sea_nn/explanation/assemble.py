"""From what the pipeline found to an ``Explanation``."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sea_nn.ensembling.heatmaps import scale
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance
from sea_nn.features import spread
from sea_nn.members.checks import Check
from sea_nn.pipeline import Explained


def assemble(
    found: Explained,
    x: Tensor,
    *,
    images: Tensor | None,
    labels: Sequence[str] | None,
    feature_names: Sequence[str] | None,
    checks: Iterable[Check],
    provenance: Provenance,
) -> Explanation:
    """Return the explanation of the inputs ``x``; the other arguments as for ``SEA.explain``."""
    learned, target = found.learned, found.members.target
    shape = tuple(found.heatmaps.shape[2:])
    answers = None if learned.answers is None else learned.answers.map().float()
    if answers is not None and learned.features is not None and answers.shape[1:] != shape:
        answers = spread(answers, learned.features, shape)
    names = None if labels is None else tuple(_name(labels, t) for t in target.tolist())
    return Explanation(
        attribution=learned.attribution.unsqueeze(1) if x.ndim == 4 else learned.attribution,
        maps=found.heatmaps.float(),
        methods=tuple(found.members.maps),
        target=target,
        score=found.members.output.score(found.members.logits.float(), target),
        order=learned.ensemble.order,
        gains=learned.ensemble.gains,
        feature_shape=learned.ensemble.feature_shape,
        features=learned.features,
        images=images,
        labels=names,
        checks=tuple(checks),
        provenance=provenance,
        values=None if x.ndim == 4 else x.detach().clone(),
        feature_names=None if feature_names is None else tuple(feature_names),
        answers=answers,
    )


def show_input(x: Tensor) -> Tensor | None:
    """Inputs of 1 or 3 channels as pictures, each from its least to its largest value."""
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        return None
    stretched = scale(x.detach().float()).mul(255).round().to(torch.uint8)
    return stretched.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().cpu()


def _name(labels: Sequence[str], target: int) -> str:
    return labels[target] if target < len(labels) else f"class {target}"

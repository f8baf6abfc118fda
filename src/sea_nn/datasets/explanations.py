"""Stored results as ``Explanation`` objects, for reports and plots."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.datasets.read import ExplainedDataset, ExplainedInput
from sea_nn.ensembling.heatmaps import scale
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance

MOST = 200


def to_explanations(data: ExplainedDataset, limit: int = MOST) -> list[Explanation]:
    """The first ``limit`` explained inputs, one ``Explanation`` each.

    Order and gains are read off the stored map. A run that did not keep its members' maps shows
    its own map in their place.
    """
    found = []
    for one in data:
        if one.row["error"] is None:
            found.append(_to_explanation(data, one))
        if len(found) == limit:
            break
    if not found:
        raise InputError(f"{data.out} holds no explained inputs yet")
    return found


def _to_explanation(data: ExplainedDataset, one: ExplainedInput) -> Explanation:
    values, image = one.map, len(data.manifest.shape) == 3
    flat = values.flatten()
    order = flat.argsort(descending=True, stable=True)
    members, methods = one.members, one.methods
    if members is None:
        members, methods = scale(values.unsqueeze(0)), ("SEA's own map",)
    name = one.row["target_name"] or f"class {one.row['target']}"
    manifest = data.manifest
    return Explanation(
        attribution=values[None, None] if image else values[None],
        maps=members[None],
        methods=methods,
        target=torch.tensor([one.row["target"]]),
        score=torch.tensor([one.row["probability"]]),
        order=order[None],
        gains=flat[order][None],
        feature_shape=tuple(values.shape),
        images=_enlarge(one.thumbnail, values) if image else None,
        labels=(f"{name} ({one.id})",),
        feature_names=manifest.feature_names or None,
        provenance=Provenance(
            config=manifest.settings.sea["config"],
            members=manifest.settings.sea["members"],
            call={"output": manifest.settings.sea["output"]},
            versions=manifest.versions,
            seed=manifest.settings.sea["seed"],
            evaluations={"all": one.row["evaluations"]},
            model=manifest.model,
            device=manifest.settings.device,
            created=manifest.created,
        ),
    )


def _enlarge(thumbnail: Tensor | None, values: Tensor) -> Tensor | None:
    if thumbnail is None:
        return None
    size = (int(values.shape[0]), int(values.shape[1]))
    picture = thumbnail.permute(2, 0, 1)[None].float()
    large = interpolate(picture, size, mode="bilinear", align_corners=False)
    return large.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()

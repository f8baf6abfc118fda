"""From what was found to an ``Explanation``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Part, Ranking, show_input
from sea_nn.explanation.provenance import Provenance, find_versions, to_text
from sea_nn.members.checks import Check
from sea_nn.members.run import MemberMaps, to_heatmaps
from sea_nn.model.outputs import Output
from sea_nn.model.probe import Probe
from sea_nn.paper.ensemble import Ensemble
from sea_nn.questions.learn import AnswersMap

MOST_MEMBERS = 8  # targets whose maps are kept
COUNT = 5  # classes that are ranked


@dataclass(frozen=True)
class Learned:
    """What was learned about N inputs from heatmaps.

    Attributes:
        ensemble: the learned functions, with order and gains of the features.
        attribution: the maps, [N, *shape].
        features: the feature of each position of the map, int64 [1, *shape], where several
            positions are one feature (a mask's group, a grid's cell); None: one each.
    """

    ensemble: Ensemble
    attribution: Tensor
    features: Tensor | None


def assemble(
    call: Any,
    probe: Probe,
    members: MemberMaps,
    learned: Learned | AnswersMap,
    checks: Iterable[Check],
    started: float,
    quiet: bool = False,
) -> Explanation:
    """Return the explanation of a ``call.Call``.

    Args:
        call: what was explained.
        probe: the model; it knows how many rows it has seen.
        members: what the members said.
        learned: the learned function and its map; with a budget, one learned from answers.
        checks: what a person should know.
        started: when the explanation was begun.
        quiet: leave out pictures of the inputs.
    """
    target, features = members.target, call.features
    rival = target[:, 1] if target.ndim == 2 else None
    result: Ensemble | AnswersMap
    own: dict[str, Any] = {}
    if isinstance(learned, AnswersMap):
        result, gains = learned, learned.gains.float()
        own = {"function": learned.function, "predict_error": learned.error.float()}
        against = features.add_channel(learned.against.to(gains.dtype))
        own |= {"curve": learned.curve, "asked": learned.asked, "against": against}
        kept, removed = learned.keep.to(gains.dtype), learned.remove.to(gains.dtype)
        own |= {"keep_map": features.add_channel(kept)}
        own |= {"remove_map": features.add_channel(removed), "trusted": learned.trust.float()}
        earlier = () if call.request.previous is None else call.request.previous.members
        others = (one for one in earlier if not torch.equal(one.target, target))
        own["members"] = (*others, members)[-MOST_MEMBERS:]
    else:
        result, gains = learned.ensemble, learned.ensemble.gains
    images = call.request.about.images
    if images is None and not quiet:
        images = show_input(call.x, features.kind)
    names = None
    if call.labels is not None:
        names = tuple(_name(call.labels, t) for t in target.tolist())
    output = probe.output
    return Explanation(
        attribution=features.add_channel(learned.attribution.to(gains.dtype)),
        maps=to_heatmaps(members).float(),
        methods=tuple(members.maps),
        target=target if rival is None else target[:, 0],
        rival=rival,
        score=output.score(members.outputs.float(), target),
        order=result.order,
        gains=gains,
        feature_shape=result.feature_shape,
        features=learned.features,
        images=images,
        labels=names,
        checks=tuple(checks),
        provenance=_tell(call, probe, members, started),
        values=call.x.detach().clone() if features.kind.channels is None else None,
        feature_names=None if features.parts else features.names,
        parts=tuple(
            Part(name, part.kind.name, part.kind.view, part.input_shape, part.kind.channels)
            for name, part in zip(features.names or (), features.parts, strict=False)
        ),
        kind=features.kind.name,
        view=features.kind.view,
        ranking=rank_classes(members.outputs, output, call.labels),
        **own,
    )


def _tell(call: Any, probe: Probe, members: MemberMaps, started: float) -> Provenance:
    """Where an explanation comes from, from settings to seconds."""
    settings, meter, output = call.settings, probe.meter, probe.output
    spent = members.evaluations
    if members.reused:
        spent = dict.fromkeys(spent, 0)
    other = meter.seen - sum(spent.values())
    took, total = sum(members.seconds.values()), time.perf_counter() - started
    assumed: tuple[str, ...] = (f"outputs are {output.kind}: {output.found}",)
    assumed += tuple(notice for notice in probe.notices if notice != output.notice)
    if settings.budget is not None:
        assumed += (call.absent,)
    return Provenance(
        config=settings.config.to_dict() if settings.budget is None else {},
        members=members.options,
        call={**call.told, "output": output.kind},
        versions={**find_versions(), "captum": version("captum")},
        seconds={**members.seconds, "sea": max(0.0, total - took), "total": total},
        evaluations={**spent, "sea": other},
        by_purpose=divide(meter.rows, len(call.x)),
        assumed=assumed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=settings.seed,
        model=call.name,
        device=str(call.x.device),
    )


def divide(rows: Mapping[str, int], count: int) -> dict[str, int]:
    """The rows that a model saw by purpose, an input of this many; their sum is right."""
    members, questions = -(-rows["members"] // count), rows["questions"] // count
    checks = -(-sum(rows.values()) // count) - members - questions
    return {"members": members, "questions": questions, "checks": checks}


def rank_classes(outputs: Tensor, kind: Output, labels: Sequence[str] | None) -> Ranking | None:
    """The first classes of outputs [N, K], named by ``labels``; None of values or one class.

    >>> rank_classes(torch.tensor([[0.0, 3.0]]), Output("logits"), ["cat", "dog"]).names
    (('dog', 'cat'),)
    """
    if kind.kind == "value" or outputs.shape[1] < 2:
        return None
    best = kind.scores(outputs.float()).topk(min(COUNT, outputs.shape[1]))
    names = tuple(tuple(_name(labels, k) for k in row) for row in best.indices.tolist())
    return Ranking(best.indices, best.values, names)


def _name(labels: Sequence[str] | None, target: int | list[int]) -> str:
    """The name of a class, or its number; of a contrast, those of both."""
    if isinstance(target, list):
        return ", not ".join(_name(labels, k) for k in target)
    known = labels is not None and target < len(labels)
    return to_text(labels[target]) if labels is not None and known else f"class {target}"

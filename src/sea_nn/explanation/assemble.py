"""From what was found to an ``Explanation``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.parts import Part, show_input
from sea_nn.explanation.provenance import Provenance, find_versions
from sea_nn.explanation.ranking import name_class, rank_classes
from sea_nn.features import Features
from sea_nn.features.kinds import TABLE
from sea_nn.function.function import CLIP, find_rounding
from sea_nn.members.checks import Check, Level
from sea_nn.members.member_maps import MemberMaps
from sea_nn.model.probe import Probe
from sea_nn.paper.ensemble import Ensemble
from sea_nn.questions.learn import AnswersMap

MOST_MEMBERS = 8  # targets whose maps are kept
LITTLE = 0.25  # an R² below which a function says little of the model


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


@dataclass(frozen=True)
class Explained:
    """Everything that was found.

    Attributes:
        members: the members' raw maps, the class explained and the model's answers about x.
        heatmaps: the members' maps, absolute and scaled to [0, 1], [N, m, *shape].
        learned: the learned function and its map; with a budget, one learned from answers.
        probe: the model; it knows how many rows it has seen.
        started: when the explanation was begun.
    """

    members: MemberMaps
    heatmaps: Tensor
    learned: Learned | AnswersMap
    probe: Probe
    started: float


def assemble(
    call: Any, found: Explained, checks: Iterable[Check], quiet: bool = False
) -> Explanation:
    """Return the explanation of a ``call.Call``; a quiet one has no pictures of its inputs."""
    learned, target, features = found.learned, found.members.target, call.features
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
        earlier = () if call.previous is None else call.previous.members
        others = (one for one in earlier if not torch.equal(one.target, target))
        own["members"] = (*others, found.members)[-MOST_MEMBERS:]
    else:
        result, gains = learned.ensemble, learned.ensemble.gains
    images = call.about.images
    if images is None and not quiet:
        images = show_input(call.x, features.kind)
    names = None
    if call.labels is not None:
        names = tuple(_name(call.labels, t) for t in target.tolist())
    output = found.probe.output
    return Explanation(
        attribution=features.add_channel(learned.attribution.to(gains.dtype)),
        maps=found.heatmaps.float(),
        methods=tuple(found.members.maps),
        target=target if rival is None else target[:, 0],
        rival=rival,
        score=output.score(found.members.outputs.float(), target),
        order=result.order,
        gains=gains,
        feature_shape=result.feature_shape,
        features=learned.features,
        images=images,
        labels=names,
        checks=tuple(checks),
        provenance=_tell(call, found),
        values=call.x.detach().clone() if features.kind.channels is None else None,
        feature_names=None if features.parts else features.names,
        parts=tuple(
            Part(name, part.kind.name, part.kind.view, part.input_shape, part.kind.channels)
            for name, part in zip(features.names or (), features.parts, strict=False)
        ),
        kind=features.kind.name,
        view=features.kind.view,
        ranking=rank_classes(found.members.outputs, output, call.labels),
        **own,
    )


def _tell(call: Any, found: Explained) -> Provenance:
    """Where an explanation comes from, from settings to seconds."""
    members, meter, output = found.members, found.probe.meter, found.probe.output
    spent = members.evaluations
    if members.reused:
        spent = dict.fromkeys(spent, 0)
    other = meter.seen - sum(spent.values())
    took, total = sum(members.seconds.values()), time.perf_counter() - found.started
    assumed: tuple[str, ...] = (f"outputs are {output.kind}: {output.found}",)
    assumed += tuple(notice for notice in found.probe.notices if notice != output.notice)
    if call.budget is not None:
        assumed += (call.absent,)
    return Provenance(
        config=call.config.to_dict() if call.budget is None else {},
        members=members.options,
        call={**call.told, "output": output.kind},
        versions={**find_versions(), "captum": version("captum")},
        seconds={**members.seconds, "sea": max(0.0, total - took), "total": total},
        evaluations={**spent, "sea": other},
        by_purpose=divide(meter.rows, len(call.x)),
        assumed=assumed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=call.seed,
        model=call.name,
        device=str(call.x.device),
    )


def divide(rows: Mapping[str, int], count: int) -> dict[str, int]:
    """The rows that a model saw by purpose, an input of this many; their sum is right."""
    members, questions = -(-rows["members"] // count), rows["questions"] // count
    checks = -(-sum(rows.values()) // count) - members - questions
    return {"members": members, "questions": questions, "checks": checks}


def check_function(learned: AnswersMap) -> list[Check]:
    """What to know of functions learned from answers: clipped log-odds, classes without support."""
    f, checks = learned.function, []
    if learned.stopped:
        done = f"questions ended after {f.n_answers}: {learned.stopped}"
        level: Level = "warn" if learned.stopped == "interrupted" else "ok"
        checks.append(Check(level, "questions", done, "the map is of what was answered until then"))
    for i in range(len(learned.order)):
        checks += check_answers(learned, i, f"input {i}")
    return checks


def check_answers(
    learned: AnswersMap, i: int, subject: str, absent: str = "choose SEA(model, absent=)"
) -> Iterator[Check]:
    """Warn of clipped log-odds, of a function that says little, and of a target without support.

    The last is an input that says no more for the target than an empty one.

    Args:
        learned: what was learned from the answers.
        i: the input.
        subject: what the checks call it.
        absent: how to choose another way to be absent, where its map is empty.
    """
    if bool(learned.clipped[i]):
        message = f"the model is surer than {1 - CLIP:g}: its log-odds are clipped"
        yield Check("warn", subject, message, "gains are lower bounds")
    f = learned.function
    own = slice(i, i + 1)
    share = float(learned.asked.rows(own).compute_r2(learned.error[own], f.link))
    if share < LITTLE:
        message = f"the learned function says little: R² {share:.2f} on answers left out of its fit"
        yield Check("warn", subject, message, "trust its order more than its values, or ask more")
    change = float(f.all[i] - f.none[i])
    if change > float(find_rounding(f)[i]):
        return
    message = f"the whole input says no more for the target than an empty one: {change:.3g}"
    advice = f"its map is empty; explain another target, or {absent}"
    if bool(learned.against[i].any()):
        advice = "the map has what speaks for it, e.against what speaks against it"
        if not bool((learned.gains[i] > 0).any()):
            advice = "its map is empty: nothing speaks for it; e.against has what speaks against it"
    yield Check("warn", subject, message, advice)


def check_range(x: Tensor, background: Tensor, features: Features) -> list[Check]:
    """Warn of a table's values that the background does not have the like of."""
    if features.kind is not TABLE:
        return []
    names = features.names
    low, high = background.aminmax(dim=0)
    outside, checks = (x < low) | (x > high), []
    for i in outside.any(1).nonzero().flatten().tolist():
        which = outside[i].nonzero().flatten().tolist()
        said = ", ".join(names[k] if names else f"column {k}" for k in which[:3])
        more = f" and {len(which) - 3} more" if len(which) > 3 else ""
        message = f"outside what the background has: {said}{more}"
        advice = "the model may not know such values; nor does what is absent look like them"
        checks.append(Check("warn", f"input {i}", message, advice))
    return checks


def _name(labels: Sequence[str], target: int | list[int]) -> str:
    if isinstance(target, list):
        return ", not ".join(name_class(labels, t) for t in target)
    return name_class(labels, target)

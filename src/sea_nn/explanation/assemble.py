"""From what the pipeline found to an ``Explanation``."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.parts import Part
from sea_nn.explanation.provenance import Provenance, find_versions
from sea_nn.explanation.ranking import name_class, rank_classes
from sea_nn.explanation.sets import ROUNDING
from sea_nn.features import Features
from sea_nn.features.kinds import TABLE
from sea_nn.members.checks import Check, Level
from sea_nn.members.member_maps import MemberMaps
from sea_nn.paper.ensemble import Ensemble
from sea_nn.pipeline import Explained
from sea_nn.questions.asked import Asked
from sea_nn.questions.learn import CLIP, AnswersMap

MOST_MEMBERS = 8  # targets whose maps are kept
LITTLE = 0.25  # an R² below which a function says little of the model


def assemble(
    found: Explained,
    x: Tensor,
    *,
    images: Tensor | None,
    labels: Sequence[str] | None,
    checks: Iterable[Check],
    provenance: Provenance,
    earlier: Sequence[MemberMaps] = (),
) -> Explanation:
    """Return the explanation of the inputs ``x``; the other arguments as for ``SEA.explain``."""
    learned, target, features = found.learned, found.members.target, found.features
    rival = target[:, 1] if target.ndim == 2 else None
    result: Ensemble | AnswersMap
    own: dict[str, Any] = {}
    if isinstance(learned, AnswersMap):
        result, gains = learned, learned.gains.float()
        own = {"function": learned.function, "predict_error": learned.error.float()}
        against = features.add_channel(learned.against.to(gains.dtype))
        own |= {"curve": learned.curve, "asked": learned.asked, "against": against}
        others = (one for one in earlier if not torch.equal(one.target, target))
        own["members"] = (*others, found.members)[-MOST_MEMBERS:]
    else:
        result, gains = learned.ensemble, learned.ensemble.gains
    attribution = learned.attribution.to(gains.dtype)
    names = None if labels is None else tuple(_name(labels, t) for t in target.tolist())
    return Explanation(
        attribution=features.add_channel(attribution),
        maps=found.heatmaps.float(),
        methods=tuple(found.members.maps),
        target=target if rival is None else target[:, 0],
        rival=rival,
        score=found.members.output.score(found.members.outputs.float(), target),
        order=result.order,
        gains=gains,
        feature_shape=result.feature_shape,
        features=learned.features,
        images=images,
        labels=names,
        checks=tuple(checks),
        provenance=provenance,
        values=x.detach().clone() if features.kind.channels is None else None,
        feature_names=None if features.parts else features.names,
        parts=tuple(
            Part(name, part.kind.name, part.kind.view, part.input_shape, part.kind.channels)
            for name, part in zip(features.names or (), features.parts, strict=False)
        ),
        kind=features.kind.name,
        view=features.kind.view,
        ranking=rank_classes(found.members.outputs, found.members.output, labels),
        **own,
    )


def describe_run(found: Explained, call: dict[str, Any], captum: str, **about: Any) -> Provenance:
    """How an explanation was made, from settings to seconds; ``about`` are further fields of it."""
    return Provenance(
        config=found.config.to_dict(),
        members=found.members.options,
        call={**call, "output": found.members.output.kind},
        versions={**find_versions(), "captum": captum},
        seconds=found.seconds,
        evaluations=found.evaluations,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    )


def find_asked(previous: Any, budget: int | None) -> Asked | None:
    """The questions of an earlier explanation, or why they cannot be used."""
    if previous is None:
        return None
    if not isinstance(previous, Explanation):
        raise KindError(f"previous must be an Explanation; got {type(previous).__name__}")
    if budget is None or previous.asked is None:
        raise InputError(
            "previous is for explanations with a budget: SEA(model, budget=512).explain(x, "
            "previous=e), where e has one as well"
        )
    return previous.asked


def check_labels(labels: Any) -> None:
    """Refuse names of classes that are no list."""
    if isinstance(labels, str) or not (labels is None or hasattr(labels, "__getitem__")):
        raise KindError(f"labels must be a list of the classes' names; got {labels!r}")


def check_function(found: Explained) -> list[Check]:
    """What to know of functions learned from answers: clipped log-odds, classes without support."""
    result = found.learned
    if not isinstance(result, AnswersMap):
        return []
    f, checks = result.function, []
    if result.stopped:
        done = f"questions ended after {f.n_answers}: {result.stopped}"
        level: Level = "warn" if result.stopped == "interrupted" else "ok"
        checks.append(Check(level, "questions", done, "the map is of what was answered until then"))
    for i in range(len(result.order)):
        checks += check_answers(result, i, f"input {i}")
    return checks


def check_answers(
    learned: AnswersMap, i: int, subject: str, absent: str = "set SEAConfig.absent"
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
    size = max(abs(float(f.all[i])), abs(float(f.none[i])), f.link == "log-odds")
    if change > ROUNDING * size:
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

"""From what was found to an ``Explanation``: its fields, its checks, and where it comes from."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import VERSIONS, Part, Provenance, Ranking, show_input, to_text
from sea_nn.features import TABLE
from sea_nn.function.function import CLIP, find_r2, find_rounding
from sea_nn.members.checks import check_completeness, check_maps
from sea_nn.members.run import Check, MemberMaps, check_members, check_probe
from sea_nn.model.outputs import SAID, Output, read_both_ways
from sea_nn.model.probe import Probe
from sea_nn.questions.learn import AnswersMap, choose_counts

MOST_MEMBERS = 8  # targets whose maps are kept
COUNT = 5  # classes that are ranked
MUCH, LITTLE = 0.7, 0.25  # a doubt above the one, and R² below the other: f says little
AS_LIKELY = 0.9  # this share of the whole input's probability is as much
DISAGREE = 0.25  # first features that keep less of their worth than this are first by one fill only
LEAST_WORTH = 0.2  # first features that are worth less, of the whole's difference, tell nothing
FEW = 5  # inputs: of fewer, nothing is said of all
RARELY = 1 / 3  # of labels that a model predicts: fewer are no accident
SATURATED = 30  # log-odds of which float32 knows no probability
UNSURE = 0.97  # of the most entropy that there is
LEAST_FOR_EMPTY = 10  # questions: of fewer, none is spent on another fill
ENOUGH = 8  # rows that tell the range of a column
FAR = 4  # so many standard deviations from a column's mean, 0 is no value of it
DEPENDS = "this map depends on what absent means"
ASK_OTHERWISE = (
    "give background=, inputs without what matters, or compare with another SEA(absent=)"
)


@dataclass(frozen=True)
class Learned:
    """What was learned about N inputs from heatmaps; ``AnswersMap`` has the same and more.

    Attributes:
        order: features, the best first, [N, n].
        gains: what each adds after those before it, [N, n].
        feature_shape: the shape of the feature space; its product is n.
        attribution: the maps, [N, *shape].
        features: the feature of each position of the map, int64 [1, *shape], where several
            positions are one feature (a mask's group, a grid's cell); None: one each.
    """

    order: Tensor
    gains: Tensor
    feature_shape: tuple[int, ...]
    attribution: Tensor
    features: Tensor | None


def assemble(
    call: Any,
    probe: Probe,
    members: MemberMaps,
    learned: Learned | AnswersMap,
    checks: Sequence[Check],
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
    target, features, gains = members.target, call.features, learned.gains
    kind, images, labels = features.kind, call.request.about.images, None
    if images is None and not quiet:
        images = show_input(call.x, kind)
    if call.labels is not None:
        labels = tuple(name_class(call.labels, t) for t in target.tolist())
    parts = tuple(
        Part(name, part.kind.name, part.kind.view, part.input_shape, part.kind.channels)
        for name, part in zip(features.names or (), features.parts, strict=False)
    )
    found: dict[str, Any] = {}
    maps = {"attribution": learned.attribution}
    if isinstance(learned, AnswersMap):
        gains, previous = gains.float(), call.request.previous
        earlier = () if previous is None else previous.members
        kept = [*(one for one in earlier if not torch.equal(one.target, target)), members]
        maps |= {
            "against": learned.against,
            "keep_map": learned.keep,
            "remove_map": learned.remove,
        }
        found = {
            "function": learned.function,
            "predict_error": learned.function.error.float(),
            "curve": learned.curve,
            "asked": learned.asked,
            "trusted": learned.trust.float(),
            "members": tuple(kept[-MOST_MEMBERS:]),
        }
    for name, one in maps.items():
        found[name] = one.to(gains.dtype)
        if kind.channels is not None:  # one channel stands for all
            found[name] = found[name].unsqueeze(1)
    return Explanation(
        **found,
        maps=members.to_heatmaps().float(),
        methods=tuple(members.maps),
        target=target if target.ndim == 1 else target[:, 0],
        rival=None if target.ndim == 1 else target[:, 1],
        score=probe.output.score(members.outputs.float(), target),
        order=learned.order,
        gains=gains,
        feature_shape=learned.feature_shape,
        features=learned.features,
        images=images,
        labels=labels,
        checks=tuple(checks),
        provenance=tell(call, probe, members, started),
        values=call.x.detach().clone() if kind.channels is None else None,
        feature_names=None if features.parts else features.names,
        parts=parts,
        kind=kind.name,
        view=kind.view,
        ranking=rank_classes(members.outputs, probe.output, call.labels),
    )


def tell(call: Any, probe: Probe, members: MemberMaps, started: float) -> Provenance:
    """Where an explanation comes from, from settings to seconds."""
    settings, meter, output = call.settings, probe.meter, probe.output
    spent = dict.fromkeys(members.evaluations, 0) if members.reused else members.evaluations
    took, total = sum(members.seconds.values()), time.perf_counter() - started
    assumed = [f"outputs are {output.kind}: {output.found}", *probe.notices]
    if output.notice in assumed:
        assumed.remove(output.notice)
    if output.kind == "logits" and output.found != SAID and probe.target.ndim == 1:
        one, own = read_both_ways(probe.whole, probe.target)
        assumed[0] += (
            f" (of the first input a softmax says {one:.2f}; were each column a label of its own, "
            f'it would be {own:.2f}: output="sigmoid")'
        )
    if settings.budget is not None:
        assumed.append(call.absent)
    return Provenance(
        config=settings.config.to_dict() if settings.budget is None else {},
        members=members.options,
        call={**call.told, "output": output.kind},
        versions={**VERSIONS, "captum": version("captum")},
        seconds={**members.seconds, "sea": max(0.0, total - took), "total": total},
        evaluations={**spent, "sea": meter.seen - sum(spent.values())},
        by_purpose=divide(meter.rows, len(call.x)),
        assumed=tuple(assumed),
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
    names = tuple(tuple(name_class(labels, k) for k in row) for row in best.indices.tolist())
    return Ranking(best.indices, best.values, names)


def name_class(labels: Sequence[str] | None, target: int | list[int]) -> str:
    """The name of a class, or its number; of a contrast, those of both."""
    if isinstance(target, list):
        return ", not ".join(name_class(labels, k) for k in target)
    known = labels is not None and target < len(labels)
    return to_text(labels[target]) if labels is not None and known else f"class {target}"


def find_checks(
    call: Any, probe: Probe, members: MemberMaps, learned: Learned | AnswersMap
) -> tuple[Check, ...]:
    """What a person should know about an explanation: few lines, and the first matters most."""
    checks = [*check_probe(probe), *check_outputs(probe, call.target, members)]
    optional = {entry.label for entry in call.entries if entry.optional}
    checks += check_members(members, optional)
    if isinstance(learned, AnswersMap):
        checks += check_function(learned, check_absence(call, probe, learned))
    else:
        checks += [*check_maps(members), *check_completeness(probe, members)]
    if call.features.kind is TABLE:
        checks += check_columns(call)
    return tuple(checks)


def check_function(learned: AnswersMap, absence: Mapping[int, Check]) -> Iterator[Check]:
    """What to know of functions learned from answers that say nothing, or little, or are clipped.

    Args:
        learned: the functions.
        absence: by input, that its map depends on what absent means.
    """
    f = learned.function
    if learned.stopped:
        done = f"questions ended after {f.n_answers}: {learned.stopped}"
        level: Any = "warn" if learned.stopped == "interrupted" else "ok"
        yield Check(level, "questions", done, "the map is of what was answered until then")
    rounding, doubts = find_rounding(f), f.find_doubt()
    told = find_r2(learned.asked.answers[:, 1:], f.error, f.link)
    for i in range(len(learned.order)):
        subject, answers = f"input {i}", torch.cat([learned.asked.answers[i], f.all[i]])
        if float(answers.max() - answers.min()) <= float(rounding[i]):
            said = float(learned.curve.left[i, -1])
            message = f"the model says the same whatever is left of it, {said:.3g}"
            advice = "its map is empty; check the model and its preprocessing, or another target"
            yield Check("fail", subject, message, advice)
            continue
        change, doubt = float(f.all[i] - f.none[i]), float(doubts[i])
        if change <= float(rounding[i]):
            message = f"the whole input says no more for the target than an empty one: {change:.3g}"
            advice = "the map has what speaks for it, if anything, e.against what speaks against it"
            yield Check("warn", subject, message, f"{advice}; or explain another target")
        elif i in absence:
            yield absence[i]
        if doubt > MUCH and float(told[i]) < LITTLE:
            message = f"the learned function says little: intervals {doubt:.0%} as wide as without"
            advice = "trust its order more than its values, or ask more"
            yield Check("warn", subject, message, advice)
        if bool(learned.clipped[i]):
            message = f"the model is surer than {1 - CLIP:g}: its log-odds are clipped"
            yield Check("ok", subject, message, "gains are lower bounds")


def check_outputs(probe: Probe, target: Any, members: MemberMaps) -> Iterator[Check]:
    """What the answers about the whole inputs tell of the set-up: classes, units, gradients.

    Args:
        probe: the model.
        target: as the caller said: a list of classes may be the inputs' labels.
        members: what members said.
    """
    whole, output = probe.whole.detach().double().cpu(), probe.output
    count, classes = whole.shape
    if output.kind in ("logits", "sigmoid") and classes > 1:
        rest = whole.scatter(1, whole.argmax(1, keepdim=True), -torch.inf).logsumexp(1)
        sure = whole.amax(1) - rest if output.kind == "logits" else whole.abs().amax(1)
        if float(sure.median()) > SATURATED:
            what = f"its answers are saturated: log-odds of {sure.median():.0f} (median)"
            advice = "inputs in other units than those of the training (0 to 255 for 0 to 1)?"
            yield Check("warn", "model", what, advice)
    if output.kind in ("logits", "probabilities") and classes > 1 and count >= FEW:
        p = output.scores(whole)
        entropy = -(p * p.clamp_min(1e-12).log()).sum(1) / math.log(classes)
        if bool((entropy > UNSURE).all()):
            what = f"it hardly prefers any class: at most {p.max():.2f} of one of {classes}"
            yield Check("warn", "model", what, "are these its trained weights, and its inputs?")
        said = torch.as_tensor(target) if isinstance(target, list | Tensor) else torch.zeros(())
        if said.shape == (count,) and len(said.unique()) > 1:
            right = int((whole.argmax(1) == said.cpu()).sum())
            if right <= RARELY * count:
                what = f"it predicts the class explained for {right} of {count} inputs"
                advice = "if these are their labels: is the order of the classes right, are the "
                advice += "weights trained, and is the preprocessing that of the training?"
                yield Check("warn", "model", what, advice)
    module = probe.model.module
    weights = module is not None and any(map(torch.is_floating_point, module.parameters()))
    flat = not any(map(torch.any, members.maps.values()))
    if weights and flat and (members.maps or not probe.has_gradient):
        what = "no gradient reaches its inputs: they are detached, rounded or saturated on the way"
        yield Check("warn", "model", what, "the map rests on its answers alone")


def count_otherwise(questions: int, n: int) -> int:
    """How many of the questions about an input of n features are asked by another fill.

    >>> [count_otherwise(q, 64) for q in (9, 14, 40, 100, 500)]
    [0, 1, 3, 5, 5]
    """
    if questions < LEAST_FOR_EMPTY:
        return 0
    return 1 + 2 * len(_choose_first(torch.tensor(choose_counts(questions, n)), n))


def _choose_first(counts: Tensor, n: int) -> Tensor:
    """Of numbers of features that a curve was asked about, those that tell which are first."""
    return counts[(n / 16 <= counts) & (counts <= n / 4)][-2:]


def check_absence(call: Any, probe: Probe, learned: AnswersMap) -> dict[int, Check]:
    """Does the map depend on what absent means? The inputs of which it does, with what to do.

    The empty input, the first features of the order and the input without them are asked about by
    another fill, where the caller did not say what absent means, and the answers are compared with
    those that the map was learned from.
    """
    features, curve, n = call.asked, learned.curve, call.asked.n
    left = (call.settings.budget or 0) - -(-probe.meter.seen // len(call.x))
    whole, empty = curve.left[:, -1].double(), curve.left[:, 0].double()
    likely = (AS_LIKELY * whole) if learned.function.link == "log-odds" else whole + torch.inf
    other, own = torch.full_like(empty, -torch.inf), torch.zeros_like(empty)
    first, by_other = _choose_first(curve.counts[1:-1], n)[: max(0, left - 1) // 2], own
    if call.other is not None and left >= 1 and learned.stopped != "interrupted":
        rank = learned.order.argsort(1)
        some = rank[:, None] < torch.cat([first.new_zeros(1), first]).to(rank)[:, None]
        sets = torch.cat([some, ~some[:, 1:]], 1)
        hidden = replace(probe, hiding=call.other, said=[])
        answers = hidden.ask(sets, features, "checks").double().cpu()
        other = answers[:, 0]
        if len(first):
            places = torch.isin(curve.counts, first)
            own = (curve.left - curve.removed)[:, places].double().mean(1)
            kept, gone = answers[:, 1:].chunk(2, 1)
            by_other = (kept - gone).mean(1)
    apart = (own > LEAST_WORTH * (whole - empty).abs()) & (by_other < DISAGREE * own)
    found: dict[int, Check] = {}
    for i in range(len(whole)):
        told = ""
        still = max(empty[i], other[i])  # blurred, or its own mean
        if still >= likely[i]:
            told = f"with nothing left the model says {still:.2f}, of the whole {whole[i]:.2f}"
        elif apart[i]:
            told = f"with its first {int(first[-1])} features alone, and without them, the model's "
            told += f"answers differ by {own[i]:.2f} where the rest is blurred, and by "
            told += f"{by_other[i]:.2f} where it is the mean"
        if told:
            found[i] = Check("warn", f"input {i}", f"{DEPENDS}: {told}", ASK_OTHERWISE)
    return found


def check_columns(call: Any) -> Iterator[Check]:
    """Warn of a table's values that are far from what is absent, where a model may know neither.

    With a background these are values beyond all of its own; where 0 stands for what is absent,
    columns that are far from it.
    """
    x, zero = call.x, call.settings.absent is None and call.baselines is None
    names = call.features.names or [f"column {k}" for k in range(x.shape[1])]
    low, high = (x if call.background is None else call.background).aminmax(dim=0)
    if call.background is not None:
        outside = (x < low) | (x > high)
        for i in outside.any(1).nonzero().flatten().tolist():
            told = [names[k] for k in outside[i].nonzero().flatten().tolist()]
            message = f"outside what the background has: {_list_few(told)}"
            advice = "the model may not know such values; nor does what is absent look like them"
            yield Check("warn", f"input {i}", message, advice)
    elif call.settings.budget and zero and len(x) >= ENOUGH:
        away = x.mean(0).abs() / x.std(0)
        away = torch.where(((low > 0) | (high < 0)) & (high > low), away, 0.0)
        far = [k for k in away.argsort(descending=True).tolist() if away[k] > FAR]
        told = [f"{names[k]} ({low[k]:.4g} to {high[k]:.4g})" for k in far]
        message = f"what is left out becomes 0, up to {away.max():.2g} standard deviations off: "
        advice = "the model may know no such rows: give background=, rows that it was trained on"
        if far:
            yield Check("warn", "absent", message + _list_few(told), advice)


def _list_few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more

"""What a person should know about an explanation: few lines, and the first matters most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.features import TABLE, Features
from sea_nn.function.function import CLIP, find_rounding
from sea_nn.members.checks import Check, Level
from sea_nn.members.run import MemberMaps
from sea_nn.model.probe import Perturbation, Probe
from sea_nn.questions.curve import choose_counts
from sea_nn.questions.learn import AnswersMap

MOST_LINES = 3  # above "ok", about an input
MUCH = 0.7  # a doubt from which on a function says little of the model
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


def keep_first(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks without what comes after three lines about an input."""
    kept, lines = [], Counter[str]()
    for check in checks:
        if check.level != "ok" and check.subject.startswith("input "):
            lines[check.subject] += 1
        if check.level == "ok" or lines[check.subject] <= MOST_LINES:
            kept.append(check)
    return tuple(kept)


def check_function(learned: AnswersMap, absence: dict[int, Check]) -> list[Check]:
    """What to know of functions learned from answers.

    Args:
        learned: the functions.
        absence: by input, that its map depends on what absent means.
    """
    f, checks = learned.function, []
    if learned.stopped:
        done = f"questions ended after {f.n_answers}: {learned.stopped}"
        level: Level = "warn" if learned.stopped == "interrupted" else "ok"
        checks.append(Check(level, "questions", done, "the map is of what was answered until then"))
    for i in range(len(learned.order)):
        checks += _check_answers(learned, i, absence.get(i))
    return checks


def _check_answers(learned: AnswersMap, i: int, absence: Check | None) -> Iterator[Check]:
    """An input whose answers say nothing, or little, or are clipped; what matters most first."""
    subject, f = f"input {i}", learned.function
    answers = torch.cat([learned.asked.answers[i], f.all[i]])
    rounding = float(find_rounding(f)[i])
    if float(answers.max() - answers.min()) <= rounding:
        message = f"the model says the same whatever is left of it, {learned.curve.left[i, -1]:.3g}"
        advice = (
            "its map is empty; check the model and its preprocessing, or explain another target"
        )
        yield Check("fail", subject, message, advice)
        return
    change = float(f.all[i] - f.none[i])
    if change <= rounding:
        message = f"the whole input says no more for the target than an empty one: {change:.3g}"
        advice = "its map is empty; explain another target, or choose SEA(model, absent=)"
        if bool(learned.against[i].any()):
            advice = "the map has what speaks for it, e.against what speaks against it"
            if not bool((learned.gains[i] > 0).any()):
                advice = "its map is empty: nothing speaks for it; e.against has what is against it"
        yield Check("warn", subject, message, advice)
    elif absence is not None:
        yield absence
    doubt = float(f.find_doubt()[i])
    if doubt > MUCH:
        message = (
            f"the learned function says little: its intervals are {doubt:.0%} as wide as without it"
        )
        yield Check("warn", subject, message, "trust its order more than its values, or ask more")
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
    module = probe.evaluator.module
    weights = module is not None and any(w.is_floating_point() for w in module.parameters())
    flat = all(not bool(maps.any()) for maps in members.maps.values())
    if weights and flat and (members.maps or not probe.evaluator.has_gradient):
        what = "no gradient reaches its inputs: they are detached, rounded or saturated on the way"
        yield Check("warn", "model", what, "the map rests on its answers alone")


def count_otherwise(questions: int, n: int) -> int:
    """How many of the questions about an input of n features are asked by another fill.

    >>> [count_otherwise(q, 64) for q in (9, 14, 40, 100, 500)]
    [0, 1, 3, 5, 5]
    """
    if questions < LEAST_FOR_EMPTY:
        return 0
    return 1 + 2 * len(_choose_first(choose_counts(questions, n), n))


def _choose_first(counts: Sequence[int], n: int) -> list[int]:
    """Of numbers of features that a curve was asked about, those that tell which are first."""
    return [k for k in counts if n / 16 <= k <= n / 4][-2:]


def check_absence(
    probe: Probe, learned: AnswersMap, features: Features, other: Perturbation | None, left: int
) -> dict[int, Check]:
    """Does the map depend on what absent means? The inputs of which it does, with what to do.

    The empty input, the first features of the order and the input without them are asked about by
    another fill, and the answers are compared with those that the map was learned from.

    Args:
        probe: the model.
        learned: what was learned by its own way to be absent.
        features: what questions were about.
        other: another fill; None where the caller said what absent means.
        left: how many rows an input the budget has left.
    """
    curve, n = learned.curve, features.n
    whole, empty = curve.left[:, -1].double(), curve.left[:, 0].double()
    likely = (AS_LIKELY * whole) if learned.function.link == "log-odds" else whole + torch.inf
    advice = "give background=, inputs without what matters, or compare with another SEA(absent=)"
    found: dict[int, Check] = {}

    def note(where: Tensor, say: str, *values: Tensor) -> None:
        for i in where.nonzero().flatten().tolist():
            told = say.format(*(f"{float(v[i]):.2f}" for v in values))
            found.setdefault(i, Check("warn", f"input {i}", f"{DEPENDS}: {told}", advice))

    note(
        empty >= likely, "with nothing left the model still says {}, of the whole {}", empty, whole
    )
    if other is None or left < 1 or learned.stopped == "interrupted":
        return found
    counts = _choose_first(curve.counts.tolist()[1:-1], n)[: (left - 1) // 2]
    rank = learned.order.argsort(1)
    first = torch.stack([rank < k for k in (0, *counts)], 1)
    sets = torch.cat([first, ~first[:, 1:]], 1)
    answers = replace(probe, hiding=other, said=[]).ask(sets, features, "checks").double().cpu()
    empties = "with nothing left the model says {} (blurred) or {} (its own mean), of the whole {}"
    note(answers[:, 0] >= likely, empties, empty, answers[:, 0], whole)
    if counts:
        places = [curve.counts.tolist().index(k) for k in counts]
        own = (curve.left - curve.removed)[:, places].double().mean(1)
        kept, gone = answers[:, 1:].chunk(2, 1)
        by_other = (kept - gone).mean(1)
        apart = (own > LEAST_WORTH * (whole - empty).abs()) & (by_other < DISAGREE * own)
        worth = (
            f"with its first {counts[-1]} features alone, and without them, the model's answers "
        )
        worth += "differ by {} where the rest is blurred, and by {} where it is the mean"
        note(apart, worth, own, by_other)
    return found


def check_units(x: Tensor, features: Features) -> list[Check]:
    """Warn of columns of which 0, what is left out, is far from all their values."""
    if features.kind is not TABLE or len(x) < ENOUGH:
        return []
    low, high = x.aminmax(dim=0)
    away = x.mean(0).abs() / x.std(0)
    away = torch.where(((low > 0) | (high < 0)) & (high > low), away, 0.0)
    far = [k for k in away.argsort(descending=True).tolist() if away[k] > FAR]
    if not far:
        return []
    names = [f"{_name_column(features, k)} ({low[k]:.4g} to {high[k]:.4g})" for k in far[:3]]
    told = ", ".join(names) + (f" and {len(far) - 3} more" if len(far) > 3 else "")
    message = f"what is left out becomes 0, up to {away.max():.2g} standard deviations off: {told}"
    advice = "the model may know no such rows: give background=, rows that it was trained on"
    return [Check("warn", "absent", message, advice)]


def check_range(x: Tensor, background: Tensor, features: Features) -> list[Check]:
    """Warn of a table's values that the background does not have the like of."""
    if features.kind is not TABLE:
        return []
    low, high = background.aminmax(dim=0)
    outside, checks = (x < low) | (x > high), []
    for i in outside.any(1).nonzero().flatten().tolist():
        which = outside[i].nonzero().flatten().tolist()
        said = ", ".join(_name_column(features, k) for k in which[:3])
        more = f" and {len(which) - 3} more" if len(which) > 3 else ""
        message = f"outside what the background has: {said}{more}"
        advice = "the model may not know such values; nor does what is absent look like them"
        checks.append(Check("warn", f"input {i}", message, advice))
    return checks


def _name_column(features: Features, k: int) -> str:
    return features.names[k] if features.names else f"column {k}"

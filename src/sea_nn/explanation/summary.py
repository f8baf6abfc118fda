"""An explanation as a few lines of text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from sea_nn.members.run import Check

MOST_WARNINGS = 3
"""Warnings said of an input; the others are counted."""
LEVELS = ("fail", "warn", "ok")


def write_summary(e: Any) -> str:
    """What an ``Explanation`` holds, in a few lines of text."""
    n, many = e.order.shape[1], "input" if len(e) == 1 else "inputs"
    lines = [f"SEA explanation of {len(e)} {many}, {n} features"]
    if e.provenance.model:
        lines[0] += f", model {e.provenance.model}"
    lines += [f"members: {', '.join(e.methods)}", *_say_agreement(e)]
    if e.function is not None:
        lines += _say_function(e)
    if e.rival is not None and e.output.kind != "value":
        lines.append("a probability is that of the target if it can only be one of the two")
    lines += [f"assumed: {sentence}" for sentence in e.assumed]
    (_, below), heads, cells = e.sum_gains(), ["input", "target", e.output.unit], []
    asked = None if e.curve is None else e.curve.find(n / 8)
    heads += [f"sum of gains, {e.unit}"] if e.unit else []
    if asked is not None:
        heads += [f"only best {int(e.curve.counts[asked])} left", "these removed"]
    for i, agreed in enumerate(e.mean_agreement().tolist()):
        row = [str(i), e.name(i), e.write_score(i)]
        row += [f"{float(e.gains[i].double().sum()):.3g}"] if e.unit else []
        if asked is not None:
            both = float(e.curve.left[i, asked]), float(e.curve.removed[i, asked])
            row += [f"{v:.4g}" if e.output.kind == "value" else f"{v:.2f}" for v in both]
        cells.append([*row, "-" if math.isnan(agreed) else f"{agreed:.2f}"])
    heads.append("agreement")
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    first, *rows = (
        "  ".join(
            # The target is a name; everything else is a number.
            f"{cell:{width}}" if k == 1 else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (heads, *cells)
    )
    lines += ["", first]
    for i, row in enumerate(rows):
        lines += [row, f"       first: {_say_first(e, i)}"]
        if below[i] > 0 and (worst := e.rank_against(i, 3)):
            lines[-1] += f"; against: {', '.join(e.name_feature(f, i) for f in worst)}"
        if e.asked is not None:
            wishes = (("suffices", e.asked.keep), ("needed", e.asked.remove))
            said = [f"{word}: {_name(e, i, order[i, :3])}" for word, order in wishes]
            lines.append(f"       {'; '.join(said)}")
        if e.trust:
            lines.append(f"       {say_trust(e.trust, i)}")
    if e.checks:
        fine = sum(check.level == "ok" for check in e.checks)
        shown, more = pick_warnings(e.checks)
        lines += ["", f"checks: {fine} of {len(e.checks)} fine"]
        for c in shown:
            advice = f"; {c.advice}" if c.advice else ""
            lines.append(f"  {c.level} {c.subject}: {c.message}{advice}")
        lines += [f"  and {more} more, in e.checks"] if more else []
    return "\n".join(lines)


def say_trust(trust: Mapping[str, Tensor], i: int) -> str:
    """Which members the model's answers about input i agree with, in words."""
    shares = sorted(((float(share[i]), name) for name, share in trust.items()), reverse=True)
    best, *others = [f"{name} ({share:.0%} of its answers)" for share, name in shares]
    if shares[0][0] < 0.005:
        return "the model agrees with no member: what it answered is in none of their maps"
    return f"the model agrees most with {best}" + (f", then {', '.join(others)}" if others else "")


def pick_warnings(checks: Sequence[Check]) -> tuple[list[Check], int]:
    """What to say of checks: of each input at most three, the most important first; and how many
    are left out.

    Failures come first, and what is about an input before what is about the model or a member.
    """

    def rank(check: Check) -> tuple[int, bool, bool]:
        return LEVELS.index(check.level), check.input is None, check.subject != "model"

    count: dict[int | None, int] = {}
    shown = []
    notes = sorted((check for check in checks if check.level != "ok"), key=rank)
    for check in notes:
        count[check.input] = count.get(check.input, 0) + 1
        if count[check.input] <= MOST_WARNINGS:
            shown.append(check)
    return shown, len(notes) - len(shown)


def _name(e: Any, i: int, features: Tensor) -> str:
    return ", ".join(e.name_feature(k, i) for k in features.tolist())


def _say_first(e: Any, i: int) -> str:
    """The first features of an input, with their gains and what these are believed to lie between.

    Without a budget gains have no unit, and say less than their order.
    """
    if e.gain_intervals is None:
        return _name(e, i, e.order[i, :3])
    said = []
    for place, k in enumerate(e.order[i, :3].tolist()):
        low, high = e.gain_intervals[i, place].tolist()
        gain = f"{float(e.gains[i, place]):.2g} ({low:.2g} to {high:.2g})"
        said.append(f"{e.name_feature(k, i)} {gain}")
    return ", ".join(said)


def _say_function(e: Any) -> list[str]:
    f, (above, below), error = e.function, e.sum_gains(), "not known"
    total, many = float((above - below).mean()), "input" if len(e) == 1 else "inputs"
    if e.predict_error is not None and not bool(e.predict_error.isnan().all()):
        error = f"{float(e.predict_error.nanmean()):.3f}"
        r2 = float(e.find_r2().nanmedian())
        if not math.isnan(r2):
            error += f", R² {r2:.2f}" + (" (median)" if len(e) > 1 else "")
        error += ", by answers left out of the fit"
    lines = [
        f"the model answered {f.n_answers} questions about sets of features of each input",
        f"gains are in {f.link}, {total:.2f} in all on average: the model's own "
        "difference between the whole input and an empty one",
        f"error of predicted scores: {error}; a gain lies in the interval behind it with .9",
    ]
    if n_against := int((below > 0).sum()):
        lines.insert(
            2,
            f"of {n_against} of {len(e)} {many} gains end below 0: on average "
            f"{float(above.mean()):.2f} speaks for the target, which the map sums to, and "
            f"{float(below.mean()):.2f} against it",
        )
    return lines


def _say_agreement(e: Any) -> list[str]:
    mean = e.agreement.nanmean(0).tolist()
    pairs = [(mean[a][b], b, a) for a in range(len(mean)) for b in range(a)]
    pairs = [pair for pair in pairs if not math.isnan(pair[0])]
    if not pairs:
        return []
    average = sum(pair[0] for pair in pairs) / len(pairs)
    text = f"agreement of the members (Spearman): {average:.2f} on average"
    if len(pairs) > 1:
        low, a, b = min(pairs)
        text += f", least {low:.2f} between {e.methods[a]} and {e.methods[b]}"
    return [text]

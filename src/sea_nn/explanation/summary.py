"""An explanation as a few lines of text."""

import math
from collections.abc import Sequence
from typing import Any

MOST_WARNINGS = 3
"""Warnings said, for each input; the others are counted."""
LEVELS = ("fail", "warn", "ok")
LITTLE = 0.1  # of the answers: a member that explains less is hardly trusted


def write_summary(e: Any) -> str:
    """What an ``Explanation`` holds, in a few lines of text."""
    n, many = e.order.shape[1], "input" if len(e) == 1 else "inputs"
    model = f", model {e.provenance.model}" if e.provenance.model else ""
    agreed = e.mean_agreement()
    lines = [f"SEA explanation of {len(e)} {many}, {n} features{model}"]
    lines.append(f"members: {', '.join(e.methods)}")
    if not bool(agreed.isnan().all()):
        mean = float(agreed.nanmean())
        lines.append(f"agreement of the members (Spearman): {mean:.2f} on average")
    lines += _say_function(e)
    if e.rival is not None and e.output.kind != "value":
        lines.append("a probability is that of the target if it can only be one of the two")
    lines += [f"assumed: {sentence}" for sentence in e.assumed]
    for i in range(len(e)):
        lines += ["", _say_input(e, i), *(f"  {line}" for line in say_found(e, i))]
    if e.checks:
        # What is about an input comes before what is about the model or a member.
        notes = sorted(e.checks, key=lambda check: (LEVELS.index(check.level), check.input is None))
        notes = [check for check in notes if check.level != "ok"]
        most = MOST_WARNINGS * len(e)
        lines += ["", f"checks: {len(e.checks) - len(notes)} of {len(e.checks)} fine"]
        for c in notes[:most]:
            advice = f"; {c.advice}" if c.advice else ""
            lines.append(f"  {c.level} {c.subject}: {c.message}{advice}")
        lines += [f"  and {len(notes) - most} more, in e.checks"] if len(notes) > most else []
    return "\n".join(lines)


def say_found(e: Any, i: int) -> list[str]:
    """What was found of input i: the first features, by either wish too, and whom to trust."""
    lines = [f"first: {_say_first(e, i)}"]
    if e.sum_gains()[1][i] > 0 and (worst := e.rank_against(i, 3)):
        lines[0] += f"; against: {_name(e, i, worst)}"
    if e.asked is not None:
        few = min(3, e.order.shape[1])
        kept, removed = (_name(e, i, e.top(few, keep)[i].tolist()) for keep in (True, False))
        lines.append(f"suffices: {kept}; needed: {removed}")
    return [*lines, _say_trust(e, i)] if e.trust else lines


def _say_input(e: Any, i: int) -> str:
    """What the model says of an input, and with some of it left; how far the members agree."""
    said = [f"input {i}: {e.name(i)}, {e.output.unit} {e.write_score(i)}"]
    if e.unit:
        said.append(f"sum of gains {float(e.gains[i].double().sum()):.3g} {e.unit}")
    place = None if e.curve is None else e.curve.find(e.order.shape[1] / 8)
    if place is not None:
        left, removed = (f"{float(side[i, place]):.3g}" for side in (e.curve.left, e.curve.removed))
        best = int(e.curve.counts[place])
        said.append(f"only best {best} left {left}, these removed {removed}")
    agreed = float(e.mean_agreement()[i])
    return "; ".join(said if math.isnan(agreed) else [*said, f"agreement {agreed:.2f}"])


def _name(e: Any, i: int, features: Sequence[int]) -> str:
    return ", ".join(e.name_feature(k, i) for k in features)


def _say_first(e: Any, i: int) -> str:
    """The first features of an input, with their gains and what these are believed to lie between.

    Without a budget gains have no unit, and say less than their order.
    """
    first, said = e.order[i, :3].tolist(), []
    if e.gain_intervals is None:
        return _name(e, i, first)
    for place, k in enumerate(first):
        low, high = e.gain_intervals[i, place].tolist()
        gain = f"{float(e.gains[i, place]):.2g} ({low:.2g} to {high:.2g}"
        best, worst = e.rank_intervals[i, k].tolist()
        said.append(f"{e.name_feature(k, i)} {gain}, place {best} to {worst})")
    return ", ".join(said)


def _say_trust(e: Any, i: int) -> str:
    """Which members the model's answers about input i agree with, in words."""
    shares = sorted(((float(share[i]), name) for name, share in e.trust.items()), reverse=True)
    most, best = shares[0]
    if most < 0.005:
        return "the model agrees with no member: what it answered is in none of their maps"
    others = ", ".join(f"{name} {share:.0%}" for share, name in shares[1:])
    little = ", but little" if most < LITTLE else ""
    share = f"it explains {most:.0%} of the answers{others and f' ({others})'}"
    return f"the model agrees most with {best}{little}: {share}"


def _say_function(e: Any) -> list[str]:
    """What was asked, what gains mean, and how well the function predicts; nothing without one."""
    if e.function is None:
        return []
    above, below = e.sum_gains()
    error, r2 = "not known", float(e.find_r2().nanmedian())
    if e.predict_error is not None and not bool(e.predict_error.isnan().all()):
        known = "" if math.isnan(r2) else f", R² {r2:.2f}" + (" (median)" if len(e) > 1 else "")
        error = f"{float(e.predict_error.nanmean()):.3f}{known}, by answers left out of the fit"
    total = float((above - below).mean())
    lines = [
        f"the model answered {e.questions} questions about sets of features of each input",
        f"gains are in {e.unit}, {total:.2f} in all on average: the model's own "
        "difference between the whole input and an empty one",
    ]
    if count := int((below > 0).sum()):
        lines.append(
            f"of {count} of {len(e)} {'input' if len(e) == 1 else 'inputs'} gains end below 0: on "
            f"average {float(above.mean()):.2f} speaks for the target, which the map sums to, and "
            f"{float(below.mean()):.2f} against it"
        )
    interval = "a gain lies in the interval behind it with .9"
    return [*lines, f"error of predicted scores: {error}; {interval}"]

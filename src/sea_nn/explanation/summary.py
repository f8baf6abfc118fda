"""An explanation as a few lines of text."""

import math
from typing import Any


def write_summary(e: Any) -> str:
    """What an ``Explanation`` holds, in a few lines of text."""
    n, many = e.order.shape[1], "input" if len(e) == 1 else "inputs"
    lines = [f"SEA explanation of {len(e)} {many}, {n} features"]
    if e.provenance.model:
        lines[0] += f", model {e.provenance.model}"
    lines += [f"members: {', '.join(e.methods)}", *_describe_agreement(e)]
    if e.function is not None:
        lines += _describe_function(e)
    elif e.questions:
        lines.append(f"the model answered {e.questions} questions about halves of each input")
    if e.rival is not None and e.output.kind != "value":
        lines.append("a probability is that of the target if it can only be one of the two")
    lines.append("")
    names = [e.name(i) for i in range(len(e))]
    width = max(map(len, [*names, "target"]))
    unit, scores = e.output.unit, [e.write_score(i) for i in range(len(e))]
    room = max(map(len, [*scores, unit]))
    lines.append(f"input  {'target':{width}}  {unit:>{room}}  agreement  first features")
    for i, agreed in enumerate(e.mean_agreement().tolist()):
        first = ", ".join(e.name_feature(f, i) for f in e.order[i, :3].tolist())
        agree = "-" if math.isnan(agreed) else f"{agreed:.2f}"
        lines.append(f"{i:5}  {names[i]:{width}}  {scores[i]:>{room}}  {agree:>9}  {first}")
    notes = [c for c in e.checks if c.level != "ok"]
    if e.checks:
        lines += ["", f"checks: {len(e.checks) - len(notes)} of {len(e.checks)} fine"]
    for c in notes:
        lines.append(
            f"  {c.level} {c.subject}: {c.message}" + (f"; {c.advice}" if c.advice else "")
        )
    return "\n".join(lines)


def _describe_function(e: Any) -> list[str]:
    f = e.function
    total, error = (f.all - f.none).mean(), "not known"
    if e.predict_error is not None and not bool(e.predict_error.isnan().all()):
        error = f"{float(e.predict_error.nanmean()):.3f}"
    return [
        f"the model answered {f.n_answers} questions about sets of features of each input",
        f"gains are in {f.link}, {float(total):.2f} in all on average: the model's own "
        "difference between the whole input and an empty one",
        f"error of predicted scores: {error}",
    ]


def _describe_agreement(e: Any) -> list[str]:
    m = len(e.methods)
    mean = e.agreement.nanmean(0)
    pairs = [(float(mean[a, b]), a, b) for a in range(m) for b in range(a)]
    pairs = [pair for pair in pairs if not math.isnan(pair[0])]
    if not pairs:
        return []
    low, a, b = min(pairs)
    average = sum(pair[0] for pair in pairs) / len(pairs)
    text = f"agreement of the members (Spearman): {average:.2f} on average"
    if len(pairs) > 1:
        text += f", least {low:.2f} between {e.methods[b]} and {e.methods[a]}"
    return [text]

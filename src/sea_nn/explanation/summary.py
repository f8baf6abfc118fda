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
    if e.rival is not None and e.output.kind != "value":
        lines.append("a probability is that of the target if it can only be one of the two")
    lines.append("")
    names = [e.name(i) for i in range(len(e))]
    width = max(map(len, [*names, "target"]))
    unit, scores = e.output.unit, [e.write_score(i) for i in range(len(e))]
    room = max(map(len, [*scores, unit]))
    (_, below), (heads, more) = e.sum_gains(), _describe_evidence(e)
    lines.append(f"input  {'target':{width}}  {unit:>{room}}{heads}  agreement  first features")
    for i, agreed in enumerate(e.mean_agreement().tolist()):
        first = ", ".join(e.name_feature(f, i) for f in e.order[i, :3].tolist())
        if below[i] > 0 and (worst := e.rank_against(i, 3)):
            first += f"; against: {', '.join(e.name_feature(f, i) for f in worst)}"
        agree = "-" if math.isnan(agreed) else f"{agreed:.2f}"
        lines.append(
            f"{i:5}  {names[i]:{width}}  {scores[i]:>{room}}{more[i]}  {agree:>9}  {first}"
        )
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
    (above, below), error = e.sum_gains(), "not known"
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
        f"error of predicted scores: {error}",
    ]
    if e.kind == "image" and e.features is not None:
        lines.insert(2, "the largest pixels together have what the first cells of their area gain")
    if n_against := int((below > 0).sum()):
        lines.insert(
            2,
            f"of {n_against} of {len(e)} {many} gains end below 0: on average "
            f"{float(above.mean()):.2f} speaks for the target, which the map sums to, and "
            f"{float(below.mean()):.2f} against it",
        )
    return lines


def _describe_evidence(e: Any) -> tuple[str, list[str]]:
    """Headings and cells: the sum of gains, and what the model said with the best features."""
    heads: list[str] = []
    cells: list[list[str]] = [[] for _ in range(len(e))]
    if e.unit:
        heads.append(f"sum of gains, {e.unit}")
        for i, total in enumerate(e.gains.double().sum(1).tolist()):
            cells[i].append(f"{total:.3g}")
    if e.curve is not None and (k := e.curve.find(e.order.shape[1] / 8)) is not None:
        p = int(e.curve.counts[k])
        heads += [f"only best {p} left", "these removed"]
        for i in range(len(e)):
            both = (float(e.curve.left[i, k]), float(e.curve.removed[i, k]))
            cells[i] += [f"{v:.4g}" if e.output.kind == "value" else f"{v:.2f}" for v in both]
    rows = ["".join(f"  {c:>{len(h)}}" for c, h in zip(row, heads, strict=True)) for row in cells]
    return "".join(f"  {head}" for head in heads), rows


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

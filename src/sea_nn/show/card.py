"""An explanation in a notebook: a card of HTML, without scripts, in the look of the report."""

from __future__ import annotations

import base64
import html
import io
import math

import numpy as np
import torch

from sea_nn.explanation.explanation import Explanation
from sea_nn.show.nouns import name_features_of, say_count
from sea_nn.show.page import read_style
from sea_nn.show.panels import blend, heat, paint, to_array
from sea_nn.show.plots import plot_explanation
from sea_nn.show.report.encode import encode_image
from sea_nn.show.words import mark_words

MOST, MOST_BARS, SIDE = 3, 8, 176
NOTHING = 5e-4  # of the total: a gain below it is rounding


def write_card(e: Explanation) -> str:
    """The first inputs of an explanation as HTML; all text is escaped."""
    head = f"SEA explanation of {say_count(len(e), 'input')}"
    if e.provenance.model:
        head += f", {e.provenance.model}"
    more = f" · the first {MOST} are shown" if len(e) > MOST else ""
    members = ", ".join(method.replace("_", " ") for method in e.methods)
    body = [
        f'<div class="sea notebook"><style>{read_style()}</style>',
        f'<b>{html.escape(head)}</b><p class="faint">{html.escape(members + more)}</p>',
        *(_write_input(e, i) for i in range(min(MOST, len(e)))),
    ]
    for check in e.checks:
        if check.level != "ok":
            text = html.escape(f"{check.subject}: {check.message}")
            body.append(f'<p><span class="level {check.level}">{check.level}</span> {text}</p>')
    details = f"<pre>{html.escape(e.summary())}</pre>"
    body.append(f"<details><summary>Summary as text</summary>{details}</details></div>")
    return "\n".join(body)


def _write_input(e: Explanation, i: int) -> str:
    lines = [f"<b>{html.escape(e.name(i))}</b> {e.output.unit} {e.write_score(i)}"]
    if e.ranking is not None:
        lines.append(_list_classes(e, i))
    first = ", ".join(e.name_feature(k, i) for k in e.order[i, :3].tolist())
    lines.append(f'<p class="faint">first {name_features_of(e)[1]}: {html.escape(first)}</p>')
    agreed = float(e.mean_agreement()[i])
    if not math.isnan(agreed):
        lines.append(f'<p class="faint">agreement of the members {agreed:.2f}</p>')
    if e.curve is not None:
        lines.append(f"<p>{html.escape(say_curve(e, i))}</p>")
    above, below = (float(side[i]) for side in e.sum_gains())
    if below:
        where = "; the last picture shows where" if _shows_against(e, i) else ""
        lines.append(f"<p>{above:.3g} {e.unit} for it, {below:.3g} against it{where}.</p>")
    text = "\n".join(lines)
    return f'<div class="card"><div class="row">{_draw(e, i)}<div>{text}</div></div></div>'


def _list_classes(e: Explanation, i: int) -> str:
    assert e.ranking is not None
    rows = []
    for name, score in zip(e.ranking.names[i], e.ranking.scores[i].tolist(), strict=True):
        label = html.escape(name)
        rows.append(_write_row(label, f"{score:.2f}", score))
    return f"<ol>{''.join(rows)}</ol>"


def _write_row(label: str, amount: str, share: float, kind: str = "") -> str:
    width = f"{100 * min(1, max(0, share)):.1f}%"
    bar = f'<span class="meter"><span class="{kind}" style="width:{width}"></span></span>'
    return f"<li><span>{label}</span>{bar}<span>{amount}</span></li>"


def say_curve(e: Explanation, i: int) -> str:
    """One sentence of what the model said with about an eighth of the features left and removed."""
    assert e.curve is not None
    n = e.order.shape[1]
    k = e.curve.find(n / 8)
    if k is None:
        return ""
    p, (one, many) = int(e.curve.counts[k]), name_features_of(e)
    left, removed = (write_number(e, float(t[i, k])) for t in (e.curve.left, e.curve.removed))
    if p == 1:
        return f"Only the best {one} of {n} left, the model says {left}; without it, {removed}."
    return f"Only the best {p} of {n} {many} left, the model says {left}; without them, {removed}."


def write_number(e: Explanation, score: float) -> str:
    """A score as text: a probability with two decimals, a value with four digits."""
    return f"{score:.4g}" if e.output.kind == "value" else f"{score:.2f}"


def _shows_against(e: Explanation, i: int) -> bool:
    """Whether evidence against the class is a picture of its own."""
    return e.view == "picture" and e.images is not None and bool(e.has_against()[i])


def _draw(e: Explanation, i: int) -> str:
    if e.view == "picture":
        position = heat(e.attribution[i, 0], 0)
        small = "small" if max(position.shape) <= SIDE / 2 else ""
        if e.images is None:
            pictures = [("map", paint(position) * 255)]
        else:
            image = to_array(e.images[i])
            pictures = [("input", image), ("map over the input", blend(image, position) * 255)]
            if e.against is not None and _shows_against(e, i):
                contra = blend(image, heat(e.against[i, 0], 0)) * 255
                pictures.append(("evidence against the class", contra))
        return "".join(
            f'<img class="{small}" width="{SIDE}" alt="{alt}" '
            f'src="{encode_image(np.round(picture).astype(np.uint8))}">'
            for alt, picture in pictures
        )
    if e.texts is not None:
        one = e[i]
        against = None if one.against is None else one.against[0]
        words = mark_words(e.texts[i], one.attribution[0], against, e.unit)
        note = '<p class="faint">Dashed: against the class.</p>' if "against-" in words else ""
        return f"<div>{words}{note}</div>"
    if len(e.shape) == 1:
        return _draw_bars(e, i)
    drawn = io.BytesIO()
    plot_explanation(e[i]).savefig(drawn, format="png", dpi=80)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<img alt="the input with its map" src="data:image/png;base64,{data}">'


def _draw_bars(e: Explanation, i: int) -> str:
    """The strongest columns with what they add, as bars, striped where they are against.

    A bar's full length is the sum of the gains above 0, or of what is against if that is more.
    """
    gains = e.gains_by_feature()[i]
    against = (-gains).clamp(min=0)
    if e.against is not None and e.features is None:
        against = torch.maximum(against, e.against[i])
    net = torch.where(against > gains, -against, gains)
    above, rows = float(gains.clamp(min=0).sum()), []
    most = max(above, float(against.sum())) or 1.0
    for k in net.abs().argsort(descending=True, stable=True)[:MOST_BARS].tolist():
        gain = float(net[k]) if abs(net[k]) >= NOTHING * most else 0.0
        amount = f"{gain:.3g}" if e.unit else f"{gain / (above or most):.0%}"
        label, kind = html.escape(e.name_feature(k)), "against" if gain < 0 else ""
        rows.append(_write_row(label, amount, abs(gain) / most, kind))
    said = "".join(rows)
    if 'class="against"' in said:
        return f'<div><ol>{said}</ol><p class="faint">Striped: against the class.</p></div>'
    return f"<div><ol>{said}</ol></div>"

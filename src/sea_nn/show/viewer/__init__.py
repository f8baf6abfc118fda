"""The viewer: one template and one script for reports, notebooks, the app and data sets.

A page holds its own style, script and data and needs no network; its content security policy
allows these and nothing else. Data stays text until an input comes into view, so hundreds of
inputs open fast.

    write_report(sea.explain(x), "report.html", title="What the classifier looks at")
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import to_text
from sea_nn.show.viewer.describe import (
    describe_entry,
    describe_group,
    describe_input,
    describe_one,
    describe_palette,
    describe_panel,
    describe_panels,
    encode_image,
)

__all__ = [
    "SCRIPTS",
    "describe_one",
    "describe_palette",
    "describe_panel",
    "describe_panels",
    "encode_image",
    "read_part",
    "write_card",
    "write_report",
    "write_summary_page",
]

SCRIPTS = ("draw.js", "charts.js", "viewer.js", "pages.js")
FEW = 48
FEW_SIDE, MANY_SIDE, CARD_SIDE = 256, 128, 128
CARD_INPUTS, CARD_HEIGHT = 3, 640
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,"><title>{title}</title>
<style>{style}</style></head>
<body class="sea">
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><h1>{title}</h1><p class="faint">{about}</p></header>
<noscript><p class="notice">This page draws with its own script: please allow it.</p></noscript>
<main id="main" tabindex="-1">
"""


def write_report(
    explanations: Explanation | Iterable[Explanation],
    path: str | Path,
    title: str = "SEA explanations",
    side: int | None = None,
) -> Path:
    """Write one self-contained HTML file for one or many explanations.

    The file appears only once it is complete. Maps are embedded with at most ``side`` pixels a
    side; None: 256 for up to 48 inputs, 128 for more, which keeps several hundred inputs to tens
    of megabytes. Returns the path.
    """
    if isinstance(explanations, Explanation):
        batches: Sequence[Explanation] = [explanations]
    else:
        batches = list(explanations)
    if not batches:
        raise InputError("a report needs at least one explanation; got none")
    for batch in batches:
        if not isinstance(batch, Explanation):
            raise KindError(f"a report is made of Explanations; got {type(batch).__name__}")
    if side is not None and side < 16:
        raise InputError(f"side is the number of pixels maps keep a side, at least 16; got {side}")
    # Texts have words of their own, and so a number of features: each is a group for itself.
    # Several inputs are shown one by one, each in its own view.
    batches = [one for batch in batches for one in ([batch] if batch.texts is None else batch)]
    batches = [one for b in batches for one in ([b.part(p.name) for p in b.parts] or [b])]
    total = sum(len(batch) for batch in batches)
    with write_atomically(path) as file:
        for text in _write_pages(batches, title, side or (FEW_SIDE if total <= FEW else MANY_SIDE)):
            file.write(text.encode())
    return Path(path)


def write_card(e: Explanation) -> str:
    """A report of the first inputs as HTML for a notebook, in a frame that has no other rights."""
    few = [e.part(p.name) for p in e.parts] or [e[: min(CARD_INPUTS, len(e))]]
    few = [one for batch in few for one in ([batch] if batch.texts is None else batch)]
    more = f", the first {CARD_INPUTS} of {len(e)} inputs" if len(e) > CARD_INPUTS else ""
    page = "".join(_write_pages(few, f"SEA explanation{more}", CARD_SIDE))
    frame = f"width:100%;height:{CARD_HEIGHT}px;border:0;border-radius:12px"
    return (
        f'<iframe title="SEA explanation" sandbox="allow-scripts allow-downloads" '
        f'style="{frame}" srcdoc="{html.escape(page)}"></iframe>\n'
        f"<details><summary>As text</summary><pre>{html.escape(e.summary())}</pre></details>"
    )


def write_summary_page(
    path: str | Path,
    title: str,
    notes: Sequence[str],
    headings: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    strips: Sequence[Mapping[str, Any]],
) -> Path:
    """Write a page of a table and rows of maps, as data sets have them.

    A strip has a "title" (that of the table's row that leads to it), a "note" and "panels", each
    of ``describe_panel``.
    """
    data = {"table": {"headings": list(headings), "rows": list(rows)}, "strips": list(strips)}
    notes_ = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    scroll = '<div class="card scroll" id="table" tabindex="0" role="region"'
    body = f'<div class="page">{notes_}{scroll} aria-label="Table"></div><div id="strips"></div>'
    with write_atomically(path) as file:
        file.write(_open_page(title).encode())
        file.write(f"{body}</div>\n{_embed('palette', describe_palette())}".encode())
        file.write((_embed("summary", data) + _close_page("openSummary")).encode())
    return Path(path)


@cache
def read_part(*names: str) -> str:
    """Files of the viewer, one after the other."""
    here = resources.files(__package__)
    return "\n".join((here / name).read_text("utf-8") for name in names)


def _write_pages(batches: Sequence[Explanation], title: str, side: int) -> Iterator[str]:
    """A report, piece by piece."""
    first, total = batches[0], sum(len(batch) for batch in batches)
    about = (
        f"{total:,} input{'' if total == 1 else 's'}",
        first.provenance.model,
        f"SEA over {', '.join(first.methods)}".replace("_", " "),
        (first.provenance.created or "")[:10],
    )
    yield _open_page(title, " · ".join(filter(None, about)))
    yield read_part("viewer.html") + _embed("palette", describe_palette())
    entries = [describe_entry(b, i, k) for k, b in enumerate(batches) for i in range(len(b))]
    yield _embed("index", {"inputs": entries})
    number = 0
    for k, batch in enumerate(batches):
        yield _embed(f"group-{k}", describe_group(batch, side))
        for i in range(len(batch)):
            yield _embed(f"input-{number}", describe_input(batch, i, side))
            number += 1
    yield _close_page("openReport")


def _open_page(title: str, about: str = "") -> str:
    style = read_part("style.css")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src "
        f"'{_digest(_write_script('openReport'))}' '{_digest(_write_script('openSummary'))}'; "
        "base-uri 'none'; form-action 'none'"
    )
    said, more = html.escape(to_text(title)), html.escape(to_text(about))
    return HEAD.format(policy=policy, title=said, style=style, about=more)


def _write_script(start: str) -> str:
    return f'"use strict";\n(() => {{\n{read_part(*SCRIPTS)}\n{start}();\n}})();\n'


def _close_page(start: str) -> str:
    return f"</main>\n<script>{_write_script(start)}</script>\n</body></html>\n"


def _embed(name: str, data: Mapping[str, Any]) -> str:
    """Data as a block that browsers keep as text; no text in it can end the block early."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

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

from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import to_text
from sea_nn.show.viewer.describe import (
    describe_entry,
    describe_group,
    describe_input,
    describe_palette,
)

SCRIPTS = ("draw.js", "charts.js", "cards.js", "viewer.js", "pages.js")
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
    given = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not given:
        raise InputError("a report needs at least one explanation; got none")
    with write_atomically(path) as file:
        for text in _write_report(given, title, side):
            file.write(text.encode())
    return Path(path)


def write_card(e: Explanation) -> str:
    """A report of the first inputs as HTML for a notebook, in a frame that has no other rights."""
    more = f", the first {CARD_INPUTS} of {len(e)} inputs" if len(e) > CARD_INPUTS else ""
    page = "".join(_write_report([e[:CARD_INPUTS]], f"SEA explanation{more}", CARD_SIDE))
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
    data = {"table": {"headings": headings, "rows": rows}, "strips": strips}
    notes_ = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    scroll = '<div class="card scroll" id="table" tabindex="0" role="region" aria-label="Table">'
    body = f'<div class="page">{notes_}{scroll}</div><div id="strips"></div></div>\n'
    with write_atomically(path) as file:
        for text in _write_page(title, "", [body, _embed("summary", data)]):
            file.write(text.encode())
    return Path(path)


@cache
def read_part(*names: str) -> str:
    """Files of the viewer, one after the other."""
    here = resources.files(__package__)
    return "\n".join((here / name).read_text("utf-8") for name in names)


def _write_report(given: Sequence[Explanation], title: str, side: int | None) -> Iterator[str]:
    """A report, piece by piece.

    Texts have words of their own, and so a number of features: each is a group for itself. Several
    inputs are shown one by one, each in its own view.
    """
    singles = [one for e in given for one in ([e] if e.texts is None else e)]
    groups = [one for e in singles for one in ([e.part(p.name) for p in e.parts] or [e])]
    first, total = groups[0], sum(map(len, groups))
    side = side or (FEW_SIDE if total <= FEW else MANY_SIDE)

    def embed() -> Iterator[str]:
        yield read_part("viewer.html")
        entries: list[dict[str, Any]] = []
        for k, e in enumerate(groups):
            yield _embed(f"group-{k}", describe_group(e, side))
            for i in range(len(e)):
                yield _embed(f"input-{len(entries)}", describe_input(e, i, side))
                entries.append(describe_entry(e, i, k))
        yield _embed("index", {"inputs": entries})

    about = (
        f"{total:,} input{'' if total == 1 else 's'}",
        first.provenance.model,
        f"SEA over {', '.join(first.methods)}".replace("_", " "),
        (first.provenance.created or "")[:10],
    )
    return _write_page(title, " · ".join(filter(None, about)), embed())


def _write_page(title: str, about: str, parts: Iterable[str]) -> Iterator[str]:
    """A page around its parts; nothing but its own style and script is allowed."""
    style = read_part("style.css")
    script = f'"use strict";\n(() => {{\n{read_part(*SCRIPTS)}\nopenPage();\n}})();\n'
    digests = [hashlib.sha256(text.encode()).digest() for text in (style, script)]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    policy = (
        f"default-src 'none'; img-src data:; style-src {allowed[0]}; script-src {allowed[1]}; "
        "base-uri 'none'; form-action 'none'"
    )
    said, more = html.escape(to_text(title)), html.escape(to_text(about))
    yield HEAD.format(policy=policy, title=said, style=style, about=more)
    yield from parts
    yield _embed("palette", describe_palette())
    yield f"</main>\n<script>{script}</script>\n</body></html>\n"


def _embed(name: str, data: Mapping[str, Any]) -> str:
    """Data as a block that browsers keep as text; no text in it can end the block early."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'

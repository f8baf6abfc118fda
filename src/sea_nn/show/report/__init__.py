"""Reports: explanations as one HTML file that needs no network and no server.

The file holds its own style, script and data; its content security policy allows these and
nothing else. Data stays text until an input comes into view, so hundreds of inputs open fast.

    write_report(sea.explain(x), "report.html", title="What the classifier looks at")
"""

import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import to_text
from sea_nn.show.page import read_style, write_policy
from sea_nn.show.report.encode import encode_group, encode_index, encode_input, encode_palette

__all__ = ["write_report"]

SCRIPTS = ("decode.js", "views.js", "charts.js", "tools.js", "app.js")
FEW = 48
FEW_SIDE, MANY_SIDE = 256, 128


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
    batches = [one for batch in batches for one in ([batch] if batch.texts is None else batch)]
    # Several inputs are shown one by one, each in its own view.
    batches = [
        one
        for batch in batches
        for one in ([batch.part(p.name) for p in batch.parts] if batch.parts else [batch])
    ]
    total = sum(len(batch) for batch in batches)
    side = side or (FEW_SIDE if total <= FEW else MANY_SIDE)

    head, tail = _fill_template(title)
    with write_atomically(path) as file:
        file.write(head.encode())
        file.write(_embed("palette", encode_palette()))
        file.write(_embed("index", encode_index(batches)))
        number = 0
        for k, batch in enumerate(batches):
            file.write(_embed(f"group-{k}", encode_group(batch, side)))
            for i in range(len(batch)):
                file.write(_embed(f"input-{number}", encode_input(batch, i, side)))
                number += 1
        file.write(tail.encode())
    return Path(path)


def _embed(name: str, data: dict[str, Any]) -> bytes:
    """Data as a block that browsers keep as text; no text in it can end the block early."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'.encode()


def _fill_template(title: str) -> tuple[str, str]:
    """The page around the data: what comes before it and what comes after."""
    here = resources.files(__package__)
    style = read_style() + (here / "style.css").read_text("utf-8")
    parts = "\n".join((here / name).read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    head, tail = (here / "template.html").read_text("utf-8").split("<!--data-->")
    head = head.replace("<!--policy-->", write_policy(style, script)).replace("/*style*/", style)
    head = head.replace("<!--title-->", html.escape(to_text(title)))
    return head, tail.replace("/*script*/", script)

"""What a visitor can take away: a figure, the explanation, a report, and the Python of it."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sea_nn.app.session import Session
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.show import plot_explanation, write_report
from sea_nn.show.panels import DPI

FILES = {
    "figure (PNG)": ("map.png", "image/png"),
    "figure (SVG)": ("map.svg", "image/svg+xml"),
    "figure (PDF)": ("map.pdf", "application/pdf"),
    "explanation (safetensors)": ("explanation.safetensors", "application/octet-stream"),
    "report of this visit (HTML)": ("report.html", "text/html"),
}
"""What there is to take away: the name of each file and its type."""


def make_file(session: Session, what: str) -> bytes:
    """One of ``FILES`` of what the session shows."""
    e = session.need_explanation()
    if what not in FILES:
        raise InputError(f"there is no file {what!r:.40}; choose one of: {', '.join(FILES)}")
    name = FILES[what][0]
    if name.startswith("map."):
        return draw_figure(e, name.partition(".")[2])
    if name == "report.html":
        return save_report([kept.explanation for kept in session.kept] or [e])
    return _through_file(name, e.save)


def draw_figure(e: Explanation, suffix: str) -> bytes:
    """An explanation as ``e.plot()`` draws it, in the format of this suffix."""
    file = io.BytesIO()
    plot_explanation(e).savefig(file, format=suffix, dpi=DPI)
    return file.getvalue()


def save_report(found: Sequence[Explanation]) -> bytes:
    """One self-contained HTML file of explanations."""
    return _through_file("report.html", lambda path: write_report(found, path, "What it looks at"))


def _through_file(name: str, write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sea-app-") as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def write_code(session: Session) -> str:
    """The Python that gives the explanation on the screen."""
    if session.given is None or session.explanation is None:
        return ""
    lines = ["from sea_nn.app import load_subject", ""]
    if "Path(" in session.given.code:
        lines = ["from pathlib import Path", "", *lines]
    lines += [f"subject = load_subject({session.subject.name!r})", f"given = {session.given.code}"]
    previous = ""
    for target, budget, methods, stopped in session.calls:
        note = "  # it was stopped by hand: it asked fewer" if stopped else ""
        chosen = f", {list(methods)!r}" if methods else ""
        call = f"e = subject.explain(given, {target!r}, {budget}{chosen}{previous})"
        lines.append(call + note)
        previous = ", previous=e"
    return "\n".join([*lines, "print(e.summary())", 'e.save("explanation.safetensors")', ""])

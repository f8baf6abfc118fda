"""What a visitor can take away: a figure, the explanation, a report, and the Python of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sea_nn.app.session import Session
from sea_nn.show import write_report

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
    with tempfile.TemporaryDirectory(prefix="sea-app-") as folder:
        path = Path(folder) / FILES[what][0]
        if path.suffix == ".html":
            write_report(list(session.kept.values()) or [e], path, "What it looks at")
        elif path.suffix == ".safetensors":
            e.save(path)
        else:
            e.plot(path=path)
        return path.read_bytes()


def write_code(session: Session) -> str:
    """The Python that gives the explanation on the screen."""
    if session.given is None:
        return ""
    inputs, text = "subject.examples", session.given.text
    if session.upload is not None:
        name = session.upload[0]
        content = f"{text!r}.encode()" if text else f"Path({name!r}).read_bytes()"
        inputs = f"subject.read({name!r}, {content})"
    number = next((k for k, one in enumerate(session.choices) if one is session.given), 0)
    lines = ["from pathlib import Path", "", "from sea_nn.app import load_subject", ""]
    lines.append(f"subject = load_subject({session.subject.name!r})")
    lines.append(f"given = {inputs}[{number}]")
    previous = ""
    for target, budget, methods, stopped in session.calls:
        note = "  # it was stopped by hand: it asked fewer" if stopped else ""
        chosen = f", {list(methods)!r}" if methods else ""
        call = f"e = subject.explain(given, {target!r}, {budget}{chosen}{previous})"
        lines.append(call + note)
        previous = ", previous=e"
    return "\n".join([*lines, "print(e.summary())", 'e.save("explanation.safetensors")', ""])

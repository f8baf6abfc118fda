"""What a visitor can take away: a figure, the explanation, a report, and the Python of it."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from matplotlib.text import Text

from sea_nn.app.session import Kept, Session
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.show.panels import (
    DPI,
    Plot,
    add_heat_bar,
    blend,
    heat,
    name_method,
    paint,
    panel_grid,
    to_array,
)
from sea_nn.show.plots import plot_explanation
from sea_nn.show.viewer import write_report

PANELS = ("input", "SEA", "members", "mean of members")
COLOURS = ("magma", "viridis", "cividis", "inferno", "Greys_r")
SIZES = {"column, 3.3 in": 3.3, "page, 6.9 in": 6.9, "slide, 10 in": 10.0}
FORMATS = {"PNG": "image/png", "SVG": "image/svg+xml", "PDF": "application/pdf"}


ENDING = ("print(e.summary())", 'e.plot("strip", "map.png")', 'e.save("explanation.safetensors")')


def draw_figure(
    e: Explanation,
    kind: str = "PNG",
    panels: Sequence[str] = PANELS[:2],
    colours: str = COLOURS[0],
    width: float = 6.9,
) -> bytes:
    """An explanation of one input as a figure of this width in inches.

    Panels and colours are those of pictures; tables and series have one figure each.
    """
    if kind not in FORMATS or colours not in COLOURS or not 1 <= width <= 20:
        raise InputError(f"there is no figure of {kind!r:.40}, {colours!r:.40}, {width!r:.40}")
    figure = _draw_panels(e, panels, colours) if e.images is not None else plot_explanation(e)
    _scale(figure, width)
    file = io.BytesIO()
    figure.savefig(file, format=kind.lower(), dpi=DPI)
    return file.getvalue()


def _draw_panels(e: Explanation, panels: Sequence[str], colours: str) -> Plot:
    wanted = [panel for panel in PANELS if panel in panels]
    if not wanted:
        raise InputError(f"choose at least one panel: {', '.join(PANELS)}")
    assert e.images is not None
    image = to_array(e.images[0])
    maps: dict[str, torch.Tensor] = {}
    if "SEA" in wanted:
        maps["SEA"] = e.attribution[0, 0]
    if "members" in wanted:
        maps |= {name_method(m): e.maps[0, k] for k, m in enumerate(e.methods)}
    if "mean of members" in wanted:
        maps["mean of members"] = e.mean_map[0]
    height, across = e.shape
    titles = [*(["input"] if "input" in wanted else []), *maps]
    label = f"{e.name(0)} {e.write_score(0)}"
    bar = 0.66 if maps else 0.0
    figure, axes = panel_grid(titles, [label], height / across, footer=bar, most=4)
    pictures = [image] if "input" in wanted else []
    large = image.shape[:2] == e.shape
    for values in maps.values():
        position = heat(values, 0)
        pictures.append(blend(image, position, colours) if large else paint(position, colours))
    for place, picture in zip(axes[0], pictures, strict=True):
        place.imshow(picture, interpolation="nearest")
    if maps and figure.get_size_inches()[0] > 2.5:
        add_heat_bar(figure, e.unit if "SEA" in wanted else "", colours)
    return figure


def _scale(figure: Plot, width: float) -> None:
    """Make a figure so many inches wide, with everything in it."""
    before, height = figure.get_size_inches()
    factor = width / before
    figure.set_size_inches(width, height * factor)
    for text in figure.findobj(Text):
        text.set_fontsize(text.get_fontsize() * factor)


def save_explanation(e: Explanation) -> bytes:
    """The explanation as a .safetensors file."""
    return _through_file("explanation.safetensors", e.save)


def save_report(kept: Sequence[Kept]) -> bytes:
    """One self-contained HTML file of explanations."""
    found = [k.explanation for k in kept]
    return _through_file("report.html", lambda path: write_report(found, path, "What it looks at"))


def _through_file(name: str, write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sea-app-") as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def write_code(session: Session) -> str:
    """The Python that gives the explanation on the screen."""
    given, e = session.given, session.explanation
    if given is None or e is None:
        return ""
    budget = e.provenance.call.get("budget")
    chain = len(session.calls) > 1
    if given.text:
        calls = [f"sea.budget = {budget}", f"e = sea.explain([text], target={session.target!r})"]
        if chain:
            calls = ["sea.budget = budget", "e = sea.explain([text], target=target, previous=e)"]
        lines = [*session.subject.code, "", *given.code, *_write_calls(session, *calls), *ENDING]
        return "\n".join(lines)
    call = ["x", "target=target", "previous=e"] if chain else ["x", f"target={session.target!r}"]
    call += ["labels=labels"] if session.subject.labels else []
    about = ["feature_names=names"] if session.subject.feature_names else []
    about += ["images=images"] if given.image is not None else []
    call += [f"about=About({', '.join(about)})"] if about else []
    options = ["budget=budget"] if chain else [f"budget={budget}"]
    options += [f"output={session.subject.output!r}"] if session.subject.output else []
    shown = "images = torch.from_numpy(loaded.preprocess.display(picture))[None]"
    lines = [
        f"from sea_nn import SEA{', About' if about else ''}",
        *session.subject.code,
        *given.code,
        *([] if given.image is None else [shown]),
        *_write_calls(session, f"e = SEA(model, {', '.join(options)}).explain({', '.join(call)})"),
        *ENDING,
    ]
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    imports += [] if given.image is None else ["import torch"]
    imports = sorted(imports, key=lambda line: (line.startswith("from"), line))
    return "\n".join([*imports, "", *(line for line in lines if line not in imports)])


def _write_calls(session: Session, *call: str) -> list[str]:
    """One call, in one line or more, or the calls whose answers were used again."""
    by_hand = any(stopped for _, _, stopped in session.calls)
    note = "  # one was stopped by hand: it asked fewer" if by_hand else ""
    if len(session.calls) < 2:
        return [*call[:-1], call[-1] + note]
    pairs = [(target, budget) for target, budget, _ in session.calls]
    return ["e = None", f"for target, budget in {pairs}:{note}", *(f"    {line}" for line in call)]

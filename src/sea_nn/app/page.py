"""The page: where things stand, and which event goes where.

What is drawn lives in page.js, parts.js and details.js; what happens, in ``events``; what is known,
in the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import gradio as gr

from sea_nn.app.events import Events
from sea_nn.app.session import BUDGETS, Sessions
from sea_nn.app.subjects import Subject
from sea_nn.app.takeaway import COLOURS, FORMATS, PANELS, SIZES

SCRIPTS = ("page.js", "parts.js", "details.js")
LEFT: dict[str, Any] = {"scale": 6, "min_width": 340}
RIGHT: dict[str, Any] = {"scale": 5, "min_width": 340}
HEAD = """<header class="sea-head"><h1>Why does the model say that?</h1>
<p>Which parts of the input, for which class, and what it says without them.</p></header>"""


def build_page(subjects: Sequence[Subject], sessions: Sessions | None = None) -> gr.Blocks:
    """The page for these models; ``serve`` starts it."""
    events = Events(subjects, Sessions() if sessions is None else sessions)
    labels = subjects[0].labels
    page: gr.Blocks
    with gr.Blocks(title="SEA: why does the model say that?", analytics_enabled=False) as page:
        gr.HTML(HEAD)
        with _card():
            picker = _part("picker(element, props, trigger, watch)", "picker")
        with gr.Row():
            with gr.Column(**LEFT):
                with _card():
                    call = "stage(element, props, watch, server)"
                    stage = _part(call, "stage", server_functions=events.asks())
                    progress = _part("progress(element, props, watch)", "progress")
                    budget = gr.Radio(
                        [(f"{b:,}", b) for b in BUDGETS],
                        value=BUDGETS[1],
                        label="Model evaluations for the map",
                        elem_id="budget",
                    )
                with _card("Try it yourself"):
                    _part("trial(element)", "trial")
            with gr.Column(**RIGHT):
                with _card("The model says"):
                    classes = _part("classes(element, trigger)", "classes")
                    other = gr.Dropdown(
                        [(label, k) for k, label in enumerate(labels)],
                        value=None,
                        label="Another class",
                        elem_id="other",
                        visible=len(labels) > 5,
                    )
                with _card("Is it true? Ask the model"):
                    _part("evidence(element)", "evidence")
        with gr.Row():
            with _card("Members and their agreement", **LEFT):
                _part("members(element)", "members")
            with _card("Checks", **RIGHT):
                _part("checks(element)", "checks")
        with gr.Row():
            with _card("Take away", **LEFT):
                with gr.Row():
                    kind = gr.Radio(list(FORMATS), value="PNG", label="Figure", elem_id="kind")
                    size = gr.Radio(list(SIZES), value=list(SIZES)[1], label="Width")
                panels = gr.CheckboxGroup(PANELS, value=PANELS[:2], label="Panels")
                colours = gr.Radio(COLOURS, value=COLOURS[0], label="Colours")
                with gr.Row():
                    figure = gr.Button("Figure", elem_id="take-figure", variant="primary")
                    file = gr.Button("Explanation (.safetensors)", elem_id="take-explanation")
                    report = gr.Button("Report (.html)", elem_id="take-report")
                parcel = _part("parcel(element, props, watch)", "parcel")
            with _card("The same in Python", **RIGHT):
                _part("code(element)", "code")

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        work = {**quiet, "concurrency_id": "explain", "concurrency_limit": 2}
        shown = [stage, progress]
        opened = page.load(events.begin, None, [picker, stage], **quiet)
        opened.then(events.open_first, [budget], shown, **work)
        picker.choose(events.choose, [budget], shown, **work)
        picker.upload(events.upload, [budget], shown, **work)
        classes.why(events.why, [budget], shown, **work)
        other.input(events.why_other, [budget, other], shown, **work)
        budget.input(events.again, [budget], shown, **work)
        figure.click(events.take_figure, [kind, panels, colours, size], parcel, **quiet)
        file.click(events.take_explanation, None, parcel, **quiet)
        report.click(events.take_report, None, parcel, **quiet)
        page.unload(events.leave)
    page.queue(max_size=64)
    return page


def read_asset(name: str) -> str:
    """A file of the page."""
    return (files("sea_nn.app") / name).read_text(encoding="utf-8")


def _card(title: str = "", **place: Any) -> gr.Column:
    """A column with a border and a heading."""
    card = gr.Column(elem_classes="sea-card", **place)
    if title:
        with card:
            gr.HTML(f'<h2 class="sea-title">{title}</h2>')
    return card


def _part(call: str, name: str, **options: Any) -> Any:
    """A place that one of the scripts fills."""
    names = "/* 'choose' 'upload' 'why' */"  # Gradio finds an event by its quoted name
    code = f"{names} sea.{call};"
    return gr.HTML({}, html_template="<div></div>", js_on_load=code, elem_id=name, **options)

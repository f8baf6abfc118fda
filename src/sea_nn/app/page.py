"""The page: where things stand, and which event goes where.

What is drawn lives in page.js, parts.js, details.js and compare.js; what happens, in ``events``;
what is known, in the session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import gradio as gr

from sea_nn.app.events import Events
from sea_nn.app.gallery import ANY, FILTERS, SORTS, Gallery
from sea_nn.app.session import BUDGETS, Sessions
from sea_nn.app.subjects import Subject
from sea_nn.app.takeaway import COLOURS, FORMATS, PANELS, SIZES

SCRIPTS = ("page.js", "parts.js", "details.js", "compare.js")
HEAD = """<header class="sea-head"><h1>Why does the model say that?</h1>
<p>Which parts of the input, for which class, and what it says without them.</p></header>"""
QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "trigger_mode": "multiple",
}
WORK = {**QUIET, "concurrency_id": "explain", "concurrency_limit": 2}
"""How events are shown and queued; two explanations at a time are enough for a machine. With
Gradio's own trigger mode a click is lost while the one before it is at work."""


def build_page(
    subjects: Sequence[Subject], gallery: Gallery | None = None, sessions: Sessions | None = None
) -> gr.Blocks:
    """The page for these models, and for a run's results; ``serve`` starts it."""
    events = Events(subjects, Sessions() if sessions is None else sessions, gallery)
    page: gr.Blocks
    with gr.Blocks(title="SEA: why does the model say that?", analytics_enabled=False) as page:
        gr.HTML(HEAD)
        views = ["Ask", "Compare", *(["Data set"] if gallery else [])]
        _part(f"tabs(element, {json.dumps(views)}, {2 if gallery else 0})", "tabs")
        with gr.Column(elem_id="view-0"):
            picker, stage, progress, budget, classes = _build_ask(events)
            _build_takeaway(events)
        with gr.Column(elem_id="view-1"), _card():
            _part("compare(element)", "compare")
        if gallery is not None:
            with gr.Column(elem_id="view-2"):
                opened = _build_gallery(page, events, gallery)
        shown = [picker, stage, progress]
        page.load(events.begin, [budget], shown, **WORK)
        picker.choose(events.choose, [budget], shown, **WORK)
        picker.upload(events.upload, [budget], shown, **WORK)
        picker.switch(events.switch, [budget], shown, **WORK)
        classes.why(events.why, [budget], shown, **WORK)
        budget.input(events.again, [budget], shown, **WORK)
        if gallery is not None:
            opened.ask(events.ask_result, [budget], shown, **WORK)
        page.unload(events.leave)
    page.queue(max_size=32)  # no more than there are sessions: who waits keeps its place
    return page


def _build_ask(events: Events) -> tuple[Any, Any, Any, Any, Any]:
    """Input, classes, map and evidence."""
    with _card():
        picker = _part("picker(element, props, trigger, watch)", "picker")
    with gr.Row(elem_classes="sea-two"):
        with gr.Column(elem_classes="sea-side"):
            with _card(order=2):
                call = "stage(element, props, watch, server)"
                stage = _part(call, "stage", server_functions=events.asks())
                progress = _part("progress(element, props, watch)", "progress")
                budget = gr.Radio(
                    [(f"{b:,}", b) for b in BUDGETS],
                    value=BUDGETS[1],
                    label="Model evaluations for the map",
                    elem_id="budget",
                )
            with _card("Try it yourself", order=4):
                _part("trial(element)", "trial")
        with gr.Column(elem_classes="sea-side"):
            with _card("The model says", order=1):
                classes = _part("classes(element, trigger)", "classes")
            with _card("Is it true? Ask the model", order=3):
                _part("evidence(element)", "evidence")
    with gr.Row(elem_classes="sea-two"):
        with _card("Members and their agreement"):
            _part("members(element)", "members")
        with _card("Checks"):
            _part("checks(element)", "checks")
    return picker, stage, progress, budget, classes


def _build_takeaway(events: Events) -> None:
    """Files to take away."""
    with gr.Row(elem_classes="sea-two"):
        with _card("Take away"):
            kind = gr.Radio(
                list(FORMATS), value="PNG", label="Format of the figure", elem_id="kind"
            )
            size = gr.Radio(list(SIZES), value=list(SIZES)[1], label="Width", elem_id="width")
            with gr.Column(elem_id="picture-only"):
                panels = gr.CheckboxGroup(
                    list(PANELS), value=list(PANELS[:2]), label="Panels", elem_id="panels"
                )
                shades = [(name.removesuffix("_r").lower(), name) for name in COLOURS]
                colours = gr.Radio(shades, value=COLOURS[0], label="Colours", elem_id="colours")
            with gr.Row():
                figure = gr.Button("Save figure", elem_id="take-figure", size="sm")
                file = gr.Button("Save explanation", elem_id="take-explanation", size="sm")
                report = gr.Button("Save report", elem_id="take-report", size="sm")
            parcel = _part("parcel(element, props, watch)", "parcel")
        with _card("The same in Python"):
            _part("code(element)", "code")
    figure.click(events.take_figure, [kind, panels, colours, size], parcel, **QUIET)
    file.click(events.take_explanation, None, parcel, **QUIET)
    report.click(events.take_report, None, parcel, **QUIET)


def _build_gallery(page: gr.Blocks, events: Events, gallery: Gallery) -> Any:
    """A run's results: filters, thumbnails, and the one that was opened."""
    with _card():
        which = gr.Radio(list(FILTERS), value=FILTERS[0], label="Show", elem_id="which")
        with gr.Row(elem_classes="sea-pick"):
            target = gr.Dropdown(gallery.classes(), value=ANY, label="Class", elem_id="class")
            sort = gr.Dropdown(list(SORTS), value=next(iter(SORTS)), label="Order", elem_id="sort")
            again = gr.Button("Refresh", elem_id="refresh", size="sm", min_width=80, scale=0)
        results = _part("gallery(element, props, trigger, watch)", "gallery")
    with _card(name="opened-card"):
        opened = _part("opened(element, props, trigger, watch)", "opened")
    chosen, browse = [which, target, sort], events.browse
    for event in (page.load, which.input, target.input, sort.input, again.click):
        event(browse, chosen, [results, target], **QUIET)
    results.turn(events.turn, chosen, results, **QUIET)
    results.open(events.open_result, None, opened, **QUIET)
    return opened


def read_asset(name: str) -> str:
    """A file of the page."""
    return (files("sea_nn.app") / name).read_text(encoding="utf-8")


def _card(title: str = "", order: int | None = None, name: str | None = None) -> gr.Column:
    """A column with a border and a heading; ``order`` is its place in a narrow window."""
    names = ["sea-card", *([] if order is None else [f"sea-order-{order}"])]
    card = gr.Column(elem_classes=names, elem_id=name, min_width=0)
    if title:
        with card:
            gr.HTML(f'<h2 class="sea-title">{title}</h2>')
    return card


def _part(call: str, name: str, **options: Any) -> Any:
    """A place that one of the scripts fills."""
    names = "/* 'choose' 'upload' 'switch' 'why' 'turn' 'open' 'ask' */"
    call = call.replace("props", "sea.unpack(props)")
    code = f"{names} sea.{call};"  # Gradio finds an event by its quoted name
    return gr.HTML("", html_template="<div></div>", js_on_load=code, elem_id=name, **options)

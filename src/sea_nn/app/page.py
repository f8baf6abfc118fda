"""The page: where things stand, and which event goes where.

Gradio's own parts are used as they are. Four places show what Gradio has no part for (app.js): the
viewer of explanations, pictures to choose from with a door for files, rows of maps, and a file to
take away. What happens lives in ``events``; what is known, in the session.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from sea_nn.app.events import NOT, Events
from sea_nn.app.gallery import ANY, FILTERS, SORTS, Gallery
from sea_nn.app.gate import MOST_BODY, Gate, is_local
from sea_nn.app.session import BUDGETS, Sessions
from sea_nn.app.subjects import Subject
from sea_nn.app.takeaway import FILES
from sea_nn.errors import InputError
from sea_nn.show.viewer import SCRIPTS, read_part
from sea_nn.show.viewer.describe import describe_palette

HEAD = """# Why does the model say that?
Which parts of the input, for which class, and what it says without them."""


def _accept(*values: Any) -> Any:
    """What Gradio calls before it queues an event: it answers 400 itself if values do not fit."""
    fine = gr.validate(True, "")
    return fine if len(values) == 1 else [fine] * len(values)


def _need(**kinds: type) -> dict[str, Any]:
    """For an event that comes with data of one of the page's own places: they must be of these."""

    def accept(event: gr.EventData) -> Any:
        if any(type(event._data[name]) is not kind for name, kind in kinds.items()):
            raise TypeError("the event's data are of another kind")
        return []

    return {"validator": accept}


QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
QUIET["validator"] = _accept
CHANGE = {**QUIET, "trigger_mode": "multiple", "concurrency_id": "change", "concurrency_limit": 1}
WORK = {**QUIET, "trigger_mode": "multiple", "concurrency_id": "explain", "concurrency_limit": 2}
"""How events are shown and queued: changes one after the other, in their order, and explanations
two at a time, enough for a machine. With Gradio's own trigger mode a click is lost while the one
before it is at work."""


def build_page(subjects: Sequence[Subject], gallery: Gallery | None = None) -> gr.Blocks:
    """The page for these models, and for a run's results; ``serve`` starts it."""
    events = Events(subjects, Sessions(), gallery)
    page: gr.Blocks
    with gr.Blocks(title="SEA: why does the model say that?", analytics_enabled=False) as page:
        gr.Markdown(HEAD)
        with gr.Tabs(selected="ask") as tabs:
            with gr.Tab("Ask", id="ask", render_children=True):
                start = _build_ask(page, events, subjects)
            with gr.Tab("Compare", id="compare", render_children=True) as compare:
                _build_compare(compare, events)
            if gallery is not None:
                with gr.Tab("Data set", id="data", render_children=True) as data:
                    _build_data(data, events, gallery, tabs, start)
        page.unload(events.leave)
    page.queue(max_size=32)  # no more than there are sessions: who waits keeps its place
    return page


def _build_ask(page: gr.Blocks, events: Events, subjects: Sequence[Subject]) -> Any:
    """Input, class, map and files; returns how to bind an event that changes the session."""
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            names = [subject.name for subject in subjects]
            many = len(names) > 1
            model = gr.Dropdown(names, value=names[0], label="Model", visible=many, elem_id="model")
            picker = _place("pick", "picker", own=True)
            typed = gr.Textbox(
                label="A text of your own", visible=False, submit_btn=True, elem_id="typed"
            )
            target = gr.Dropdown([], label="Why does it say", elem_id="target")
            versus = gr.Dropdown([("–", NOT)], value=NOT, label="and not", elem_id="versus")
            choices = [(f"{b:,}", b) for b in BUDGETS]
            budget = gr.Radio(
                choices, value=BUDGETS[1], label="Model evaluations for the map", elem_id="budget"
            )
            members = gr.Dropdown(
                [], multiselect=True, label="Members (none: SEA's own choice)", elem_id="members"
            )
            status = gr.Markdown("", elem_id="status")
            stop = gr.Button("Stop", size="sm", elem_id="stop")
            with gr.Accordion("Take away", open=False, elem_id="take"):
                what = gr.Radio(list(FILES), value="figure (PNG)", label="File", elem_id="what")
                save = gr.Button("Save", size="sm", elem_id="save")
                parcel = _place("parcel", "parcel")
                code = gr.Code(language="python", label="The same in Python", interactive=False)
        with gr.Column(scale=3, min_width=300):
            stage = _place("viewer", "stage", server_functions=events.asks())
    shown = [picker, typed, target, versus, members]

    def bind(
        event: Any, does: Any, inputs: Any = None, more: Sequence[Any] = (), **kinds: type
    ) -> None:
        how = CHANGE | (_need(**kinds) if kinds else {})
        changed = event(does, inputs, [*shown, *more], **how)
        changed.success(events.explain, [budget, members], [stage, status, code], **WORK)

    bind(page.load, events.begin)
    bind(picker.select, events.choose, index=int)
    bind(picker.upload, events.upload, name=str, data=str)
    bind(typed.submit, events.type, typed)
    bind(model.input, events.switch, model)
    bind(target.input, events.aim, [target, versus])
    bind(versus.input, events.aim, [target, versus])
    for event in (budget.input, members.input):
        event(events.explain, [budget, members], [stage, status, code], **WORK)
    stop.click(events.stop, **QUIET)
    save.click(events.take, what, parcel, **QUIET)
    return bind


def _build_compare(tab: gr.Tab, events: Events) -> None:
    """Explanations of this visit below each other: inputs, classes, models, members."""
    label = "Explanations of this visit (the last eight are kept)"
    sides = gr.Dropdown([], multiselect=True, max_choices=4, label=label, elem_id="sides")
    strips = _place("strips", "strips")
    for event in (tab.select, sides.input):
        event(events.compare, sides, [sides, strips], **QUIET)


def _build_data(tab: gr.Tab, events: Events, gallery: Gallery, tabs: gr.Tabs, bind: Any) -> None:
    """A run's results: filters, small maps, and the one that was opened."""
    which = gr.Radio(list(FILTERS), value="all", label="Show", elem_id="which")
    with gr.Row():
        target = gr.Dropdown(gallery.classes(), value=ANY, label="Class", elem_id="class")
        sort = gr.Dropdown(list(SORTS), value="as they come", label="Order", elem_id="sort")
        number = gr.Number(1, label="Page", precision=0, minimum=1, elem_id="page")
        again = gr.Button("Refresh", elem_id="refresh", size="sm", min_width=80)
    count = gr.Markdown("", elem_id="count")
    results = _place("pick", "results")
    said, chosen = gr.Markdown("", elem_id="said"), gr.State("")
    ask = gr.Button("Ask the model about it", visible=False, size="sm", elem_id="ask-result")
    opened = _place("viewer", "opened")
    inputs, shown = [which, target, sort, number], [results, count, number, target]
    for event in (tab.select, which.input, target.input, sort.input, number.submit, again.click):
        event(events.browse, inputs, shown, **QUIET)
    opens = QUIET | _need(id=str)
    results.select(events.open_result, None, [chosen, said, opened, ask], **opens)
    bind(ask.click, events.ask_result, chosen, [tabs])


def serve(page: Any, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serve the page and return the address to open, with the token where one is needed.

    It is served to this machine alone, or elsewhere behind a token.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # the server would report to Gradio's makers
    token = None if is_local(host) else secrets.token_urlsafe(24)
    fonts: Any = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            share=False,
            quiet=True,
            inline=False,
            prevent_thread_lock=True,
            allowed_paths=[],
            footer_links=[],
            max_file_size=MOST_BODY,
            ssr_mode=False,
            theme=gr.themes.Default(primary_hue="amber", neutral_hue="slate", **fonts),
            head=_write_head(),
            app_kwargs={"middleware": [Middleware(Gate, token=token)]},
        )
    except OSError as error:
        raise InputError(f"cannot listen at {host}, port {port or 'from 7860'}: {error}") from error
    return str(address) if token is None else f"{address}?token={token}"


def _write_head() -> str:
    """The scripts and the template of the viewer, and the page's own, for the page's head."""
    own = {name: (files("sea_nn.app") / name).read_text("utf-8") for name in ("app.js", "page.css")}
    style = read_part("style.css")
    parts = {
        "template": f'<style>{style}</style><div class="sea bare">{read_part("viewer.html")}</div>',
        "look": f"<style>{style}{own['page.css']}</style>",
        "palette": describe_palette(),
    }
    data = json.dumps(parts).replace("<", "\\u003c")
    script = f'"use strict";\n{read_part(*SCRIPTS)}\n{own["app.js"]}'
    return f"<script>window.sea = (() => {{\n{script}\n}})()({data});</script>"


def _place(part: str, name: str, own: bool = False, **options: Any) -> Any:
    """A place that one of the scripts fills; the comment tells Gradio of its events."""
    server = "server" if "server_functions" in options else "server: null"
    more = f"element, props, watch, trigger, {server}, own: {json.dumps(own)}"
    code = f"/* 'select' 'upload' */ sea.{part}({{ {more} }});"
    return gr.HTML("", html_template="<div></div>", js_on_load=code, elem_id=name, **options)

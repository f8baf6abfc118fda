"""The page: Gradio's blocks around a ``Session``, and the events between them.

What is drawn lives in page.js, parts.js and details.js; what is known, in the session.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import gradio as gr

from sea_nn.app.session import BUDGETS, POINTS, Session, Sessions
from sea_nn.app.subjects import Subject
from sea_nn.app.views import encode_evidence, encode_session, to_url
from sea_nn.errors import InputError, SEAError

SCRIPTS = ("page.js", "parts.js", "details.js")
HOLE = "<div></div>"


def read_asset(name: str) -> str:
    """A file of the page."""
    return (files("sea_nn.app") / name).read_text(encoding="utf-8")


def build_page(subjects: Sequence[Subject], sessions: Sessions | None = None) -> Any:
    """The page for these models, as ``gradio.Blocks``; ``serve`` starts it."""
    sessions = Sessions() if sessions is None else sessions
    first = subjects[0]

    def weigh(body: dict[str, Any]) -> dict[str, Any]:
        session = sessions.find(str(body.get("key")))
        found = session.weigh(_read_whole(body.get("p")))
        return {"point": encode_evidence(found), "evaluations": session.evaluations}

    def remove(body: dict[str, Any]) -> dict[str, Any]:
        session = sessions.find(str(body.get("key")))
        cells = [_read_whole(cell) for cell in list(body.get("cells") or ())]
        top = session.remove(cells, bool(body.get("keep")))
        return {"top": [[a.target, a.label, a.score] for a in top]}

    def stop(body: dict[str, Any]) -> dict[str, Any]:
        sessions.find(str(body.get("key"))).stop()
        return {}

    asked = [_guard(fn) for fn in (weigh, remove, stop)]

    with gr.Blocks(title="SEA: why does the model say that?", analytics_enabled=False) as page:
        gr.HTML(
            '<header class="sea-head"><h1>Why does the model say that?</h1>'
            "<p>Ask it: which parts of the input, for which class, and what is left without them."
            "</p></header>"
        )
        with gr.Column(elem_classes="sea-card"):
            picker = _part("picker(element, props, trigger, watch)", "picker")
        with gr.Row():
            with gr.Column(scale=6, min_width=340):
                with gr.Column(elem_classes="sea-card"):
                    stage = _part(
                        "stage(element, props, watch, server)",
                        "stage",
                        server_functions=asked,
                    )
                    progress = _part("progress(element, props, watch)", "progress")
                    budget = gr.Radio(
                        [(f"{b:,}", b) for b in BUDGETS],
                        value=BUDGETS[1],
                        label="Model evaluations for the map",
                        elem_id="budget",
                    )
                with gr.Column(elem_classes="sea-card"):
                    _title("Try it yourself")
                    _part("trial(element)", "trial")
            with gr.Column(scale=5, min_width=340):
                with gr.Column(elem_classes="sea-card"):
                    _title("The model says")
                    classes = _part("classes(element, trigger)", "classes")
                    other = gr.Dropdown(
                        [(first.label(k), k) for k in range(len(first.labels))],
                        value=None,
                        label="Another class",
                        elem_id="other",
                        visible=len(first.labels) > 5,
                    )
                with gr.Column(elem_classes="sea-card"):
                    _title("Is it true? Ask the model")
                    _part("evidence(element)", "evidence")
        with gr.Row():
            with gr.Column(elem_classes="sea-card", scale=6, min_width=340):
                _title("Members and their agreement")
                _part("members(element)", "members")
            with gr.Column(elem_classes="sea-card", scale=5, min_width=340):
                _title("Checks")
                _part("checks(element)", "checks")

        shown = [stage, progress]

        def explain(
            session: Session, key: str, target: int | tuple[int, int] | None, budget: int
        ) -> Iterator[Any]:
            """The session's state and progress, again and again, until it is explained."""
            yield encode_session(session, key), {"running": True, "done": 0, "total": budget}
            budgets = [b for b in (BUDGETS[0],) if b < budget] + [budget]
            try:
                for step in session.explain(target, budgets):
                    said = {"running": True, "done": step.done, "total": step.total}
                    said["left"] = step.seconds_left
                    new = step.explanation is not None
                    yield encode_session(session, key) if new else gr.skip(), said
                if session.explanation is not None:
                    for p in POINTS:
                        if p < session.explanation.order.shape[1]:
                            session.weigh(p)
                yield encode_session(session, key), {"running": False}
            except SEAError as error:
                yield encode_session(session, key), {"error": str(error)}

        def begin(request: gr.Request) -> tuple[Any, Any]:
            key = str(request.session_hash)
            session = sessions.start(key, first)
            gallery = {"examples": [_to_thumb(g) for g in first.examples], "accept": ""}
            return gallery, encode_session(session, key)

        def first_look(budget: int, request: gr.Request) -> Iterator[Any]:
            key = str(request.session_hash)
            session = sessions.find(key)
            if first.examples:
                session.choose(first.examples[0])
                yield from explain(session, key, None, budget)

        def choose(budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Any]:
            key = str(request.session_hash)
            session = sessions.find(key)
            index = _read_whole(event._data.get("index"))
            session.choose(session.subject.examples[index])
            yield from explain(session, key, None, budget)

        def upload(budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Any]:
            key = str(request.session_hash)
            session = sessions.find(key)
            try:
                content = base64.b64decode(str(event._data.get("data")), validate=True)
                given = session.subject.read(str(event._data.get("name"))[:80], content)
                session.choose(given[0])
            except (SEAError, binascii.Error) as error:
                yield gr.skip(), {"error": str(error)}
                return
            yield from explain(session, key, None, budget)

        def why(budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Any]:
            key = str(request.session_hash)
            target, versus = event._data.get("target"), event._data.get("versus")
            wanted = _read_whole(target)
            pair = wanted if versus is None else (wanted, _read_whole(versus))
            yield from explain(sessions.find(key), key, pair, budget)

        def why_other(budget: int, target: int | None, request: gr.Request) -> Iterator[Any]:
            if target is not None:
                key = str(request.session_hash)
                yield from explain(sessions.find(key), key, target, budget)

        def again(budget: int, request: gr.Request) -> Iterator[Any]:
            key = str(request.session_hash)
            session = sessions.find(key)
            session.stop()
            yield from explain(session, key, None, budget)

        def leave(request: gr.Request) -> None:
            sessions.end(str(request.session_hash))

        work: dict[str, Any] = {
            "show_progress": "hidden",
            "concurrency_id": "explain",
            "concurrency_limit": 2,
            "api_visibility": "private",
        }
        page.load(begin, None, [picker, stage], show_progress="hidden", api_visibility="private").then(
            first_look, [budget], shown, **work
        )
        picker.choose(choose, [budget], shown, **work)
        picker.upload(upload, [budget], shown, **work)
        classes.why(why, [budget], shown, **work)
        other.input(why_other, [budget, other], shown, **work)
        budget.input(again, [budget], shown, **work)
        page.unload(leave)
    page.queue(max_size=64)
    return page


def _part(call: str, name: str, **options: Any) -> Any:
    """A place that one of the scripts fills."""
    events = "/* 'choose' 'upload' 'why' */"  # Gradio finds an event by its quoted name
    return gr.HTML(
        {}, html_template=HOLE, js_on_load=f"{events} sea.{call};", elem_id=name, **options
    )


def _title(text: str) -> None:
    gr.HTML(f'<h2 class="sea-title">{text}</h2>')


def _guard(ask: Any) -> Any:
    """Errors for people become answers; the page shows them where the answer would stand."""

    def asked(body: Any) -> dict[str, Any]:
        try:
            return dict(ask(body if isinstance(body, dict) else {}))
        except SEAError as error:
            return {"error": str(error)}

    asked.__name__ = ask.__name__
    return asked


def _read_whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"expected a whole number; got {value!r:.40}")
    return value


def _to_thumb(given: Any) -> dict[str, Any]:
    return {"name": given.name, "url": None if given.image is None else to_url(given.image, 128)}

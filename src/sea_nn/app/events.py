"""What happens when a visitor does something: from the page's events to the session and back.

Handlers that change something give (what there is to choose from, what the session shows, how far
it is) again and again while the model is asked; single questions (``asks``) are answered at once.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
import orjson  # comes with Gradio; a number that is none becomes null

from sea_nn.app.gallery import Gallery
from sea_nn.app.session import Session, Sessions
from sea_nn.app.subjects import Given, Subject
from sea_nn.app.takeaway import FORMATS, SIZES, draw_figure, save_explanation, save_report
from sea_nn.app.views import encode_evidence, encode_session, encode_side, to_url
from sea_nn.errors import InputError, SEAError

PAUSE = 0.3
"""Seconds between two reports of progress: each costs about as much as an evaluation."""
Shown = tuple[Any, Any, Any]
Body = dict[str, Any]


class Events:
    """The handlers of one page, for all of its visitors."""

    def __init__(
        self, subjects: Sequence[Subject], sessions: Sessions, gallery: Gallery | None = None
    ) -> None:
        self.subjects, self.sessions, self.gallery = subjects, sessions, gallery

    def begin(self, budget: int, request: gr.Request) -> Iterator[Shown]:
        """A page was opened: a new session, and its first example for something to see."""
        session = self.sessions.start(_read_key(request), self.subjects[0])

        def choose_first(session: Session) -> None:
            if session.choices and self.gallery is None:
                session.choose(session.choices[0])

        state = encode_session(session, _read_key(request))
        yield pack(self._show_gallery(session)), pack(state), pack({})
        yield from self._go(request, budget, choose_first)

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.sessions.end(_read_key(request))

    def choose(self, budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Shown]:
        """An example, or a row of an upload, was chosen."""

        def choose(session: Session) -> None:
            index = read_whole(event._data.get("index"))
            if not 0 <= index < len(session.choices):
                raise InputError("this input is no longer there: reload the page")
            session.choose(session.choices[index])

        yield from self._go(request, budget, choose)

    def upload(self, budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Shown]:
        """A file was dropped, pasted or chosen; it comes as base64, and is never stored."""

        def read(session: Session) -> None:
            try:
                content = base64.b64decode(str(event._data.get("data")), validate=True)
            except binascii.Error as error:
                raise InputError("the file did not arrive whole: send it again") from error
            session.read(str(event._data.get("name"))[:80], content)

        yield from self._go(request, budget, read)

    def switch(self, budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Shown]:
        """Another model was chosen: it is asked about the same input, if it can read it."""

        def switch(session: Session) -> None:
            session.switch(self.subjects[read_whole(event._data.get("index"))])

        yield from self._go(request, budget, switch)

    def why(self, budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Shown]:
        """A class was clicked, or a second one for "and not"."""

        def aim(session: Session) -> None:
            target, versus = read_whole(event._data.get("target")), event._data.get("versus")
            session.aim(target if versus is None else (target, read_whole(versus)))

        yield from self._go(request, budget, aim)

    def again(self, budget: int, request: gr.Request) -> Iterator[Shown]:
        """Another budget was chosen."""
        yield from self._go(request, budget, lambda session: None)

    def ask_result(self, budget: int, event: gr.EventData, request: gr.Request) -> Iterator[Shown]:
        """The model is to be asked about one of a run's results."""

        def read(session: Session) -> None:
            assert self.gallery is not None
            found = self.gallery.read(str(event._data.get("id")))
            if found is None:
                raise InputError("the input's own file is no longer there")
            session.read(*found)

        yield from self._go(request, budget, read)

    def _go(
        self, request: gr.Request, budget: int, change: Callable[[Session], None]
    ) -> Iterator[Shown]:
        """Change the session, then explain what it is about: a first map soon, then a finer one.

        When the visitor asks for something else meanwhile, that has the page: what is sent has the
        number of the request, and the page shows none that is older than what it has seen. Gradio
        sends the last part of an answer again when it ends, which may be after the next has begun.
        """
        key, turn = _read_key(request), {}
        try:
            session = self.sessions.find(key)
            mine = session.take_turn()
            turn = {"turn": mine}
            with session.changing:  # a slow change must not undo a later one
                before = session.choices, session.subject
                if session.turn == mine:
                    change(session)
            if session.turn != mine:
                yield gr.skip(), gr.skip(), gr.skip()  # without any part Gradio empties the page
                return
            same = session.choices is before[0] and session.subject is before[1]
            start = {"running": session.given is not None, "done": 0, "total": budget} | turn
            choices = gr.skip() if same else pack(self._show_gallery(session))
            yield choices, pack(encode_session(session, key) | turn), pack(start)
            if session.given is None:
                return
            told = time.monotonic()
            for step in session.explain(budget):
                if session.turn != mine:
                    return
                fresh = step.explanation is not None
                if not fresh and time.monotonic() - told < PAUSE:
                    continue
                told = time.monotonic()
                said = {"running": True, "done": step.done, "total": step.total} | turn
                state = pack(encode_session(session, key) | turn) if fresh else gr.skip()
                yield gr.skip(), state, pack(said | {"left": step.seconds_left})
            if session.turn == mine:
                state = pack(encode_session(session, key) | turn)
                yield gr.skip(), state, pack({"running": False} | turn)
        except SEAError as error:
            yield gr.skip(), gr.skip(), pack({"error": str(error)} | turn)

    def _show_gallery(self, session: Session) -> dict[str, Any]:
        return {
            "examples": [_to_thumb(given) for given in session.choices],
            "kind": session.subject.kind,
            "labels": session.subject.labels,
            "models": [one.name for one in self.subjects],
            "model": session.subject.name,
        }

    def browse(self, which: str, target: int, sort: str) -> tuple[str, Any]:
        """The first page of a run's results that fit, and the classes there are.

        What was explained since is among them.
        """
        assert self.gallery is not None
        self.gallery.refresh()
        found = self.gallery.show(self.gallery.select(which, target, sort))
        return pack(found), gr.update(choices=self.gallery.classes())

    def turn(self, which: str, target: int, sort: str, event: gr.EventData) -> str:
        """Another page."""
        assert self.gallery is not None
        page = read_whole(event._data.get("page"))
        return pack(self.gallery.show(self.gallery.select(which, target, sort), page))

    def open_result(self, event: gr.EventData) -> str:
        """One of the results."""
        assert self.gallery is not None
        id_ = str(event._data.get("id"))
        found = self.gallery.open(id_)
        asks = bool(self.subjects) and self.gallery.read(id_) is not None
        return pack(found | {"asks": asks})

    def take_figure(
        self, kind: str, panels: list[str], colours: str, size: str, request: gr.Request
    ) -> str:
        """A figure of the map on the screen."""

        def draw(session: Session) -> bytes:
            return draw_figure(session.need_explanation(), kind, panels, colours, SIZES[size])

        return self._take(request, f"map.{kind.lower()}", FORMATS.get(kind, ""), draw)

    def take_explanation(self, request: gr.Request) -> str:
        """The explanation as a file that ``Explanation.load`` reads."""

        def save(session: Session) -> bytes:
            return save_explanation(session.need_explanation())

        return self._take(request, "explanation.safetensors", "application/octet-stream", save)

    def take_report(self, request: gr.Request) -> str:
        """A report of all that was explained in this visit."""

        def save(session: Session) -> bytes:
            session.need_explanation()
            return save_report(session.kept)

        return self._take(request, "report.html", "text/html", save)

    def _take(
        self, request: gr.Request, name: str, kind: str, make: Callable[[Session], bytes]
    ) -> str:
        try:
            content = make(self.sessions.find(_read_key(request)))
        except SEAError as error:
            return pack({"error": str(error)})
        data = base64.b64encode(content).decode()
        return pack({"name": name, "type": kind, "data": data})

    def asks(self) -> list[Callable[[Body], Body]]:
        """The functions that the page calls by itself, each with the session's key."""
        return [_guard(ask) for ask in (self.weigh, self.remove, self.stop, self.compare)]

    def weigh(self, body: Body) -> Body:
        """The model's answers about the best p."""
        session = self._find(body)
        found = session.weigh(read_whole(body.get("p")))
        return {"point": encode_evidence(found), "evaluations": session.evaluations}

    def remove(self, body: Body) -> Body:
        """The top five without some cells, or with only these."""
        cells = [read_whole(cell) for cell in list(body.get("cells") or ())]
        top = self._find(body).remove(cells, bool(body.get("keep")))
        return {"top": [[a.target, a.label, a.score] for a in top]}

    def compare(self, body: Body) -> Body:
        """Two of the explanations that were kept, and how far two of their maps agree."""
        kept = self._find(body).kept
        sides = []
        for side in ("a", "b"):
            name = str(body.get(side))
            found = next((k for k in kept if k.name == name), None)
            if found is None:
                raise InputError("this explanation is no longer kept: choose another")
            sides.append(found)
        return {"a": encode_side(sides[0]), "b": encode_side(sides[1])}

    def stop(self, body: Body) -> Body:
        """End what is running; what is there stays."""
        self._find(body).stop()
        return {}

    def _find(self, body: Body) -> Session:
        return self.sessions.find(str(body.get("key")))


def pack(value: Body) -> str:
    """What a part of the page shows, as one text: Gradio looks into everything else, again and
    again, which took longer than a small map."""
    text: str = orjson.dumps(value).decode()
    return text


def read_whole(value: Any) -> int:
    """A whole number from the page."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"expected a whole number; got {value!r:.40}")
    return value


def _read_key(request: gr.Request) -> str:
    return str(request.session_hash)


def _guard(ask: Callable[[Body], Body]) -> Callable[[Body], Body]:
    """Errors for people become answers; the page shows them where the answer would stand."""

    def asked(body: Any) -> Body:
        try:
            return ask(body if isinstance(body, dict) else {})
        except SEAError as error:
            return {"error": str(error)}

    asked.__name__ = ask.__name__
    return asked


def _to_thumb(given: Given) -> dict[str, Any]:
    return {"name": given.name, "url": None if given.image is None else to_url(given.image, 128)}

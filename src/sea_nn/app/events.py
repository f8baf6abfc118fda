"""What happens when a visitor does something: from the page's events to the session and back.

A change (another input, class, model) is made at once and shows what there is to choose from; then
``explain`` gives the map again and again while the model is asked. What a visitor did wrong is said
in words (``gr.Error``); what no page would send is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
import torch
from starlette.exceptions import HTTPException

from sea_nn.app.gallery import ANY, Gallery
from sea_nn.app.session import Kept, Session, Sessions
from sea_nn.app.subjects import Given, Subject
from sea_nn.app.takeaway import FILES, make_file, write_code
from sea_nn.app.uploads import read_words
from sea_nn.errors import InputError, SEAError
from sea_nn.paper.agreement import agreement
from sea_nn.show.panels import to_array
from sea_nn.show.viewer.describe import describe_one, describe_panels, encode_image

PAUSE = 0.3
"""Seconds between two reports of progress: each costs about as much as an evaluation."""
NOT = -1  # no second class
TOP = 5
Body = dict[str, Any]
Change = Callable[[Session], None]


class Events:
    """The handlers of one page, for all of its visitors."""

    def __init__(
        self, subjects: Sequence[Subject], sessions: Sessions, gallery: Gallery | None = None
    ) -> None:
        self.subjects, self.sessions, self.gallery = subjects, sessions, gallery

    def begin(self, request: gr.Request) -> list[Any]:
        """A page was opened: a new session, and its first example for something to see."""
        session = self.sessions.start(_read_key(request), self.subjects[0])

        def choose_first(session: Session) -> None:
            if session.choices:
                session.choose(session.choices[0])

        return self._change(session, choose_first)

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.sessions.end(_read_key(request))

    def choose(self, event: gr.EventData, request: gr.Request) -> list[Any]:
        """An example, or a row of an upload, was chosen."""

        def choose(session: Session) -> None:
            index = read_whole(_read_field(event, "index"))
            if not 0 <= index < len(session.choices):
                raise InputError("this input is no longer there: reload the page")
            session.choose(session.choices[index])

        return self._change(self._find(request), choose)

    def upload(self, event: gr.EventData, request: gr.Request) -> list[Any]:
        """A file was dropped, pasted or chosen; it comes as base64, and is never stored."""

        def read(session: Session) -> None:
            try:
                content = base64.b64decode(str(_read_field(event, "data")), validate=True)
            except binascii.Error as error:
                raise InputError("the file did not arrive whole: send it again") from error
            session.read(str(_read_field(event, "name"))[:80], content)

        return self._change(self._find(request), read)

    def type(self, text: str, request: gr.Request) -> list[Any]:
        """A text was typed."""
        content = str(text).encode()
        return self._change(
            self._find(request), lambda s: s.read(read_words(content)[:40], content)
        )

    def switch(self, name: str, request: gr.Request) -> list[Any]:
        """Another model was chosen: it is asked about the same input, if it can read it."""
        found = [subject for subject in self.subjects if subject.name == name]
        if not found:
            raise gr.Error("there is no such model", print_exception=False)
        return self._change(self._find(request), lambda session: session.switch(found[0]))

    def aim(self, target: int, versus: int | None, request: gr.Request) -> list[Any]:
        """A class was chosen, or a second one for "and not"."""
        one = versus in (None, NOT)
        aimed = read_whole(target) if one else (read_whole(target), read_whole(versus))
        return self._change(self._find(request), lambda session: session.aim(aimed))

    def ask_result(self, id_: str, request: gr.Request) -> list[Any]:
        """The model is to be asked about one of a run's results."""

        def read(session: Session) -> None:
            found = None if self.gallery is None else self.gallery.read(str(id_))
            if found is None:
                raise InputError("the input's own file is no longer there, or is another one")
            session.read(*found)

        return [*self._change(self._find(request), read), gr.Tabs(selected="ask")]

    def explain(
        self, budget: int, methods: list[str] | None, request: gr.Request
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Explain what the session is about: a first map soon, then finer ones.

        When the visitor asks for something else meanwhile, that has the page: what is sent has the
        number of the request, and the page shows none that is older than what it has seen.
        """
        session = self._find(request)
        mine = session.take_turn()
        yield gr.skip(), "", gr.skip()  # without any part Gradio empties the page
        if session.given is None:
            return
        chosen, told = tuple(m for m in methods or () if m in session.subject.members), 0.0
        try:
            for step in session.explain(read_whole(budget), chosen or None):
                if session.turn != mine:
                    return
                fresh = step.explanation is not None
                if not fresh and time.monotonic() - told < PAUSE:
                    continue
                told = time.monotonic()
                wait = step.seconds_left
                left = "" if wait is None else f", about {max(1, round(wait))} s left"
                said = f"{step.done} of {step.total} evaluations{left}"
                yield (
                    self._pack_map(session, mine, request) if fresh else gr.skip(),
                    said,
                    gr.skip(),
                )
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error
        if session.turn == mine and session.explanation is not None:
            spent = sum(session.explanation.provenance.evaluations.values())
            before = f"; {session.reused} paid for before" if session.reused else ""
            said = f"Map of {spent} evaluations{before}"
            yield self._pack_map(session, mine, request), said, write_code(session)

    def stop(self, request: gr.Request) -> None:
        """End what is running; what is there stays."""
        self._find(request).stop()

    def list_kept(self, chosen: list[str] | None, request: gr.Request) -> tuple[Any, str]:
        """What there is to compare, newest first; the two newest are compared unless others are."""
        names = [kept.name for kept in reversed(self._find(request).kept)]
        value = [name for name in chosen or () if name in names] or names[:2]
        return gr.update(choices=names, value=value), self.compare(value, request)

    def compare(self, chosen: list[str] | None, request: gr.Request) -> str:
        """Maps of some of the visit's explanations, a row each, on one colour scale."""
        by_name = {kept.name: kept for kept in self._find(request).kept}
        sides = [by_name[name] for name in chosen or () if name in by_name]
        return pack({"strips": [_describe_side(side, sides[0]) for side in sides]})

    def browse(self, which: str, target: int, sort: str, page: float) -> tuple[Any, ...]:
        """One page of a run's results that fit, and the classes there are.

        What was explained since is among them.
        """
        assert self.gallery is not None
        try:
            self.gallery.refresh()
            ids = self.gallery.select(which, ANY if target is None else read_whole(target), sort)
            panels, said, pages = self.gallery.show(ids, int(page or 1))
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error
        shown = min(max(int(page or 1), 1), pages)
        turn = gr.update(maximum=pages, value=shown, label=f"Page of {pages}")
        return pack({"panels": panels}), said, turn, gr.update(choices=self.gallery.classes())

    def open_result(self, event: gr.EventData) -> tuple[str, str, str, Any]:
        """One of the results: its id, what is known in words, its explanation, whether to ask."""
        assert self.gallery is not None
        id_ = str(_read_field(event, "id"))
        try:
            said, found = self.gallery.open(id_)
            asks = bool(self.subjects) and self.gallery.read(id_) is not None
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return id_, said, pack({} if found is None else {"one": found}), gr.update(visible=asks)

    def take(self, what: str, request: gr.Request) -> str:
        """A file of what the session shows."""
        try:
            content = make_file(self._find(request), str(what))
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error
        name, kind = FILES[what]
        return pack({"name": name, "type": kind, "data": base64.b64encode(content).decode()})

    def asks(self) -> list[Callable[[Body], Body]]:
        """The functions that the viewer calls by itself, each with the session's key."""
        return [_guard(ask) for ask in (self.weigh, self.remove)]

    def weigh(self, body: Body) -> Body:
        """The model's answers about the best p."""
        found = self.sessions.find(str(body.get("key"))).weigh(read_whole(body.get("p")))
        return {"point": [found.p, found.only, found.removed]}

    def remove(self, body: Body) -> Body:
        """The top five without some features, or with only these."""
        cells = body.get("cells")
        if not isinstance(cells, list):
            raise HTTPException(400, "expected cells as a list of whole numbers")
        session = self.sessions.find(str(body.get("key")))
        top = session.remove([read_whole(cell) for cell in cells], bool(body.get("keep")))
        share = session.output is not None and session.output.unit == "probability"
        most = max((abs(answer.score) for answer in top), default=0.0) or 1.0
        rows = [(a.label, a.score / (1 if share else most), _write(a.score, share)) for a in top]
        return {"top": rows}

    def _change(self, session: Session, change: Change) -> list[Any]:
        """Change the session, and show what there is to choose from now."""
        session.take_turn()  # what runs no longer has the page
        try:
            with session.changing:  # a slow change must not undo a later one
                change(session)
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error
        subject = session.subject
        targets, target = _list_classes(session), session.target
        first, second = (target, NOT) if isinstance(target, int) else target
        return [
            pack({"panels": [_to_thumb(given, session.given) for given in session.choices]}),
            gr.update(visible=subject.kind == "text"),
            gr.update(choices=targets, value=first if targets else None),
            gr.update(choices=[("–", NOT), *targets], value=second, visible=len(targets) > 1),
            gr.update(choices=list(subject.members), visible=bool(subject.members)),
        ]

    def _pack_map(self, session: Session, turn: int, request: gr.Request) -> str:
        key = _read_key(request)
        return pack({"turn": turn, "key": key, "one": describe_one(session.need_explanation())})

    def _find(self, request: gr.Request) -> Session:
        try:
            return self.sessions.find(_read_key(request))
        except SEAError as error:
            raise gr.Error(str(error), print_exception=False) from error


def pack(value: Body) -> str:
    """What a part of the page shows, as one text: Gradio looks into everything else, again and
    again, which took longer than a small map."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def read_whole(value: Any) -> int:
    """A whole number from the page."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise HTTPException(400, f"expected a whole number; got {value!r:.40}")
    return value


def _read_field(event: gr.EventData, name: str) -> Any:
    data = event._data
    if not isinstance(data, dict) or name not in data:
        raise HTTPException(400, f"expected an event with {name!r}")
    return data[name]


def _read_key(request: gr.Request) -> str:
    return str(request.session_hash)


def _guard(ask: Callable[[Body], Body]) -> Callable[[Body], Body]:
    """Errors for people become answers; the page shows them where the answer would stand."""

    def asked(body: Any) -> Body:
        if not isinstance(body, dict):
            raise HTTPException(400, "expected an object")
        try:
            return ask(body)
        except SEAError as error:
            return {"error": str(error)}

    asked.__name__ = ask.__name__
    return asked


def _list_classes(session: Session) -> list[tuple[str, int]]:
    """Every class to explain, the likeliest first, with what the model says of these."""
    if session.given is None or session.output is None:
        return []
    share = session.output.unit == "probability"
    top = session.top(TOP)
    rest = sorted(set(range(session.n_classes)) - {answer.target for answer in top})
    named = [(f"{answer.label}  {_write(answer.score, share)}", answer.target) for answer in top]
    return [*named, *((session.subject.label(k), k) for k in rest)]


def _describe_side(side: Kept, first: Kept) -> Body:
    """A row of a comparison, and how far its map agrees with the first row's."""
    e, other = side.explanation, first.explanation
    said = f"the model says {e.write_score(0)}"
    if e is not other and e.attribution.shape == other.attribution.shape:
        pair = torch.stack([e.attribution.flatten(), other.attribution.flatten()])[None]
        rank = float(agreement(pair)[0, 0, 1])
        said += f"; rank correlation of SEA's map with the first's {rank:.2f}"
    return {"title": side.name, "note": said, "panels": describe_panels(e)}


def _to_thumb(given: Given, chosen: Given | None) -> Body:
    image = None if given.image is None else encode_image(to_array(given.image), 128)
    return {"title": given.name, "image": image, "chosen": given is chosen}


def _write(score: float, share: bool) -> str:
    return f"{score:.2f}" if share else f"{score:.4g}"

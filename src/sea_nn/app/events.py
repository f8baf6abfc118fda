"""What happens when a visitor does something: from the page's events to the session and back.

A change (another input, class, model) is made at once and shows what there is to choose from; then
``explain`` gives the map again and again while the model is asked. What a visitor did wrong is said
in words (``gr.Error``); what no page would send breaks, and the gate answers for it.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gradio as gr
import torch

from sea_nn.app.gallery import ANY, Gallery
from sea_nn.app.session import Session, Sessions
from sea_nn.app.subjects import Given, Subject
from sea_nn.app.takeaway import FILES, make_file, write_code
from sea_nn.app.uploads import read_words
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.explanation import Explanation
from sea_nn.paper.agreement import agreement
from sea_nn.show.panels import to_array
from sea_nn.show.viewer.describe import describe_one, describe_panels, encode_image

PAUSE = 0.3
"""Seconds between two reports of progress: each costs about as much as an evaluation."""
NOT = -1  # no second class
TOP = 5
Body = dict[str, Any]
Change = Callable[[Session], None]


@contextmanager
def spoken() -> Iterator[None]:
    """Errors for people are shown to them."""
    try:
        yield
    except SEAError as error:
        raise gr.Error(str(error), print_exception=False) from error


class Events:
    """The handlers of one page, for all of its visitors."""

    def __init__(
        self, subjects: Sequence[Subject], sessions: Sessions, gallery: Gallery | None = None
    ) -> None:
        self.subjects, self.sessions, self.gallery = subjects, sessions, gallery

    def begin(self, request: gr.Request) -> list[Any]:
        """A page was opened: a new session, and its first example for something to see."""
        self.sessions.start(str(request.session_hash), self.subjects[0])
        return self._change(request, lambda s: s.choose(s.choices[0]) if s.choices else None)

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.sessions.end(str(request.session_hash))

    def choose(self, event: gr.EventData, request: gr.Request) -> list[Any]:
        """An example, or a row of an upload, was chosen."""
        index = event._data["index"]  # -1 is none of them
        return self._change(request, lambda s: s.choose(dict(enumerate(s.choices))[index]))

    def upload(self, event: gr.EventData, request: gr.Request) -> list[Any]:
        """A file was dropped, pasted or chosen; it comes as base64, and is never stored."""
        name, content = str(event._data["name"])[:80], base64.b64decode(event._data["data"])
        return self._change(request, lambda s: s.read(name, content))

    def type(self, text: str, request: gr.Request) -> list[Any]:
        """A text was typed."""
        content = str(text).encode()
        return self._change(request, lambda s: s.read(read_words(content)[:40], content))

    def switch(self, name: str, request: gr.Request) -> list[Any]:
        """Another model was chosen: it is asked about the same input, if it can read it."""
        subject = next(subject for subject in self.subjects if subject.name == name)
        return self._change(request, lambda s: s.switch(subject))

    def aim(self, target: int, versus: int | None, request: gr.Request) -> list[Any]:
        """A class was chosen, or a second one for "and not"."""
        aimed = target if versus in (None, NOT) else (target, versus)
        return self._change(request, lambda s: s.aim(aimed))

    def ask_result(self, id_: str, request: gr.Request) -> list[Any]:
        """The model is to be asked about one of a run's results."""

        def read(session: Session) -> None:
            found = None if self.gallery is None else self.gallery.read(str(id_))
            if found is None:
                raise InputError("the input's own file is no longer there, or is another one")
            session.read(*found)

        return [*self._change(request, read), gr.Tabs(selected="ask")]

    @spoken()
    def _change(self, request: gr.Request, change: Change) -> list[Any]:
        """Change the session, and show what there is to choose from now."""
        session = self._find(request)
        session.take_turn()  # what runs no longer has the page
        change(session)
        subject, target = session.subject, session.target
        targets = _list_classes(session)
        first, second = (target, NOT) if isinstance(target, int) else target
        return [
            pack({"panels": [_to_thumb(given, session.given) for given in session.choices]}),
            gr.update(visible=subject.kind == "text"),
            gr.update(choices=targets, value=first if targets else None),
            gr.update(choices=[("–", NOT), *targets], value=second, visible=len(targets) > 1),
            gr.update(choices=list(subject.members), visible=bool(subject.members)),
        ]

    def explain(
        self, budget: int, methods: list[str] | None, request: gr.Request
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Explain what the session is about: a first map soon, then finer ones.

        When the visitor asks for something else meanwhile, that has the page: what is sent has the
        number of the request, and the page shows none that is older than what it has seen.
        """
        with spoken():
            session = self._find(request)
            turn = session.take_turn()
            yield gr.skip(), "", gr.skip()  # without any part Gradio empties the page
            if session.given is None:
                return

            def show() -> str:
                one = describe_one(session.need_explanation())
                return pack({"turn": turn, "key": str(request.session_hash), "one": one})

            chosen, told = tuple(m for m in methods or () if m in session.subject.members), 0.0
            for step in session.explain(budget, chosen or None):
                if session.turn != turn:
                    return
                fresh = step.explanation is not None
                if fresh or time.monotonic() - told >= PAUSE:
                    told, said = time.monotonic(), f"{step.done} of {step.total} evaluations"
                    yield show() if fresh else gr.skip(), said, gr.skip()
            if session.turn == turn and session.explanation is not None:
                spent = sum(session.explanation.provenance.evaluations.values())
                before = f"; {session.reused} paid for before" if session.reused else ""
                yield show(), f"Map of {spent} evaluations{before}", write_code(session)

    @spoken()
    def stop(self, request: gr.Request) -> None:
        """End what is running; what is there stays."""
        self._find(request).stop()

    @spoken()
    def compare(self, chosen: list[str] | None, request: gr.Request) -> tuple[Any, str]:
        """Maps of some of the visit's explanations, a row each, on one colour scale.

        They are the two newest unless others are chosen.
        """
        kept = self._find(request).kept
        names = [name for name in chosen or () if name in kept] or [*reversed(kept)][:2]
        sides = [_describe_side(name, kept[name], kept[names[0]]) for name in names]
        return gr.update(choices=[*reversed(kept)], value=names), pack({"strips": sides})

    @spoken()
    def browse(self, which: str, target: int, sort: str, page: float) -> tuple[Any, ...]:
        """One page of a run's results that fit, and the classes there are.

        What was explained since is among them.
        """
        assert self.gallery is not None
        self.gallery.refresh()
        ids = self.gallery.select(which, ANY if target is None else target, sort)
        panels, said, page, pages = self.gallery.show(ids, int(page or 1))
        turn = gr.update(maximum=pages, value=page, label=f"Page of {pages}")
        return pack({"panels": panels}), said, turn, gr.update(choices=self.gallery.classes())

    @spoken()
    def open_result(self, event: gr.EventData) -> tuple[str, str, str, Any]:
        """One of the results: its id, what is known in words, its explanation, whether to ask."""
        assert self.gallery is not None
        id_ = str(event._data["id"])
        said, found = self.gallery.open(id_)
        asks = self.gallery.read(id_) is not None
        return id_, said, pack({} if found is None else {"one": found}), gr.update(visible=asks)

    @spoken()
    def take(self, what: str, request: gr.Request) -> str:
        """A file of what the session shows."""
        content, (name, kind) = make_file(self._find(request), what), FILES[what]
        return pack({"name": name, "type": kind, "data": base64.b64encode(content).decode()})

    def asks(self) -> list[Callable[[Body], Body]]:
        """The functions that the viewer calls by itself, each with the session's key.

        Errors for people are answers; the page shows them where the answer would stand.
        """

        def weigh(body: Body) -> Body:
            try:
                return {"point": self.sessions.find(str(body["key"])).weigh(body["p"])}
            except SEAError as error:
                return {"error": str(error)}

        def remove(body: Body) -> Body:
            try:
                return _try_without(self.sessions.find(str(body["key"])), body)
            except SEAError as error:
                return {"error": str(error)}

        return [weigh, remove]

    def _find(self, request: gr.Request) -> Session:
        return self.sessions.find(str(request.session_hash))


def pack(value: Body) -> str:
    """What a part of the page shows, as one text: Gradio looks into everything else, again and
    again, which took longer than a small map."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _try_without(session: Session, body: Body) -> Body:
    """The top five without some features, or with only these."""
    top = session.remove(body["cells"], bool(body["keep"]))
    share = session.output is not None and session.output.unit == "probability"
    most = 1.0 if share else max(abs(answer.score) for answer in top) or 1.0
    return {"top": [(a.label, a.score / most, _write(a.score, share)) for a in top]}


def _list_classes(session: Session) -> list[tuple[str, int]]:
    """Every class to explain, the likeliest first, with what the model says of these."""
    if session.output is None:
        return []
    share, top = session.output.unit == "probability", session.top(None)
    named = [(f"{answer.label}  {_write(answer.score, share)}", answer.target) for answer in top]
    return [*named[:TOP], *((answer.label, answer.target) for answer in sorted(top[TOP:]))]


def _describe_side(name: str, e: Explanation, other: Explanation) -> Body:
    """A row of a comparison, and how far its map agrees with the first row's."""
    said = f"the model says {e.write_score(0)}"
    if e is not other and e.attribution.shape == other.attribution.shape:
        pair = torch.stack([e.attribution.flatten(), other.attribution.flatten()])[None]
        rank = float(agreement(pair)[0, 0, 1])
        said += f"; rank correlation of SEA's map with the first's {rank:.2f}"
    return {"title": name, "note": said, "panels": describe_panels(e)}


def _to_thumb(given: Given, chosen: Given | None) -> Body:
    image = None if given.image is None else encode_image(to_array(given.image), 128)
    return {"title": given.name, "image": image, "chosen": given is chosen}


def _write(score: float, share: bool) -> str:
    return f"{score:.2f}" if share else f"{score:.4g}"

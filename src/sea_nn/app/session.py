"""What one visitor is doing: the input, the class, its explanation, and what the model has said.

There is no page in here: ``Session`` can be driven from a script, and is in the tests.

>>> from sea_nn.app.subjects import load_subject
>>> session = Session(load_subject("fashion-cnn"))
>>> session.choose(session.subject.examples[0])
>>> session.top(1)[0].label
'Ankle boot'
>>> explanation = list(session.explain(128))[-1].explanation
>>> evidence = session.weigh(16)
>>> evidence.only > evidence.removed
True
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.app.subjects import Given, Subject, Target
from sea_nn.call import Running
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.model.outputs import Output

Methods = tuple[str, ...] | None
BUDGETS = (34, 128, 512, 1024)
MOST_KEPT = 8


class Answer(NamedTuple):
    """What the model says of one class."""

    target: int
    label: str
    score: float


class Evidence(NamedTuple):
    """The model's scores with only SEA's best p features left and with these removed."""

    p: int
    only: float
    removed: float


class Step(NamedTuple):
    """How far an explanation is: evaluations done and in all, and the map where it is new."""

    done: int
    total: int
    explanation: Explanation | None = None


Steps = queue.SimpleQueue[Step | BaseException | None]


class StoppedError(Exception):
    """The visitor pressed Stop, or is about something else."""


class Session:
    """One visitor's input, class, explanation and answers; the model's own are shared by all.

    Attributes:
        subject: the model with its inputs.
        choices: inputs to choose from: the subject's examples, or the rows of an upload.
        upload: the name and content of the last upload, for another model to read.
        given: the input; None before ``choose``.
        target: the class explained, or (a, b) for "why a and not b".
        output: what the model's outputs are; None before ``choose``.
        explanation: the newest one of ``given`` and ``target``, or None.
        kept: the last explanations by name, newest last.
        calls: what was explained of this input: (target, budget, members, whether it was stopped).
        reused: the evaluations that were paid for before the explanation: answers and members.
        turn: the number of the visitor's last request; what older ones find is no longer shown.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.choices: Sequence[Given] = subject.examples
        self.upload: tuple[str, bytes] | None = None
        self.given: Given | None = None
        self.target: Target = 0
        self.output: Output | None = None
        self.explanation: Explanation | None = None
        self.kept: dict[str, Explanation] = {}
        self.calls: list[tuple[Target, int, Methods, bool]] = []
        self.reused = self.turn = 0
        self._whole = torch.zeros(0)
        self._previous: Explanation | None = None
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None
        self._starting, self._lock = threading.Lock(), threading.Lock()

    def take_turn(self) -> int:
        """Begin a request: its number."""
        with self._lock:
            self.turn += 1
            return self.turn

    def choose(self, given: Given) -> None:
        """Take another input, and ask the model about it."""
        self.stop()
        if any(given is one for one in self.subject.examples):
            self.upload = None
        outputs, output = self.subject.run(given)
        with self._lock:
            self._whole, self.output = outputs, output
            self.given, self.explanation = given, None
            self._previous, self.calls = None, []
            self.target = int(outputs.argmax())

    def read(self, name: str, content: bytes) -> None:
        """Take the first input of an upload; if there are several, they become the choices."""
        found = self.subject.read(name, content)
        self.choose(found[0])
        self.choices = found if len(found) > 1 else self.subject.examples
        self.upload = (name, content)

    def switch(self, subject: Subject) -> None:
        """Ask another model about the same input, if it can read it; what was kept stays."""
        self.stop()
        name = None if self.given is None else self.given.name
        with self._lock:
            self.subject, self.choices = subject, subject.examples
            self.given, self.output, self.explanation = None, None, None
        if self.upload is not None:
            try:
                self.read(*self.upload)
                return
            except InputError:  # it is of another kind
                self.upload = None
        same = [given for given in subject.examples if given.name == name]
        if same or subject.examples:
            self.choose((same or subject.examples)[0])

    def aim(self, target: Target) -> None:
        """Take another class, or two: "why a and not b"."""
        self.stop()
        classes = (target,) if isinstance(target, int) else target
        known = all(0 <= one < len(self._whole) for one in classes)
        if len(set(classes)) < len(classes) or not known:
            raise InputError(f"there are classes 0 to {len(self._whole) - 1}; got {target}")
        with self._lock:
            if target != self.target:
                self.target, self.explanation = target, None

    def top(self, count: int | None = 5, outputs: Tensor | None = None) -> list[Answer]:
        """The likeliest classes, or all, best first; of other ``outputs`` [K] than the whole's."""
        outputs = self._whole if outputs is None else outputs
        best = self._need_output().scores(outputs.unsqueeze(0))[0].sort(descending=True)
        pairs = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))[:count]
        return [Answer(k, self.subject.label(k), score) for k, score in pairs]

    def score(self, outputs: Tensor | None = None) -> float:
        """What outputs [K] say of the target; of a pair, as if there were only these two."""
        outputs = self._whole if outputs is None else outputs
        return float(self._need_output().score(outputs[None], torch.tensor([self.target])))

    def explain(self, budget: int = BUDGETS[1], methods: Methods = None) -> Iterator[Step]:
        """Explain the input: a map after each round of questions, the first one soon.

        ``methods`` are members to use in place of SEA's own choice.

        What the model answered about this input before, for whatever class, counts as asked, and
        members' maps of a class explained before are there. Ends early, with what is there, when
        ``stop`` is called from another thread.
        """
        if self.given is None:
            raise InputError("choose an input first")
        steps: Steps = queue.SimpleQueue()
        stop = threading.Event()
        what = (self.given, budget, methods, stop, steps)
        worker = threading.Thread(target=self._work, args=what, daemon=True)
        with self._starting:
            self.stop()
            if self._worker is not None:
                self._worker.join()  # what it has found by now is there, and serves this one
            self._stop, self._worker = stop, worker
            worker.start()
        try:
            while (step := steps.get()) is not None:
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            stop.set()  # the page is gone, or it is done
            worker.join()

    def stop(self) -> None:
        """End a running ``explain`` at its next evaluation; what it has found stays."""
        self._stop.set()

    def weigh(self, p: int) -> Evidence:
        """Ask the model about SEA's best p features, alone and removed."""
        order = self.need_explanation().order.cpu()
        if not 0 <= p <= order.shape[1]:
            raise InputError(f"p must be from 0 to {order.shape[1]}; got {p}")
        best = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :p], True)
        only, removed = self._ask(torch.cat([best, ~best]))
        return Evidence(p, self.score(only), self.score(removed))

    def remove(self, cells: Sequence[int], keep: bool = False) -> list[Answer]:
        """The top five classes without some features, or with only these."""
        n = self.need_explanation().order.shape[1]
        if not all(isinstance(cell, int) and 0 <= cell < n for cell in cells):
            raise InputError(f"features are numbers from 0 to {n - 1}; got {cells!r:.80}")
        left = torch.full((1, n), not keep)
        left[0, list(cells)] = keep
        return self.top(5, self._ask(left)[0])

    def need_explanation(self) -> Explanation:
        """The explanation; an error if there is none yet."""
        if self.explanation is None:
            raise InputError("there is no map yet")
        return self.explanation

    def _ask(self, sets: Tensor) -> Tensor:
        """The model's outputs with only these features left: bool [R, n] -> [R, K]."""
        e = self.need_explanation()
        assert self.given is not None
        return self.subject.ask(self.given, e, sets)

    def _need_output(self) -> Output:
        if self.output is None:
            raise InputError("choose an input first")
        return self.output

    def _work(
        self, given: Given, budget: int, methods: Methods, stop: threading.Event, steps: Steps
    ) -> None:
        """Explain, and tell ``steps`` how it goes; None is the end."""
        target, previous = self.target, self._previous
        asked = None if previous is None else previous.asked
        known = done = 0 if asked is None or asked.outputs is None else asked.sets.shape[1]
        newest: Explanation | None = None

        def tell(member: str, spent: int, total: int) -> None:
            nonlocal done
            if stop.is_set():
                raise StoppedError
            done = max(done, min(budget, known + spent))
            steps.put(Step(done, budget))

        def show(e: Explanation) -> bool:
            nonlocal newest
            with self._lock:
                if given is not self.given or target != self.target:
                    return False
                newest, self.explanation, self.reused = e, e, known
                if e.members and e.members[-1].reused:
                    self.reused += sum(e.members[-1].evaluations.values())
            steps.put(Step(done, budget, e))
            return not stop.is_set()

        try:
            running = Running(tell, show)
            show(self.subject.explain(given, target, budget, methods, previous, running))
        except StoppedError:
            pass  # the last round's map is there
        except BaseException as error:
            steps.put(error)
        with self._lock:
            if newest is not None and given is self.given and target == self.target:
                name = " · ".join([newest.name(0), given.name, self.subject.name, *(methods or ())])
                self.kept.pop(name, None)
                self.kept[name] = self._previous = newest
                self.kept = dict(list(self.kept.items())[-MOST_KEPT:])
                self.calls.append((target, budget, methods, stop.is_set()))
        steps.put(None)


class Sessions:
    """The visitors' sessions by key, at most ``most`` of them: the longest unused goes first."""

    def __init__(self, most: int = 32) -> None:
        self.most = most
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def start(self, key: str, subject: Subject) -> Session:
        """Begin a session, in the place of one with the same key."""
        self.end(key)
        with self._lock:
            session = self._sessions[key] = Session(subject)
            over = list(self._sessions)[: -self.most]
        for old in over:
            self.end(old)
        return session

    def find(self, key: str) -> Session:
        """The session of a key, from now on the newest; an error if it was ended."""
        with self._lock:
            if key not in self._sessions:
                raise InputError("this page was cleared to make room for others: reload it")
            session = self._sessions[key] = self._sessions.pop(key)
            return session

    def end(self, key: str) -> None:
        """Forget a session and everything in it."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            session.stop()

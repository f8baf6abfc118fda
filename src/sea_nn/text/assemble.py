"""From what was found about texts to one ``Explanation``.

The positions of a map are the pieces of a text, in order: words, each with the white space after
it, and pieces that take no part (cut off, or outside the spans). Pieces joined give the text.
Shorter texts are filled up with empty pieces. What takes no part has no gain and comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.assemble import check_answers
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance
from sea_nn.explanation.ranking import Ranking, rank_classes
from sea_nn.features.kinds import TEXT
from sea_nn.function.function import SetFunction as AnswersFunction
from sea_nn.members.checks import Check, Level
from sea_nn.paper.heatmaps import is_flat
from sea_nn.questions.asked import Asked
from sea_nn.questions.curve import Curve
from sea_nn.text.learn import AskedText, ExplainedText
from sea_nn.text.reading import Reading


def cut_pieces(reading: Reading) -> tuple[list[str], list[int]]:
    """The pieces of a text, and which of them are its features.

    >>> import torch
    >>> one = Reading(" Not bad, they say", ((1, 4), (5, 9)), {}, torch.empty(0))
    >>> cut_pieces(one)
    ([' Not ', 'bad, ', 'they say'], [0, 1])
    """
    text, pieces, places, at = reading.text, [], [], 0
    for start, end in reading.spans:
        before = text[at:start]
        if before.strip():  # words that take no part
            pieces.append(before)
            before = ""
        while end < len(text) and text[end].isspace():
            end += 1
        places.append(len(pieces))
        pieces.append(before + text[start:end])
        at = end
    if at < len(text):
        pieces.append(text[at:])
    return pieces, places


def assemble_texts(
    found: Sequence[ExplainedText],
    ranking: Ranking | None,
    checks: Sequence[Check],
    provenance: Provenance,
) -> Explanation:
    """One explanation of all texts."""
    cut = [cut_pieces(one.reading) for one in found]
    width = max(len(pieces) for pieces, _ in cut)
    rows = max(one.learned.asked.sets.shape[1] for one in found)
    pairs = [(one, places) for one, (_, places) in zip(found, cut, strict=True)]
    joined = _join([_lay_out(one, places, width) for one, places in pairs])
    asked = _join([_widen_asked(one, places, width, rows) for one, places in pairs])
    parts = _join([_widen(one.learned.function, places, width) for one, places in pairs])
    targets = torch.cat([one.members.target for one in found])
    rival = targets[:, 1] if targets.ndim == 2 else None
    curve = None
    if all(len(places) == width for _, places in cut):  # one number of words, all take part
        curves = [one.learned.curve for one in found]
        left, removed = ([getattr(c, side) for c in curves] for side in ("left", "removed"))
        curve = Curve(curves[0].counts, torch.cat(left), torch.cat(removed))
    return Explanation(
        **joined,
        curve=curve,
        rival=rival,
        ranking=ranking,
        methods=tuple(found[0].members.maps),
        target=targets if rival is None else targets[:, 0],
        feature_shape=(width,),
        labels=tuple(one.label for one in found),
        checks=(*checks, *(c for i, one in enumerate(found) for c in _check(one, f"input {i}"))),
        provenance=provenance,
        kind=TEXT.name,
        view=TEXT.view,
        texts=tuple(tuple(pieces) for pieces, _ in cut),
        function=replace(found[0].learned.function, **parts),
        asked=Asked(**asked),
    )


def rank_texts(found: Sequence[ExplainedText], classes: Sequence[str] | None) -> Ranking | None:
    """The classes that the model finds likeliest of each text."""
    outputs = torch.cat([one.members.outputs for one in found])
    return rank_classes(outputs, found[0].members.output, classes)


def _join(rows: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Tensors of single texts as those of all."""
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def _spread(values: Tensor, places: Sequence[int], width: int, axis: int = -1) -> Tensor:
    """Values of features as those of pieces: 0 where a piece is none."""
    index = torch.tensor(places, device=values.device)
    shape = list(values.shape)
    shape[axis] = width
    return values.new_zeros(shape).index_copy(axis, index, values)


def _order(order: Tensor, places: Sequence[int], width: int) -> Tensor:
    """An order of features, [1, n], as one of pieces; what takes no part comes last."""
    rest = sorted(set(range(width)) - set(places))
    return torch.cat([torch.tensor(places)[order], torch.tensor([rest], dtype=torch.int64)], 1)


def _lay_out(one: ExplainedText, places: Sequence[int], width: int) -> dict[str, Tensor]:
    """The tensors of one text over the pieces."""
    learned = one.learned
    gains = torch.zeros(1, width)
    gains[:, : len(places)] = learned.gains
    maps = {"attribution": learned.attribution, "against": learned.against, "maps": one.heatmaps}
    return {
        **{name: _spread(own.float(), places, width) for name, own in maps.items()},
        "order": _order(learned.order, places, width),
        "gains": gains,
        "score": one.members.output.score(one.members.outputs.float(), one.members.target),
        "predict_error": learned.error.float(),
    }


def _widen(f: AnswersFunction, places: Sequence[int], width: int) -> dict[str, Tensor]:
    """The parts of a function of features as those of one of pieces."""
    by_piece = {"against": _spread(f.against, places, width)}
    return f.parts() | by_piece | {"weight": _spread(f.weight, places, width, 1)}


def _widen_asked(
    one: ExplainedText, places: Sequence[int], width: int, rows: int
) -> dict[str, Tensor]:
    """What was asked about one text, over the pieces: the parts of an ``Asked``.

    The whole text comes last, so that pieces which take no part are those in no set. Where other
    texts were asked more, the empty set is there again.
    """
    asked = one.learned.asked
    assert asked.outputs is not None
    assert asked.whole is not None
    again = torch.arange(rows) * (torch.arange(rows) < asked.sets.shape[1])
    sets = torch.cat([asked.sets[:, again], torch.ones_like(asked.sets[:, :1])], 1)
    return {
        "sets": _spread(sets, places, width),
        "answers": torch.cat([asked.answers[:, again], one.learned.function.all.view(1, 1)], 1),
        "keep": _order(asked.keep, places, width),
        "remove": _order(asked.remove, places, width),
        "outputs": torch.cat([asked.outputs[:, again], asked.whole[:, None, None]], 1),
        "whole": asked.whole,
    }


def find_earlier(e: Explanation, text: AskedText, absent: str) -> Asked:
    """What was asked about one text, from its explanation: ``_widen_asked`` undone.

    The questions are about the text's features again, the empty set comes once, and the whole
    text, which is no question, is left out.
    """
    asked, (pieces, places) = e.asked, cut_pieces(text.reading)
    if e.provenance.config.get("absent") != absent:
        raise InputError(f"previous was asked without absent={absent!r}")
    if asked is None or asked.outputs is None:
        raise InputError(
            "previous was loaded from a file, which does not hold the model's outputs: give an "
            "explanation that was made, not loaded"
        )
    if e.texts is None or list(e.texts[0]) != pieces:
        raise InputError("previous is of another text, or of other features of it")
    if text.ends and e.name(0) != text.name(e.target):  # other columns
        raise InputError(f"previous explains {e.name(0)}, and now it is {text.name(e.target)}")
    sets = asked.sets[0, :-1][:, places]
    once = [0, *(1 + sets[1:].any(1).nonzero().flatten()).tolist()]
    outputs, answers = asked.outputs[:, :-1][:, once], asked.answers[:, :-1][:, once]
    return replace(asked, sets=sets[once][None], answers=answers, outputs=outputs)


def _check(one: ExplainedText, subject: str) -> Iterator[Check]:
    """What to know of one text."""
    members, learned = one.members, one.learned
    for message, advice in one.reading.notes:
        yield Check("warn", subject, message, advice)
    for name, why in members.failed.items():
        yield Check("fail", subject, f"{name}: {why}", "it is left out")
    for name, maps in members.maps.items():
        if bool(is_flat(maps.abs()).any()):
            message = f"{name}: its map is the same everywhere"
            yield Check("fail", subject, message, "it does not count")
    if learned.stopped:
        message = f"questions ended after {learned.function.n_answers}: {learned.stopped}"
        level: Level = "warn" if learned.stopped == "interrupted" else "ok"
        yield Check(level, subject, message, "its map is of what was answered until then")
    yield from check_answers(learned, 0, subject, "pass another absent=")

"""From what was found about texts to one ``Explanation``.

The positions of a map are the pieces of a text, in order: words, each with the white space after
it, and pieces that take no part (cut off, or outside the spans). Pieces joined give the text.
Shorter texts are filled up with empty pieces. What takes no part has no gain and comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance
from sea_nn.explanation.ranking import rank_classes
from sea_nn.features.kinds import TEXT
from sea_nn.members.checks import Check, Level
from sea_nn.questions.asked import Asked
from sea_nn.questions.curve import Curve
from sea_nn.questions.learn import CLIP
from sea_nn.submodular.answers_function import AnswersFunction
from sea_nn.text.learn import ExplainedText
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
    labels: Sequence[str],
    *,
    classes: Sequence[str] | None,
    ranked: bool,
    checks: Sequence[Check],
    provenance: Provenance,
) -> Explanation:
    """One explanation of all texts; ``labels`` name what is explained, ``classes`` all classes."""
    cut = [cut_pieces(one.reading) for one in found]
    width = max(len(pieces) for pieces, _ in cut)
    rows = [_lay_out(one, places, width) for one, (_, places) in zip(found, cut, strict=True)]
    joined: dict[str, Any] = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    targets = torch.cat([one.members.target for one in found])
    rival = targets[:, 1] if targets.ndim == 2 else None
    rows_asked = max(one.learned.asked.sets.shape[1] for one in found)
    asked = [
        _widen_asked(one, places, width, rows_asked)
        for one, (_, places) in zip(found, cut, strict=True)
    ]
    functions = [
        _widen(one.learned.function, places, width)
        for one, (_, places) in zip(found, cut, strict=True)
    ]
    parts: dict[str, Any] = {
        name: torch.cat([f.parts()[name] for f in functions]) for name in functions[0].parts()
    }
    outputs = torch.cat([one.members.outputs for one in found])
    curve = None
    if all(len(places) == width for _, places in cut):  # one number of words, all take part
        curves = [one.learned.curve for one in found]
        left, removed = ([getattr(c, side) for c in curves] for side in ("left", "removed"))
        curve = Curve(curves[0].counts, torch.cat(left), torch.cat(removed))
    return Explanation(
        **joined,
        curve=curve,
        rival=rival,
        ranking=rank_classes(outputs, found[0].members.output, classes) if ranked else None,
        methods=tuple(found[0].members.maps),
        target=targets if rival is None else targets[:, 0],
        feature_shape=(width,),
        labels=tuple(labels),
        checks=(*checks, *(c for i, one in enumerate(found) for c in _check(one, i))),
        provenance=provenance,
        kind=TEXT.name,
        view=TEXT.view,
        texts=tuple(tuple(pieces) for pieces, _ in cut),
        function=replace(functions[0], **parts),
        asked=Asked(*(torch.cat(own) for own in zip(*asked, strict=True))),
    )


def _lay_out(one: ExplainedText, places: Sequence[int], width: int) -> dict[str, Tensor]:
    """The tensors of one text over the pieces."""
    learned = one.learned
    index = torch.tensor(places, device=learned.order.device)
    rest = torch.tensor(sorted(set(range(width)) - set(places)), device=index.device)
    gains = learned.gains.float()

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(*values.shape[:-1], width).index_copy(-1, index, values)

    score = one.members.output.score(one.members.outputs.float(), one.members.target)
    return {
        "attribution": spread(learned.attribution.float()),
        "against": spread(learned.against.float()),
        "maps": spread(one.heatmaps.float()),
        "order": torch.cat([index[learned.order], rest.long().unsqueeze(0)], 1),
        "gains": torch.cat([gains, gains.new_zeros(1, len(rest))], 1),
        "score": score,
        "predict_error": learned.error.float(),
    }


def _widen(f: AnswersFunction, places: Sequence[int], width: int) -> AnswersFunction:
    """A function of features as one of pieces, of which some do not count."""
    index = torch.tensor(places, device=f.weight.device)
    weight = f.weight.new_zeros(1, width, f.weight.shape[2]).index_copy(1, index, f.weight)
    against = f.against.new_zeros(1, width).index_copy(1, index, f.against)
    return replace(f, weight=weight, against=against)


def _widen_asked(
    one: ExplainedText, places: Sequence[int], width: int, rows: int
) -> tuple[Tensor, ...]:
    """What was asked about one text, over the pieces: the parts of an ``Asked``.

    The whole text comes last, so that pieces which take no part are those in no set. Where other
    texts were asked more, the empty set is there again.
    """
    asked, index = one.learned.asked, torch.tensor(places)
    rest = torch.tensor(sorted(set(range(width)) - set(places)), dtype=torch.int64)
    again = torch.arange(rows) * (torch.arange(rows) < asked.sets.shape[1])
    whole = torch.ones_like(asked.sets[:, :1])
    sets = asked.sets.new_zeros(1, rows + 1, width)
    sets[:, :, index] = torch.cat([asked.sets[:, again], whole], 1)
    answers = torch.cat([asked.answers[:, again], one.learned.function.all.view(1, 1)], 1)
    orders = (torch.cat([index[o], rest[None]], 1) for o in (asked.keep, asked.remove))
    assert asked.outputs is not None
    assert asked.whole is not None
    outputs = torch.cat([asked.outputs[:, again], asked.whole[:, None, None]], 1)
    return sets, answers, *orders, outputs, asked.whole


def find_earlier(e: Explanation, reading: Reading) -> Asked:
    """What was asked about one text, from its explanation: ``_widen_asked`` undone.

    The questions are about the text's features again, the empty set comes once, and the whole
    text, which is no question, is left out.
    """
    asked, (pieces, places) = e.asked, cut_pieces(reading)
    if asked is None or asked.outputs is None:
        raise InputError(
            "previous was loaded from a file, which does not hold the model's outputs: give an "
            "explanation that was made, not loaded"
        )
    if e.texts is None or list(e.texts[0]) != pieces:
        raise InputError("previous is of another text, or of other features of it")
    sets = asked.sets[0, :-1][:, places]
    once = [0, *(1 + sets[1:].any(1).nonzero().flatten()).tolist()]
    outputs, answers = asked.outputs[:, :-1][:, once], asked.answers[:, :-1][:, once]
    return replace(asked, sets=sets[once][None], answers=answers, outputs=outputs)


def _check(one: ExplainedText, number: int) -> list[Check]:
    """What to know of one text, under its number."""
    subject, f = f"input {number}", one.learned.function
    checks = [
        replace(c, subject=subject) if c.subject == "text" else replace(
            c, subject=subject, message=f"{c.subject}: {c.message}"
        )
        for c in one.checks
    ]  # fmt: skip
    if one.learned.stopped:
        message = f"questions ended after {f.n_answers}: {one.learned.stopped}"
        level: Level = "warn" if one.learned.stopped == "interrupted" else "ok"
        checks.append(Check(level, subject, message, "its map is of what was answered until then"))
    change = float(f.all[0] - f.none[0])
    if bool(one.learned.clipped[0]):
        message = f"the model is surer than {1 - CLIP:g}: its log-odds are clipped"
        checks.append(Check("warn", subject, message, "gains are lower bounds"))
    if change <= 0:
        message = f"the whole text says no more for the target than an empty one: {change:.3g}"
        advice = "its map is zero; explain another target, or pass another absent="
        checks.append(Check("warn", subject, message, advice))
    return checks

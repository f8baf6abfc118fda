"""From the explanations of single texts, over their own words, to one of all of them.

The positions of a map are the pieces of a text, in order: words, each with the white space after
it, and pieces that take no part, cut off or special. Pieces joined give the text.
Shorter texts are filled up with empty pieces. What takes no part has no gain and comes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.errors import InputError
from sea_nn.explanation.assemble import divide
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Ranking, list_tensors
from sea_nn.features import TEXT
from sea_nn.function.several import SeveralFunctions
from sea_nn.members.run import Check
from sea_nn.questions.asked import Asked
from sea_nn.text.model import OneText
from sea_nn.text.reading import Reading

Found = tuple[OneText, Explanation]
"""A text, and its explanation over its own features."""


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


def join_texts(found: Sequence[Found]) -> Explanation:
    """One explanation of all texts."""
    each: list[Any] = [e for _, e in found]
    cut = [cut_pieces(asked.reading) for asked, _ in found]
    places, width = [torch.tensor(own) for _, own in cut], max(len(pieces) for pieces, _ in cut)
    most = max(e.asked.sets.shape[1] for e in each)
    wide = [_widen(e, own, width, most) for e, own in zip(each, places, strict=True)]
    inner: dict[str, dict[str, Any]] = {"": {}, "asked": {}, "ranking": {}}
    for name in wide[0]:
        head, _, tail = name.rpartition(".")
        inner[head][tail] = torch.cat([one[name] for one in wide])
    ranked = inner["ranking"] and not found[0][0].names  # of continuations nobody asked for one
    names = [e.ranking.names[0] for e in each] if ranked else []
    return Explanation(
        **inner[""],
        methods=each[0].methods,
        feature_shape=(width,),
        curve=each[0].curve if len(each) == 1 and len(places[0]) == width else None,
        ranking=Ranking(**inner["ranking"], names=tuple(names)) if ranked else None,
        labels=None if each[0].labels is None else tuple(e.labels[0] for e in each),
        checks=_join_checks(found),
        provenance=replace(
            each[0].provenance,
            seconds=_add_up(found, "seconds"),
            evaluations=_add_up(found, "evaluations"),
            by_purpose=divide(_add_up(found, "by_purpose"), len(found)),
            assumed=tuple(dict.fromkeys(said for e in each for said in e.provenance.assumed)),
        ),
        kind=TEXT.name,
        view=TEXT.view,
        texts=tuple(tuple(pieces) for pieces, _ in cut),
        function=SeveralFunctions(tuple(e.function for e in each), tuple(places), width),
        asked=Asked(**inner["asked"]),
    )


def _widen(e: Any, places: Tensor, width: int, most: int) -> dict[str, Tensor]:
    """The tensors of one text's explanation, by name, over so many pieces, and of ``most`` answers.

    A piece that is no feature has 0 and comes last; the first answer fills up the rows.
    """
    rest = torch.tensor(sorted(set(range(width)) - set(places.tolist())), dtype=torch.int64)
    told = {f"asked.{name}": ("N", part) for name, part in e.asked.parts().items()}
    told |= {name: (field.shape, value) for name, field, value in list_tensors(e)}
    made = {}
    for name, (shape, value) in told.items():
        axes, device = shape.split(), value.device
        if name in ("order", "asked.keep", "asked.remove"):
            value = torch.cat([places.to(device)[value], rest.to(device)[None]], 1)
        elif name == "gains":
            value = pad(value, (0, len(rest)))
        elif axes[-1] in ("n", "map", "own"):
            zeros = value.new_zeros(*value.shape[:-1], width)
            value = zeros.index_copy(-1, places.to(device), value)
        if name in ("asked.sets", "asked.answers", "asked.outputs"):
            first = value[:, :1].expand(-1, most - value.shape[1], *value.shape[2:])
            value = torch.cat([value, first], 1)
        if axes[0] == "N" and name not in ("curve.left", "curve.removed", "values"):
            made[name] = value
    return made


def _join_checks(found: Sequence[Found]) -> tuple[Check, ...]:
    """What is about one text is said of it, and what is about the model or a member once."""
    checks = []
    for i, (asked, e) in enumerate(found):
        own, note = f"input {i}", asked.reading.note
        if note:
            advice = "explain a shorter text, or parts of it one by one"
            checks.append(Check("warn", own, note, advice))
        for check in e.checks:
            about = check.input is not None or check.subject == "questions"
            checks.append(replace(check, subject=own) if about else check)
    return tuple(dict.fromkeys(checks))


def _add_up(found: Sequence[Found], name: str) -> dict[str, Any]:
    """What the texts cost together: seconds, or the rows of tokens that the model saw."""
    total: Any = Counter()
    for asked, e in found:
        each = 1 if name == "seconds" else len(asked.tails)
        total.update({key: each * n for key, n in getattr(e.provenance, name).items()})
    return dict(total)


def find_earlier(e: Explanation, asked: OneText, absent: str) -> Any:
    """What was asked about one text, over its features again: ``join_texts`` undone."""
    pieces, places = cut_pieces(asked.reading)
    if e.provenance.call.get("absent") != absent:
        raise InputError(f"previous was asked without absent={absent!r}")
    if e.texts is None or e.asked is None or list(e.texts[0]) != pieces:
        raise InputError("previous is of another text, or of other features of it")
    if asked.names and e.name(0) != ", not ".join(asked.names):  # other columns
        raise InputError(f"previous explains {e.name(0)}, and now it is {', '.join(asked.names)}")
    return SimpleNamespace(asked=replace(e.asked, sets=e.asked.sets[..., places]), members=())

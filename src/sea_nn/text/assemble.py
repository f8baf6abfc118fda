"""From the explanations of single texts, over their own words, to one of all of them.

The positions of a map are the pieces of a text, in order: words, each with the white space after
it, and pieces that take no part, cut off or special. Pieces joined give the text.
Shorter texts are filled up with empty pieces. What takes no part has no gain and comes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.errors import InputError
from sea_nn.explanation.assemble import divide
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Ranking
from sea_nn.features import TEXT
from sea_nn.function.several import SeveralFunctions
from sea_nn.members.run import Check
from sea_nn.questions.asked import Asked
from sea_nn.text.model import OneText
from sea_nn.text.reading import Reading

MAPS = ("attribution", "against", "keep_map", "remove_map", "maps")
NUMBERS = ("target", "rival", "score", "predict_error", "trusted")
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
    rows, asked_rows = [], []
    for e, own in zip(each, places, strict=True):
        row = {name: _spread(getattr(e, name), own, width) for name in MAPS}
        row |= {name: getattr(e, name) for name in NUMBERS}
        row["order"] = _spread_order(e.order, own, width)
        row["gains"] = pad(e.gains, (0, width - e.gains.shape[1]))
        rows.append(row)
        asked_rows.append(_spread_asked(e.asked, own, width, most))
    ranking, ranked = None, [e.ranking for e in each]
    if ranked[0] is not None and not found[0][0].names:
        classes, scores = (
            torch.cat([getattr(r, k) for r in ranked]) for k in ("classes", "scores")
        )
        ranking = Ranking(classes, scores, tuple(r.names[0] for r in ranked))
    return Explanation(
        **_join(rows),
        methods=each[0].methods,
        feature_shape=(width,),
        curve=each[0].curve if len(each) == 1 and len(places[0]) == width else None,
        ranking=ranking,
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
        asked=Asked(**_join(asked_rows)),
    )


def _join(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tensors of all texts; None where there are none."""
    return {
        name: None if one is None else torch.cat([row[name] for row in rows])
        for name, one in rows[0].items()
    }


def _spread(values: Any, places: Tensor, width: int) -> Any:
    """Values of features, the last axis, as those of pieces: 0 where a piece is none."""
    if values is None:
        return None
    wide = values.new_zeros(*values.shape[:-1], width)
    return wide.index_copy(-1, places.to(values.device), values)


def _spread_order(order: Tensor, places: Tensor, width: int) -> Tensor:
    """An order of features, [1, n], as one of pieces; what takes no part comes last."""
    rest = torch.tensor(sorted(set(range(width)) - set(places.tolist())), dtype=torch.int64)
    return torch.cat([places.to(order.device)[order], rest.to(order.device)[None]], 1)


def _spread_asked(asked: Asked, places: Tensor, width: int, most: int) -> dict[str, Any]:
    """What was asked, over the pieces; in so many rows, where the first fills them up."""
    parts, count = asked.parts(), asked.sets.shape[1]
    for name in ("sets", "answers", "outputs"):
        first = parts[name][:, :1].expand(-1, most - count, *parts[name].shape[2:])
        parts[name] = torch.cat([parts[name], first], 1)
    parts["sets"] = _spread(parts["sets"], places, width)
    return parts | {k: _spread_order(parts[k], places, width) for k in ("keep", "remove")}


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

"""From the explanations of single texts, over their own words, to one of all of them.

The positions of a map are the pieces of a text, in order: words, each with the white space after
it, and pieces that take no part (cut off, or outside the spans). Pieces joined give the text.
Shorter texts are filled up with empty pieces. What takes no part has no gain and comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.assemble import divide
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.ranking import Ranking
from sea_nn.explanation.selection import find_input
from sea_nn.features import TEXT
from sea_nn.function.several import SeveralFunctions
from sea_nn.members.checks import Check
from sea_nn.questions.asked import Asked
from sea_nn.questions.curve import Curve
from sea_nn.text.presence import AskedText
from sea_nn.text.reading import Reading

SPREAD = ("attribution", "against", "keep_map", "remove_map", "maps")
Found = tuple[AskedText, Explanation]
"""A text, and its explanation over its own features."""
JOINED = ("target", "rival", "score", "predict_error", "trusted")


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
    each = [e for _, e in found]
    cut = [cut_pieces(asked.reading) for asked, _ in found]
    places = [torch.tensor(own) for _, own in cut]
    width = max(len(pieces) for pieces, _ in cut)
    labels = [asked.name() or (e.labels or (None,))[0] for asked, e in found]
    functions: Any = tuple(e.function for e in each)
    named: Any = None if None in labels else tuple(labels)
    return Explanation(
        **{name: _join(each, name, places, width) for name in SPREAD},  # type: ignore[arg-type]
        **{name: _join(each, name) for name in JOINED},  # type: ignore[arg-type]
        order=torch.cat([_order(e.order, p, width) for e, p in zip(each, places, strict=True)]),
        gains=torch.cat([_fill(e.gains, width) for e in each]),
        methods=each[0].methods,
        feature_shape=(width,),
        curve=_join_curves(each, width) if all(len(p) == width for p in places) else None,
        ranking=None if found[0][0].ends else _join_rankings(each),
        labels=named,
        checks=tuple(_join_checks(found)),
        provenance=_tell(found),
        kind=TEXT.name,
        view=TEXT.view,
        texts=tuple(tuple(pieces) for pieces, _ in cut),
        function=SeveralFunctions(functions, tuple(places), width),
        asked=_join_asked(each, places, width),
    )


def _join(
    each: Sequence[Explanation], name: str, places: Sequence[Tensor] = (), width: int = 0
) -> Tensor | None:
    """A tensor of all texts; with places, one over features that becomes one over pieces."""
    values = [getattr(e, name) for e in each]
    if values[0] is None:
        return None
    if places:
        values = [_spread(v, p, width) for v, p in zip(values, places, strict=True)]
    return torch.cat(values)


def _spread(values: Tensor, places: Tensor, width: int) -> Tensor:
    """Values of features, the last axis, as those of pieces: 0 where a piece is none."""
    wide = values.new_zeros(*values.shape[:-1], width)
    return wide.index_copy(-1, places.to(values.device), values)


def _fill(gains: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(gains, (0, width - gains.shape[1]))


def _order(order: Tensor, places: Tensor, width: int) -> Tensor:
    """An order of features, [1, n], as one of pieces; what takes no part comes last."""
    rest = torch.tensor(sorted(set(range(width)) - set(places.tolist())), dtype=torch.int64)
    return torch.cat([places.to(order.device)[order], rest.to(order.device)[None]], 1)


def _join_asked(each: Sequence[Explanation], places: Sequence[Tensor], width: int) -> Asked:
    """What was asked, over the pieces; where others were asked more, the first is there again."""
    own: list[Any] = [e.asked for e in each]
    most = max(asked.sets.shape[1] for asked in own)
    rows = []
    for asked, where in zip(own, places, strict=True):
        count = asked.sets.shape[1]
        again = torch.arange(most) * (torch.arange(most) < count)
        rows.append({
            "sets": _spread(asked.sets[:, again], where, width),
            "answers": asked.answers[:, again],
            "keep": _order(asked.keep, where, width),
            "remove": _order(asked.remove, where, width),
            "outputs": asked.outputs[:, again.to(asked.outputs.device)],
            "whole": asked.whole,
            "basis": asked.basis,
        })  # fmt: skip
    return Asked(**{name: torch.cat([row[name] for row in rows]) for name in rows[0]})


def _join_curves(each: Sequence[Explanation], width: int) -> Curve | None:
    curves: list[Any] = [e.curve for e in each]
    if any(not torch.equal(one.counts, curves[0].counts) for one in curves):
        return None
    left, removed = ([getattr(one, side) for one in curves] for side in ("left", "removed"))
    return Curve(curves[0].counts, torch.cat(left), torch.cat(removed))


def _join_rankings(each: Sequence[Explanation]) -> Ranking | None:
    own: list[Any] = [e.ranking for e in each]
    if own[0] is None:
        return None
    classes, scores = (torch.cat([getattr(one, k) for one in own]) for k in ("classes", "scores"))
    return Ranking(classes, scores, tuple(one.names[0] for one in own))


def _join_checks(found: Sequence[Found]) -> list[Check]:
    """What is about one text is said of it, and what is about the model or a member once."""
    checks: dict[Check, None] = {}
    for i, (asked, e) in enumerate(found):
        own = f"input {i}"
        for message, advice in asked.reading.notes:
            checks[Check("warn", own, message, advice)] = None
        for check in e.checks:
            about = find_input(check) is not None or check.subject == "questions"
            checks[replace(check, subject=own) if about else check] = None
    return list(checks)


def _tell(found: Sequence[Found]) -> Any:
    """Where the explanation comes from: what the texts cost together."""
    every = [(e.provenance, asked.passes) for asked, e in found]

    def add(name: str, scaled: bool) -> dict[str, Any]:
        maps: list[tuple[Mapping[str, Any], int]] = [(getattr(p, name), k) for p, k in every]
        keys = dict.fromkeys(key for own, _ in maps for key in own)
        return {key: sum(own.get(key, 0) * (k if scaled else 1) for own, k in maps) for key in keys}

    return replace(
        every[0][0],
        seconds=add("seconds", False),
        evaluations=add("evaluations", True),
        by_purpose=divide(add("by_purpose", True), len(found)),
        assumed=tuple(dict.fromkeys(said for p, _ in every for said in p.assumed)),
    )


def find_earlier(e: Explanation, reading: Reading, told: Mapping[str, Any], label: Any) -> Any:
    """What was asked about one text, over its features again: ``join_texts`` undone."""
    pieces, places = cut_pieces(reading)
    if e.provenance.call.get("absent") != told["absent"]:
        raise InputError(f"previous was asked without absent={told['absent']!r}")
    if e.texts is None or e.asked is None or list(e.texts[0]) != pieces:
        raise InputError("previous is of another text, or of other features of it")
    if label is not None and e.name(0) != label:  # other columns
        raise InputError(f"previous explains {e.name(0)}, and now it is {label}")
    return SimpleNamespace(asked=replace(e.asked, sets=e.asked.sets[..., places]), members=())

"""What the page draws, as plain data: every text goes through JSON and is never read as HTML."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.app.session import Evidence, Kept, Session
from sea_nn.app.subjects import Given, hide
from sea_nn.app.takeaway import write_code
from sea_nn.explanation.explanation import Explanation
from sea_nn.members.checks import Check
from sea_nn.paper.agreement import agreement
from sea_nn.show.nouns import name_features_of
from sea_nn.show.panels import COLOURS, heat, name_method, to_array

SIDE = 256
"""Maps are sent to the page with at most this many positions a side."""


def encode_session(session: Session, key: str) -> dict[str, Any]:
    """Everything that the page shows of a session, with or without an explanation."""
    given, e = session.given, session.explanation
    if given is None:
        return {"key": key, "kind": session.subject.kind}
    state: dict[str, Any] = {
        "key": key,
        "kind": session.subject.kind,
        "kept": encode_kept(session),
        "model": session.subject.name,
        "input": given.name,
        "unit": "value" if session.output is None else session.output.unit,
        "top": [[a.target, a.label, a.score] for a in session.top()],
        "target": session.target,
        "label": session.name_target(),
        "whole": session.score(),
        "chosen": session.score_class(),
        "evaluations": session.evaluations,
    }
    state |= encode_given(given)
    if e is not None:
        state["map"] = encode_explanation(e) | {
            "line": session.predict_line(),
            "error": None if e.predict_error is None else _finite(float(e.predict_error[0])),
            "code": write_code(session),
            "reused": session.reused,
            "measured": [encode_evidence(found) for found in session.measured.values()],
        }
    return state


def encode_explanation(e: Explanation) -> dict[str, Any]:
    """The maps and the order of an explanation of one input."""
    shape = e.feature_shape
    named = e.kind in ("table", "text")
    names = [e.name_feature(k) for k in range(e.order.shape[1])] if named else None
    against = e.against
    if e.features is not None:  # of groups of columns, what they take away
        against = (-e.gains_by_feature()).clamp(min=0)
    return {
        "kind": e.kind,
        "n": e.order.shape[1],
        "shape": list(e.shape),
        "grid": list(shape) if len(shape) == 2 else None,
        "names": names,
        "noun": list(name_features_of(e)),
        "order": e.order[0].tolist(),
        "gains": _round(e.gains),
        "against": _round(against) if named and against is not None else None,
        "unit": e.unit,
        "layers": encode_layers(e),
        "colours": encode_colours(),
        "agreement": [_finite(rank) for rank in _agree_with_sea(e)],
        "mean_agreement": _finite(float(e.mean_agreement()[0])),
        "checks": [_encode_check(check) for check in e.checks],
        "spent": sum(e.provenance.evaluations.values()),
    }


def encode_kept(session: Session) -> list[str]:
    """What there is to compare, newest first: each map of each explanation that was kept."""
    return [kept.name for kept in reversed(session.kept)]


def encode_side(kept: Kept) -> dict[str, Any]:
    """One side of a comparison."""
    state = {"kind": kept.explanation.kind, "input": kept.given.name, "name": kept.name}
    return state | encode_given(kept.given) | {"map": encode_explanation(kept.explanation)}


def encode_given(given: Given) -> dict[str, Any]:
    """The input itself, and as it looks where it is hidden."""
    if given.image is not None:
        hidden = hide(given.image.permute(2, 0, 1).unsqueeze(0).float())[0]
        blurred = hidden.round().clamp(0, 255).byte().permute(1, 2, 0)
        return {"picture": to_url(given.image), "hidden": to_url(blurred)}
    if given.text:
        return {"text": given.text}
    values, absent = given.x[0], hide(given.x)[0]
    return {"values": to_array(values).tolist(), "absent": to_array(absent).tolist()}


def encode_layers(e: Explanation) -> list[dict[str, Any]]:
    """SEA's map, the members', their mean and evidence against, if there is any, a byte a position.

    All are on the one colour scale.
    """
    sea = e.attribution.reshape(1, *e.shape).to(e.maps)
    maps = torch.cat([sea, e.maps[0], e.mean_map.to(e.maps)])
    names = ["SEA", *map(name_method, e.methods), "mean of members"]
    if e.against is not None and bool(e.against.any()):
        maps = torch.cat([maps, e.against.reshape(1, *e.shape).to(e.maps)])
        names.append("against the class")
    if maps.ndim == 3 and e.kind == "image":
        height, width = maps.shape[1:]
        side = (min(height, SIDE), min(width, SIDE))
        maps = interpolate(maps.unsqueeze(0), side, mode="area")[0]
    bytes_ = (heat(maps, 1) * 255).round().astype(np.uint8)
    rows = bytes_.reshape(len(bytes_), -1, bytes_.shape[-1])
    return [
        {"name": name, "height": row.shape[0], "width": row.shape[1], "data": _to_text(row)}
        for name, row in zip(names, rows, strict=True)
    ]


def encode_evidence(found: Evidence) -> list[float]:
    """A measured point: p, with only these left, with these removed."""
    return [found.p, found.only, found.removed]


def encode_colours(name: str = COLOURS) -> str:
    """The colour scale, 256 times red, green and blue."""
    table = np.asarray(colormaps[name](np.arange(256)))[:, :3]
    return _to_text((table * 255).round().astype(np.uint8))


def to_url(image: Tensor, side: int | None = None) -> str:
    """A picture, uint8 [H, W, 3], as the address that holds it; small ones stay exact."""
    picture = Image.fromarray(to_array(image))
    if side is not None:
        picture.thumbnail((side, side))
    buffer, exact = io.BytesIO(), max(picture.size) <= 64
    if exact:
        picture.save(buffer, "PNG")
    else:
        picture.save(buffer, "JPEG", quality=90)
    text = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{'png' if exact else 'jpeg'};base64,{text}"


def _agree_with_sea(e: Explanation) -> list[float]:
    """Spearman's rank correlation of SEA with itself, every member and their mean."""
    sea = e.attribution.reshape(1, 1, *e.shape).to(e.maps)
    mean = agreement(torch.cat([sea, e.mean_map.unsqueeze(1).to(e.maps)], 1))[0, 0, 1]
    return [*e.agreement_with_sea[0, 0].tolist(), float(mean)]


def _encode_check(check: Check) -> list[str]:
    """A check's level, subject, message and advice."""
    return [check.level, name_method(check.subject), check.message, check.advice]


def _round(values: Tensor) -> list[float]:
    return [float(f"{value:.4g}") for value in values[0].flatten().tolist()]


def _to_text(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None

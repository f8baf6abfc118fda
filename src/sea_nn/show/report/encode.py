"""What a report embeds of an explanation: small, and decoded only when it is looked at.

Maps are 8-bit positions on the colour scale of ``sea_nn.show.panels``; maps and orders are deflated
and written in base64, photographs are JPEG.
"""

import base64
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sea_nn.ensembling.agreement import multiples_of_mean
from sea_nn.ensembling.heatmaps import pool
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.selection import find_input
from sea_nn.features import cell_of
from sea_nn.show.panels import LIMIT, Array, paint, to_array

LONGEST_SERIES = 2000
SMALL_IMAGE = 64  # up to here PNG is both exact and short
IMAGE_SIDE = 512


def encode_palette() -> dict[str, Any]:
    """The colour scale: 256 colours, and the multiple of the mean that the last stands for."""
    colours = np.round(paint(np.linspace(0, 1, 256)) * 255).astype(np.uint8)
    return {"colours": base64.b64encode(colours.tobytes()).decode(), "limit": LIMIT}


def encode_index(batches: Sequence[Explanation]) -> dict[str, Any]:
    """One line an input: group, class name, target, score, agreement of its members, score."""
    rows: list[list[Any]] = []
    for k, batch in enumerate(batches):
        agree = batch.mean_agreement().tolist()
        for i in range(len(batch)):
            line = [k, batch.name(i), int(batch.target[i]), _number(float(batch.score[i]))]
            rows.append([*line, _number(agree[i]), batch.write_score(i)])
    return {"inputs": rows}


def encode_group(e: Explanation, side: int) -> dict[str, Any]:
    """What all inputs of one explanation share."""
    n = e.order.shape[1]
    shared = e.features is not None and e.features.shape[0] == 1
    return {
        "kind": e.kind,
        "unit": e.output.unit,
        "gain_unit": e.unit,
        "methods": list(e.methods),
        "questions": None if e.answers is None else e.questions,
        "shape": list(e.shape),
        "map": list(_map_shape(e, side)),
        "n": n,
        "features": _encode_features(e, 0, side) if shared else None,
        "plain": e.features is None,
        "stops": list(choose_stops(n)),
        "names": None if e.feature_names is None else list(e.feature_names),
        "checks": [asdict(check) for check in e.checks if find_input(check) is None],
        "provenance": _clean(asdict(e.provenance)),
    }


def encode_input(e: Explanation, i: int, side: int) -> dict[str, Any]:
    """What input i needs to be drawn."""
    n = e.order.shape[1]
    stops = [p - 1 for p in choose_stops(n)]
    gains = e.gains[i].to(torch.float64).cpu()
    total = float(gains.sum()) or 1.0
    own = e.features is not None and e.features.shape[0] > 1
    data: dict[str, Any] = {
        "order": _pack(to_array(e.order[i]).astype(np.uint16 if n <= 1 << 16 else np.uint32)),
        "gains": [_number(float(g) / (float(gains[0]) or 1.0)) for g in gains[stops]],
        "shares": [_number(float(s) / total) for s in gains.cumsum(0)[stops]],
        "checks": [
            {**asdict(check), "subject": "this input"}
            for check in e.checks
            if find_input(check) == i
        ],
        "agreement": [[_number(v) for v in row] for row in e.agreement_with_sea[i].tolist()],
        "features": _encode_features(e, i, side) if own else None,
        "image": None if e.images is None else encode_image(to_array(e.images[i])),
        "values": None if e.values is None else _clean(e.values[i].flatten().tolist()),
    }
    if e.kind == "table":
        layers = _layers(e, i)
        totals = layers.sum(-1, keepdim=True)
        bars = layers / torch.where(totals > 0, totals, torch.ones_like(totals))
        spread = e.disagreement[i].cpu()
        data["bars"] = [[_number(v) for v in row] for row in [*bars.tolist(), spread.tolist()]]
    else:
        data["maps"] = _pack(encode_maps(e, i, side))
    return data


def encode_maps(e: Explanation, i: int, side: int) -> Array:
    """The layers and the disagreement of input i as uint8 [m + 3 or 4, h, w]."""
    shape = _map_shape(e, side)
    heat = _resize(multiples_of_mean(_layers(e, i)), shape)
    heat = (heat / LIMIT).clamp(0, 1).sqrt()
    spread = (_resize(e.disagreement[i].cpu(), shape) / 0.5).clamp(0, 1)
    planes = torch.cat([heat, spread.unsqueeze(0).to(heat.dtype)])
    return to_array((planes * 255).round().to(torch.uint8))


def encode_image(image: Array) -> str:
    """A picture, uint8 [H, W, 3], as a data address: JPEG, or PNG when it is small."""
    picture = Image.fromarray(image)
    buffer = io.BytesIO()
    if max(picture.size) <= SMALL_IMAGE:
        picture.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        picture.save(buffer, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def choose_stops(n: int) -> tuple[int, ...]:
    """Numbers of features the slider stops at: each up to 40, then steps of about 4 %, up to n.

    >>> choose_stops(45)[-6:]
    (38, 39, 40, 41, 43, 45)
    """
    stops = [1]
    while stops[-1] < n:
        stops.append(min(n, stops[-1] + max(1, round(0.04 * stops[-1]) if stops[-1] > 40 else 1)))
    return tuple(stops)


def _layers(e: Explanation, i: int) -> Tensor:
    """SEA, the members, the answers if there are any, and Agg-Mean of input i: [k, *shape]."""
    sea, members = e.attribution[i].reshape(1, *e.shape), e.maps[i]
    answers = members[:0] if e.answers is None else e.answers[i : i + 1]
    layers = (sea, members, answers, members.mean(0, keepdim=True))
    return torch.cat([layer.to("cpu", torch.float32) for layer in layers])


def _map_shape(e: Explanation, side: int) -> tuple[int, ...]:
    if e.kind == "image":
        height, width = e.shape
        shrink = min(1.0, side / max(height, width))
        return max(1, round(height * shrink)), max(1, round(width * shrink))
    return tuple(min(s, LONGEST_SERIES) for s in e.shape)


def _resize(maps: Tensor, shape: tuple[int, ...]) -> Tensor:
    return maps if tuple(maps.shape[-2:]) == shape else pool(maps, shape)


def _encode_features(e: Explanation, i: int, side: int) -> str | None:
    """The feature of each embedded pixel (of its middle, where maps were shrunk): uint32."""
    if e.features is None:
        return None
    shape = _map_shape(e, side)
    picked = e.features[i].cpu()
    for axis, (small, large) in enumerate(zip(shape, picked.shape, strict=True)):
        cells = cell_of(large, small)
        first = torch.searchsorted(cells, torch.arange(small))
        last = torch.searchsorted(cells, torch.arange(small), right=True) - 1
        picked = picked.index_select(axis, (first + last) // 2)
    return _pack(to_array(picked).astype(np.uint32))


def _pack(array: Array) -> str:
    little = array.astype(array.dtype.newbyteorder("<"))
    return base64.b64encode(zlib.compress(little.tobytes(), 6)).decode()


def _number(value: float) -> float | None:
    """Four significant digits; JSON has no nan."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _clean(value: Any) -> Any:
    """Replace what JSON cannot hold, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value

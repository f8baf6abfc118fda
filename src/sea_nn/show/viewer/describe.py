"""The one description of an explanation for pages: plain data, small, unpacked when looked at.

Reports, cards in notebooks, the app and pages of data sets all send this to ``viewer.js``. Maps are
8-bit positions on the colour scale of ``sea_nn.show.panels``; maps, orders and gains are deflated
and written in base64, photographs are JPEG. Volumes become mosaics of their slices.
"""

import base64
import io
import math
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.paper.agreement import multiples_of_mean
from sea_nn.paper.heatmaps import pool
from sea_nn.questions.asked import predict_curve
from sea_nn.show.panels import (
    LIMIT,
    Array,
    ArrayLike,
    heat,
    name_features_of,
    name_method,
    paint,
    to_array,
)
from sea_nn.show.plots import pick_slices, tile

SIDE = 256  # pixels a side that maps keep at most
LONGEST_SERIES = 2000
SMALL_IMAGE = 64  # up to here PNG is both exact and short
IMAGE_SIDE = 512
MOST_SLICES = 9


def describe_palette() -> dict[str, Any]:
    """The colour scale: 256 colours, and the multiple of the mean that the last stands for."""
    colours = np.round(paint(np.linspace(0, 1, 256)) * 255).astype(np.uint8)
    return {"colours": base64.b64encode(colours.tobytes()).decode(), "limit": LIMIT}


def describe_entry(e: Explanation, i: int, group: int = 0) -> dict[str, Any]:
    """What a list of inputs shows of input i."""
    score = _clean(e.score[i])
    written = "" if score is None else e.write_score(i)
    entry = {"group": group, "name": e.name(i), "target": int(e.target[i])}
    return entry | {"score": score, "written": written}


def describe_group(e: Explanation, side: int = SIDE) -> dict[str, Any]:
    """What all inputs of one explanation share."""
    n, tiles = e.order.shape[1], (1, 1)
    if e.view == "slices":  # rows and columns of the mosaic that a volume becomes
        tiles = tile(np.zeros((min(MOST_SLICES, e.shape[0]), 1, 1))).shape
    return {
        "view": e.view,
        "noun": name_features_of(e),
        "unit": e.output.unit,
        "gain_unit": e.unit,
        "methods": list(e.methods),
        "layers": [[name, about] for name, about, _ in _list_layers(e, 0)],
        "shape": list(e.shape),
        "map": [side * k for side, k in zip(_map_shape(e, side), tiles, strict=False)],
        "tiles": tiles,
        "feature_shape": list(e.feature_shape),
        "n": n,
        "features": None if _has_own_features(e) else _describe_features(e, 0, side),
        "plain": e.features is None,
        "stops": list(choose_stops(n)),
        "names": e.feature_names,
        "checks": [asdict(check) for check in e.checks if check.input is None],
        "assumed": list(e.assumed),
        "evaluations": e.evaluations,
        "provenance": _clean(asdict(e.provenance), digits=17),
    }


def describe_input(e: Explanation, i: int, side: int = SIDE) -> dict[str, Any]:
    """What input i needs to be drawn."""
    one, classes, words = e[i], [], None if e.texts is None else e.texts[i]
    if e.ranking is not None:  # the likeliest classes: number, name, score
        numbers, scores = e.ranking.classes[i].tolist(), _clean(e.ranking.scores[i])
        classes = list(zip(numbers, e.ranking.names[i], scores, strict=True))
    trust = [(name, _clean(share[0])) for name, share in one.trust.items()]
    checks = [asdict(check) for check in one.checks if check.input is not None]
    data: dict[str, Any] = {
        "order": _pack(e.order[i], np.uint32),
        "gains": _pack(e.gains[i], np.float32),
        "intervals": None if e.gain_intervals is None else _pack(e.gain_intervals[i], np.float32),
        "sides": [_clean(part[0]) for part in one.sum_gains()],
        "classes": classes,
        "curve": _describe_curve(one),
        "trust": sorted(trust, key=lambda pair: -pair[1]),
        "rival": None if e.rival is None else int(e.rival[i]),
        "words": words,
        "checks": [check | {"subject": "this input"} for check in checks],
        "features": _describe_features(e, i, side) if _has_own_features(e) else None,
        "image": _describe_image(e, i),
        "values": None if e.values is None else _clean(e.values[i].flatten(), digits=9),
        "slices": _pick(e, i) if e.view == "slices" else None,
    }
    if e.function is not None:
        ends = (e.gains[i].double().sum(), e.function.all[i], e.function.none[i])
        # Whole: rounded here and again on the page, equal sums would be written as two.
        data["sums"] = [_clean(float(end), digits=17) for end in ends]
    if len(e.shape) == 1:
        return data | _describe_bars(e, i)
    return data | {"maps": _pack(encode_maps(e, i, side), np.uint8)}


def describe_one(e: Explanation, i: int = 0) -> dict[str, Any]:
    """All that is shown of one input, in one piece."""
    entry = describe_entry(e, i) | {"number": 0}
    return {"entry": entry, "group": describe_group(e), "data": describe_input(e, i)}


def describe_panel(title: str, values: ArrayLike, image: Array | None = None) -> dict[str, Any]:
    """A small picture of a map [H, W] or [F], over an image uint8 [H, W, 3] if there is one."""
    flat = to_array(values)
    flat = flat if flat.ndim == 2 else flat.reshape(1, -1)
    position = _pack(np.round(heat(flat, 0) * 255), np.uint8)
    shown = None if image is None else encode_image(image)
    return {"title": title, "map": position, "shape": list(flat.shape), "image": shown}


def describe_panels(e: Explanation) -> list[dict[str, Any]]:
    """An input and each of its maps as panels: what rows of a comparison are made of."""
    picture = _describe_image(e, 0)
    panels: list[dict[str, Any]] = [] if picture is None else [{"title": "input", "image": picture}]
    for name, _, layer in _list_layers(e, 0)[:-1]:
        small = layer if layer.ndim == 1 else _shrink(e, 0, layer[None], 128)[0]
        panels.append(describe_panel(name_method(name), small) | {"image": picture})
    return panels


def encode_maps(e: Explanation, i: int, side: int) -> Array:
    """The layers of input i as uint8 [k, h, w], the disagreement last."""
    layers = torch.stack([layer for _, _, layer in _list_layers(e, i)])
    multiples, spread = multiples_of_mean(layers[:-1]) / LIMIT, layers[-1:] / 0.5
    shares = _shrink(e, i, torch.cat([multiples, spread]), side).clip(0, 1)
    shares[:-1] **= 0.5
    return np.round(shares * 255).astype(np.uint8)


def encode_image(image: Array, side: int = IMAGE_SIDE) -> str:
    """A picture, uint8 [H, W, 3], as a data address: JPEG, or PNG when it is small."""
    picture = Image.fromarray(image)
    kind = "png" if max(picture.size) <= SMALL_IMAGE else "jpeg"
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=88)
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


def _has_own_features(e: Explanation) -> bool:
    """Whether each input's positions have features of their own; slices are picked for each."""
    return e.view == "slices" or (e.features is not None and len(e.features) > 1)


def _list_layers(e: Explanation, i: int) -> list[tuple[str, str, Tensor]]:
    """Each map of input i: its name, what it is where the name does not tell, its values [*shape].

    SEA's comes first, the disagreement of the members last.
    """
    one, noun = e[i], name_features_of(e)[0]
    wishes: tuple[tuple[str, str, str], ...] = (("SEA", "", "both"),)
    if one.keep_map is not None:
        wishes = (
            ("SEA", "both of the next two at once, in one order", "both"),
            ("what suffices", "with the first of this alone the model says it", "keep"),
            ("what is needed", "without the first of this the model does not", "remove"),
        )
    layers = [(name, about, one.soften(one.map(wish))) for name, about, wish in wishes]
    layers += [(name, "", one.maps[:, k]) for k, name in enumerate(e.methods)]
    if one.against is not None and e.against is not None and bool(e.against.any()):
        about = "evidence against the class: what it would gain without this"
        layers.append(("against", about, one.soften(one.against)))
    layers.append(("Agg-Mean", "the plain mean of the members' maps", one.maps.mean(1)))
    spread = f"high where some members rank a {noun} high and others low, 0 where all rank it alike"
    layers.append(("disagreement", spread, one.disagreement))
    return [
        (name, about, layer.reshape(one.shape).to("cpu", torch.float32))
        for name, about, layer in layers
    ]


def _describe_bars(e: Explanation, i: int) -> dict[str, Any]:
    """Each layer of a table or text as shares of its total; SEA's also with what is against."""
    layers = torch.stack([layer.double() for _, _, layer in _list_layers(e, i)])
    totals = layers.sum(-1, keepdim=True)
    totals[-1] = 1.0  # the disagreement is a spread of its own
    data: dict[str, Any] = {}
    if e.against is not None and bool(e.against.any()):
        # Both sides of SEA's map as shares of the larger: neither is more than the whole.
        contra = e.against[i].flatten().to(layers)
        totals[0] = totals[0].maximum(contra.sum())
        data["against"] = _clean((contra / totals[0]).nan_to_num())
    data["bars"] = _clean(layers / torch.where(totals > 0, totals, 1.0))
    return data | {"total": _clean(totals[0, 0])}


def _map_shape(e: Explanation, side: int) -> tuple[int, ...]:
    """The shape in which maps are embedded: for volumes, that of one slice."""
    if len(e.shape) == 1:
        return e.shape
    if e.view == "lines":
        return e.shape[0], min(e.shape[1], LONGEST_SERIES)
    height, width = e.shape[-2:]
    shrink = min(1.0, side / max(height, width) / (1 if e.view == "picture" else 2))
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def _lay_out(e: Explanation, i: int, values: Array) -> Array:
    """Values of one input [*shape, ...] as a picture: of a volume, the mosaic of its slices."""
    return tile(values[_pick(e, i)]) if e.view == "slices" else values


def _pick(e: Explanation, i: int) -> list[int]:
    return pick_slices(e.attribution[i].reshape(e.shape), MOST_SLICES)


def _describe_image(e: Explanation, i: int) -> str | None:
    return None if e.images is None else encode_image(_lay_out(e, i, to_array(e.images[i])))


def _shrink(e: Explanation, i: int, maps: Tensor, side: int) -> Array:
    """Maps [k, *shape] in the shape in which they are embedded."""
    shape = _map_shape(e, side)
    small = maps if tuple(maps.shape[-2:]) == shape else pool(maps, shape)
    return np.moveaxis(_lay_out(e, i, np.moveaxis(to_array(small), 0, -1)), -1, 0)


def _describe_features(e: Explanation, i: int, side: int) -> str:
    """The feature of each embedded pixel (of its middle, where maps were shrunk): uint32."""
    every = torch.arange(math.prod(e.shape)).reshape(e.shape)
    picked = every if e.features is None else e.features[i if len(e.features) > 1 else 0].cpu()
    shape = _map_shape(e, side)
    for axis, small in enumerate(shape, picked.ndim - len(shape)):
        middles = (2 * torch.arange(small) + 1) * picked.shape[axis] // (2 * small)
        picked = picked.index_select(axis, middles)
    return _pack(_lay_out(e, i, to_array(picked)), np.uint32)


def _describe_curve(one: Explanation) -> dict[str, Any] | None:
    """What the model said along p, and what f says at 0 and at every stop, with its error."""
    if one.curve is None or one.function is None:
        return None
    stops = [0, *choose_stops(one.order.shape[1])]
    lines = predict_curve(one.function, one.order)
    return {
        "counts": one.curve.counts.tolist(),
        "error": None if one.predict_error is None else _clean(one.predict_error[0]),
        "left": _clean(one.curve.left[0]),
        "removed": _clean(one.curve.removed[0]),
        "f_left": _clean(lines[0][0, stops]),
        "f_removed": _clean(lines[1][0, stops]),
    }


def _pack(values: ArrayLike, kind: Any) -> str:
    little = to_array(values).astype(np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(zlib.compress(little.tobytes(), 6)).decode()


def _clean(value: Any, digits: int = 4) -> Any:
    """What JSON can hold, at any depth: numbers with so many significant digits, and no nan."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _clean(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, digits) for item in value]
    return value

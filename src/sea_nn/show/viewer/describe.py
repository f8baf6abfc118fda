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
from sea_nn.features import cell_of
from sea_nn.paper.agreement import multiples_of_mean
from sea_nn.paper.heatmaps import pool
from sea_nn.questions.curve import predict_curve
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
from sea_nn.show.slices import pick_slices, tile

SIDE = 256  # pixels a side that maps keep at most
LONGEST_SERIES = 2000
SMALL_IMAGE = 64  # up to here PNG is both exact and short
IMAGE_SIDE = 512
MOST_SLICES = 9
EXACT_GAINS = (
    4096  # features up to which gains travel with all their digits; then with two or three
)


def describe_palette() -> dict[str, Any]:
    """The colour scale: 256 colours, and the multiple of the mean that the last stands for."""
    colours = np.round(paint(np.linspace(0, 1, 256)) * 255).astype(np.uint8)
    return {"colours": base64.b64encode(colours.tobytes()).decode(), "limit": LIMIT}


def describe_entry(e: Explanation, i: int, group: int = 0) -> dict[str, Any]:
    """What a list of inputs shows of input i."""
    return {
        "group": group,
        "name": e.name(i),
        "target": int(e.target[i]),
        "score": _number(float(e.score[i])),
        "agreement": _number(float(e.mean_agreement()[i])),
        "written": e.write_score(i),
    }


def describe_group(e: Explanation, side: int = SIDE) -> dict[str, Any]:
    """What all inputs of one explanation share."""
    n = e.order.shape[1]
    tiles = _count_tiles(e)
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
        "names": None if e.feature_names is None else list(e.feature_names),
        "checks": [asdict(check) for check in e.checks if check.input is None],
        "assumed": list(map(str, getattr(e, "assumed", None) or ())),
        "evaluations": _clean(getattr(e, "evaluations", None)),
        "provenance": _clean(asdict(e.provenance)),
    }


def describe_input(e: Explanation, i: int, side: int = SIDE) -> dict[str, Any]:
    """What input i needs to be drawn."""
    intervals, trust = getattr(e, "gain_intervals", None), getattr(e, "trust", None) or {}
    shares = sorted(((name, float(share[i])) for name, share in trust.items()), key=lambda s: -s[1])
    data: dict[str, Any] = {
        "order": _pack(to_array(e.order[i]).astype(np.uint32)),
        "gains": _pack(_trim(e.gains[i])),
        "intervals": None if intervals is None else _pack(_trim(intervals[i])),
        "sides": [_number(float(part)) for part in e[i].sum_gains()],
        "classes": _describe_classes(e, i),
        "curve": _describe_curve(e, i),
        "trust": [[name, _number(share)] for name, share in shares],
        "rival": None if e.rival is None else int(e.rival[i]),
        "words": None if e.texts is None else list(e.texts[i]),
        "checks": [
            {**asdict(check), "subject": "this input"} for check in e.checks if check.input == i
        ],
        "agreement": [[_number(v) for v in row] for row in e.agreement_with_sea[i].tolist()],
        "features": _describe_features(e, i, side) if _has_own_features(e) else None,
        "image": None if e.images is None else encode_image(_lay_out(e, i, to_array(e.images[i]))),
        "values": None if e.values is None else _clean(e.values[i].flatten().tolist()),
    }
    if e.function is not None:
        ends = (e.gains[i].double().sum(), e.function.all[i], e.function.none[i])
        data["sums"] = [_number(float(end)) for end in ends]
    if e.view == "slices":
        data["slices"] = _pick(e, i)
    if len(e.shape) == 1:
        data |= _describe_bars(e, i)
    else:
        data["maps"] = _pack(encode_maps(e, i, side))
    return data


def describe_one(e: Explanation, i: int = 0, side: int = SIDE) -> dict[str, Any]:
    """All that is shown of one input, in one piece."""
    group, data = describe_group(e, side), describe_input(e, i, side)
    return {"entry": describe_entry(e, i) | {"number": 0}, "group": group, "data": data}


def describe_panel(title: str, values: ArrayLike, image: Array | None = None) -> dict[str, Any]:
    """A small picture of a map [H, W] or [F], over an image uint8 [H, W, 3] if there is one."""
    flat = to_array(values)
    flat = flat if flat.ndim == 2 else flat.reshape(1, -1)
    position = np.round(heat(flat, 0) * 255).astype(np.uint8)
    shown = None if image is None else encode_image(image)
    return {"title": title, "map": _pack(position), "shape": list(flat.shape), "image": shown}


def describe_panels(e: Explanation, i: int = 0, side: int = 128) -> list[dict[str, Any]]:
    """Input i and each of its maps as panels: what rows of a comparison are made of."""
    picture = None if e.images is None else encode_image(_lay_out(e, i, to_array(e.images[i])))
    panels: list[dict[str, Any]] = [] if picture is None else [{"title": "input", "image": picture}]
    for name, _, layer in _list_layers(e, i)[:-1]:
        small = to_array(layer) if len(e.shape) == 1 else _shrink(e, i, layer[None], side)[0]
        panels.append(describe_panel(name_method(name), small) | {"image": picture})
    return panels


def encode_maps(e: Explanation, i: int, side: int) -> Array:
    """The layers of input i as uint8 [k, h, w], the disagreement last."""
    layers = torch.stack([layer for _, _, layer in _list_layers(e, i)])
    positions = _shrink(e, i, multiples_of_mean(layers[:-1]), side)
    spread = _shrink(e, i, layers[-1:], side)
    planes = np.concatenate(
        [np.sqrt(np.clip(positions / LIMIT, 0, 1)), np.clip(spread / 0.5, 0, 1)]
    )
    return np.round(planes * 255).astype(np.uint8)


def encode_image(image: Array, side: int = IMAGE_SIDE) -> str:
    """A picture, uint8 [H, W, 3], as a data address: JPEG, or PNG when it is small."""
    picture = Image.fromarray(image)
    buffer = io.BytesIO()
    if max(picture.size) <= SMALL_IMAGE:
        picture.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((side, side))
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


def _has_own_features(e: Explanation) -> bool:
    """Whether each input's positions have features of their own; slices are picked for each."""
    return e.view == "slices" or (e.features is not None and len(e.features) > 1)


def _has_against(e: Explanation) -> bool:
    """Whether there is any evidence against a class to show."""
    return e.against is not None and bool((e.against > 0).any())


def _list_layers(e: Explanation, i: int) -> list[tuple[str, str, Tensor]]:
    """Each map of input i: its name, what it is where the name does not tell, its values [*shape].

    SEA's comes first, the disagreement of the members last.
    """
    one, noun = e[i], name_features_of(e)[0]
    layers = [("SEA", "", one.attribution)]
    if one.keep_map is not None:
        suffices, needed = one.map("keep"), one.map("remove")
        layers.append(("what suffices", "with the first of this alone the model says it", suffices))
        layers.append(("what is needed", "without the first of this the model does not", needed))
    layers += [(name, "", one.maps[:, k]) for k, name in enumerate(e.methods)]
    if one.against is not None and _has_against(e):
        about = "evidence against the class: what it would gain without this"
        layers.append(("against", about, one.against))
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
    if e.against is not None and _has_against(e):
        # Both sides of SEA's map as shares of the larger: neither is more than the whole.
        contra = e.against[i].flatten().to(layers)
        totals[0] = totals[0].maximum(contra.sum())
        data["against"] = [_number(v) for v in (contra / totals[0]).nan_to_num().tolist()]
    bars = layers / torch.where(totals > 0, totals, torch.ones_like(totals))
    data["bars"] = [[_number(v) for v in row] for row in bars.tolist()]
    return data | {"total": _number(float(totals[0]))}


def _map_shape(e: Explanation, side: int) -> tuple[int, ...]:
    """The shape in which maps are embedded: for volumes, that of one slice."""
    if len(e.shape) == 1:
        return e.shape
    if e.view == "lines":
        return e.shape[0], min(e.shape[1], LONGEST_SERIES)
    height, width = e.shape[-2:]
    shrink = min(1.0, side / max(height, width) / (1 if e.view == "picture" else 2))
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def _count_tiles(e: Explanation) -> tuple[int, int]:
    """Rows and columns of the mosaic that a volume becomes."""
    count = min(MOST_SLICES, e.shape[0]) if e.view == "slices" else 1
    columns = math.ceil(math.sqrt(count))
    return math.ceil(count / columns), columns


def _pick(e: Explanation, i: int) -> list[int]:
    return pick_slices(e.attribution[i].reshape(e.shape), MOST_SLICES)


def _lay_out(e: Explanation, i: int, values: Array) -> Array:
    """Values of one input [*shape, ...] as a picture: of a volume, the mosaic of its slices."""
    return tile(values[_pick(e, i)]) if e.view == "slices" else values


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
        cells = cell_of(picked.shape[axis], small)
        first = torch.searchsorted(cells, torch.arange(small))
        last = torch.searchsorted(cells, torch.arange(small), right=True) - 1
        picked = picked.index_select(axis, (first + last) // 2)
    return _pack(_lay_out(e, i, to_array(picked)).astype(np.uint32))


def _describe_classes(e: Explanation, i: int) -> list[list[Any]]:
    """The likeliest classes: number, name, score."""
    if e.ranking is None:
        return []
    numbers, scores = e.ranking.classes[i].tolist(), map(_number, e.ranking.scores[i].tolist())
    return [list(row) for row in zip(numbers, e.ranking.names[i], scores, strict=True)]


def _describe_curve(e: Explanation, i: int) -> dict[str, Any] | None:
    """What the model said along p, and what f says at 0 and at every stop, with its error."""
    if e.curve is None or e.function is None:
        return None
    n = e.order.shape[1]
    stops = [0, *choose_stops(n)]
    lines = predict_curve(e.function.rows(slice(i, i + 1)), e.order[i : i + 1])
    points = {"left": e.curve.left[i], "removed": e.curve.removed[i]}
    points |= {"f_left": lines[0][0, stops], "f_removed": lines[1][0, stops]}
    error = None if e.predict_error is None else _number(float(e.predict_error[i]))
    return {
        "counts": e.curve.counts.tolist(),
        "error": error,
        "every": n < 20
        and e.function.n_answers >= 2**n - 2,  # the answers of all sets, so of these
        **{name: [_number(v) for v in values.tolist()] for name, values in points.items()},
    }


def _trim(values: Tensor) -> Array:
    """float32; of very many only seven binary digits, which deflate well."""
    full = to_array(values.flatten()).astype(np.float32)
    if len(full) > EXACT_GAINS:
        full = (full.view(np.uint32) + np.uint32(1 << 15) & np.uint32(0xFFFF0000)).view(np.float32)
    return full


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

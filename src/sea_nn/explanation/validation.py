"""Do the parts of an explanation fit together?"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import VIEWS


def check_parts(e: Any) -> None:
    """Refuse an ``Explanation`` whose tensors do not fit together, and say which does not."""
    if e.maps.ndim < 3 or not 2 <= e.attribution.ndim <= e.maps.ndim:
        raise InputError(
            "attribution must be [N, 1, H, W], [N, C, T], [N, F] or [N, 1, D, H, W], and maps "
            f"[N, m, ...]; got {list(e.attribution.shape)} and {list(e.maps.shape)}"
        )
    if e.view not in VIEWS:
        raise InputError(f"view must be one of {', '.join(VIEWS)}; got {e.view!r}")
    values = sum(math.prod(part.shape) for part in e.parts)
    if e.parts and (e.values is None or values != math.prod(e.maps.shape[2:])):
        raise InputError(f"parts hold {values} values; the maps are {list(e.maps.shape)}")
    count, m = e.attribution.shape[0], len(e.methods)
    if count < 1 or (m < 1 and e.function is None):
        raise InputError(f"an explanation needs an input and a method; got {count} and {m}")
    together = e.attribution.ndim == e.maps.ndim  # one channel stands for all
    shape = tuple(e.attribution.shape[2 if together else 1 :])
    n = math.prod(e.feature_shape)
    expected: dict[str, tuple[int, ...]] = {
        "attribution": (count, 1, *shape) if together else (count, *shape),
        "maps": (count, m, *shape),
        "target": (count,),
        "score": (count,),
        "order": (count, n),
        "gains": (count, n),
        "values": (count, *shape),
        "images": (count, *shape, 3),
        "predict_error": (count,),
        "rival": (count,),
        "against": (count, 1, *shape) if together else (count, *shape),
    }
    given = {name: getattr(e, name) for name in expected}
    if e.curve is not None:
        given |= {"curve.left": e.curve.left, "curve.removed": e.curve.removed}
        expected |= dict.fromkeys(("curve.left", "curve.removed"), (count, len(e.curve.counts)))
        if not bool(((e.curve.counts >= 0) & (e.curve.counts <= n)).all()):
            raise InputError(f"curve.counts must lie in 0 … {n}; got {e.curve.counts.tolist()}")
    if e.asked is not None:
        given |= {"asked.keep": e.asked.keep, "asked.remove": e.asked.remove}
        given |= {"asked.sets": e.asked.sets, "asked.answers": e.asked.answers}
        expected |= dict.fromkeys(("asked.keep", "asked.remove"), (count, n))
        per_input = e.asked.answers.shape[1]
        expected |= {"asked.sets": (count, per_input, n), "asked.answers": (count, per_input)}
    if e.ranking is not None:
        given |= {"ranking.classes": e.ranking.classes, "ranking.scores": e.ranking.scores}
        names = e.ranking.names
        k = len(names[0])
        if [len(row) for row in names] != [k] * count:
            raise InputError(f"ranking.names must be {count} rows of {k}; got {names!r}")
        expected |= dict.fromkeys(("ranking.classes", "ranking.scores"), (count, k))
    for name, want in expected.items():
        tensor = given[name]
        if not isinstance(tensor, Tensor | None):
            raise KindError(f"{name} must be a tensor; got {type(tensor).__name__}")
        if tensor is not None and tuple(tensor.shape) != want:
            raise InputError(f"{name} must be {list(want)}; got {list(tensor.shape)}")
    for name, kind in (
        ("target", torch.int64),
        ("rival", torch.int64),
        ("order", torch.int64),
        ("images", torch.uint8),
    ):
        tensor = getattr(e, name)
        if tensor is not None and tensor.dtype != kind:
            raise InputError(f"{name} must be of dtype {kind}; got {tensor.dtype}")
    if e.labels is not None and len(e.labels) != count:
        raise InputError(f"labels must name the {count} inputs' classes; got {len(e.labels)}")
    if e.feature_names is not None and len(e.feature_names) != shape[0]:
        raise InputError(f"feature_names must be {shape[0]} names; got {len(e.feature_names)}")
    if e.texts is not None:
        longest = max(map(len, e.texts), default=0)
        if len(e.texts) != count or longest != shape[0] or len(shape) != 1:
            raise InputError(
                f"texts must be the pieces of {count} texts, up to {shape[0]} each; got "
                f"{len(e.texts)} texts of up to {longest}"
            )
    low, high = map(float, e.maps.aminmax()) if m else (0.0, 1.0)
    if not (low >= 0 and high <= 1 + 1e-6):
        raise InputError(f"maps must lie in [0, 1], without nan; got {low} to {high}")
    if not float(e.attribution.min()) >= 0:
        raise InputError("attribution must be >= 0 and without nan")
    _check_features(e, n, count, shape)


def _check_features(e: Any, n: int, count: int, shape: Sequence[int]) -> None:
    inside = bool(((e.order >= 0) & (e.order < n)).all())
    seen = torch.zeros_like(e.order, dtype=torch.bool)
    if not inside or not bool(seen.scatter_(1, e.order, True).all()):
        raise InputError(f"order must hold each feature 0 … {n - 1} once in every row")
    if e.features is None:
        if n != math.prod(shape):
            raise InputError(
                f"feature_shape {e.feature_shape} has {n} features and a map {math.prod(shape)} "
                "positions: pass features, the feature of each position"
            )
        return
    if tuple(e.features.shape) not in ((count, *shape), (1, *shape)):
        raise InputError(
            f"features must be [{count} or 1, {', '.join(map(str, shape))}]; "
            f"got {list(e.features.shape)}"
        )
    low, high = (int(bound) for bound in e.features.aminmax())
    if low < 0 or high >= n:
        raise InputError(f"features must lie in 0 … {n - 1}; they run from {low} to {high}")

"""Explanations as safetensors files: no pickles, readable by any safetensors reader.

What is stored, and how: the members' maps and the answers in half precision (they lie in [0, 1];
the error is at most 0.00025, and rank correlations between members moved by less than 0.0005),
gains and scores in float32, images as uint8, orders and features in the narrowest unsigned
integers that hold them. The SEA map is not stored when the order and gains give it back exactly,
nor are features when they are a plain grid. Everything that is not a tensor is one JSON text in
the header, with the number of the format.

Tensors are not compressed. On six photographs zlib took 12 % off gradient maps in half precision
and 37 % off a mix of these with Grad-CAM and occlusion; a file that any safetensors reader can map
into memory and read tensor by tensor is worth more.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.atomic import check_path, find_target, write_atomically
from sea_nn.explanation.parts import Part
from sea_nn.explanation.provenance import Provenance
from sea_nn.explanation.ranking import Ranking
from sea_nn.features import number_cells
from sea_nn.function.answers_function import AnswersFunction
from sea_nn.members.checks import Check
from sea_nn.questions.asked import Asked
from sea_nn.questions.curve import Curve

FORMAT, VERSION, SUFFIX = "sea_nn.explanation", 1, ".safetensors"
Made = TypeVar("Made")


def write_parts(path: str | Path, parts: Mapping[str, Any]) -> Path:
    """Write the attributes of an explanation to ``path``, all or nothing, and return the path."""
    find_target(path)
    target, e = Path(path), dict(parts)
    if target.suffix not in (SUFFIX, ""):
        raise InputError(
            f"explanations are saved as {SUFFIX} files; got {target.name!r}: "
            f"save to {target.with_suffix(SUFFIX).name!r}"
        )
    attribution, order, features = e["attribution"], e["order"], e["features"]
    shape, n = tuple(e["maps"].shape[2:]), order.shape[1]
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "maps": _array(e["maps"], np.float16),
        "target": _array(e["target"], np.int64),
        "score": _array(e["score"], np.float32),
        "order": _array(order, _narrowest(n)),
        "gains": _array(e["gains"], np.float32),
    }
    derived = _place(order, e["gains"].to(torch.float32), features, tuple(attribution.shape))
    if not torch.equal(derived, attribution.to(torch.float32)):
        tensors["attribution"] = _array(attribution, np.float32)
    if features is not None and not _is_grid(features, e["feature_shape"], shape):
        tensors["features"] = _array(features, _narrowest(n))
    for name, dtype in (
        ("images", np.uint8),
        ("values", np.float32),
        ("rival", np.int64),
    ):
        if e[name] is not None:
            tensors[name] = _array(e[name], dtype)
    function: AnswersFunction | None = e["function"]
    if function is not None:
        tensors |= {f"function.{k}": _array(v, np.float32) for k, v in function.parts().items()}
        tensors["predict_error"] = _array(e["predict_error"], np.float32)
    if e["against"] is not None and bool(e["against"].any()):
        tensors["against"] = _array(e["against"], np.float32)
    asked: Asked | None = e["asked"]
    if asked is not None:
        whole = asked.sets.dtype == torch.bool
        tensors["asked.sets"] = (
            np.packbits(_array(asked.sets, np.uint8), axis=2)
            if whole
            else _array(asked.sets, np.float16)
        )
        tensors["asked.answers"] = _array(asked.answers, np.float32)
        tensors["asked.keep"] = _array(asked.keep, _narrowest(n))
        tensors["asked.remove"] = _array(asked.remove, _narrowest(n))
    curve: Curve | None = e["curve"]
    if curve is not None:
        tensors["curve.counts"] = _array(curve.counts, np.int64)
        tensors["curve.left"] = _array(curve.left, np.float32)
        tensors["curve.removed"] = _array(curve.removed, np.float32)
    ranking: Ranking | None = e["ranking"]
    if ranking is not None:
        tensors["ranking.classes"] = _array(ranking.classes, np.int64)
        tensors["ranking.scores"] = _array(ranking.scores, np.float32)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "kind": e["kind"],
        "view": e["view"],
        "one_channel": attribution.ndim == e["maps"].ndim,
        "methods": e["methods"],
        "labels": e["labels"],
        "feature_shape": e["feature_shape"],
        "feature_names": e["feature_names"],
        "grid": features is not None and "features" not in tensors,
        "checks": [asdict(check) for check in e["checks"]],
        "provenance": asdict(e["provenance"]),
    }
    if ranking is not None:
        facts["ranking"] = ranking.names
    if function is not None:
        facts["function"] = {"link": function.link, "n_answers": function.n_answers}
    if e["texts"] is not None:
        facts["texts"] = e["texts"]
    if e["parts"]:
        facts["parts"] = [asdict(part) for part in e["parts"]]
    # One entry only: safetensors writes several in no fixed order, and equal explanations should
    # make equal files.
    with write_atomically(target) as file:
        file.write(serialize(tensors, {FORMAT: json.dumps(facts)}))
    return target


def read_parts(path: str | Path, make: Callable[..., Made]) -> Made:
    """Read the attributes of an explanation and ``make`` it of them.

    Raises:
        InputError: there is no such file, or what it holds is no explanation, or a damaged one.
    """
    source = check_path(path)
    if source.is_dir():
        raise InputError(f"{source} is a folder; give the file that Explanation.save wrote")
    try:
        with safe_open(source, framework="numpy") as file:
            facts = _read_facts(file.metadata() or {}, source)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(source)!r}; check its name") from error
    except PermissionError as error:
        raise InputError(f"{source} may not be read: permission denied") from error
    # TypeError, AttributeError: a type of number that numpy does not know.
    except (SafetensorError, TypeError, AttributeError, OSError) as error:
        raise InputError(
            f"{source} is not a whole safetensors file ({error}): it was cut short or is something "
            "else; make the explanation again with SEA.explain(...).save(path)"
        ) from error
    try:
        return make(**_restore(tensors, facts))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as e:
        raise InputError(f"{source} is damaged: its parts do not fit together ({e})") from e


def _read_facts(header: dict[str, str], source: Path) -> dict[str, Any]:
    """What the header says, once it is known to be an explanation of a format we can read."""
    if FORMAT not in header:
        raise InputError(
            f"{source} is a safetensors file, but not an explanation; "
            "give one that Explanation.save wrote"
        )
    try:
        facts = dict(json.loads(header[FORMAT]))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{source} is damaged: its header cannot be read ({error})") from error
    version = facts.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION:
        raise InputError(
            f"{source} has format version {version!r}, and this sea-nn reads up to {VERSION}; "
            "upgrade with: pip install --upgrade sea-nn"
        )
    return facts


def _restore(tensors: dict[str, np.ndarray[Any, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    _names([facts["kind"], facts.get("view", "")])
    feature_shape = tuple(facts["feature_shape"])
    if not all(isinstance(n, int) and 0 < n < 1 << 32 for n in feature_shape):
        raise ValueError(f"features of shape {facts['feature_shape']}")
    checks = tuple(Check(**check) for check in facts["checks"])
    for check in checks:
        _names(asdict(check).values())
    order = torch.from_numpy(tensors["order"].astype(np.int64))
    gains = torch.from_numpy(tensors["gains"])
    maps = torch.from_numpy(tensors["maps"].astype(np.float32))
    shape, features = tuple(maps.shape[2:]), None
    if facts["grid"]:
        features = _grid(feature_shape, shape)
    elif "features" in tensors:
        features = torch.from_numpy(tensors["features"].astype(np.int64))
    if "attribution" in tensors:
        attribution = torch.from_numpy(tensors["attribution"])
    else:
        one = facts.get("one_channel", facts["kind"] == "image")
        if not isinstance(one, bool):
            raise ValueError(f"one_channel is {one!r}")
        full = (len(order), 1, *shape) if one else (len(order), *shape)
        attribution = _place(order, gains, features, full)
    plain = ("target", "score", "images", "values", "predict_error", "rival")
    found: dict[str, Any]
    found = {name: torch.from_numpy(tensors[name]) for name in plain if name in tensors}
    if facts.get("function"):
        found["function"] = AnswersFunction(**_part(tensors, "function"), **facts["function"])
    if "asked.sets" in tensors:
        found["asked"] = Asked(
            _read_sets(tensors["asked.sets"], order.shape[1]),
            torch.from_numpy(tensors["asked.answers"]).double(),
            *(torch.from_numpy(tensors[f"asked.{k}"].astype(np.int64)) for k in ("keep", "remove")),
        )
    if "against" in tensors:
        found["against"] = torch.from_numpy(tensors["against"])
    elif "asked.sets" in tensors or facts.get("texts") is not None:
        found["against"] = torch.zeros_like(attribution)
    if "curve.counts" in tensors:
        found["curve"] = Curve(**_part(tensors, "curve"))
    if facts.get("ranking"):
        names = tuple(_names(row) or () for row in facts["ranking"])
        found["ranking"] = Ranking(**_part(tensors, "ranking"), names=names)
    if facts.get("parts"):
        found["parts"] = tuple(Part(**part) for part in facts["parts"])
    if facts.get("texts") is not None:
        found["texts"] = tuple(_names(text) for text in facts["texts"])
    return {
        **found,
        **{name: _names(facts[name]) for name in ("methods", "labels", "feature_names")},
        "attribution": attribution,
        "maps": maps,
        "order": order,
        "gains": gains,
        "feature_shape": feature_shape,
        "features": features,
        "checks": checks,
        "provenance": Provenance(**facts["provenance"]),
        "kind": facts["kind"],
        "view": facts.get("view", ""),
    }


def _read_sets(stored: np.ndarray[Any, Any], n: int) -> Tensor:
    """Sets of n features from bits, or their shares from numbers: [N, R, n]."""
    if stored.dtype == np.uint8:
        return torch.from_numpy(np.unpackbits(stored, axis=2)[:, :, :n]).bool()
    return torch.from_numpy(stored).float()


def _part(tensors: dict[str, np.ndarray[Any, Any]], name: str) -> dict[str, Any]:
    """The tensors of one part, such as "curve.left" of "curve", by their own names."""
    own = f"{name}."
    return {k.removeprefix(own): torch.from_numpy(v) for k, v in tensors.items() if own in k}


def _place(order: Tensor, gains: Tensor, features: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """The map that order and gains describe: each pixel has its feature's gain, if above 0."""
    by_feature = torch.zeros_like(gains).scatter_(1, order, gains.clamp(min=0))
    if features is None:
        return by_feature.reshape(shape)
    index = features.flatten(1).to(gains.device, torch.int64).expand(len(order), -1)
    return by_feature.gather(1, index).reshape(shape)


def _grid(feature_shape: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Features of a plain grid of cells over a map: int64 [1, *shape]."""
    if len(feature_shape) != len(shape) or len(shape) < 2:
        raise InputError(f"a grid of {feature_shape} does not cover maps of shape {shape}")
    return number_cells(feature_shape, shape).unsqueeze(0)


def _is_grid(features: Tensor, feature_shape: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(feature_shape) != len(shape) or len(shape) < 2 or features.shape[0] != 1:
        return False
    return torch.equal(_grid(feature_shape, shape), features.cpu().to(torch.int64))


def _narrowest(n: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if n <= 1 << 16 else np.uint32


def _array(tensor: Tensor, dtype: Any) -> np.ndarray[Any, Any]:
    plain = tensor.detach().cpu()
    if plain.dtype == torch.bfloat16:  # numpy has no such type
        plain = plain.float()
    return np.ascontiguousarray(plain.numpy().astype(dtype))


def _names(names: Any) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"names that are no texts: {list(names)}")
    return tuple(names)

"""Metrics of Quantus on our maps: localisation, complexity, sensitivity and randomisation.

Only metrics that work in Quantus 0.6 are listed. Its perturbation metrics are left out: they are
slower than ours, hide channels one by one, and several of them fail on NumPy 2.4 or on colour
images. Quantus (LGPL) is an extra: ``pip install 'sea-nn[eval]'``.

>>> QUANTUS["sparseness"].direction
'higher'
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sea_nn.errors import InputError, KindError, MissingExtraError
from sea_nn.features.kinds import IMAGE, find_kind
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.metrics.metric import Metric
from sea_nn.metrics.scores import Scores
from sea_nn.metrics.sensitivity import RANDOM
from sea_nn.metrics.validation import check_maps, match_masks
from sea_nn.model.borrowing import borrow
from sea_nn.model.noise import random_map
from sea_nn.model.outputs import Target, TensorModel, predict, resolve_target
from sea_nn.paper.heatmaps import reduce_channels
from sea_nn.sea import SEA

Explain = Callable[[torch.nn.Module, Tensor, Tensor], Tensor]
"""From (model, x, target) to maps [N, H, W] or attributions [N, C, H, W]."""


class QuantusMetric(NamedTuple):
    """A metric of Quantus: its class, which direction is better, its range, what it measures.

    ``needs`` is "masks", "explain" or nothing; ``options`` are those of the class.
    """

    kind: str
    direction: Literal["higher", "lower"]
    range: tuple[float, float]
    measures: str
    needs: str = ""
    options: Mapping[str, Any] = {}


_UNIT, _POSITIVE, _CORRELATION = (0.0, 1.0), (0.0, math.inf), (-1.0, 1.0)
_NOISE = {"nr_samples": 10, "lower_bound": 0.02, "normalise": True}
_ROWS: dict[str, tuple[Any, ...]] = {
    "relevance_mass_accuracy": (
        "RelevanceMassAccuracy", "higher", _UNIT, "Share of the map on the object.", "masks"),
    "relevance_rank_accuracy": (
        "RelevanceRankAccuracy", "higher", _UNIT,
        "Share of the top pixels, as many as the object has, on the object.", "masks"),
    "pointing_game": (
        "PointingGame", "higher", _UNIT, "Whether the top pixel is on the object.", "masks"),
    "top_k_intersection": (
        "TopKIntersection", "higher", _UNIT, "Share of the top k pixels on the object.", "masks",
        {"k": 100}),
    "auc": (
        "AUC", "higher", _UNIT, "How well the map separates object from background.", "masks"),
    "sparseness": ("Sparseness", "higher", _UNIT, "Gini index of the map's values."),
    "complexity": ("Complexity", "lower", _POSITIVE, "Entropy of the map's shares."),
    "effective_complexity": (
        "EffectiveComplexity", "lower", _POSITIVE, "Number of pixels above a threshold."),
    "max_sensitivity": (
        "MaxSensitivity", "lower", _POSITIVE,
        "Largest relative change of the map under input noise.", "explain", _NOISE),
    "avg_sensitivity": (
        "AvgSensitivity", "lower", _POSITIVE,
        "Mean relative change of the map under input noise.", "explain", _NOISE),
    "mprt": (
        "MPRT", "lower", _CORRELATION,
        "Rank correlation with the maps of the model with its layers randomised.", "explain",
        {"return_average_correlation": True}),
    "efficient_mprt": (
        "EfficientMPRT", "higher", (-math.inf, math.inf),
        "Relative rise of the map's entropy when the whole model is randomised.", "explain"),
    "random_logit": (
        "RandomLogit", "lower", _CORRELATION,
        "Similarity to the map of another class, drawn at random.", "explain"),
}  # fmt: skip
QUANTUS = {name: QuantusMetric(*row) for name, row in _ROWS.items()}


def score_with_quantus(
    model: torch.nn.Module,
    x: Tensor,
    target: Target,
    maps: Mapping[str, Tensor],
    metrics: Sequence[str],
    *,
    masks: Tensor | None = None,
    explain: Mapping[str, Explain] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    random: bool = True,
    seed: int = 0,
    batch_size: int = 64,
) -> Scores:
    """Score maps of images with metrics of Quantus; the scores' names start with "quantus:".

    ``metrics`` are names from ``QUANTUS``; arguments that are not told of here are as for
    ``score_maps``. A random map is drawn anew at every explanation.

    - ``explain``: by method, a function (model, x, target) -> maps, for sensitivity and
      randomisation; attributions [N, C, H, W] are reduced to the sum of absolute values.
    - ``options``: by metric, further options of the Quantus class.
    - ``seed``: also of NumPy's global generator, which Quantus draws from and which is given back
      as it was.
    """
    library = _import()
    unknown = [name for name in metrics if name not in QUANTUS]
    if unknown:
        raise InputError(
            f"there is no metric {unknown[0]!r} here; choose from {', '.join(QUANTUS)}"
        )
    if find_kind(x) is not IMAGE:
        raise InputError(f"Quantus metrics are for images [N, C, H, W]; x is {list(x.shape)}")
    methods = check_maps(x, maps, random, allow_zero=False, kind=IMAGE)
    explainers = dict(explain or {})
    if random and RANDOM not in methods:
        methods[RANDOM] = random_map((len(x), *x.shape[2:]), seed).to(x)
        explainers.setdefault(RANDOM, _explain_at_random(seed))
    masks = match_masks(masks, x, IMAGE)
    for name in metrics:
        _check_needs(name, methods, masks, explainers)
    values: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    with borrow(model, x) as twin:
        wrapped = TensorModel(twin).eval()
        outputs = predict(wrapped, x, batch_size=batch_size)
        classes = resolve_target(outputs, target)
        for name in metrics:
            started, columns = time.perf_counter(), []
            for method, one in methods.items():
                call = {
                    "model": wrapped,
                    "x_batch": x.detach().cpu().numpy(),
                    "y_batch": classes.cpu().numpy(),
                    "a_batch": one.unsqueeze(1).cpu().numpy(),
                    "channel_first": True,
                    "device": str(x.device),
                    "batch_size": batch_size,
                }
                if QUANTUS[name].needs == "masks" and masks is not None:
                    call["s_batch"] = masks.bool().unsqueeze(1).cpu().numpy()
                if QUANTUS[name].needs == "explain":
                    call["explain_func"] = _adapt(explainers[method], x)
                own = {"num_classes": outputs.shape[1]} if name == "random_logit" else {}
                own |= (options or {}).get(name, {})
                columns.append(_run(library, name, call, own, seed))
            values[f"quantus:{name}"] = torch.stack(columns, 1)
            seconds[f"quantus:{name}"] = time.perf_counter() - started
    described = {f"quantus:{name}": _describe(name) for name in metrics}
    return Scores(tuple(methods), described, values, seconds=seconds)


def _run(
    library: Any, name: str, call: dict[str, Any], options: dict[str, Any], seed: int
) -> Tensor:
    spec = QUANTUS[name]
    settings = {**spec.options, **options, "disable_warnings": True, "display_progressbar": False}
    with _numpy_seed(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = getattr(library, spec.kind)(**settings)(**call)
        except (AssertionError, ValueError, TypeError) as error:
            raise InputError(f"Quantus refused {name}: {error}") from error
    table = torch.as_tensor(np.asarray(found, dtype=np.float64))
    if table.shape != (len(call["x_batch"]),):
        raise InputError(
            f"Quantus returned {list(table.shape)} for {name}, not one number for each of "
            f"{len(call['x_batch'])} inputs; take options that give one"
        )
    return table


def _adapt(explain: Explain, x: Tensor) -> Callable[..., NDArray[Any]]:
    """Make a function of ours one that Quantus can call with NumPy arrays."""

    def explain_func(model: Any, inputs: Any, targets: Any, **_: Any) -> NDArray[Any]:
        network = model if isinstance(model, torch.nn.Module) else model.get_model()
        points = torch.as_tensor(inputs).to(x).reshape(-1, *x.shape[1:])
        chosen = torch.as_tensor(targets).to(x.device).long().reshape(-1)
        with torch.enable_grad():
            maps = explain(network, points, chosen).detach()
        maps = reduce_channels(maps) if maps.ndim == 4 else maps
        return np.asarray(maps.unsqueeze(1).cpu().numpy())

    return explain_func


def _explain_at_random(seed: int) -> Explain:
    """Return a function that gives maps that know nothing, new ones at each call."""
    seeds = count(seed + 1)
    return lambda model, x, target: random_map((len(x), *x.shape[2:]), next(seeds)).to(x)


def _describe(name: str) -> Metric:
    spec = QUANTUS[name]

    def compute(batch: MapBatch) -> MetricValues:
        raise InputError(f"quantus:{name} is computed by score_with_quantus")

    needs = frozenset({"model", *filter(None, [spec.needs])})
    return Metric(f"quantus:{name}", spec.direction, spec.range, spec.measures, needs, compute)


def _check_needs(
    name: str,
    methods: Mapping[str, Tensor],
    masks: Tensor | None,
    explainers: Mapping[str, Explain],
) -> None:
    needs = QUANTUS[name].needs
    if needs == "masks" and masks is None:
        raise InputError(f"{name} cannot be scored without masks: pass masks=, bool [N, H, W]")
    lacking = [method for method in methods if method not in explainers]
    if needs == "explain" and lacking:
        raise InputError(
            f"{name} computes maps again: pass explain= with a function (model, x, target) -> maps "
            f"for {', '.join(map(repr, lacking))}"
        )


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's and PyTorch's global generators for Quantus, and give them back."""
    state = np.random.get_state()
    with torch.random.fork_rng():
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)


def _import() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import quantus
    except ImportError as error:
        raise MissingExtraError("this needs Quantus: pip install 'sea-nn[eval]'") from error
    return quantus


def quantus_explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
    """An ``explain_func`` for Quantus: SEA maps [N, 1, H, W] as a numpy array.

    Args:
        model: the model that Quantus passes.
        inputs: array or tensor [N, C, H, W].
        targets: classes [N].
        **kwargs: ``methods``, ``config``, ``budget``, ``options``, ``output``, ``seed`` for
            ``SEA``; others are ignored.
    """
    if not isinstance(model, torch.nn.Module):
        raise KindError(f"Quantus explains torch modules; got {type(model).__name__}")
    known = ("methods", "config", "budget", "options", "output", "seed")
    chosen = {k: v for k, v in kwargs.items() if k in known}
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    x = torch.as_tensor(inputs, dtype=torch.float32, device=device)
    target = torch.as_tensor(targets, device=device).long()
    maps = SEA(model, **chosen).attribute(x, target=target)
    return np.asarray(maps.cpu())

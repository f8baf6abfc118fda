"""Metrics of Quantus on our maps: localisation, complexity, sensitivity and randomisation.

Only metrics that work in Quantus 0.6 are listed. Its perturbation metrics are left out: they are
slower than ours, hide channels one by one, and several of them fail on NumPy 2.4 or on colour
images. Quantus (LGPL) is an extra: ``pip install 'sea-nn[eval]'``.

>>> QUANTUS["sparseness"].direction
'higher'
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sea_nn.ensembling.heatmaps import reduce_channels
from sea_nn.errors import InputError, MissingExtraError
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.metrics.metric import Metric
from sea_nn.metrics.scores import Scores
from sea_nn.metrics.sensitivity import RANDOM
from sea_nn.metrics.validation import check_maps, match_masks
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.noise import random_map
from sea_nn.passes.outputs import Logits, Target, predict, resolve_target

Explain = Callable[[torch.nn.Module, Tensor, Tensor], Tensor]
"""From (model, x, target) to maps [N, H, W] or attributions [N, C, H, W]."""
_INF = float("inf")


@dataclass(frozen=True)
class QuantusMetric:
    """A metric of Quantus: its class, direction and range, and what it needs besides the maps.

    Attributes:
        kind: the name of the class in Quantus.
        direction: "higher" or "lower": which is better, as Quantus says.
        range: the least and the greatest value.
        measures: one sentence on what it measures.
        needs: None, "masks" or "explain".
        options: how the class is made.
    """

    kind: str
    direction: Literal["higher", "lower"]
    range: tuple[float, float]
    measures: str
    needs: Literal["masks", "explain"] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


QUANTUS: dict[str, QuantusMetric] = {
    "relevance_mass_accuracy": QuantusMetric(
        "RelevanceMassAccuracy", "higher", (0, 1), "Share of the map on the object.", "masks"
    ),
    "relevance_rank_accuracy": QuantusMetric(
        "RelevanceRankAccuracy",
        "higher",
        (0, 1),
        "Share of the top pixels, as many as the object has, on the object.",
        "masks",
    ),
    "pointing_game": QuantusMetric(
        "PointingGame", "higher", (0, 1), "Whether the top pixel is on the object.", "masks"
    ),
    "top_k_intersection": QuantusMetric(
        "TopKIntersection",
        "higher",
        (0, 1),
        "Share of the top k pixels on the object.",
        "masks",
        {"k": 100},
    ),
    "auc": QuantusMetric(
        "AUC", "higher", (0, 1), "How well the map separates object from background.", "masks"
    ),
    "sparseness": QuantusMetric("Sparseness", "higher", (0, 1), "Gini index of the map's values."),
    "complexity": QuantusMetric("Complexity", "lower", (0, _INF), "Entropy of the map's shares."),
    "effective_complexity": QuantusMetric(
        "EffectiveComplexity", "lower", (0, _INF), "Number of pixels above a threshold."
    ),
    "max_sensitivity": QuantusMetric(
        "MaxSensitivity",
        "lower",
        (0, _INF),
        "Largest relative change of the map under input noise.",
        "explain",
        {"nr_samples": 10, "lower_bound": 0.02, "normalise": True},
    ),
    "avg_sensitivity": QuantusMetric(
        "AvgSensitivity",
        "lower",
        (0, _INF),
        "Mean relative change of the map under input noise.",
        "explain",
        {"nr_samples": 10, "lower_bound": 0.02, "normalise": True},
    ),
    "mprt": QuantusMetric(
        "MPRT",
        "lower",
        (-1, 1),
        "Rank correlation with the maps of the model with its layers randomised.",
        "explain",
        {"return_average_correlation": True},
    ),
    "efficient_mprt": QuantusMetric(
        "EfficientMPRT",
        "higher",
        (-_INF, _INF),
        "Relative rise of the map's entropy when the whole model is randomised.",
        "explain",
    ),
    "random_logit": QuantusMetric(
        "RandomLogit",
        "lower",
        (-1, 1),
        "Similarity to the map of another class, drawn at random.",
        "explain",
    ),
}


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

    Args:
        model: a module; it comes back as it was.
        x: images [N, C, H, W].
        target: the class explained; None for the predicted one.
        maps: by method, [N, H, W]; channels must have been reduced.
        metrics: names from ``QUANTUS``.
        masks: bool [N, H, W], for localisation.
        explain: by method, a function (model, x, target) -> maps, for sensitivity and
            randomisation; attributions [N, C, H, W] are reduced to the sum of absolute values.
        options: by metric, further options of the Quantus class.
        random: also score a random map, under "random"; it is drawn anew at every explanation.
        seed: of the random map and of NumPy's global generator, which Quantus draws from and which
            is given back as it was.
        batch_size: inputs that Quantus handles at once.
    """
    library = _import()
    unknown = [name for name in metrics if name not in QUANTUS]
    if unknown:
        raise InputError(
            f"there is no metric {unknown[0]!r} here; choose from {', '.join(QUANTUS)}"
        )
    if x.ndim != 4:
        raise InputError(f"Quantus metrics are for images [N, C, H, W]; x is {list(x.shape)}")
    methods = check_maps(x, maps, random, allow_zero=False)
    explainers = dict(explain or {})
    if random and RANDOM not in methods:
        methods[RANDOM] = random_map((len(x), *x.shape[2:]), seed).to(x)
        explainers.setdefault(RANDOM, _RandomExplainer(seed))
    masks = match_masks(masks, x)
    for name in metrics:
        _check_needs(name, methods, masks, explainers)
    values: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    with borrow(model, x) as twin:
        wrapped = Logits(twin).eval()
        classes = resolve_target(predict(wrapped, x, batch_size=batch_size), target)
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
                columns.append(_run(library, name, call, dict((options or {}).get(name, {})), seed))
            values[f"quantus:{name}"] = torch.stack(columns, 1)
            seconds[f"quantus:{name}"] = time.perf_counter() - started
    described = {f"quantus:{name}": _describe(name) for name in metrics}
    return Scores(tuple(methods), described, values, seconds=seconds)


def _run(
    library: Any, name: str, call: dict[str, Any], options: dict[str, Any], seed: int
) -> Tensor:
    spec = QUANTUS[name]
    if name == "random_logit":
        options.setdefault("num_classes", int(call["model"](_first(call)).shape[1]))
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


class _RandomExplainer:
    """Maps that know nothing, new ones at each call."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, model: torch.nn.Module, x: Tensor, target: Tensor) -> Tensor:
        self.seed += 1
        return random_map((len(x), *x.shape[2:]), self.seed).to(x)


def _first(call: dict[str, Any]) -> Tensor:
    weight = next(call["model"].parameters(), torch.zeros(()))
    return torch.as_tensor(call["x_batch"][:1]).to(weight)


def _describe(name: str) -> Metric:
    spec = QUANTUS[name]

    def compute(batch: MapBatch) -> MetricValues:
        raise InputError(f"quantus:{name} is computed by score_with_quantus")

    needs = frozenset({"model"} | ({spec.needs} if spec.needs else set()))
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
        raise MissingExtraError(
            "this needs Quantus: pip install 'sea-nn[eval]', or 'pip install quantus'"
        ) from error
    return quantus

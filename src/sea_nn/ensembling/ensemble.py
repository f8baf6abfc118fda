"""The whole algorithm on one page: read this first [M6, M9].

    heatmaps[N, m, *shape] -> (ask the model) -> (pool) -> learn f for each input -> Algorithm 1
                           -> one map an input

>>> import torch
>>> from sea_nn import ensemble
>>> heatmaps = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
>>> result = ensemble(heatmaps)
>>> result.attribution.shape, result.scorer.top(4).shape
(torch.Size([2, 8, 8]), torch.Size([2, 4]))
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.ensembling.cores import map_on_cores
from sea_nn.ensembling.heatmaps import binarize, count_thresholds, pool, pool_sets, upsample
from sea_nn.errors import InputError, KindError
from sea_nn.features import clip_grid
from sea_nn.questions.answers import Answers, Ask, heed
from sea_nn.submodular.constraints import Constraints
from sea_nn.submodular.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.submodular.fit import Record, fit
from sea_nn.submodular.greedy import Selection
from sea_nn.submodular.lazy_greedy import GreedySearch
from sea_nn.submodular.ties import key_features, key_groups, sort_keys
from sea_nn.submodular.trainers import Supervision


@dataclass(frozen=True)
class Ensemble:
    """What ``ensemble`` returns for N inputs with n features each.

    Attributes:
        attribution: the maps, [N, *shape]: each feature's marginal gain when it was taken.
        order: features as Algorithm 1 took them, [N, n]; tied features stand together.
        gains: their attribution in that order, [N, n]; never grows.
        scorer: the learned f, a batch of N functions (None if ``keep_scorer=False``).
        record: objective and terms for each epoch.
        feature_shape: shape of the feature space: the heatmaps' own, or the grid's.
        config: the settings used.
        answers: what the model said about halves of each input, if it was asked.
    """

    attribution: Tensor
    order: Tensor
    gains: Tensor
    scorer: Scorer | None
    record: Record
    feature_shape: tuple[int, ...]
    config: SEAConfig
    answers: Answers | None = None

    def __repr__(self) -> str:
        count, n = self.order.shape
        shape = list(self.attribution.shape)
        return f"Ensemble({count} inputs, {n} features, attribution {shape})"


@torch.inference_mode(False)  # functions are learned by their gradients
def ensemble(
    heatmaps: Tensor,
    config: SEAConfig | None = None,
    *,
    weights: Tensor | None = None,
    ask: Ask | None = None,
    required: Tensor | None = None,
    forbidden: Tensor | None = None,
    epsilon: float = 1e-3,
    record: bool = False,
    keep_scorer: bool = True,
    chunk: int | None = None,
) -> Ensemble:
    """Learn one submodular function an input from its heatmaps, and attribute by marginal gain.

    Args:
        heatmaps: [N, m, *shape] with values in [0, 1] (``sea_nn.ensembling.heatmaps.scale`` gets them there).
            Work is done in float64 on the tensor's device; maps come back in its own precision.
        config: settings; the default is ``SEAConfig()``.
        weights: how much each method counts, [m] or [N, m]; 2 is the same as giving it twice.
        ask: asks the model about sets of features; ``sea_nn.questions.ask.make_ask`` makes one. Its
            answers join the heatmaps (``sea_nn.questions.answers``). Left out, nobody asks the model.
        required: bool mask, [*shape] or [N, *shape], of features that must count: each keeps a
            gain of at least ``epsilon`` in every context (Sensitivity(a), [M8]).
        forbidden: bool mask of features that must not count (Sensitivity(b)): exactly 0.
        epsilon: the least gain of a required feature, in units of f.
        record: also record how much the map changes in each epoch (costs a sort an epoch).
        keep_scorer: keep the learned functions; for millions of inputs they are better dropped.
        chunk: inputs to work on at once; chosen by size if None.

    Raises:
        InputError: NaN or infinite heatmaps, values outside [0, 1], no method, wrong shapes.
    """
    config = config or SEAConfig()
    heatmaps = check_heatmaps(heatmaps)
    if heatmaps.is_inference():
        heatmaps = heatmaps.clone()
    count, m = heatmaps.shape[:2]
    shape = tuple(heatmaps.shape[2:])
    weights = check_weights(weights, heatmaps)
    grid = None if config.grid is None else _grid_for(config, shape)
    constraints = Constraints.from_masks(required, forbidden, epsilon, count, shape, grid)
    constraints.check(config)
    answers = None
    if ask is not None and count and math.prod(shape) > 1:
        heatmaps, weights, answers = _consult(ask, heatmaps, weights, config)
        m = heatmaps.shape[1]
    n = math.prod(grid or shape)
    dtype = heatmaps.dtype if heatmaps.dtype in (torch.float32, torch.float64) else torch.float32
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise InputError(f"chunk must be a whole number of inputs from 1, or None; got {chunk!r}")
    size = chunk or _chunk_size(n, math.prod(shape), m, config, heatmaps.device)
    # A full network's small steps gain little from sharing each between cores; inputs do.
    side_by_side = heatmaps.device.type == "cpu" and not config.constant_start
    if side_by_side and chunk is None:
        size = max(1, min(size, math.ceil(count / torch.get_num_threads())))

    def work(start: int) -> tuple[Tensor, Tensor, Tensor, Record, Scorer | None]:
        rows = slice(start, start + size)
        given = supervise(heatmaps[rows], config, weights[rows])
        bound = constraints.rows(rows).to(heatmaps.device)
        watch = record or config.tolerance > 0
        scorer, history = fit(
            given,
            config,
            map_of=(lambda f: attribute(f, config)[2]) if watch else None,
            project=bound.apply_ if bound else None,
        )
        bound.verify(scorer)
        order, gains, values = attribute(scorer, config)
        painted = _paint(values, shape, grid, config).to(dtype)
        return order, gains.to(dtype), painted, history, scorer if keep_scorer else None

    starts = range(0, max(count, 1), size)
    parts = map_on_cores(work, starts) if side_by_side else [work(start) for start in starts]
    orders, gained, maps, histories, scorers = zip(*parts, strict=True)
    if any(bool((part[:, 0] <= 0).any()) for part in gained):
        warnings.warn(
            "the learned function vanished for some inputs, so their maps are zero: "
            "lower learning_rate, or train='features' only",
            stacklevel=2,
        )
    return Ensemble(
        attribution=torch.cat(maps),
        order=torch.cat(orders),
        gains=torch.cat(gained),
        scorer=_join([f for f in scorers if f is not None]) if keep_scorer else None,
        record=Record.concatenate(list(histories)),
        feature_shape=grid or shape,
        config=config,
        answers=answers,
    )


def _consult(
    ask: Ask, heatmaps: Tensor, weights: Tensor, config: SEAConfig
) -> tuple[Tensor, Tensor, Answers | None]:
    """Ask, join the answers to the heatmaps, learn a map from both, and ask again about that."""
    answers: Answers | None = None
    rows, counted = heatmaps, weights
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    heat = torch.einsum("nm,nm...->n...", share, heatmaps.to(share))
    for round_ in range(1 if config.rounds is None else config.rounds):
        if round_:
            heat = ensemble(rows, config, weights=counted, keep_scorer=False).attribution
        said = Answers.of(ask, heat, config.regions)
        answers = said if answers is None else answers + said
        rows, counted = heed(answers, heatmaps, weights)
    return rows, counted, answers


def ensemble_class(
    heatmaps: Tensor,
    config: SEAConfig | None = None,
    *,
    weights: Tensor | None = None,
    **options: object,
) -> Ensemble:
    """One class-level map from the heatmaps of many inputs of a class [M9].

    All inputs' heatmaps and binarised heatmaps supervise one f, which is attributed once.

    Args:
        heatmaps: [N, m, *shape] in [0, 1], as for ``ensemble``.
        config: settings; the default is ``SEAConfig()``.
        weights: how much each method counts, [m] or [N, m].
        **options: as for ``ensemble``.

    Returns:
        An ``Ensemble`` of one input: attribution [1, *shape].
    """
    heatmaps = check_heatmaps(heatmaps)
    weights = check_weights(weights, heatmaps).reshape(1, -1)
    rows = heatmaps.flatten(0, 1).unsqueeze(0)
    return ensemble(rows, config, weights=weights, **options)  # type: ignore[arg-type]


def supervise(heatmaps: Tensor, config: SEAConfig, weights: Tensor) -> Supervision:
    """Heatmaps [N, m, *shape] to what the objective sees: float64 rows, sets, budgets, weights.

    A constant heatmap prefers nothing: it and its sets count for nothing.
    """
    count, m = heatmaps.shape[:2]
    maps = heatmaps.detach().to(torch.float64)
    low, high = maps.flatten(2).aminmax(dim=2)
    weights = weights.to(maps) * (high > low)
    grid = None if config.grid is None else clip_grid(config.grid, maps.shape[2:])
    rows = maps.flatten(2) if grid is None else pool(maps, grid).flatten(2)
    if not config.margin_weight:
        none = rows.new_zeros(count, 0)
        sets = torch.zeros(count, 0, rows.shape[2], dtype=torch.bool, device=rows.device)
        return Supervision(rows, weights, sets, none.long(), none)
    sets = binarize(maps.flatten(2), config.thresholds)
    k = sets.shape[2]
    if grid is not None:
        pixels = sets.reshape(count, m, k, *maps.shape[2:])
        sets = pool_sets(pixels, grid, at_least=config.reading == "authors").flatten(3)
    sets = sets.flatten(1, 2)
    budgets = sets.sum(2, dtype=torch.int32).long()  # ten times faster than in int64
    if config.reading == "authors":
        asked = torch.tensor(count_thresholds(config.thresholds, math.prod(maps.shape[2:])))
        budgets = asked.clamp(max=rows.shape[2]).repeat(count, m).to(budgets)
    return Supervision(rows, weights, sets, budgets, weights.repeat_interleave(k, 1))


@torch.no_grad()
def attribute(f: Scorer, config: SEAConfig | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 [M6]: take the best feature, give its gain to all that tie with it, go on.

    Args:
        f: a learned scorer, a batch of N functions or one.
        config: only ``reading`` matters: "authors" leaves tied features in.

    Returns:
        order [N, n], gains [N, n] and the map [N, n], with attribution[order[k]] = gains[k].
    """
    remove_ties = config is None or config.reading == "paper"
    if isinstance(f, CollapsedDSF):
        order, gains = _attribute_collapsed(f, remove_ties)
    elif isinstance(f, DSF):
        order, gains = GreedySearch(f, remove_ties=remove_ties).run(f.n)
    else:
        raise KindError(f"attribute takes a DSF or a CollapsedDSF; got {type(f).__name__}")
    return order, gains, torch.zeros_like(gains).scatter_(1, order, gains)


def _attribute_collapsed(f: CollapsedDSF, remove_ties: bool) -> Selection:
    """Algorithm 1 on g(w.x): sort by weight, run along the leaders of tie groups."""
    weight = f.weight.detach().reshape(f.count, f.n)
    keys = sort_keys(weight).sort(dim=1, descending=True).values
    order = key_features(keys)
    taken = weight.gather(1, order)
    if remove_ties:
        groups = key_groups(keys)
        leads = torch.ones_like(groups, dtype=torch.bool)
        leads[:, 1:] = groups[:, 1:] != groups[:, :-1]
        taken = taken * leads
    before = taken.cumsum(1) - taken
    gains = f.outer_rise(before, taken)
    if remove_ties:
        place = torch.arange(f.n, device=order.device).expand_as(order)
        gains = gains.gather(1, torch.where(leads, place, 0).cummax(1).values)
    return Selection(order, gains)


def _paint(
    values: Tensor, shape: tuple[int, ...], grid: tuple[int, int] | None, config: SEAConfig
) -> Tensor:
    if grid is None:
        return values.reshape(-1, *shape)
    return upsample(values.reshape(-1, *grid), shape, config.upsampling)


def _join(scorers: list[Scorer]) -> Scorer:
    """Several batches of functions as one."""
    first = scorers[0]
    if len(scorers) == 1:
        return first
    joined = {
        name: torch.cat([s.state_dict()[name] for s in scorers]) for name in first.state_dict()
    }
    if isinstance(first, CollapsedDSF):
        whole: Scorer = CollapsedDSF(
            joined["weight"],
            widths=first.widths,
            activation=first.activation.name,
            scale=joined["scale"],
            bias=joined.get("bias"),
        )
    elif isinstance(first, DSF):
        whole = first.batched(joined)
    else:
        raise KindError(f"cannot join {type(first).__name__}")
    return whole.requires_grad_(False)  # learned, as each part is


def _chunk_size(n: int, pixels: int, m: int, config: SEAConfig, device: torch.device) -> int:
    """How many inputs fit in the working memory that is fastest (CPU) or at hand (GPU)."""
    sets = m * len(config.thresholds) if config.margin_weight else 0
    row = 8 * n * (m + 6) + n * sets + 8 * 50 * sets
    if n < pixels:  # heatmaps and sets are pooled onto a grid
        row += 8 * pixels * (m + sets)
    if not config.constant_start:
        first, *rest = (*config.widths, 1)
        row += 8 * 6 * (n * first + sum(a * b for a, b in zip((first, *rest), rest, strict=False)))
    if device.type == "cuda":
        budget = torch.cuda.mem_get_info(device)[0] // 4
    else:
        budget = (64 if config.constant_start else 112) << 20
    return max(1, budget // row)


def _grid_for(config: SEAConfig, shape: tuple[int, ...]) -> tuple[int, int]:
    if config.grid is None or len(shape) != 2:
        raise InputError(
            f"a grid needs heatmaps with two axes [N, m, H, W]; these have shape {shape} an input: "
            "set grid=None"
        )
    return clip_grid(config.grid, shape)


def check_heatmaps(heatmaps: Tensor) -> Tensor:
    """Heatmaps [N, m, *shape] in [0, 1], detached and real, or an error that says what is wrong."""
    if not isinstance(heatmaps, Tensor):
        try:
            heatmaps = torch.as_tensor(heatmaps)
        except (TypeError, ValueError, RuntimeError) as error:
            raise KindError(
                f"heatmaps must be one tensor [N, m, *shape]; got {type(heatmaps).__name__} "
                "(stack several maps with torch.stack(maps, dim=1))"
            ) from error
    if heatmaps.is_complex():
        raise KindError("heatmaps must be real numbers; these are complex")
    if heatmaps.ndim < 3:
        raise InputError(
            f"heatmaps must be [N, m, *shape] (inputs, methods, features); got shape "
            f"{tuple(heatmaps.shape)}: unsqueeze(0) a single input"
        )
    if heatmaps.shape[1] == 0:
        raise InputError("there is no heatmap: m = 0 methods; give at least one")
    if math.prod(heatmaps.shape[2:]) == 0:
        raise InputError(f"heatmaps of shape {tuple(heatmaps.shape[2:])} have no features")
    if heatmaps.numel() == 0:
        return heatmaps.detach()
    heatmaps = heatmaps.detach()
    flat = heatmaps.reshape(*heatmaps.shape[:2], -1)
    if flat.dtype == torch.bool or not flat.is_floating_point():
        flat = flat.to(torch.float32)
        heatmaps = flat.reshape(heatmaps.shape)
    low, high = flat.aminmax(dim=2)
    _refuse(
        ~(low.isfinite() & high.isfinite()), "holds NaN or infinite values", "replace or drop it"
    )
    _refuse((low < 0) | (high > 1), "leaves [0, 1]", "use sea_nn.ensembling.heatmaps.scale first")
    still = low == high
    if bool(still.any()):
        warnings.warn(
            f"{_where(still)} is constant, prefers no feature, and does not count", stacklevel=3
        )
    return heatmaps


def _where(bad: Tensor) -> str:
    first = [int(i) for i in bad.nonzero()[0]]
    more = int(bad.sum()) - 1
    return f"the heatmap of input {first[0]}, method {first[1]}" + (
        f" (and {more} more)" if more else ""
    )


def _refuse(bad: Tensor, what: str, advice: str) -> None:
    if bool(bad.any()):
        raise InputError(f"{_where(bad)} {what}: {advice}")


def check_weights(weights: Tensor | None, heatmaps: Tensor) -> Tensor:
    """Weights as float64 [N, m]; all ones if None."""
    count, m = heatmaps.shape[:2]
    if weights is None:
        return torch.ones(count, m, dtype=torch.float64, device=heatmaps.device)
    weights = torch.as_tensor(weights, dtype=torch.float64, device=heatmaps.device).detach()
    if weights.shape not in ((m,), (count, m)):
        raise InputError(
            f"weights must be [m] = [{m}] or [N, m] = [{count}, {m}]; got {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InputError("weights must be finite and >= 0")
    return weights.expand(count, m)

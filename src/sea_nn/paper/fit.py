"""Learning: heatmaps and sets in, the scorer out [M5].

A constant start keeps all units of a layer equal for ever (docs/math.md), so ``fit`` then trains
the collapsed form: n + 7 numbers instead of half a million, with the same result. Both forms are
learned by the same code, which sees the first layer as weights [N, units, n], with one unit in the
collapsed form, and everything above it through ``DSF.above``.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.paper.dsf import DSF
from sea_nn.paper.exact import sort_features
from sea_nn.paper.heatmaps import binarize, clip_thresholds, pool, pool_sets

ADAGRAD_EPS = 1e-10  # as torch.optim.Adagrad
ROUNDING = 1e-13
"""A gradient below this share of the terms it sums up is rounding: some hundred terms cancelled."""
BISECTIONS = 60
"""So often the level of required columns is bisected."""
LEAST, MOST = -1000.0, 40.0
"""Powers of two between which that level lies, in units of the mean column."""


@dataclass(frozen=True)
class TrainingData:
    """What f is learned from, for N inputs with n features; weights say how much each counts."""

    heatmaps: Tensor  # float64 [N, m, n]
    weights: Tensor  # [N, m]
    sets: Tensor  # binarised heatmaps, bool [N, R, n], R / m of each; R may be 0
    budgets: Tensor  # size of the best set that each one is compared with, int64 [N, R]


def make_training_data(heatmaps: Tensor, config: SEAConfig, weights: Tensor) -> TrainingData:
    """Heatmaps [N, m, *shape] to what the objective sees: float64 rows, weights, sets, budgets.

    A constant heatmap prefers nothing: it and its sets count for nothing.
    """
    count, m = heatmaps.shape[:2]
    maps = heatmaps.detach().to(torch.float64)
    low, high = maps.flatten(2).aminmax(dim=2)
    weights = weights.to(maps) * (high > low)
    grid = config.grid
    rows = maps.flatten(2) if grid is None else pool(maps, grid).flatten(2)
    if not config.margin_weight:
        sets = torch.zeros(count, 0, rows.shape[2], dtype=torch.bool, device=rows.device)
        return TrainingData(rows, weights, sets, sets.sum(2))
    sets = binarize(maps.flatten(2), config.thresholds)
    if grid is not None:
        pixels = sets.unflatten(3, maps.shape[2:])
        sets = pool_sets(pixels, grid, at_least=config.reading == "authors").flatten(3)
    sets = sets.flatten(1, 2)
    if not config.heatmap_weight and not bool(sets.any(2).any(1).all()):
        raise InputError(
            "every binarised heatmap of some input is empty once pooled onto the grid, and "
            "heatmap_weight is 0: nothing would be learned. Use a finer grid or smaller thresholds"
        )
    budgets = sets.sum(2, dtype=torch.int32).long()  # ten times faster than in int64
    if config.reading == "authors":
        asked = clip_thresholds(config.thresholds, math.prod(maps.shape[2:]))
        budgets = asked.clamp(max=rows.shape[2]).repeat(count, m).to(budgets)
    return TrainingData(rows, weights, sets, budgets)


def fit(
    data: TrainingData,
    config: SEAConfig,
    bound: tuple[Tensor, Tensor, float] | None = None,
    collapse: bool = True,
) -> tuple[DSF, Tensor]:
    """Minimise the objective [M2, M3] for every input at once.

    Args:
        data: what f is learned from.
        config: settings.
        bound: masks of required and of forbidden features, and the least gain of the former.
        collapse: False forces the full network where the collapsed form would do.

    Returns:
        A batch of N functions, and the objective without its weight decay in each epoch,
        [N, epochs].
    """
    trainer = Trainer(data, config, collapse and config.constant_start)
    squares = [torch.zeros_like(p) for p in trainer.parameters]
    history = data.heatmaps.new_empty(len(data.heatmaps), config.epochs)
    if bound is not None:
        restore(trainer.scorer, *bound)
    for epoch in range(config.epochs):
        history[:, epoch], gradients = trainer.evaluate()
        take_step(config, epoch, trainer.parameters, gradients, squares)
        if bound is not None:
            restore(trainer.scorer, *bound)
    return trainer.scorer.requires_grad_(False), history


def take_step(
    config: SEAConfig,
    epoch: int,
    parameters: list[Tensor],
    gradients: list[Tensor],
    squares: list[Tensor],
) -> None:
    """Move non-negative tensors [N, ...] against their gradients, in place, in epoch 0, 1, ….

    "adagrad" is torch.optim.Adagrad followed by a clamp at zero; ``squares`` are its sums, zeros at
    first. "gradient" and "mirror" divide each tensor's gradient by its largest entry first, so that
    the learning rate means the same for every input and layer: w <- (w - rate g)+ and
    w <- w exp(-rate g). Gradients are overwritten.
    """
    rate = config.learning_rate / (1 + config.lr_decay * epoch)
    for parameter, gradient, square in zip(parameters, gradients, squares, strict=True):
        if config.weight_decay:
            gradient.add_(parameter, alpha=config.weight_decay)
        if config.solver == "adagrad":
            root = square.addcmul_(gradient, gradient).sqrt().add_(ADAGRAD_EPS)
            parameter.addcdiv_(gradient, root, value=-rate).clamp_(min=0)
            continue
        size = gradient.abs().flatten(1).amax(1).reshape(-1, *[1] * (gradient.ndim - 1))
        gradient.div_(size.clamp_min_(torch.finfo(gradient.dtype).tiny)).mul_(-rate)
        if config.solver == "mirror":
            parameter.mul_(gradient.exp_())
        else:
            parameter.add_(gradient).clamp_(min=0)


class Trainer:
    """A function in training: the objective and its gradient at the current parameters.

    Attributes:
        scorer: the function, whose parameters the solver moves in place.
        above: the parameters above the first layer, if they are trained.
        parameters: the tensors that are trained, [N, ...] each; the first layer's weights lead.
        copies: how many parameters of the full network an entry of each tensor stands for.
    """

    def __init__(self, data: TrainingData, config: SEAConfig, collapsed: bool) -> None:
        self.data, self.config = data, config
        per_map = data.sets.shape[1] // data.heatmaps.shape[1]
        self.set_weights = data.weights.repeat_interleave(per_map, 1)
        self.chains = find_chains(data.sets, data.budgets) if bool(data.budgets.any()) else None
        f = self.scorer = DSF(
            data.heatmaps.shape[2],
            config.widths,
            config.activation,
            config.bias,
            config.init,
            batch=1,
            seed=config.seed,
            collapsed=collapsed,
        ).to(data.heatmaps.device)
        f.batch = len(data.heatmaps)
        for p in f.parameters():  # all inputs start alike
            p.data = p.data.expand(f.batch, *p.shape[1:]).clone()
        trained = list(f.parameters()) if config.train == "all" else [f.weights[0]]
        self.above = trained[1:]
        self.parameters = [p.data for p in trained]
        self.copies = [f.copies[0], *(a * b for a, b in pairwise(f.copies)), *f.copies]

    def evaluate(self) -> tuple[Tensor, list[Tensor]]:
        """The objective at the current parameters, [N], and the gradient of each parameter.

        A shared number's gradient is the network's total over its copies, divided by them.
        """
        first = self.parameters[0].detach().requires_grad_()
        with torch.enable_grad():
            sums = [first.sum(2, keepdim=True), first @ self.data.heatmaps.mT]
            if self.chains is not None:
                length = self.chains.length
                if first.shape[1] == 1:  # the best sets by a sort, without their gains
                    best, _ = sort_features(first.detach().squeeze(1), length)
                else:
                    best = self.scorer.select(length).order
                sums.append(self.chains.add_up(first, best))
            z = torch.cat(sums, 2)
            loss = self.weigh(self.scorer.above(z))
        wanted = [first, z, *self.above]
        gradient, slopes, *above = torch.autograd.grad(loss.sum(), wanted, materialize_grads=True)
        if self.chains is not None and self.config.solver != "adagrad":
            # Terms that cancel leave rounding, of which solvers that divide by the largest entry
            # would make a full step. Adagrad does as well, as in the paper's form: it is left so.
            least = ROUNDING * slopes.abs().sum(2, keepdim=True)
            gradient = gradient.masked_fill(gradient.abs() <= least, 0)
        totals = [gradient, *above]
        return loss.detach(), [g.div_(k) for g, k in zip(totals, self.copies, strict=False)]

    def weigh(self, values: Tensor) -> Tensor:
        """The objective without its weight decay, [N].

        From f at 1, at the m heatmaps, at the R sets and at the R best sets, [N, 1 + m + 2R].
        """
        data, config = self.data, self.config
        m, r = data.heatmaps.shape[1], data.sets.shape[1] if self.chains is not None else 0
        ones, maps, sets, best = values.split([1, m, r, r], 1)
        # f should already be saturated on each heatmap [M2] ...
        loss: Tensor = config.heatmap_weight * (data.weights * (ones - maps)).sum(1)
        if r:  # ... and no set of the same size should be better than a binarised one [M3].
            missing = (config.margin + best - sets).clamp_min(0)
            loss = loss + config.margin_weight * (self.set_weights * missing).sum(1)
        if config.floor_weight:  # f = 0 is forbidden
            loss = loss + config.floor_weight * (1 - ones.squeeze(1)).clamp_min(0)
        return loss


class Chains(NamedTuple):
    """Sets that grow from row to row, as the top 5, 10, 15, … of a heatmap do.

    A chain of nested sets is one order of features, and each set is a prefix of it: its sum is an
    entry of a running sum. So are those of the best sets, the prefixes of greedy's order.
    """

    features: Tensor  # the orders of all chains, [N, chains * length]
    places: Tensor  # of the sets, then of the best sets, in all running sums, [N, 2 R]
    length: int

    def add_up(self, weight: Tensor, best: Tensor) -> Tensor:
        """Sums of weights [N, units, n] over sets and over prefixes of an order: [N, units, 2 R].

        The order, [N, length], is that of the best sets.
        """
        units = weight.shape[1]
        features, places = (
            index.unsqueeze(1).expand(-1, units, -1)
            for index in (torch.cat([self.features, best], 1), self.places)
        )
        running = weight.gather(2, features).unflatten(2, (-1, self.length)).cumsum(3)
        return pad(running, (1, 0)).flatten(2).gather(2, places)


def find_chains(sets: Tensor, budgets: Tensor) -> Chains:
    """The chains of sets, bool [N, R, n], and of best sets of these sizes, [N, R].

    Where sets do not grow, each is a chain of its own.
    """
    sizes = sets.sum(2, dtype=torch.int32).long()  # 10 times faster than int64
    length = int(torch.maximum(sizes, budgets).amax())
    starts = (sets[:, :-1] > sets[:, 1:]).any(2).any(0).nonzero().flatten() + 1
    chains = sets.tensor_split(starts.cpu(), dim=1)
    # Features that are in more sets of a chain come first; where a chain ends, any will do.
    orders = [c.sum(1, dtype=torch.int32).topk(length, dim=1).indices for c in chains]
    offset = [i * (length + 1) for i, c in enumerate(chains) for _ in range(c.shape[1])]
    places = sizes + torch.tensor(offset, device=sets.device)
    places = torch.cat([places, budgets + len(chains) * (length + 1)], 1)
    return Chains(torch.cat(orders, 1), places, length)


@torch.no_grad()
def restore(f: DSF, required: Tensor, forbidden: Tensor, epsilon: float) -> None:
    """Make f keep the axioms that are its constraints, in place [M8].

    Sensitivity(a), *required*: f(1) - f(1 - e_v) >= epsilon. f is submodular, so the gain of v is
    then at least epsilon in every context. Sensitivity(b), *forbidden*: f({v}) = f(0), so it is 0
    in all. Forbidden columns become 0.
    Required columns are raised to a common least level, found by bisection, so that their features
    keep a gain of at least ``epsilon``, in units of f. Masks are bool, [N, n].
    """
    columns = f.first_layer().detach().masked_fill_(forbidden.unsqueeze(1), 0)
    if not required.any():
        return
    start, unit = columns.clone(), columns.mean((1, 2), keepdim=True).clamp_min(1e-3)
    index = required.byte().topk(int(required.sum(1).amax()), dim=1).indices

    def raise_to(power: Tensor) -> Tensor:
        """Raise the required columns to a level; returns their least gain, [N, 1, 1]."""
        level = start.maximum(unit * power.exp2())
        columns.copy_(torch.where(required.unsqueeze(1), level, start))
        step = columns.gather(2, index.unsqueeze(1).expand(-1, columns.shape[1], -1))
        rest = (columns.sum(2, keepdim=True) - step).clamp_min(0)
        gains = f.rise_above(rest, step).where(required.gather(1, index), torch.inf)
        return gains.amin(1)[:, None, None]

    low, high = torch.full_like(unit, LEAST), torch.full_like(unit, MOST)
    gains = raise_to(high)
    if bool((gains < epsilon).any()):
        raise InputError(
            f"no weights give every required feature a gain of {epsilon:g}: the function "
            f"saturates at {float(gains.amin()):.3g}; lower epsilon or require fewer features"
        )
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = raise_to(middle) >= epsilon
        low, high = low.where(enough, middle), middle.where(enough, high)
    raise_to(high)

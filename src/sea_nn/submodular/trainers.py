"""What is trained and how its gradient is found: the collapsed twin, or the full network [M5]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.config import SEAConfig, check_init
from sea_nn.submodular.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.submodular.greedy import top_features
from sea_nn.submodular.lazy_greedy import GreedySearch
from sea_nn.submodular.objective import decay_term, floor_term, heatmap_term, margin_term
from sea_nn.submodular.upper_layers import take_rows, times

ROUNDING = 1e-13
"""A gradient below this share of the terms it sums up is rounding: some hundred terms cancelled."""


@dataclass(frozen=True)
class Supervision:
    """What f is learned from, for N inputs with n features.

    Attributes:
        heatmaps: [N, m, n], float64.
        weights: how much each heatmap counts, [N, m].
        sets: binarised heatmaps, bool [N, R, n]; R may be 0.
        budgets: size of the best set that each one is compared with, int64 [N, R].
        set_weights: how much each set counts, [N, R].
    """

    heatmaps: Tensor
    weights: Tensor
    sets: Tensor
    budgets: Tensor
    set_weights: Tensor


@dataclass
class Terms:
    """The value of each term of the objective at one epoch, [N] each."""

    heatmap: Tensor
    margin: Tensor
    floor: Tensor
    decay: Tensor


class Task(ABC):
    """A scorer in training.

    Attributes:
        scorer: the function, whose parameters the solver moves in place.
        parameters: the tensors that are trained, [N, ...] each.
        copies: how many parameters of the full network an entry of each tensor stands for, [] or
            one number an entry.
        layers: whether each tensor is one layer (True) or every entry is a layer of its own.
    """

    scorer: Scorer
    parameters: list[Tensor]
    copies: list[Tensor]
    layers: list[bool]

    def __init__(self, supervision: Supervision, config: SEAConfig) -> None:
        self.given, self.config = supervision, config
        budgets = supervision.budgets
        self.largest = int(budgets.amax()) if budgets.numel() else 0

    @abstractmethod
    def evaluate(self) -> tuple[Terms, list[Tensor]]:
        """The terms at the current parameters, and the gradient of each parameter."""

    def terms(self, values: Tensor) -> tuple[Terms, Tensor]:
        """The objective's terms and what is to be differentiated.

        Args:
            values: f at 1, at the m heatmaps, at the R sets and at the R best sets, [N, 1+m+2R].
        """
        given, config = self.given, self.config
        m, r = given.heatmaps.shape[1], given.sets.shape[1]
        ones, maps, sets, best = values.split([1, m, r, r], 1)
        ones = ones.squeeze(1)
        zero = torch.zeros_like(ones)
        heatmap = config.heatmap_weight * heatmap_term(ones, maps, given.weights)
        margin = floor = decay = zero
        if r:
            margin = margin_term(best, sets, given.set_weights, config.margin)
            margin = config.margin_weight * margin
        if config.floor_weight:
            floor = config.floor_weight * floor_term(ones)
        if config.weight_decay:
            decay = self.decay()
        loss = (heatmap + margin + floor).sum()
        return Terms(heatmap.detach(), margin.detach(), floor.detach(), decay), loss

    def _still(self, gradient: Tensor, slopes: Tensor) -> None:
        """Set to 0, in place, what rounding leaves where the terms cancel.

        Mirror descent and projected gradient divide by the largest entry, and would make a full
        step of it. Adagrad does as well, as it does in the paper's form, and is left alone.

        Args:
            gradient: of the first layer, [N, n] or [N, n, units].
            slopes: of the rows it is a sum of, [N, rows] or [N, rows, units].
        """
        if self.config.solver != "adagrad":
            gradient.masked_fill_(gradient.abs() <= ROUNDING * slopes.abs().sum(1, keepdim=True), 0)

    def decay(self) -> Tensor:
        """The regulariser, [N]."""
        counted = zip(self.parameters, self.copies, strict=True)
        return decay_term(counted, self.config.weight_decay)


class CollapsedTask(Task):
    """Training of f(x) = g(w.x + b): greedy is a selection of the largest weights."""

    def __init__(self, supervision: Supervision, config: SEAConfig) -> None:
        super().__init__(supervision, config)
        maps = supervision.heatmaps
        count, _, n = maps.shape
        depth, (start, _) = len(config.widths), check_init(config.init)
        # Scales and biases are views of one tensor, which the solver moves in one go.
        outer = maps.new_full((count, depth + (depth + 1 if config.bias else 0)), start)
        self.f = self.scorer = CollapsedDSF(
            maps.new_full((count, n), start),
            widths=config.widths,
            activation=config.activation,
            scale=outer[:, :depth],
            bias=outer[:, depth:] if config.bias else None,
        )
        self.rows = SetChains.find(supervision.sets) or SetRows(supervision.sets)
        self.gradient = torch.empty_like(self.f.weight.data)  # kept: fresh memory costs to touch
        sizes = (*config.widths, 1)
        self.parameters, self.layers = [self.f.weight.data], [True]
        self.copies = [maps.new_tensor(sizes[0])]
        self.outer: list[Tensor] = []
        if config.train == "all" and outer.shape[1]:
            self.outer = [p for p in (self.f.scale, self.f.bias) if p is not None]
            self.parameters.append(outer)
            self.layers.append(False)
            shared = [a * b for a, b in pairwise(sizes)] + list(sizes if config.bias else ())
            self.copies.append(maps.new_tensor(shared))

    def evaluate(self) -> tuple[Terms, list[Tensor]]:
        """A shared number's gradient is the network's total over its copies, divided by them."""
        given, weight = self.given, self.f.weight.data
        m, r = given.heatmaps.shape[1], given.sets.shape[1]
        maps = row_times(weight, given.heatmaps.mT)
        sums = [weight.sum(1, keepdim=True), maps]
        if r:
            top = top_features(weight, self.largest)
            running = pad(weight.gather(1, top).cumsum(1), (1, 0))
            sums += [self.rows.sums(weight), running.gather(1, given.budgets)]
        z = torch.cat(sums, 1).requires_grad_()
        with torch.enable_grad():
            terms, loss = self.terms(self.f.outer(z))
        slopes, *outer = torch.autograd.grad(loss, [z, *self.outer], materialize_grads=True)
        gradient = self.gradient.copy_(slopes[:, :1])
        gradient.unsqueeze(1).baddbmm_(slopes[:, None, 1 : 1 + m], given.heatmaps)
        if r:
            self.rows.add_back(gradient, slopes[:, 1 + m : 1 + m + r])
            # A feature of rank k is in every best set of more than k features.
            ends = torch.zeros_like(running).scatter_add_(1, given.budgets, slopes[:, 1 + m + r :])
            gradient.scatter_add_(1, top, ends[:, 1:].flip(1).cumsum(1).flip(1))
            self._still(gradient, slopes)
        totals = [gradient, torch.cat(outer, 1)] if outer else [gradient]
        return terms, [total.div_(k) for total, k in zip(totals, self.copies, strict=True)]


class SetRows:
    """The sets' incidence restricted to the features that occur in any of them.

    Sets of 50 out of 50,000 features touch few columns: sums over the sets, and the way back from
    sets to features, then cost R x u instead of R x n.
    """

    def __init__(self, sets: Tensor) -> None:
        used = sets.any(1)
        width = int(used.sum(1).amax()) if sets.numel() else 0
        self.support: Tensor | None = None
        if width <= sets.shape[2] // 2:
            self.support = used.byte().topk(width, dim=1).indices
            self.index = _pairs(self.support)
            sets = sets.gather(2, self.support.unsqueeze(1).expand(-1, sets.shape[1], -1))
        self.rows = sets.to(torch.float64)

    def sums(self, weight: Tensor) -> Tensor:
        """Sum of the weights in each set: [N, n] -> [N, R]."""
        picked = weight if self.support is None else weight.gather(1, self.support)
        return row_times(picked, self.rows.mT)

    def add_back(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v] += the slopes of the sets that hold v, in place."""
        part = row_times(slopes, self.rows)
        if self.support is None:
            gradient.add_(part)
        else:
            gradient.scatter_add_(1, self.support, part)

    def sum_columns(self, columns: Tensor) -> Tensor:
        """Sum of the features' columns in each set: [N, n, units] -> [N, R, units]."""
        picked = columns if self.support is None else take_rows(columns, self.support)
        return times(self.rows, picked)

    def add_back_columns(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v, u] += slopes[r, u] of the sets r that hold v, in place."""
        part = times(self.rows.mT, slopes)
        if self.support is None:
            gradient.add_(part)
        else:
            gradient[self.index] += part  # no feature occurs twice


class SetChains:
    """Sets that grow from row to row, as the top 5, 10, 15, … of a heatmap do.

    A chain of nested sets is one order of features, and each set is a prefix of it: its sum is
    an entry of a running sum.
    """

    def __init__(self, sets: Tensor, starts: list[int]) -> None:
        self.sizes = sets.sum(2, dtype=torch.int32).long()  # 10 times faster than int64
        ends = [*starts[1:], sets.shape[1]]
        self.length = int(self.sizes.amax())
        # Features that are in more sets of a chain come first; where a chain ends, any will do.
        self.orders = [
            sets[:, a:b].sum(1, dtype=torch.int32).topk(self.length, dim=1).indices
            for a, b in zip(starts, ends, strict=True)
        ]
        self.every = torch.cat(self.orders, 1)
        chain = [i for i, (a, b) in enumerate(zip(starts, ends, strict=True)) for _ in range(a, b)]
        offset = torch.tensor(chain, device=sets.device) * (self.length + 1)
        self.places = self.sizes + offset  # in the running sums of all chains, side by side

    @classmethod
    def find(cls, sets: Tensor) -> SetChains | None:
        """The chains in sets [N, R, n], if they are few beside the sets."""
        if not sets.numel():
            return None
        grows = (sets[:, :-1] <= sets[:, 1:]).all(2).all(0).tolist()
        starts = [0, *(r + 1 for r, grown in enumerate(grows) if not grown)]
        return cls(sets, starts) if 4 * len(starts) <= sets.shape[1] else None

    def sums(self, weight: Tensor) -> Tensor:
        """Sum of the weights in each set: [N, n] -> [N, R]."""
        taken = weight.gather(1, self.every).view(-1, len(self.orders), self.length)
        return pad(taken.cumsum(2), (1, 0)).flatten(1).gather(1, self.places)

    def add_back(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v] += the slopes of the sets that hold v, in place."""
        ends = slopes.new_zeros(len(slopes), len(self.orders) * (self.length + 1))
        ends.scatter_add_(1, self.places, slopes)
        parts = ends.view(-1, len(self.orders), self.length + 1)[..., 1:]
        parts = parts.flip(2).cumsum(2).flip(2)  # a prefix's slope goes to all before its end
        for i, order in enumerate(self.orders):  # one by one: no feature occurs twice in an order
            gradient.scatter_add_(1, order, parts[:, i])


def row_times(rows: Tensor, matrices: Tensor) -> Tensor:
    """Each row by its own matrix, [N, k] and [N, k, c] -> [N, c].

    The other way round, matrix by column, the same product takes five times as long on a CPU.
    """
    return torch.bmm(rows.unsqueeze(1), matrices).squeeze(1)


def _pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """Features [N, k] as an index (input, feature) into a tensor [N, n, ...]."""
    return torch.arange(len(features), device=features.device)[:, None], features


class NetworkTask(Task):
    """Training of N full networks at once, for starts that differ from unit to unit.

    The gradient is written out, because the rows share most of their work: sets touch few features,
    and the best sets are prefixes of one order, equal for all sets of the same size.
    """

    def __init__(self, supervision: Supervision, config: SEAConfig) -> None:
        super().__init__(supervision, config)
        maps = supervision.heatmaps
        start = DSF(
            maps.shape[2],
            config.widths,
            config.activation,
            config.bias,
            config.init,
            seed=config.seed,
            device=maps.device,
        )
        self.f = self.scorer = start.repeat(len(maps))  # all inputs start alike, so chunks agree
        self.f.requires_grad_(False)
        # A feature's column lies together in memory, as training and greedy read it.
        self.columns = self.f.weights[0].data.mT.contiguous()
        self.f.weights[0].data = self.columns.mT
        self.parameters = [self.columns]
        self.gradient = torch.empty_like(self.columns)  # kept: fresh memory costs more to touch
        if config.train == "all":
            self.parameters += [p.data for p in (*list(self.f.weights)[1:], *self.f.biases)]
        self.copies = [maps.new_tensor(1.0)] * len(self.parameters)
        self.layers = [True] * len(self.parameters)
        self.rows = torch.cat([torch.ones_like(maps[:, :1]), maps], 1)
        self.sets = SetRows(supervision.sets)
        self.search: GreedySearch | None = None
        self.sizes, self.which = supervision.budgets, None
        if supervision.budgets.numel():
            sizes, which = supervision.budgets.unique(return_inverse=True)
            if len(sizes) < supervision.budgets.shape[1]:
                self.sizes, self.which = sizes.expand(len(maps), -1), which

    def evaluate(self) -> tuple[Terms, list[Tensor]]:
        """Greedy for the best sets, then one pass forward and one back over all rows."""
        order = self._best_order()
        sums = [times(self.rows, self.columns)]
        if order is not None:
            # A feature of rank k is in every best set of more than k features.
            taken = _pairs(order)
            rank = torch.arange(self.largest, device=order.device)
            best = (rank < self.sizes.unsqueeze(2)).to(self.columns)
            sums.append(self.sets.sum_columns(self.columns))
            sums.append(times(best, take_rows(self.columns, order)))
        parts = [part.shape[1] for part in sums]
        layers = self.f.finish(torch.cat(sums, 1) + self.f.offset(0))
        terms, slopes = self._value_slopes(layers[-1].squeeze(2))
        upper, biases, slopes = self._step_back(layers, slopes.unsqueeze(2))
        dense, *sparse = slopes.split(parts, 1)
        gradient = times(self.rows.mT, dense, out=self.gradient)
        if sparse and order is not None:
            self.sets.add_back_columns(gradient, sparse[0])
            gradient[taken] += times(best.mT, sparse[1])
            self._still(gradient, slopes)
        gradients = [gradient, *upper, *biases]
        return terms, gradients[: len(self.parameters)]

    def _best_order(self) -> Tensor | None:
        if not self.given.sets.shape[1]:
            return None
        self.search = GreedySearch(self.f, last=self.search)
        return self.search.run(self.largest)[0]

    def _value_slopes(self, values: Tensor) -> tuple[Terms, Tensor]:
        """The terms at the values of all rows, and the slope of the objective at each value."""
        given, config = self.given, self.config
        m, r = given.heatmaps.shape[1], given.sets.shape[1]
        ones, maps, sets, best = values.split([1, m, r, values.shape[1] - 1 - m - r], 1)
        rival = best if self.which is None else best.gather(1, self.which)
        terms, _ = self.terms(torch.cat([ones, maps, sets, rival], 1))
        on_maps = config.heatmap_weight * given.weights
        on_ones = on_maps.sum(1, keepdim=True) - config.floor_weight * (ones <= 1)
        violated = config.margin + rival - sets >= 0
        on_sets = config.margin_weight * given.set_weights * violated
        on_best = on_sets
        if self.which is not None:
            on_best = torch.zeros_like(best).scatter_add_(1, self.which, on_sets)
        return terms, torch.cat([on_ones, -on_maps, -on_sets, on_best], 1)

    def _step_back(
        self, layers: list[Tensor], slopes: Tensor
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """From slopes at the values to gradients of upper weights, all biases, and first sums."""
        head = self.f.head()
        weights: list[Tensor] = []
        biases = [slopes.sum(1)]
        for layer in range(len(head.weights) - 1, -1, -1):
            hidden = head.activation.value(layers[layer])
            weights.insert(0, times(slopes.mT, hidden))
            slopes = times(slopes, head.weights[layer]) * head.activation.slope(layers[layer])
            biases.insert(0, slopes.sum(1))
        return weights, biases, slopes

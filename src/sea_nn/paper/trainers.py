"""Functions in training: the objective and its gradient [M5].

``CollapsedTrainer`` trains f(x) = g(w.x + b), ``NetworkTrainer`` the full network; a solver
(``sea_nn.paper.solvers``) takes the steps.
"""

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.config import SEAConfig, check_init
from sea_nn.paper.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.paper.greedy_search import GreedySearch
from sea_nn.paper.objective import (
    ObjectiveTerms,
    TrainingData,
    decay_term,
    floor_term,
    heatmap_term,
    margin_term,
)
from sea_nn.paper.set_sums import SetChains, SetRows, index_pairs, row_times
from sea_nn.paper.ties import top_features
from sea_nn.paper.upper_layers import take_rows, times

ROUNDING = 1e-13
"""A gradient below this share of the terms it sums up is rounding: some hundred terms cancelled."""


class Trainer(ABC):
    """A function in training: the objective's terms and its gradient at the current parameters.

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

    def __init__(self, data: TrainingData, config: SEAConfig) -> None:
        self.data, self.config = data, config
        budgets = data.budgets
        self.largest = int(budgets.amax()) if budgets.numel() else 0

    @abstractmethod
    def evaluate(self) -> tuple[ObjectiveTerms, list[Tensor]]:
        """The terms at the current parameters, and the gradient of each parameter."""

    def terms(self, values: Tensor) -> tuple[ObjectiveTerms, Tensor]:
        """The objective's terms and what is to be differentiated.

        From f at 1, at the m heatmaps, at the R sets and at the R best sets, [N, 1 + m + 2R].
        """
        data, config = self.data, self.config
        m, r = data.heatmaps.shape[1], data.sets.shape[1]
        ones, maps, sets, best = values.split([1, m, r, r], 1)
        ones = ones.squeeze(1)
        zero = torch.zeros_like(ones)
        heatmap = config.heatmap_weight * heatmap_term(ones, maps, data.weights)
        margin = floor = decay = zero
        if r:
            margin = margin_term(best, sets, data.set_weights, config.margin)
            margin = config.margin_weight * margin
        if config.floor_weight:
            floor = config.floor_weight * floor_term(ones)
        if config.weight_decay:
            decay = self.decay()
        loss = (heatmap + margin + floor).sum()
        return ObjectiveTerms(heatmap.detach(), margin.detach(), floor.detach(), decay), loss

    def _drop_rounding(self, gradient: Tensor, slopes: Tensor) -> None:
        """Set to 0, in place, gradients that are rounding alone: their terms cancel.

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


class CollapsedTrainer(Trainer):
    """Training of f(x) = g(w.x + b): greedy is a selection of the largest weights."""

    def __init__(self, data: TrainingData, config: SEAConfig) -> None:
        super().__init__(data, config)
        maps = data.heatmaps
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
        self.rows = SetChains.find(data.sets) or SetRows(data.sets)
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

    def evaluate(self) -> tuple[ObjectiveTerms, list[Tensor]]:
        """A shared number's gradient is the network's total over its copies, divided by them."""
        data, weight = self.data, self.f.weight.data
        m, r = data.heatmaps.shape[1], data.sets.shape[1]
        maps = row_times(weight, data.heatmaps.mT)
        sums = [weight.sum(1, keepdim=True), maps]
        if r:
            top = top_features(weight, self.largest)
            running = pad(weight.gather(1, top).cumsum(1), (1, 0))
            sums += [self.rows.sums(weight), running.gather(1, data.budgets)]
        z = torch.cat(sums, 1).requires_grad_()
        with torch.enable_grad():
            terms, loss = self.terms(self.f.outer(z))
        slopes, *outer = torch.autograd.grad(loss, [z, *self.outer], materialize_grads=True)
        gradient = self.gradient.copy_(slopes[:, :1])
        gradient.unsqueeze(1).baddbmm_(slopes[:, None, 1 : 1 + m], data.heatmaps)
        if r:
            self.rows.add_back(gradient, slopes[:, 1 + m : 1 + m + r])
            # A feature of rank k is in every best set of more than k features.
            ends = torch.zeros_like(running).scatter_add_(1, data.budgets, slopes[:, 1 + m + r :])
            gradient.scatter_add_(1, top, ends[:, 1:].flip(1).cumsum(1).flip(1))
            self._drop_rounding(gradient, slopes)
        totals = [gradient, torch.cat(outer, 1)] if outer else [gradient]
        return terms, [total.div_(k) for total, k in zip(totals, self.copies, strict=True)]


class NetworkTrainer(Trainer):
    """Training of N full networks at once, for starts that differ from unit to unit.

    The gradient is written out, because the rows share most of their work: sets touch few features,
    and the best sets are prefixes of one order, equal for all sets of the same size.
    """

    def __init__(self, data: TrainingData, config: SEAConfig) -> None:
        super().__init__(data, config)
        maps = data.heatmaps
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
        self.sets = SetRows(data.sets)
        self.search: GreedySearch | None = None
        self.sizes, self.which = data.budgets, None
        if data.budgets.numel():
            sizes, which = data.budgets.unique(return_inverse=True)
            if len(sizes) < data.budgets.shape[1]:
                self.sizes, self.which = sizes.expand(len(maps), -1), which

    def evaluate(self) -> tuple[ObjectiveTerms, list[Tensor]]:
        """Greedy for the best sets, then one pass forward and one back over all rows."""
        order = self._best_order()
        sums = [times(self.rows, self.columns)]
        if order is not None:
            # A feature of rank k is in every best set of more than k features.
            taken = index_pairs(order)
            rank = torch.arange(self.largest, device=order.device)
            best = (rank < self.sizes.unsqueeze(2)).to(self.columns)
            sums.append(self.sets.sum_columns(self.columns))
            sums.append(times(best, take_rows(self.columns, order)))
        parts = [part.shape[1] for part in sums]
        layers = self.f.upper_layers().sums(torch.cat(sums, 1) + self.f.offset(0))
        terms, slopes = self._value_slopes(layers[-1].squeeze(2))
        upper, biases, slopes = self._step_back(layers, slopes.unsqueeze(2))
        dense, *sparse = slopes.split(parts, 1)
        gradient = times(self.rows.mT, dense, out=self.gradient)
        if sparse and order is not None:
            self.sets.add_back_columns(gradient, sparse[0])
            gradient[taken] += times(best.mT, sparse[1])
            self._drop_rounding(gradient, slopes)
        gradients = [gradient, *upper, *biases]
        return terms, gradients[: len(self.parameters)]

    def _best_order(self) -> Tensor | None:
        if not self.data.sets.shape[1]:
            return None
        self.search = GreedySearch(
            self.columns, self.f.offset(0), self.f.upper_layers(), last=self.search
        )
        return self.search.run(self.largest)[0]

    def _value_slopes(self, values: Tensor) -> tuple[ObjectiveTerms, Tensor]:
        """The terms at the values of all rows, and the slope of the objective at each value."""
        data, config = self.data, self.config
        m, r = data.heatmaps.shape[1], data.sets.shape[1]
        ones, maps, sets, best = values.split([1, m, r, values.shape[1] - 1 - m - r], 1)
        rival = best if self.which is None else best.gather(1, self.which)
        terms, _ = self.terms(torch.cat([ones, maps, sets, rival], 1))
        on_maps = config.heatmap_weight * data.weights
        on_ones = on_maps.sum(1, keepdim=True) - config.floor_weight * (ones <= 1)
        violated = config.margin + rival - sets >= 0
        on_sets = config.margin_weight * data.set_weights * violated
        on_best = on_sets
        if self.which is not None:
            on_best = torch.zeros_like(best).scatter_add_(1, self.which, on_sets)
        return terms, torch.cat([on_ones, -on_maps, -on_sets, on_best], 1)

    def _step_back(
        self, layers: list[Tensor], slopes: Tensor
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """From slopes at the values to gradients of upper weights, all biases, and first sums."""
        upper = self.f.upper_layers()
        weights: list[Tensor] = []
        biases = [slopes.sum(1)]
        for layer in range(len(upper.weights) - 1, -1, -1):
            hidden = upper.activation.value(layers[layer])
            weights.insert(0, times(slopes.mT, hidden))
            slopes = times(slopes, upper.weights[layer]) * upper.activation.slope(layers[layer])
            biases.insert(0, slopes.sum(1))
        return weights, biases, slopes

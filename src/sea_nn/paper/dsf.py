"""Deep submodular functions, and what is read off them [M1].

A DSF is a feed-forward network with non-negative parameters and concave non-decreasing
activations. On {0,1}^n it is monotone submodular; on [0,1]^n it is monotone concave.

>>> import torch
>>> f = DSF(4, widths=(3,), init=(0.0, 1.0), seed=0)
>>> a, b = torch.tensor([1.0, 0, 0, 0]), torch.tensor([1.0, 1, 1, 0])
>>> v = torch.tensor([0.0, 0, 0, 1])
>>> bool(f(a + v) - f(a) >= f(b + v) - f(b))
True
>>> maximize(f, budget=2).order.shape
torch.Size([2])
"""

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sea_nn.config import (
    PAPER_WIDTHS,
    Init,
    check_choice,
    check_init,
    check_seed,
    check_sizes,
    check_whole,
)
from sea_nn.errors import InputError, KindError
from sea_nn.features import read_tensor
from sea_nn.paper.exact import TIE, parse_activation, round_bits, sort_features, times

METHODS = ("auto", "naive", "lazy")
SLACK = 1 - 4 * TIE
"""A bound below this share of a gain can neither beat it nor tie with it."""
BLOCK = 8
"""How many features are evaluated first at each step."""


class Selection(NamedTuple):
    """Features as greedy took them and what each one added; [k], or [N, k] for a batch."""

    order: Tensor
    gains: Tensor


class DSF(nn.Module):
    """A deep submodular function f: x[..., n] -> [...], or a batch of independent ones [M1].

    Parameters are float64; ``copies`` has how many units each unit of a layer stands for.

    Args:
        n: number of features.
        widths: hidden widths; ``()`` is a modular (additive) function.
        activation: "sqrt", "log1p" or "power:p" (see ``sea_nn.paper.exact``).
        bias: give every layer a bias (as the paper's layers have).
        init: "ones", or (low, high) for uniform draws; low must be >= 0.
        batch: hold this many independent functions; then x is [batch, ..., n].
        seed: seed of the uniform draws.
        collapsed: hold one unit a layer, which stands for all of the layer's width. That is what a
            network with equal units is: f(x) = g(w.x + b) with a scalar concave g (docs/math.md).
    """

    def __init__(
        self,
        n: int,
        widths: Sequence[int] = PAPER_WIDTHS,
        activation: str = "sqrt",
        bias: bool = True,
        init: Init = "ones",
        *,
        batch: int | None = None,
        seed: int = 0,
        collapsed: bool = False,
    ) -> None:
        super().__init__()
        check_whole("n", n, 1)
        check_sizes("widths", widths)
        if batch is not None:
            check_whole("batch", batch, 0)
        self.n, self.batch, self.widths = n, batch, tuple(widths)
        self.activation = parse_activation(activation)
        low, high = check_init(init)
        generator = torch.Generator().manual_seed(check_seed(seed))

        def parameter(*shape: int) -> nn.Parameter:
            shape = self.lead + shape
            if low == high:
                return nn.Parameter(torch.full(shape, low, dtype=torch.float64))
            draw = torch.rand(shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(low + (high - low) * draw)

        full = (*self.widths, 1)
        one = (1,) * len(full)
        self.copies: tuple[int, ...] = full if collapsed else one
        units = one if collapsed else full
        pairs = list(zip(units, (n, *units), strict=False))
        self.weights = nn.ParameterList([parameter(out, inn) for out, inn in pairs])
        self.biases = nn.ParameterList([parameter(out) for out, _ in pairs] if bias else [])

    @property
    def count(self) -> int:
        """How many functions this is: 1, or N for a batch."""
        return 1 if self.batch is None else self.batch

    @property
    def lead(self) -> tuple[int, ...]:
        """The axis of functions, N, before those of x and of values; none of one function."""
        return () if self.batch is None else (self.batch,)

    def first_layer(self) -> Tensor:
        """The first layer's weights [N, units, n], sharing this function's memory."""
        first: Tensor = self.weights[0]
        return first.reshape(self.count, first.shape[-2], self.n)

    def upper_weights(self) -> list[Tensor]:
        """Those of layers 2, 3, …, [N, out, in] each, times the copies of what is below."""
        weights = [w.reshape(self.count, *w.shape[-2:]) for w in list(self.weights)[1:]]
        return [w * k if k > 1 else w for w, k in zip(weights, self.copies, strict=False)]

    def forward(self, x: Tensor) -> Tensor:
        """f(x): [..., n] -> [...], or [N, ..., n] -> [N, ...] for a batch of N functions."""
        x = self._as_input(x)
        rows = x.reshape(self.count, math.prod(x.shape[len(self.lead) : -1]), self.n)
        return self.above(times(self.first_layer(), rows.mT)).reshape(x.shape[:-1])

    def above(self, z: Tensor) -> Tensor:
        """f from the first layer's sums without its bias: [N, units, k] -> [N, k]."""
        return self.sums(z.mT)[-1].squeeze(2)

    def rise_above(self, z: Tensor, step: Tensor) -> Tensor:
        """What adding step[N, units, k] to these sums adds to f, without cancellation: [N, k]."""
        return self.rises(self.sums(z.mT), step.mT)[-1].squeeze(2)

    def sums(self, z: Tensor) -> list[Tensor]:
        """From the first layer's sums without its bias [N, r, units]: each layer's, value last.

        Training and greedy keep the first layer's sums, because adding a feature there is adding a
        column. The activation stands before each layer above the first.
        """
        biases = [b.reshape(self.count, 1, b.shape[-1]) for b in self.biases]
        every = [z + biases[0] if biases else z]
        for layer, weight in enumerate(self.upper_weights(), start=1):
            z = times(self.activation.value(every[-1]), weight.mT)
            every.append(z + biases[layer] if biases else z)
        return every

    def rises(self, sums: list[Tensor], step: Tensor) -> list[Tensor]:
        """What adding step[N, r, units] to the first layer's sums adds to every layer's.

        ``sums`` are every layer's before, [N, r or 1, width] each. Nothing cancels.
        """
        rises = [step]
        for z, weight in zip(sums, self.upper_weights(), strict=False):
            rises.append(times(self.activation.rise(z, rises[-1]), weight.mT))
        return rises

    @torch.no_grad()
    def select(self, budget: int, *, bounded: bool = True, remove_ties: bool = False) -> Selection:
        """The first ``budget`` features that greedy takes and their gains, [N, budget] each [M4].

        Args:
            budget: at most n.
            bounded: evaluate only features whose upper bound reaches the best gain, else all; the
                answer is the same.
            remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        """
        first = self.first_layer()
        if first.shape[1] > 1:
            return _search(self, budget, bounded, remove_ties)
        weight = first.squeeze(1)  # of one unit the largest weight has the largest gain
        order, groups = sort_features(weight, budget)
        leads = torch.ones_like(groups, dtype=torch.bool)
        if remove_ties:  # only the first of those that tie is added to what is taken
            leads[:, 1:] = groups[:, 1:] != groups[:, :-1]
        taken = weight.gather(1, order) * leads
        before = taken.cumsum(1) - taken
        gains = self.rise_above(before.unsqueeze(1), taken.unsqueeze(1))
        place = torch.arange(budget, device=order.device).expand_as(order)
        return Selection(order, gains.gather(1, torch.where(leads, place, 0).cummax(1).values))

    def top(self, p: int) -> Tensor:
        """The p features that greedy takes first [M10]: [p], or [N, p] for a batch."""
        return maximize(self, p).order

    def slope(self, x: Tensor) -> Tensor:
        """The gradient of f at x, which bounds every gain from above: x[..., n] -> [..., n].

        f is concave, so f(A + v) - f(A) <= slope(1_A)[v] for every v outside A.
        """
        with torch.enable_grad():
            point = self._as_input(x).detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self(point).sum(), point)
        return gradient

    def _as_input(self, x: Tensor) -> Tensor:
        x = read_tensor(x, "x must be a tensor of numbers").to(self.weights[0])
        k = len(self.lead)
        if x.ndim <= k or (*x.shape[:k], x.shape[-1]) != (*self.lead, self.n):
            axes = "..." if self.batch is None else f"{self.batch}, ..."
            raise InputError(
                f"x must be [{axes}, {self.n}], the {self.n} features for {self.count} functions; "
                f"got shape {tuple(x.shape)}"
            )
        return x


def join(parts: Sequence[DSF]) -> DSF:
    """Several batches of functions of one architecture as one batch."""
    whole = deepcopy(parts[0])
    whole.batch = sum(part.count for part in parts)
    for own, *same in zip(*(scorer.parameters() for scorer in (whole, *parts)), strict=True):
        own.data = torch.cat(same).detach()
    return whole


def _search(f: DSF, budget: int, bounded: bool, remove_ties: bool) -> Selection:
    """Greedy search in any DSF; see ``DSF.select``."""
    columns = f.first_layer().mT.contiguous()  # [N, n, units]: a feature's weights lie together
    count, n, units = columns.shape
    sizes = round_bits(columns.mean(2))  # among tied gains the larger column goes first
    sums = columns.new_zeros(count, 1, units)
    lead = torch.arange(count, device=columns.device)[:, None]
    free = torch.ones(count, n, dtype=torch.bool, device=columns.device)
    place, gain = torch.full_like(sizes, n), columns.new_zeros(count, n)
    placed = torch.zeros_like(lead)
    while count and int(placed.amin()) < budget:
        layers = f.sums(sums)
        if bounded:
            gains = _evaluate_contenders(f, columns, layers, free)
        else:
            gains = f.rises(layers, columns)[-1].squeeze(2).masked_fill(~free, -torch.inf)
        best = gains.amax(1, keepdim=True)
        ties = free & (gains >= best * (1 - TIE))
        size = torch.where(ties, sizes, -1)
        ties &= size == size.amax(1, keepdim=True)
        chosen = ties.byte().argmax(1, keepdim=True)
        taken = ties
        if not remove_ties:
            taken = torch.zeros_like(ties).scatter_(1, chosen, ties.any(1, keepdim=True))
        if not bool((taken.any(1) | ~free.any(1)).all()):
            raise InputError(
                "no feature has the largest gain: f's gains are not numbers; look for NaN or "
                "infinite weights"
            )
        place = torch.where(taken, placed + taken.cumsum(1) - 1, place)
        gain = torch.where(taken, best, gain)
        placed += taken.sum(1, keepdim=True)
        free &= ~taken
        sums = sums + columns[lead, chosen]
    order = place.sort(dim=1, stable=True).indices[:, :budget]
    return Selection(order, gain.gather(1, order))


def _evaluate_contenders(f: DSF, columns: Tensor, layers: list[Tensor], free: Tensor) -> Tensor:
    """The gains [N, n] of all features that could win or tie, from every layer's sums; else -inf.

    f is concave in the first layer's sums, so its tangent lies above it. Taken where the *average*
    feature leads, it bounds all gains in one product, and sharply, because features differ little
    from their average. The largest bounds are evaluated first, then all that reach the best gain.
    """
    average = columns.mean(1, keepdim=True)
    rises = f.rises(layers, average)
    slope = torch.ones_like(rises[-1])
    weights = f.upper_weights()
    for z, rise, weight in zip(layers[-2::-1], rises[-2::-1], weights[::-1], strict=True):
        slope = times(slope, weight) * f.activation.slope(z + rise)
    # Both parts of a bound are positive; its rounding is a share of the larger numbers in them.
    widest = max(z.shape[2] for z in layers)
    rounding = 4 * widest * len(layers) * torch.finfo(columns.dtype).eps
    above = rises[-1] * (1 + rounding) - (slope * average).sum(2, keepdim=True)
    bounds = (times(slope, columns.mT) * (1 + rounding) + above).squeeze(1)
    bounds = bounds.masked_fill(~free, -torch.inf)
    lead = torch.arange(len(columns), device=columns.device)[:, None]
    width, contenders = 0, BLOCK
    while width < contenders:
        width = min(contenders, columns.shape[1])
        pool = bounds.topk(width, dim=1).indices
        found = f.rises(layers, columns[lead, pool])[-1].squeeze(2)
        found = torch.where(free.gather(1, pool), found, -torch.inf)
        best = found.amax(1, keepdim=True)
        contenders = int((~(bounds < SLACK * best) & free).sum(1).amax())  # NaN rules nothing out
    return torch.full_like(bounds, -torch.inf).scatter_(1, pool, found)


@torch.no_grad()
def maximize(f: DSF, budget: int, method: str = "auto") -> Selection:
    """Greedily maximise f under |A| <= budget; f(A) is at least (1 - 1/e) of the optimum [M4, M10].

    Args:
        f: one function or a batch.
        budget: how many features to take; more than there are is clipped, with a warning.
        method: "naive" evaluates every candidate at every step, "lazy" only those whose upper
            bound reaches the best gain; "auto" is the faster. All give the same answer.

    Returns:
        ``Selection(order, gains)``, [k] each, or [N, k] for a batch.
    """
    check_choice("method", method, METHODS)
    if not isinstance(f, DSF):
        raise KindError(f"maximize takes a DSF; got {type(f).__name__}")
    check_whole("budget", budget, 0)
    if budget > f.n:
        warnings.warn(f"budget {budget} was clipped to the {f.n} features there are", stacklevel=3)
    found = f.select(min(budget, f.n), bounded=method != "naive")
    return Selection(*(part.reshape(*f.lead, part.shape[1]) for part in found))


@torch.no_grad()
def attribute(f: DSF, remove_ties: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Take the best feature, give its gain to all that tie with it, go on [M6].

    The authors' code leaves tied features in (``remove_ties=False``). Returns order, gains and the
    map, [N, n] each, with map[order[k]] = gains[k].

    >>> f = DSF(3, widths=(1,), bias=False)
    >>> f.weights[0].data = torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64)
    >>> order, gains, values = attribute(f)
    >>> order.tolist(), [round(v, 2) for v in gains[0].tolist()]
    ([[0, 1, 2]], [2.0, 0.24, 0.0])
    """
    order, gains = f.select(f.n, remove_ties=remove_ties)
    return order, gains, torch.zeros_like(gains).scatter_(1, order, gains)


def lipschitz(f: DSF) -> Tensor:
    """The smallest L with |f(x) - f(y)| <= L |x - y| on [0,1]^n, Euclidean norm: [], or [N] [M11].

    The gradient of a DSF is non-negative and falls in every coordinate, so its norm is largest at
    the origin: L = |grad f(0)|, with no slack (docs/math.md).

    >>> f = DSF(16, widths=(8,), init=(0.1, 1.0))
    >>> bool(estimate_lipschitz(f, pairs=1000) <= lipschitz(f))
    True
    """
    steepest: Tensor = f.slope(torch.zeros(*f.lead, f.n)).norm(dim=-1)
    return steepest


@torch.no_grad()
def estimate_lipschitz(f: DSF, pairs: int = 10**6, seed: int = 0) -> Tensor:
    """The largest |f(x) - f(y)| / |x - y| over random pairs from [0,1]^n: [], or [N]."""
    check_whole("pairs", pairs, 1)
    first = f.first_layer()
    generator = torch.Generator(first.device).manual_seed(check_seed(seed))
    chunk = max(1, (64 << 20) // (16 * f.n * f.count))
    largest = first.new_zeros(f.lead)
    for start in range(0, pairs, chunk):
        size = (2, *f.lead, min(chunk, pairs - start), f.n)
        x, y = first.new_empty(size).uniform_(generator=generator)
        ratio = (f(x) - f(y)).abs() / (x - y).norm(dim=-1)
        largest = torch.maximum(largest, ratio.amax(-1))
    return largest

"""Deep submodular functions, their collapsed form, and what is read off them [M1].

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
import operator
import warnings
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from sea_nn.config import PAPER_WIDTHS, Init, check_init, check_seed, check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.paper.greedy import Selection, sort_features, take_greedily
from sea_nn.paper.layers import UpperLayers, parse_activation, times


METHODS = ("auto", "naive", "lazy")


class DSF(nn.Module):
    """A deep submodular function f: x[..., n] -> [...], or a batch of independent ones [M1].

    Parameters are float64; ``copies`` has how many units each unit of a layer stands for.

    Args:
        n: number of features.
        widths: hidden widths; ``()`` is a modular (additive) function.
        activation: "sqrt", "log1p" or "power:p" (see ``sea_nn.paper.layers``).
        bias: give every layer a bias (as the paper's layers have).
        init: "ones", or (low, high) for uniform draws; low must be >= 0.
        batch: hold this many independent functions; then x is [batch, ..., n].
        seed: seed of the uniform draws.
        collapsed: hold one unit a layer, which stands for all of its width; see ``CollapsedDSF``.
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
        if not isinstance(widths, (tuple, list)):
            raise InputError(f"widths must be a list of hidden widths, as (8, 4); got {widths!r}")
        check_whole("n", n, 1)
        for width in widths:
            check_whole("each of widths", width, 1)
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
        units, self.copies = (one, full) if collapsed else (full, one)
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

    def upper_layers(self) -> UpperLayers:
        """All biases, and the weights above the first layer, each times the copies below it."""
        weights = [w.reshape(self.count, *w.shape[-2:]) for w in list(self.weights)[1:]]
        weights = [w * k if k > 1 else w for w, k in zip(weights, self.copies, strict=False)]
        biases = [b.reshape(self.count, 1, b.shape[-1]) for b in self.biases]
        return UpperLayers(self.activation, weights, biases)

    def forward(self, x: Tensor) -> Tensor:
        """f(x): [..., n] -> [...], or [N, ..., n] -> [N, ...] for a batch of N functions."""
        x = self._as_input(x)
        rows = x.reshape(self.count, math.prod(x.shape[len(self.lead) : -1]), self.n)
        return self.above(times(self.first_layer(), rows.mT)).reshape(x.shape[:-1])

    def above(self, z: Tensor) -> Tensor:
        """f from the first layer's sums without its bias: [N, units, k] -> [N, k]."""
        return self.upper_layers().sums(z.mT)[-1].squeeze(2)

    def rise_above(self, z: Tensor, step: Tensor) -> Tensor:
        """What adding step[N, units, k] to these sums adds to f, without cancellation: [N, k]."""
        upper = self.upper_layers()
        return upper.rises(upper.sums(z.mT), step.mT)[-1].squeeze(2)

    @torch.no_grad()
    def select(self, budget: int, *, bounded: bool = True, remove_ties: bool = False) -> Selection:
        """The first ``budget`` features that greedy takes and their gains, [N, budget] each [M4].

        Args:
            budget: at most n.
            bounded: use upper bounds where there are many candidates; the answer is the same.
            remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        """
        first, upper = self.first_layer(), self.upper_layers()
        if first.shape[1] > 1:
            columns = first.mT.contiguous()  # a feature's weights lie together
            return take_greedily(columns, upper, budget, bounded=bounded, remove_ties=remove_ties)
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
        try:
            x = torch.as_tensor(x).to(self.weights[0])
        except (TypeError, ValueError, RuntimeError) as error:
            raise KindError(f"x must be a tensor of numbers; got {type(x).__name__}") from error
        k = len(self.lead)
        if x.ndim <= k or (*x.shape[:k], x.shape[-1]) != (*self.lead, self.n):
            axes = "..." if self.batch is None else f"{self.batch}, ..."
            raise InputError(
                f"x must be [{axes}, {self.n}], the {self.n} features for {self.count} functions; "
                f"got shape {tuple(x.shape)}"
            )
        return x


class CollapsedDSF(DSF):
    """f(x) = g(w.x + b) with a scalar concave g: what a DSF with equal units is (docs/math.md).

    Args:
        weight: w, [n] or [N, n].
        widths: hidden widths of the network it stands for.
        activation: as for ``DSF``.
        scale: the weight that all connections of an upper layer share, [..., depth]; default 1.
        bias: the bias that all units of a layer share, [..., depth + 1]; None for no bias.
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        widths: Sequence[int] = PAPER_WIDTHS,
        activation: str = "sqrt",
        scale: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or not weight.ndim:
            raise KindError(f"weight must be a float tensor [n] or [N, n]; got {weight!r}")
        *lead, n = weight.shape
        batch, with_bias = lead[0] if lead else None, bias is not None
        super().__init__(n, widths, activation, with_bias, batch=batch, collapsed=True)
        self.to(weight)
        first, *above = self.weights
        first.data = weight.unsqueeze(-2)
        for parameters, shared in ((above, scale), (self.biases, bias)):
            if shared is not None:
                for own, value in zip(parameters, shared.unbind(-1), strict=True):
                    own.data = value.reshape(own.shape)


def join(parts: Sequence[DSF]) -> DSF:
    """Several batches of functions of one architecture as one batch."""
    whole = deepcopy(parts[0])
    whole.batch = sum(part.count for part in parts)
    for own, *same in zip(*(scorer.parameters() for scorer in (whole, *parts)), strict=True):
        own.data = torch.cat(same).detach()
    return whole


@torch.no_grad()
def maximize(f: DSF, budget: int, method: str = "auto") -> Selection:
    """Greedily maximise f under |A| <= budget; f(A) is at least (1 - 1/e) of the optimum [M4, M10].

    Args:
        f: a DSF or its collapsed form, one function or a batch.
        budget: how many features to take; more than there are is clipped, with a warning.
        method: "naive" evaluates every candidate at every step, "lazy" only those whose upper
            bound reaches the best gain; "auto" is the faster. All give the same answer.

    Returns:
        ``Selection(order, gains)``, [k] each, or [N, k] for a batch.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    if not isinstance(f, DSF):
        raise KindError(f"maximize takes a DSF; got {type(f).__name__}")
    try:
        count = operator.index(budget)
    except TypeError:
        count = -1
    if count < 0:
        raise InputError(f"budget must be a whole number of features >= 0; got {budget!r}")
    if count > f.n:
        warnings.warn(f"budget {count} was clipped to the {f.n} features there are", stacklevel=3)
    found = f.select(min(count, f.n), bounded=method != "naive")
    return Selection(*(part.reshape(*f.lead, part.shape[1]) for part in found))


@torch.no_grad()
def attribute(f: DSF, remove_ties: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Take the best feature, give its gain to all that tie with it, go on [M6].

    The authors' code leaves tied features in (``remove_ties=False``). Returns order, gains and the
    map, [N, n] each, with map[order[k]] = gains[k].

    >>> f = CollapsedDSF(torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64), widths=(1,))
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
    return f.slope(torch.zeros(*f.lead, f.n)).norm(dim=-1)


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

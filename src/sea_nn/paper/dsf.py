"""Deep submodular functions and their collapsed form [M1].

A DSF is a feed-forward network with non-negative parameters and concave non-decreasing
activations. On {0,1}^n it is monotone submodular; on [0,1]^n it is monotone concave.

>>> import torch
>>> f = DSF(4, widths=(3,), init=(0.0, 1.0), seed=0)
>>> a, b = torch.tensor([1.0, 0, 0, 0]), torch.tensor([1.0, 1, 1, 0])
>>> v = torch.tensor([0.0, 0, 0, 1])
>>> bool(f(a + v) - f(a) >= f(b + v) - f(b))
True

Both classes hold one function, or a batch of N independent functions that are evaluated together.
"""

import json
import math
import operator
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from sea_nn.config import PAPER_WIDTHS, Init, check_init, check_seed, check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.paper.activations import parse_activation
from sea_nn.paper.greedy_search import GreedySearch, Selection
from sea_nn.paper.ties import key_features, key_groups, sort_keys, top_features
from sea_nn.paper.upper_layers import UpperLayers, times


class Scorer(nn.Module, ABC):
    """What a DSF and its collapsed form share: a learned set function, or a batch of them."""

    n: int
    batch: int | None
    widths: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many functions this is: 1, or N for a batch."""
        return 1 if self.batch is None else self.batch

    @abstractmethod
    def select(self, budget: int, *, bounded: bool = True, remove_ties: bool = False) -> Selection:
        """The first ``budget`` features that greedy takes and their gains, [N, budget] each [M4].

        Args:
            budget: at most n.
            bounded: use upper bounds where there are many candidates; the answer is the same.
            remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        """

    def top(self, p: int) -> Tensor:
        """The p features that greedy takes first [M10]: [p], or [N, p] for a batch."""
        with torch.no_grad():
            order = self.select(self.check_budget(p)).order
        return order if self.batch is not None else order[0]

    def check_budget(self, budget: int) -> int:
        """A number of features to take: clipped, with a warning, to those there are."""
        try:
            count = operator.index(budget)
        except TypeError:
            count = -1
        if count < 0:
            raise InputError(f"budget must be a whole number of features >= 0; got {budget!r}")
        if count > self.n:
            warnings.warn(
                f"budget {count} was clipped to the {self.n} features there are", stacklevel=3
            )
        return min(count, self.n)

    def slope(self, x: Tensor) -> Tensor:
        """The gradient of f at x, which bounds every gain from above: x[..., n] -> [..., n].

        f is concave, so f(A + v) - f(A) <= slope(1_A)[v] for every v outside A.
        """
        with torch.enable_grad():
            point = self._as_input(x).detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self(point).sum(), point)
        return gradient

    def _as_input(self, x: Tensor) -> Tensor:
        reference = next(self.parameters())
        try:
            x = torch.as_tensor(x).to(reference)
        except (TypeError, ValueError, RuntimeError) as error:
            raise KindError(f"x must be a tensor of numbers; got {type(x).__name__}") from error
        if x.ndim == 0 or x.shape[-1] != self.n:
            raise InputError(
                f"the last axis of x must hold the {self.n} features; got shape {tuple(x.shape)}"
            )
        if self.batch is not None and (x.ndim < 2 or x.shape[0] != self.batch):
            raise InputError(
                f"this scorer holds {self.batch} functions, so x must be [{self.batch}, ..., "
                f"{self.n}]; got shape {tuple(x.shape)}"
            )
        return x


class DSF(Scorer):
    """A deep submodular function f: x[..., n] -> [...] [M1].

    Args:
        n: number of features.
        widths: hidden widths; ``()`` is a modular (additive) function.
        activation: "sqrt", "log1p" or "power:p" (see ``sea_nn.paper.activations``).
        bias: give every layer a bias (as the paper's layers have).
        init: "ones", or (low, high) for uniform draws; low must be >= 0.
        batch: hold this many independent functions; then x is [batch, ..., n].
        seed: seed of the uniform draws.
        dtype: precision of the parameters; x is converted to it.
        device: where the parameters live.
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
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
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
        lead = () if batch is None else (batch,)

        def parameter(*shape: int) -> nn.Parameter:
            if low == high:
                return nn.Parameter(torch.full(lead + shape, low, dtype=dtype, device=device))
            draw = torch.rand(lead + shape, generator=generator, dtype=torch.float64)
            return nn.Parameter((low + (high - low) * draw).to(dtype=dtype, device=device))

        sizes = (n, *self.widths, 1)
        pairs = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.weights = nn.ParameterList([parameter(out, inn) for out, inn in pairs])
        self.biases = nn.ParameterList([parameter(out) for out, _ in pairs] if bias else [])

    def forward(self, x: Tensor) -> Tensor:
        """f(x): [..., n] -> [...], or [N, ..., n] -> [N, ...] for a batch of N functions."""
        h = self._as_input(x)
        inner = h.shape[1:-1] if self.batch is not None else h.shape[:-1]
        h = h.reshape(self.count, math.prod(inner), self.n)
        value = self.upper_layers().sums(times(h, self.matrix(0).mT) + self.offset(0))[-1]
        return value.reshape(inner if self.batch is None else (self.batch, *inner))

    def matrix(self, layer: int) -> Tensor:
        """Weights of a layer as [N, out, in] (N = 1 without a batch)."""
        weight: Tensor = self.weights[layer]
        return weight if self.batch is not None else weight.unsqueeze(0)

    def offset(self, layer: int) -> Tensor:
        """Biases of a layer as [N, 1, out], or 0."""
        if not len(self.biases):
            zero: Tensor = self.weights[0].new_zeros(())
            return zero
        bias: Tensor = self.biases[layer]
        return (bias if self.batch is not None else bias.unsqueeze(0)).unsqueeze(1)

    def upper_layers(self) -> UpperLayers:
        """The layers above the first, sharing this function's parameters."""
        upper = range(1, len(self.weights))
        return UpperLayers(
            self.activation,
            [self.matrix(layer) for layer in upper],
            [self.offset(layer) for layer in upper] if len(self.biases) else [],
        )

    def select(self, budget: int, *, bounded: bool = True, remove_ties: bool = False) -> Selection:
        """Greedy search: see ``Scorer.select``."""
        columns = self.matrix(0).detach().mT.contiguous()
        search = GreedySearch(
            columns, self.offset(0), self.upper_layers(), bounded=bounded, remove_ties=remove_ties
        )
        return search.run(budget)

    def repeat(self, batch: int) -> "DSF":
        """A batch of independent copies of this one function."""
        return self.batched(
            {name: value.expand(batch, *value.shape) for name, value in self.state_dict().items()}
        )

    def batched(self, parameters: Mapping[str, Tensor]) -> "DSF":
        """A batch of functions of this architecture, with these parameters [N, ...]."""
        full = DSF(
            self.n,
            self.widths,
            self.activation.name,
            bool(len(self.biases)),
            batch=len(parameters["weights.0"]),
            dtype=self.weights[0].dtype,
            device=self.weights[0].device,
        )
        full.load_state_dict(parameters)
        return full

    def collapse(self) -> "CollapsedDSF | None":
        """The equal function with one weight a feature, if all units of each layer are equal.

        Returns None where any two units of a layer differ in a single bit.
        """
        lead = [] if self.batch is None else [self.batch]
        first, *upper = self.weights
        if not bool((first == first[..., :1, :]).all()):
            return None
        for group in (*upper, *self.biases):
            flat = group.reshape(*lead, -1)
            if not bool((flat == flat[..., :1]).all()):
                return None
        shared = [weight.reshape(*lead, -1)[..., 0] for weight in upper]
        biases = [bias[..., 0] for bias in self.biases]
        return CollapsedDSF(
            first[..., 0, :].detach().clone(),
            widths=self.widths,
            activation=self.activation.name,
            scale=torch.stack(shared, -1).detach() if shared else None,
            bias=torch.stack(biases, -1).detach() if biases else None,
        )

    def save(self, path: str | Path) -> None:
        """Write parameters and architecture to a safetensors file."""
        from safetensors.torch import save_file

        tensors = {name: value.detach().contiguous() for name, value in self.state_dict().items()}
        fields = {
            "n": self.n,
            "widths": self.widths,
            "activation": self.activation.name,
            "bias": bool(len(self.biases)),
            "batch": self.batch,
        }
        save_file(tensors, str(path), metadata={"sea_nn.DSF": json.dumps(fields)})

    @classmethod
    def load(cls, path: str | Path) -> "DSF":
        """Read a file that ``save`` wrote; nothing in it is executed, and all of it is checked."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), "pt") as file:
                header = (file.metadata() or {}).get("sea_nn.DSF")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"cannot read {path} as a safetensors file: {error}") from error
        if header is None:
            raise InputError(f"{path} is a safetensors file but holds no DSF written by DSF.save")
        if any(not bool((t.isfinite() & (t >= 0)).all()) for t in tensors.values()):
            raise InputError(f"{path} is damaged: a DSF's parameters are finite and never negative")
        try:
            fields = json.loads(header)
            with torch.device("meta"):  # no room is taken for what a header claims
                f = cls(
                    fields["n"],
                    fields["widths"],
                    fields["activation"],
                    fields["bias"],
                    batch=fields["batch"],
                    dtype=tensors["weights.0"].dtype,
                )
            f.load_state_dict(tensors, assign=True)
        except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
            raise InputError(
                f"{path} is damaged: its parts do not fit together ({error})"
            ) from error
        return f


class CollapsedDSF(Scorer):
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
        super().__init__()
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or not weight.ndim:
            raise KindError(f"weight must be a float tensor [n] or [N, n]; got {weight!r}")
        self.n, self.widths = weight.shape[-1], tuple(widths)
        self.batch = weight.shape[0] if weight.ndim == 2 else None
        self.activation = parse_activation(activation)
        lead = weight.shape[:-1]
        self.weight = nn.Parameter(weight)
        self.scale = nn.Parameter(
            weight.new_ones(*lead, len(self.widths)) if scale is None else scale
        )
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """f(x): [..., n] -> [...], or [N, ..., n] -> [N, ...] for a batch of N functions."""
        x = self._as_input(x)
        if self.batch is None:
            return self.outer(x @ self.weight)
        flat = x.reshape(self.batch, math.prod(x.shape[1:-1]), self.n) @ self.weight.unsqueeze(-1)
        return self.outer(flat.squeeze(-1)).reshape(x.shape[:-1])

    def outer(self, z: Tensor) -> Tensor:
        """g(z), elementwise; z is [...] or, for a batch, [N, ...]."""
        return self._outer(z, None)

    def outer_rise(self, z: Tensor, d: Tensor) -> Tensor:
        """g(z + d) - g(z), elementwise and without cancellation."""
        return self._outer(z, d)

    def _outer(self, z: Tensor, d: Tensor | None) -> Tensor:
        def spread(values: Tensor) -> Tensor:
            return values.reshape(values.shape + (1,) * (z.ndim - values.ndim))

        if self.bias is not None:
            z = z + spread(self.bias[..., 0])
        for layer, width in enumerate(self.widths):
            factor = spread(width * self.scale[..., layer])
            if d is not None:
                d = self.activation.rise(z, d) * factor
            z = self.activation.value(z) * factor
            if self.bias is not None:
                z = z + spread(self.bias[..., layer + 1])
        return z if d is None else d

    def select(self, budget: int, *, bounded: bool = True, remove_ties: bool = False) -> Selection:
        """A sort, since the largest weight has the largest gain: see ``Scorer.select``."""
        weight = self.weight.detach().reshape(self.count, self.n)
        if not remove_ties:
            order = top_features(weight, budget)
            taken = weight.gather(1, order)
            return Selection(order, self.outer_rise(taken.cumsum(1) - taken, taken))
        keys = sort_keys(weight).sort(dim=1, descending=True).values[:, :budget]
        order, groups = key_features(keys), key_groups(keys)
        leads = torch.ones_like(groups, dtype=torch.bool)
        leads[:, 1:] = groups[:, 1:] != groups[:, :-1]
        taken = weight.gather(1, order) * leads
        gains = self.outer_rise(taken.cumsum(1) - taken, taken)
        place = torch.arange(budget, device=order.device).expand_as(order)
        return Selection(order, gains.gather(1, torch.where(leads, place, 0).cummax(1).values))

    def expand(self) -> DSF:
        """The full network that this function stands for."""
        full = DSF(
            self.n,
            self.widths,
            self.activation.name,
            self.bias is not None,
            batch=self.batch,
            dtype=self.weight.dtype,
            device=self.weight.device,
        )
        with torch.no_grad():
            full.weights[0].copy_(self.weight.unsqueeze(-2).expand_as(full.weights[0]))
            for layer, weight in enumerate(list(full.weights)[1:]):
                weight.copy_(self.scale[..., layer, None, None].expand_as(weight))
            if self.bias is not None:
                for layer, bias in enumerate(full.biases):
                    bias.copy_(self.bias[..., layer, None].expand_as(bias))
        return full

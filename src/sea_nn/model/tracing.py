"""Which layers of a model may be merged or run apart: read off a symbolic pass, not guessed.

A pass with a stand-in for the input (`torch.fx.Proxy`) shows every operation and who reads what.
It fails where the model's course depends on values, and such a model has no such layers. Unlike
`torch.fx.symbolic_trace`, nothing outside of the copy that is traced is patched, so other threads
may run models meanwhile.

>>> import torch
>>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval()
>>> trace(model).pairs
(('0', '1'),)
"""

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module
from torch.utils._pytree import tree_leaves

from sea_nn.model.borrowing import copy_twin
from sea_nn.model.description import LISTENERS, describe, list_modules

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLVE = (torch.conv1d, torch.conv2d, torch.conv3d)
_PADS = ("ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad", "Identity")


@dataclass(frozen=True)
class Layers:
    """Names of layers, as in `named_modules()`.

    Attributes:
        pairs: a convolution and the norm in eval mode that alone reads what it gives.
        norms: the other norms with fixed statistics.
        first: the convolution that alone reads the model's input, or None.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    norms: tuple[str, ...] = ()
    first: str | None = None


def trace(twin: nn.Module) -> Layers:
    """Return the layers that may be merged or run apart; none where that cannot be proved.

    Left alone are models with hooks or with state that a pass changes, and layers that are used
    more than once or whose weights something else reads.
    """
    if is_heard(twin) or not any(isinstance(m, (*CONVOLUTIONS, *NORMS)) for m in twin.modules()):
        return Layers()
    try:
        copy = copy_twin(twin)
        before = describe(copy)
        tracer = _Tracer()
        start = tracer.create_proxy("placeholder", "x", (), {})
        with _recorders(copy, tracer, _is_leaf):
            output = copy(start)
            tracer.create_arg([v for v in tree_leaves(output) if isinstance(v, fx.Proxy)])
        if before is None or describe(copy) != before:
            return Layers()
    except Exception:  # control flow on values, or anything else that a stand-in cannot go through
        return Layers()
    return _find(copy, tracer, start.node)


_LAYERS: "WeakKeyDictionary[nn.Module, Layers]" = WeakKeyDictionary()


def recall_layers(twin: nn.Module) -> Layers:
    """Return `trace(twin)`, remembered with the twin; a twin does not change while it lives."""
    if twin not in _LAYERS:
        _LAYERS[twin] = trace(twin)
    return _LAYERS[twin]


def refuse_layers(twin: nn.Module) -> None:
    """Remember that no layer of this twin may be merged or run apart."""
    _LAYERS[twin] = Layers()


def is_heard(module: nn.Module) -> bool:
    """Whether someone listens to a module's passes with hooks."""
    everywhere = vars(torch_module)
    if any(everywhere.get(f"_global{name}") for name in LISTENERS):
        return True
    for m in list_modules(module):  # asked often, so no generators
        for name in LISTENERS:
            if m.__dict__.get(name):
                return True
    return False


def is_frozen_norm(m: Any) -> bool:
    """Whether this is a batch norm whose statistics are fixed in eval mode."""
    return type(m) in NORMS and m.running_mean is not None and m.running_var is not None


def _find(copy: nn.Module, tracer: "_Tracer", start: fx.Node) -> Layers:
    modules = dict(copy.named_modules())
    calls = [node for node in tracer.graph.nodes if node.op == "call_module"]
    count = Counter(node.target for node in calls)
    norms, pairs, first = [], [], None
    for node in calls:
        layer = modules[node.target]
        # Weights that an operation outside of the layer reads have to stay what they are.
        if any(id(t) in tracer.read for t in (*layer.parameters(), *layer.buffers())):
            continue
        if is_frozen_norm(layer) and node.target not in norms:
            norms.append(node.target)
        if not isinstance(layer, CONVOLUTIONS) or count[node.target] > 1 or not is_linear(layer):
            continue
        if list(node.all_input_nodes) == [start] and all(
            user is node or _reads_length(user) for user in start.users
        ):
            first = node.target
        follower = next(iter(node.users)) if len(node.users) == 1 else None
        if follower is None or follower.op != "call_module" or count[follower.target] > 1:
            continue
        if is_frozen_norm(modules[follower.target]) and len(follower.all_input_nodes) == 1:
            pairs.append((node.target, follower.target))
    kept = tuple(pair for pair in pairs if pair[1] in norms)
    paired = {norm for _, norm in kept}
    return Layers(kept, tuple(norm for norm in norms if norm not in paired), first)


def is_linear(layer: nn.Module) -> bool:
    """Whether all that a layer does is to pad and to convolve once, by its own weight and bias."""
    if type(layer) in CONVOLUTIONS:
        return True
    if type(layer).__name__.startswith("Parametrized"):
        return False
    tracer = _Tracer()
    start = tracer.create_proxy("placeholder", "x", (), {})
    try:
        with _recorders(layer, tracer, lambda m: m is not layer):
            output = type(layer).forward(layer, start)
    except Exception:
        return False
    node, weight, bias = start.node, getattr(layer, "weight", None), getattr(layer, "bias", None)
    while len(node.users) == 1:
        (node,) = node.users
        if node.op == "call_function" and node.target in _CONVOLVE:
            given = tracer.bound.get(node)
            own = given is not None and given[0] is weight and given[1] is bias
            return own and not node.users and getattr(output, "node", None) is node
        if node.op == "call_module":
            if not type(layer.get_submodule(node.target)).__name__.startswith(_PADS):
                return False
        elif node.op != "call_function" or node.target is not functional.pad:
            return False
    return False


def _reads_length(node: fx.Node) -> bool:
    """Whether a node is the number of inputs, which a first layer does not change."""
    if node.op == "call_method" and node.target == "size":
        return node.args[1:] == (0,)
    if node.op == "call_function" and node.target is getattr and node.args[1:] == ("shape",):
        return all(u.target is operator.getitem and u.args[1:] == (0,) for u in node.users)
    return False


def _is_leaf(m: nn.Module) -> bool:
    """Whether a module counts as one operation: PyTorch's own layers, and all convolutions."""
    own = type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential)
    return (own or isinstance(m, CONVOLUTIONS)) and "forward" not in m.__dict__


class _Tracer(fx.Tracer):
    """Notes operations on stand-ins, and which tensors of the model they read."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.root = fx.Graph(), nn.Module()
        self.read: set[int] = set()
        self.bound: dict[fx.Node, tuple[Any, Any]] = {}

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            self.read.add(id(a))
            return self.create_node("get_attr", f"t{id(a)}", (), {})
        return super().create_arg(a)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **o: Any
    ) -> Any:
        proxy = super().create_proxy(kind, target, args, kwargs, *more, **o)
        if kind == "call_function" and target in _CONVOLVE:
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            weight = args[1] if len(args) > 1 else kwargs.get("weight")
            self.bound[proxy.node] = (weight, bias)
        return proxy


class _recorders:  # noqa: N801
    """Inside the block, the leaves of a private module note that they are called."""

    def __init__(
        self, module: nn.Module, tracer: _Tracer, is_leaf: Callable[[nn.Module], bool]
    ) -> None:
        named = dict(module.named_modules())
        self.leaves = {name: m for name, m in named.items() if name and is_leaf(m)}
        self.tracer = tracer

    def __enter__(self) -> None:
        for name, m in self.leaves.items():
            m.__dict__["forward"] = partial(self._call, name)

    def __exit__(self, *error: Any) -> None:
        for m in self.leaves.values():
            m.__dict__.pop("forward", None)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_module", name, args, kwargs)

"""Run a caller's model without changing it: passes run on a private twin that shares its weights.

A twin is a deep copy whose parameters are views of the model's own (no memory, no gradients) and
whose buffers are copies, in eval mode. Hooks, folded norms and whatever a forward pass writes stay
on the twin, so the model can be trained, called or explained in other threads meanwhile, and an
interrupt leaves nothing behind.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
>>> with borrow(model) as twin:
...     twin.training, twin[0].weight.requires_grad
(False, False)
>>> twin is model, model.training, model[0].weight.requires_grad
(False, True, True)

Batch norms in eval mode are fixed linear maps, folded into convolutions in a further copy: a norm
reads and writes every activation once more than needed, a sixth of a forward pass of
EfficientNet-Lite0 on a CPU. Which norm follows which convolution is seen in a pass that is made
anyway (``watch_norms``); that the folded copy is the model is proved by an answer that is asked
for anyway (``Probe.begin``).
"""

import copy
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.nn.utils.fusion import fuse_conv_bn_weights

from sea_nn.errors import InputError, KindError
from sea_nn.model.callables import find_modules
from sea_nn.model.outputs import ARRAYS

LISTENERS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module keeps its hooks; what else it keeps only says how to call them."""
HOOKS = (
    *LISTENERS,
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks_with_kwargs",
)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
Pairs = list[tuple[str, str]]
_PRIVATE: "WeakSet[nn.Module]" = WeakSet()
# One lock for all models that run as they are: they may share layers.
_AS_IT_IS = threading.RLock()


class EscapeError(Exception):
    """A twin was about to run a layer of the original."""


@contextmanager
def borrow(model: Callable[..., Any]) -> Iterator[Any]:
    """Yield a twin of `model` to run in its place; the model itself is not touched.

    A model that cannot be copied (a ScriptModule, say) runs as it is, in eval mode, by one thread
    at a time, and is given back as it was. So do the modules that a plain function calls, as far
    as ``find_modules`` finds them. Whether a twin still calls the original's layers, through a
    closure, shows when it first runs: see ``watch``.

    Args:
        model: a module, or any callable; a callable that is not a module is passed through.
    """
    if not callable(model):
        raise KindError(
            f"a model must be a torch.nn.Module or a callable, got {type(model).__name__}; {ARRAYS}"
        )
    if not isinstance(model, nn.Module):
        modules = find_modules(model)
        with _AS_IT_IS if modules else nullcontext(), _in_eval_mode(*modules):
            yield model
        return
    own = find_original(model)
    if any(is_lazy(p) for p in own.parameters()):
        raise InputError(
            "the model has lazy layers that have not seen an input yet; run it once before it is "
            "explained"
        )
    twin = _make_twin(own)
    if twin is not None:
        yield twin
        return
    with lend(model):
        yield own


@contextmanager
def lend(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model itself, in eval mode, to one thread at a time; it comes back as it was."""
    own = find_original(model)
    with _AS_IT_IS, _in_eval_mode(own):
        yield own


def find_original(model: nn.Module) -> nn.Module:
    """Return the module that a compiled model was made of: the same function."""
    compiled = "_orig_mod" in model._modules  # a ScriptModule's parts have no get()
    return model._modules["_orig_mod"] if compiled else model  # type: ignore[return-value]


def is_private(module: nn.Module | None) -> bool:
    """Whether a module is a twin, which may be changed."""
    return module in _PRIVATE if module is not None else False


def copy_twin(twin: nn.Module, inplace: bool = True) -> nn.Module:
    """Return a further copy of a twin that shares its parameters and buffers.

    Args:
        twin: the twin.
        inplace: whether layers that write in place go on doing so.
    """
    memo: dict[int, Any] = {}
    for module in twin.modules():
        for t in (*module._parameters.values(), *module._buffers.values()):
            if t is not None:
                memo[id(t)] = t
        _prepare_attributes(module, memo)
    made: nn.Module = copy.deepcopy(twin, memo)
    if not inplace:
        for module in find_inplace(made):
            module.inplace = False  # type: ignore[assignment]
    _PRIVATE.add(made)
    return made


def find_inplace(module: nn.Module) -> list[nn.Module]:
    """Return the layers that write in place."""
    return [m for m in module.modules() if getattr(m, "inplace", None) is True]


@contextmanager
def watch(model: Any, twin: Any) -> Iterator[None]:
    """Raise ``EscapeError`` inside the block where a pass of the twin runs the original's layers.

    It is raised before the layer runs, so nothing of the original has changed.
    """
    if not is_private(twin):
        yield
        return
    here, own, watching = threading.get_ident(), set(find_original(model).modules()), [True]

    def notice(module: nn.Module, inputs: Any) -> None:
        # An interrupt may leave the hook in place: then it does nothing.
        if watching[0] and threading.get_ident() == here and module in own:
            raise EscapeError

    handle = torch_module.register_module_forward_pre_hook(notice)
    try:
        yield
    finally:
        watching[0] = False
        handle.remove()


def _make_twin(model: nn.Module) -> nn.Module | None:
    """Return a private copy in eval mode; None if there cannot be any."""
    if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        return None
    try:
        twin = _copy_apart(model)
    except Exception:  # whatever a class's own way of copying raises
        return None
    own = set(model.modules())
    if any(m in own for m in twin.modules()):
        return None
    for module in twin.modules():
        module.training = False  # never by train(), which some models override with work
    _PRIVATE.add(twin)
    return twin


def _copy_apart(model: nn.Module) -> nn.Module:
    """Return a copy with the model's own weights and copies of its buffers."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        weights = [p for p in module._parameters.values() if p is not None]
        for t in (*weights, *(b for b in module._buffers.values() if b is not None)):
            if type(t) not in (nn.Parameter, Tensor):
                raise TypeError(f"a tensor of type {type(t).__name__} may hold more than values")
            # Weights made in inference mode have no gradient but in a copy.
            shares = isinstance(t, nn.Parameter) and not t.is_inference()
            value = t.detach() if shares else t.detach().clone()
            made = value if type(t) is Tensor else nn.Parameter(value, requires_grad=False)
            made.__dict__.update(t.__dict__)
            memo.setdefault(id(t), made)
        _prepare_attributes(module, memo)
    return copy.deepcopy(model, memo)


def _prepare_attributes(module: nn.Module, memo: dict[int, Any]) -> None:
    """Note copies of what deepcopy does not take (results of operations) or takes slowly."""
    for value in module.__dict__.values():
        if isinstance(value, Tensor):
            memo.setdefault(id(value), value.detach().clone())
        elif type(value) is OrderedDict and not value:
            memo[id(value)] = OrderedDict()


@contextmanager
def _in_eval_mode(*models: nn.Module) -> Iterator[None]:
    """Put modules that have no twin in eval mode; all but their weights comes back after."""
    modules = list(dict.fromkeys(m for model in models for m in model.modules()))
    modes = [m.training for m in modules]
    hooks = [{name: dict(m.__dict__.get(name) or {}) for name in HOOKS} for m in modules]
    params = dict.fromkeys(p for m in modules for p in m.parameters(recurse=False))
    gradients = [(p, p.grad) for p in params if not p.is_inference()]
    buffers = [
        (m, name, b, b.detach().clone())
        for m in modules
        for name, b in m.named_buffers(recurse=False)
    ]

    @torch.no_grad()
    def restore() -> None:
        for m, mode in zip(modules, modes, strict=True):
            if m.training != mode:
                m.training = mode
        for m, kept in zip(modules, hooks, strict=True):
            for name, before in kept.items():
                held = m.__dict__.get(name)
                if held is not None and dict(held) != before:
                    held.clear()  # the dictionary itself stays: handles refer to it
                    held.update(before)
        for p, grad in gradients:
            p.grad = grad
        for m, name, buffer, values in buffers:
            if getattr(m, name) is not buffer:
                setattr(m, name, buffer)
            if not torch.equal(buffer, values):
                buffer.copy_(values)

    try:
        for p, grad in gradients:
            if grad is not None:
                p.grad = None  # what a member adds by backward() must not reach the caller's
        for m, mode in zip(modules, modes, strict=True):
            if mode:
                m.training = False
        yield
    finally:
        try:
            restore()
        except KeyboardInterrupt:
            restore()
            raise


@contextmanager
def watch_norms(twin: Any) -> Iterator[Pairs]:
    """Note, while a twin runs, which norm alone read what which convolution gave.

    The list is full once the block is left. Layers that somebody listens to with hooks, or that
    run more than once, are left alone.
    """
    pairs: Pairs = []
    if not is_private(twin) or not {type(m) for m in twin.modules()} & set(NORMS):
        yield pairs
        return
    made: dict[int, tuple[str, Tensor]] = {}  # the outputs stay alive, or a number could come twice
    runs: Counter[str] = Counter()
    seen: Pairs = []
    handles = []
    for name, m in twin.named_modules():
        if any(m.__dict__.get(kind) for kind in LISTENERS):
            continue
        if isinstance(m, CONVOLUTIONS) and "weight" in m._parameters:

            def note(_: Any, __: Any, output: Tensor, name: str = name) -> None:
                runs[name] += 1
                made[id(output)] = name, output

            handles.append(m.register_forward_hook(note))
        elif type(m) in NORMS and m.running_mean is not None and m.running_var is not None:

            def match(_: Any, inputs: Any, name: str = name) -> None:
                runs[name] += 1
                if id(inputs[0]) in made:
                    seen.append((made[id(inputs[0])][0], name))

            handles.append(m.register_forward_pre_hook(match))
    try:
        yield pairs
    finally:
        for handle in handles:
            handle.remove()
    twice = Counter(conv for conv, _ in seen)
    pairs += [(a, b) for a, b in seen if runs[a] == runs[b] == twice[a] == 1]


@torch.no_grad()
def fold(twin: nn.Module, pairs: Pairs) -> nn.Module:
    """Return a copy of a twin with these norms folded into their convolutions.

    It shares all tensors with the twin but for the folded weights.
    """
    folded = copy_twin(twin)
    named: dict[str, Any] = dict(folded.named_modules())
    for conv, norm in ((named[a], named[b]) for a, b in pairs):
        if conv.weight.dtype != norm.running_mean.dtype:
            continue
        conv._parameters["weight"], conv._parameters["bias"] = fuse_conv_bn_weights(
            *(conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps),
            *(norm.weight, norm.bias),
        )
        norm.__dict__["forward"] = _pass_on
    return folded


def _pass_on(input: Tensor) -> Tensor:
    """Stand in for a norm that is merged with a convolution; `input` as layers name it."""
    return input


_LOCK = threading.Lock()
_RESTORE: list[Callable[[], None]] = []  # one entry while somebody is inside
_INSIDE: set[object] = set()


@contextmanager
def full_precision(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Keep TF32 off, for all threads, and give back the caller's choice when the last one leaves.

    Args:
        device: the inputs'; nothing is done for others than GPUs.
        wanted: False to do nothing.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    me = object()
    try:
        with _LOCK:
            _INSIDE.add(me)
            if not _RESTORE:
                _RESTORE.append(turn_off())
        yield
    finally:
        with _LOCK:
            _INSIDE.discard(me)  # an interrupt may have come before it was there
            if not _INSIDE and _RESTORE:
                _RESTORE.pop()()


def turn_off() -> Callable[[], None]:
    """Turn TF32 off; return a function that restores what there was."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    kinds: tuple[Any, ...] = (cudnn.conv, cudnn.rnn, matmul) if hasattr(cudnn, "conv") else ()
    own, restores = [kind.fp32_precision for kind in kinds], list[Callable[[], None]]()
    # The older switches too: PyTorch refuses to read them while they say something else. It also
    # does where the caller has set single kinds.
    with suppress(RuntimeError):
        restores.append(partial(setattr, cudnn, "allow_tf32", cudnn.allow_tf32))
        cudnn.allow_tf32 = False
    with suppress(RuntimeError):
        products = torch.get_float32_matmul_precision()
        restores.append(partial(torch.set_float32_matmul_precision, products))
        torch.set_float32_matmul_precision("highest")
    restores += [
        partial(setattr, kind, "fp32_precision", precision)
        for kind, precision in zip(kinds, own, strict=True)
    ]
    for kind in kinds:
        kind.fp32_precision = "ieee"

    def restore() -> None:
        for each in restores:
            each()

    return restore

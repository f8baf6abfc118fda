"""Run a caller's model without changing it: passes run on a private twin that shares its weights.

A twin is a deep copy whose parameters are views of the model's own (no memory, no gradients) and
whose buffers are copies, in eval mode. Hooks, folded norms and whatever a forward pass writes stay
on the twin, so the model can be trained, called or explained in other threads meanwhile, and an
interrupt leaves nothing behind.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
>>> with borrow(model, torch.rand(1, 2)) as twin:
...     twin.training, twin[0].weight.requires_grad
(False, False)
>>> twin is model, model.training, model[0].weight.requires_grad
(False, True, True)
"""

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy

from sea_nn.errors import InputError, KindError
from sea_nn.model.callables import find_modules
from sea_nn.model.description import HOOKS, Snapshot, describe, list_modules


class Twin:
    """A private copy of a model.

    Args:
        model: the caller's model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.state = describe(model, modes=False)
        self.module, self.shared, self.copied = _copy_apart(model)
        for module in list_modules(self.module):
            if module.training:
                module.training = False  # never by train(), which some models override with work
        self.own = None if self.state is None else Snapshot(self.module)
        self.places = [] if self.own is None else self._find_places()
        _PRIVATE.add(self.module)

    def is_itself(self) -> bool:
        """Whether passes left it as it was made, and it can be known to be the model's."""
        still = self.own is not None and self.own.holds()
        return still and self.places == self._find_places()

    def _find_places(self) -> list[Any]:
        return [(t.data_ptr(), t.shape) for t in self.copied]

    def rest(self) -> None:
        """Let go of the model's weights, which may be replaced or moved while the twin is idle."""
        empty: dict[Any, Tensor] = {}
        for alias in self.shared:
            kind = (alias.dtype, alias.device)
            if kind not in empty:
                empty[kind] = alias.detach().new_empty(0)
            alias.data = empty[kind]

    @torch.no_grad()
    def wake(self, model: nn.Module) -> None:
        """Take the weights and buffers that the model has now."""
        shared, copied = _list_tensors(model)
        for p, alias in zip(shared, self.shared, strict=True):
            alias.data = p.data
        if copied:
            torch._foreach_copy_(self.copied, copied)


_GUARD = threading.Lock()
_IDLE: "WeakKeyDictionary[nn.Module, Twin]" = WeakKeyDictionary()
_PRIVATE: "WeakSet[nn.Module]" = WeakSet()
# One lock for all models that run as they are: they may share layers.
_AS_IT_IS = threading.RLock()


@contextmanager
def borrow(
    model: Callable[..., Any], x: Tensor | None = None, args: tuple[Any, ...] = ()
) -> Iterator[Any]:
    """Yield a twin of `model` to run in its place; the model itself is not touched.

    A twin is kept for the next call and used again while the model has the same structure and
    attributes; weights and buffers are always those of the moment. A model that cannot be copied
    (a ScriptModule, say), or whose copy would still call the original's layers through a closure,
    runs as it is, in eval mode, by one thread at a time, and is given back as it was. So do the
    modules that a plain function calls, as far as ``find_modules`` finds them.

    Args:
        model: a module, or any callable; a callable that is not a module is passed through.
        x: inputs; the first one shows whether a new twin calls the original's layers.
        args: further arguments of the model.
    """
    if not callable(model):
        raise KindError(
            f"a model must be a torch.nn.Module or a callable, got {type(model).__name__}"
        )
    if not isinstance(model, nn.Module):
        modules = find_modules(model)
        with _AS_IT_IS if modules else nullcontext(), _in_eval_mode(*modules):
            yield model
        return
    # A compiled model is explained by the module it was made of: the same function.
    compiled = "_orig_mod" in model._modules
    own: nn.Module = model._modules["_orig_mod"] if compiled else model  # type: ignore[assignment]
    twin = _take(own, x, args)
    if twin is None:
        with _AS_IT_IS, _in_eval_mode(own):
            yield own
        return
    try:
        yield twin.module
    except Exception:
        _keep(own, twin)
        raise
    # After an interrupt the twin may be half changed, and is dropped.
    _keep(own, twin)


def is_private(module: nn.Module | None) -> bool:
    """Whether a module is a twin, which may be changed."""
    return module in _PRIVATE if module is not None else False


def copy_twin(twin: nn.Module, inplace: bool = True, shared: Iterable[Tensor] = ()) -> nn.Module:
    """Return a further copy of a twin that shares its parameters and buffers.

    Args:
        twin: the twin.
        inplace: whether layers that write in place go on doing so.
        shared: further tensors to share.
    """
    memo: dict[int, Any] = {id(t): t for t in shared}
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


def _take(model: nn.Module, x: Tensor | None, args: tuple[Any, ...]) -> Twin | None:
    """Return an idle twin that still is one, or a new one; None if there cannot be any."""
    with _GUARD:
        twin = _IDLE.pop(model, None)
    if twin is not None and twin.state == describe(model, modes=False):
        twin.wake(model)
        return twin
    if any(is_lazy(p) for p in model.parameters()):
        raise InputError(
            "the model has lazy layers that have not seen an input yet; run it once before it is "
            "explained"
        )
    if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        return None
    try:
        twin = Twin(model)
    except Exception:  # whatever a class's own way of copying raises
        return None
    own = set(model.modules())
    if any(m in own for m in twin.module.modules()):
        return None
    return twin if x is None or _is_closed(twin.module, own, x, args) else None


def _keep(model: nn.Module, twin: Twin) -> None:
    """Keep a twin for the next call if it can be known, then, to be the model's."""
    # What the passes changed in the twin's attributes must not reach the next call.
    if twin.is_itself():
        twin.rest()
        with _GUARD:
            _IDLE[model] = twin


class _EscapeError(Exception):
    """A twin was about to run a layer of the original."""


def _is_closed(twin: nn.Module, own: set[nn.Module], x: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a pass of the twin runs none of the original's modules."""
    here, watching = threading.get_ident(), [False]

    def watch(module: nn.Module, inputs: Any) -> None:
        # An interrupt may leave the hook in place: then it does nothing.
        if watching[0] and threading.get_ident() == here and module in own:
            raise _EscapeError

    rows = [a[:1] if isinstance(a, Tensor) and a.ndim and len(a) == len(x) else a for a in args]
    handle = torch_module.register_module_forward_pre_hook(watch)
    try:
        watching[0] = True
        with torch.no_grad():
            twin(x[:1].detach().clone(), *rows)
    except _EscapeError:
        return False
    except Exception:  # the caller's first pass will meet the same, and explain it
        return True
    finally:
        watching[0] = False
        handle.remove()
    return True


def _list_tensors(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that a twin shares with a model, and those that it copies; each once."""
    shared: dict[int, Tensor] = {}
    copied: dict[int, Tensor] = {}
    for module in list_modules(model):
        for p in module._parameters.values():
            if p is not None:  # weights made in inference mode have no gradient but in a copy
                (copied if p.is_inference() else shared)[id(p)] = p
        for b in module._buffers.values():
            if b is not None:
                copied[id(b)] = b
    return list(shared.values()), list(copied.values())


def _copy_apart(model: nn.Module) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    """Return a copy, and its tensors: those that it shares with the model, and the others."""
    memo: dict[int, Any] = {}

    def follow(t: Tensor, shares: bool) -> Tensor:
        if type(t) not in (nn.Parameter, Tensor):
            raise TypeError(f"a tensor of type {type(t).__name__} may hold more than its values")
        value = t.detach() if shares else t.detach().clone()
        twin = nn.Parameter(value, requires_grad=False) if isinstance(t, nn.Parameter) else value
        twin.__dict__.update(t.__dict__)
        memo[id(t)] = twin
        return twin

    shared, copied = _list_tensors(model)
    mine = [follow(t, True) for t in shared], [follow(t, False) for t in copied]
    for module in model.modules():
        _prepare_attributes(module, memo)
    return copy.deepcopy(model, memo), *mine


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

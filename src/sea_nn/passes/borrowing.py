"""Borrow a model: eval mode, no parameter gradients, and everything given back on the way out.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
>>> with borrow(model):
...     model.training, model[0].weight.requires_grad
(False, False)
>>> model.training, model[0].weight.requires_grad
(True, True)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.parameter import is_lazy

from sea_nn.errors import InputError, KindError

M = TypeVar("M", bound=Callable[..., Any])

_GUARD = Lock()
_LOCKS: "WeakKeyDictionary[nn.Module, Any]" = WeakKeyDictionary()

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@contextmanager
def borrow(model: M) -> Iterator[M]:
    """Lend `model` for explaining and give it back exactly as it came, also after an error.

    Inside the block every submodule is in eval mode and works out of place (`inplace=True`
    activations would overwrite what an explainer still needs), and no parameter asks for a
    gradient or holds one. On exit each submodule's training flag, `inplace` flag and hooks, and
    each parameter's `requires_grad` and `.grad` are what they were: a hook that leaked is removed,
    a hook that was lost is put back.

    The flags are set one by one, never through `model.train()`, because some models override it
    with work that cannot be undone (merging adapters, for example).

    A module is lent to one thread at a time; another waits until it is back. That holds for the
    same object: two models that share layers are to be explained one after the other.

    Args:
        model: a module, or any callable; a callable that is not a module is passed through.

    Yields:
        The same object.
    """
    if not callable(model):
        raise KindError(
            f"a model must be a torch.nn.Module or a callable, got {type(model).__name__}"
        )
    if not isinstance(model, nn.Module):
        yield model
        return
    with _lock(model):
        yield from _lend(model)


def _lock(model: nn.Module) -> Any:
    with _GUARD:
        return _LOCKS.setdefault(model, RLock())


def _lend(model: Any) -> Iterator[Any]:
    modules = list(model.modules())
    # Only what differs is touched: setting an attribute of a module is slow, and models have many.
    training = [module for module in modules if module.training]
    inplace = [module for module in modules if _is_inplace(module)]
    hooks = [_copy_hooks(module) for module in modules]
    every = [p for module in modules for p in module._parameters.values() if p is not None]
    if any(is_lazy(p) for p in every):
        raise InputError(
            "the model has lazy layers that have not seen an input yet; run it once before it is "
            "explained"
        )
    # Tensors made in inference mode know no gradients, and refuse to be told so.
    parameters = [(p, p.requires_grad, p.grad) for p in every if not p.is_inference()]
    try:
        for module in training:
            module.training = False
        for module in inplace:
            module.inplace = False
        for p, required, grad in parameters:
            if required:
                p.requires_grad_(False)
            if grad is not None:
                p.grad = None  # what a member adds by backward() must not reach the caller's
        yield model
    finally:
        still = set(training)
        for module, saved in zip(modules, hooks, strict=True):
            if module.training != (module in still):
                module.training = module in still
            _restore_hooks(module, saved)
        for module in inplace:
            module.inplace = True
        for p, required, grad in parameters:
            if p.requires_grad != required:
                p.requires_grad_(required)
            if p.grad is not grad:
                p.grad = grad


def _is_inplace(module: nn.Module) -> bool:
    # By the dictionary first: a module looks long for an attribute that it does not have.
    found = module.__dict__.get("inplace")
    return (getattr(type(module), "inplace", None) if found is None else found) is True


def _copy_hooks(module: nn.Module) -> dict[str, dict[Any, Any]]:
    """Return copies of the module's hooks by kind, those it has."""
    held = ((name, module.__dict__.get(name)) for name in _HOOKS)
    return {name: dict(hooks) for name, hooks in held if hooks}


def _restore_hooks(module: nn.Module, saved: dict[str, dict[Any, Any]]) -> None:
    for name in _HOOKS:
        current = module.__dict__.get(name)
        if not current and name not in saved:
            continue
        before = saved.get(name, {})
        # The dictionary itself must stay: the caller's handles refer to it.
        if current is not None and dict(current) != before:
            current.clear()
            current.update(before)
            if name == "_backward_hooks" and not before:
                module._is_full_backward_hook = None

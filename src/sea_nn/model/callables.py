"""Models that have no twin run as they are, and come back as they were: functions, scripts.

>>> import torch
>>> model = torch.nn.Linear(4, 2)
>>> find_modules(lambda x: model(x).softmax(1))
[Linear(in_features=4, out_features=2, bias=True)]
>>> with lend(model):
...     model.training
False
>>> model.training
True
"""

import gc
import itertools
import threading
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks_with_kwargs",
)
# One lock for all models that run as they are: they may share layers.
_AS_IT_IS = threading.RLock()


@contextmanager
def lend(*models: nn.Module) -> Iterator[None]:
    """Put modules in eval mode for one thread at a time; all but their weights comes back after."""
    modules = list(dict.fromkeys(m for model in models for m in model.modules()))
    with _AS_IT_IS if modules else nullcontext():
        state = [
            (m, m.training, {name: dict(m.__dict__.get(name) or {}) for name in HOOKS})
            for m in modules
        ]
        params = dict.fromkeys(p for m in modules for p in m.parameters(recurse=False))
        gradients = [(p, p.grad) for p in params if not p.is_inference()]
        buffers = [
            (m, name, b, b.detach().clone())
            for m in modules
            for name, b in m.named_buffers(recurse=False)
        ]

        @torch.no_grad()
        def restore() -> None:
            for m, mode, kept in state:
                m.training = mode
                for name, before in kept.items():
                    held = m.__dict__.get(name, {})
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
            for p, _ in gradients:
                p.grad = None  # what a member adds by backward() must not reach the caller's
            for m in modules:
                m.training = False
            yield
        finally:
            try:
                restore()
            except KeyboardInterrupt:
                restore()
                raise


_DEPTH = 8  # functions in functions, containers in containers
_ITEMS = 1000  # of one container that are looked at
_VALUES = 20_000  # that are looked at in all


def find_modules(function: Any) -> list[nn.Module]:
    """Return the modules within a function's reach, each once, without their parts.

    Looked at are its closure, defaults, attributes and the globals it names, the object of a bound
    method, the parts of a `functools.partial`, and the attributes of an object that is called.
    """
    found: dict[nn.Module, None] = {}
    seen: set[int] = set()
    layer = [function]
    for deeper in reversed(range(_DEPTH + 1)):
        inside: list[Any] = []
        for value in layer:
            if id(value) not in seen:
                seen.add(id(value))
                if isinstance(value, nn.Module):
                    found[value] = None
                inside += list(_list_parts(value))[:_ITEMS] if deeper else ()
        layer = inside[:_VALUES]
    parts = {part for module in found for part in module.modules() if part is not module}
    return [module for module in found if module not in parts]


def _list_parts(value: Any) -> Iterable[Any]:
    """Return what a value holds that a call of it may run."""
    if isinstance(value, type | types.ModuleType | types.CodeType | Tensor):
        return ()
    if not isinstance(value, types.FunctionType):
        return gc.get_referents(value)
    if (value.__module__ or "").split(".")[0] == "torch":
        return ()
    parts: list[Any] = [value.__defaults__, value.__kwdefaults__]
    parts += [value.__dict__, value.__closure__]
    names = set(_list_names(value.__code__))
    for name in names & value.__globals__.keys():
        known = value.__globals__[name]
        parts.append(known)
        if isinstance(known, types.ModuleType):  # models.net(x)
            held = [vars(known).get(other) for other in names]
            parts += [part for part in held if isinstance(part, nn.Module)]
    return parts


def _list_names(code: types.CodeType) -> list[str]:
    """Return the names of globals and attributes in a function and the functions inside it."""
    inner = [_list_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return [*code.co_names, *itertools.chain(*inner)]

"""Describe what a copy of a model would copy: two equal descriptions mean equal copies.

Left out are the values of parameters and buffers, which a twin takes anew for every call, and what
a copy shares with the model: functions, classes and other things that cannot change.
"""

import enum
import functools
import types
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

LISTENERS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module keeps its hooks; what else it keeps only says how to call them."""
HOOKS = (
    *LISTENERS,
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks_with_kwargs",
)

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), slice, type(Ellipsis)))
_FIXED = (
    *(type, enum.Enum, types.BuiltinFunctionType, types.ModuleType),
    *(torch.dtype, torch.device, torch.memory_format, torch.layout),
)
_CONTAINERS = frozenset((dict, OrderedDict, set, list))
_DEPTH = 8  # of containers in containers


def list_modules(model: nn.Module) -> list[nn.Module]:
    """Return a module and all of its parts, each once: `modules()`, at a fraction of its price."""
    found = {model: None}
    todo = [model]
    for module in todo:
        for child in module._modules.values():
            if child is not None and child not in found:
                found[child] = None
                todo.append(child)
    return todo


class _UnknownError(Exception):
    """Something of which nobody can say whether it has changed."""


def describe(model: nn.Module, modes: bool = True) -> list[Any] | None:
    """Return a description to compare, or None if the model holds something that has none.

    Args:
        model: the model.
        modes: whether train and eval mode are part of it.
    """
    numbers = {module: number for number, module in enumerate(list_modules(model))}
    found: list[Any] = []  # flat, of things that are mostly the same object: quick to compare
    add = found.append
    try:
        for module in numbers:
            add(type(module))
            add(tuple(module.__dict__))
            for name, value in module.__dict__.items():
                kind = type(value)
                add(kind)
                if kind in _PLAIN:
                    if modes or name != "training":
                        add(value)
                elif kind in _CONTAINERS and not value:
                    continue
                elif name == "_parameters" or name == "_buffers":
                    for key, t in value.items():
                        add(key)
                        add(t is None or (t.dtype, t.device, t.shape, t.stride()))
                elif name == "_modules":
                    add([(key, numbers.get(child)) for key, child in value.items()])
                elif kind is tuple and _PLAIN.issuperset(map(type, value)):
                    add(value)
                    found.extend(map(type, value))
                else:
                    add(_freeze(value, numbers, 0))
    except (_UnknownError, NotImplementedError, RuntimeError):  # some tensors have no strides
        return None
    return found


class Snapshot:
    """The attributes of a module that is ours alone, to see at little cost if a pass changed them.

    Other than a description, it keeps the values themselves alive.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.empty = module, []
        self.held: list[tuple[Any, Any]] = []
        deep = False
        for m in list_modules(module):
            self.held.append((m.__dict__, dict(m.__dict__)))
            for value in m.__dict__.values():
                if type(value) not in _CONTAINERS:
                    deep = deep or not _is_flat(value)
                elif value:
                    self.held.append((value, value.copy()))
                    inside = value.values() if isinstance(value, dict) else value
                    deep = deep or not all(map(_is_flat, inside))
                else:
                    self.empty.append(value)
        self.whole = describe(module) if deep else None

    def holds(self) -> bool:
        """Whether all attributes are what they were."""
        if any(self.empty):
            return False
        try:
            for now, before in self.held:
                if now != before:
                    return False
        except RuntimeError:  # two tensors, of which one took the other's place
            return False
        return self.whole is None or self.whole == describe(self.module)


def _is_flat(value: Any) -> bool:
    """Whether a value cannot change but by another taking its place, or is looked at by itself."""
    if isinstance(value, tuple):
        return all(map(_is_flat, value))
    known = (*_FIXED, types.FunctionType, nn.Module, Tensor)
    return type(value) in _PLAIN or isinstance(value, known)


def _freeze(value: Any, numbers: dict[nn.Module, int], depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, _FIXED):
        return value
    if isinstance(value, types.FunctionType) and not value.__closure__:
        return value  # with a closure it may hold anything, the model itself too
    if depth > _DEPTH or isinstance(value, Tensor):
        raise _UnknownError
    if isinstance(value, nn.Module):
        if value not in numbers:  # hidden in a list, so its weights are copied
            raise _UnknownError
        return "module", numbers[value]
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list | tuple):
        items = value
    elif isinstance(value, set | frozenset):
        return kind, frozenset(_freeze(v, numbers, depth + 1) for v in value)
    elif isinstance(value, functools.partial):
        items = (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        items = (value.__func__, value.__self__)
    elif _is_simple(kind):
        items = vars(value).items()
    else:
        raise _UnknownError
    return kind, [_freeze(v, numbers, depth + 1) for v in items]


def _is_simple(kind: type) -> bool:
    """Whether objects of a class are their attributes and nothing else."""
    own = ("__reduce_ex__", "__reduce__", "__getstate__", "__deepcopy__", "__slots__")
    return not any(name in base.__dict__ for base in kind.__mro__[:-1] for name in own)

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

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)

_PLAIN = (int, float, bool, str, bytes, complex, type(None), slice, type(Ellipsis))
_FIXED = (
    *(type, enum.Enum, types.BuiltinFunctionType, types.ModuleType),
    *(torch.dtype, torch.device, torch.memory_format, torch.layout),
)
_CONTAINERS = (dict, OrderedDict, set, list)
_DEPTH = 8  # of containers in containers


class _UnknownError(Exception):
    """Something of which nobody can say whether it has changed."""


def describe(model: nn.Module, modes: bool = True) -> list[Any] | None:
    """Return a description to compare, or None if the model holds something that has none.

    Args:
        model: the model.
        modes: whether train and eval mode are part of it.
    """
    numbers = {module: number for number, module in enumerate(model.modules())}
    found: list[Any] = []
    try:
        for module in numbers:
            found.append(type(module))
            for name, value in module.__dict__.items():
                kind = type(value)
                if kind in _PLAIN:
                    if modes or name != "training":
                        found.append((name, kind, value))
                elif kind in _CONTAINERS and not value:
                    found.append(name)
                elif name == "_parameters" or name == "_buffers":
                    for key, t in value.items():
                        found.append((key, t is None or (t.dtype, t.device, t.shape, t.stride())))
                elif name == "_modules":
                    found.append([(key, numbers.get(child)) for key, child in value.items()])
                else:
                    found.append((name, _freeze(value, numbers, 0)))
    except (_UnknownError, NotImplementedError, RuntimeError):  # some tensors have no strides
        return None
    return found


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

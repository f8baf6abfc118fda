"""What decides a run's results, as hashes: a model's weights, buffers, code and constants.

A rerun with another model, another preprocessing or another function must be told apart, also where
its name is the same. Code is that of functions and classes of the caller's own; of installed
packages and of Python itself names are enough. What a model's own ``forward`` assigns (a counter)
is a state and no constant, and so are lists of numbers outside of the model.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import importlib.util
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sea_nn.explanation.provenance import hash_tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
PARTS = (tuple, Tensor, property, staticmethod, classmethod)
INTERNAL = frozenset(nn.Module().__dict__)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def fingerprint_model(model: Callable[..., Any]) -> dict[str, str]:
    """Hashes of a model's weights, buffers, code and constants; a function has the last two."""
    found = _Walk(model, tensors=not isinstance(model, nn.Module)).digests()
    if isinstance(model, nn.Module):
        found["weights"] = _hash_tensors(model.named_parameters())
        found["buffers"] = _hash_tensors(model.named_buffers())
    return found


def fingerprint(value: Any) -> str:
    """One hash of any value: arrays, pictures, functions with what they refer to, objects."""
    return hashlib.sha256(repr(_Walk(value).digests()).encode()).hexdigest()[:16]


def _hash_tensors(named: Any) -> str:
    whole = hashlib.sha256()
    for name, tensor in named:
        whole.update(f"{name} {hash_tensor(tensor)}".encode())
    return whole.hexdigest()[:16]


@functools.lru_cache(256)
def _is_library(module: str) -> bool:
    """Whether a module is installed, and so named by its version rather than its code."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root in ("sea_nn", "torch"):
        return root != "builtins"
    try:
        origin = getattr(importlib.util.find_spec(root), "origin", None) or ""
    except (ImportError, ValueError):
        return False
    return origin.startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def _is_known(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or ""
    if module == "builtins":  # classes made by exec say so too
        return getattr(builtins, thing.__name__, None) is thing
    return _is_library(module)


class _Walk:
    """Goes through a value and all that it refers to, each thing once."""

    def __init__(self, value: Any, tensors: bool = True) -> None:
        self.code, self.constants = hashlib.sha256(), hashlib.sha256()
        self.tensors = tensors  # whether a module's weights count here
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice
        self.visit(value)

    def digests(self) -> dict[str, str]:
        """The hashes of what was found."""
        return {"code": self.code.hexdigest()[:16], "constants": self.constants.hexdigest()[:16]}

    def note(self, text: Any) -> None:
        self.constants.update(f"{text}\0".encode("utf-8", "surrogatepass"))

    def visit(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self.note(f"{type(value).__name__} {value!r}")
            return
        if id(value) in self.seen:
            self.note(f"again {self.seen[id(value)]}")
            return
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            self.note(f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
        elif isinstance(value, Tensor):
            self.note(hash_tensor(value))
        elif isinstance(value, types.CodeType):
            self.visit_code(value)
        elif isinstance(value, types.FunctionType):
            self.visit_function(value)
        elif isinstance(value, types.MethodType):
            self.visit_all((value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            self.visit_all((value.func, value.args, value.keywords))
        elif isinstance(value, staticmethod | classmethod):
            self.visit(value.__func__)
        elif isinstance(value, property):
            self.visit_all((value.fget, value.fset))
        elif isinstance(value, type):
            self.visit_class(value)
        elif isinstance(value, nn.Module):
            self.visit_module(value)
        elif isinstance(value, dict):
            self.visit_all(part for pair in value.items() for part in pair)
        elif isinstance(value, list | tuple):
            self.visit_all(value)
        elif isinstance(value, set | frozenset):
            self.visit_all(sorted(value, key=repr))
        elif isinstance(value, types.ModuleType | types.BuiltinFunctionType | torch.dtype):
            self.note(getattr(value, "__name__", value))
        else:
            self.visit_object(value)

    def visit_all(self, values: Any) -> None:
        values = list(values)
        self.note(len(values))
        for value in values:
            self.visit(value)

    def visit_code(self, code: types.CodeType) -> None:
        self.code.update(code.co_code + repr(code.co_names).encode())
        self.visit_all(code.co_consts)

    def visit_function(self, function: types.FunctionType) -> None:
        self.note(function.__qualname__.rpartition(".")[2])
        if _is_known(function):
            return
        self.visit(function.__code__)
        self.visit_all((function.__defaults__, function.__kwdefaults__))
        assigned = {name for _, name in _list_assigned(function.__code__)}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            if name not in assigned:
                self.visit_outside(getattr(cell, "cell_contents", None))
        names = _list_names(function.__code__)
        for name in names:
            outside = function.__globals__.get(name)
            if name in assigned:
                continue
            if isinstance(outside, types.ModuleType) and not _is_library(outside.__name__):
                self.visit_all(getattr(outside, own, None) for own in names)
            else:
                self.visit_outside(outside)

    def visit_outside(self, value: Any) -> None:
        """What a function refers to; a list of numbers there is somebody's counter."""
        numbers = value.values() if isinstance(value, dict) else value
        if isinstance(value, list | dict | set) and all(
            isinstance(v, int | float) for v in numbers
        ):
            return
        self.visit(value)

    def visit_class(self, cls: type) -> None:
        self.note(cls.__qualname__.rpartition(".")[2])
        for base in cls.__mro__:
            if base is object or _is_known(base):
                continue
            for name, part in sorted(vars(base).items()):
                plain = isinstance(part, (*PLAIN, *PARTS)) and not name.startswith("__")
                if callable(part) or plain:
                    self.note(name)
                    self.visit(part)

    def visit_module(self, module: nn.Module) -> None:
        self.visit_class(type(module))
        state = _find_state(type(module))
        for name, value in sorted(vars(module).items()):
            if name not in INTERNAL and name not in state:
                self.note(name)
                self.visit(value)
        for kind in HOOKS:
            self.visit_all(getattr(module, kind).values())
        for name, part in module.named_children():
            self.note(name)
            self.visit(part)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            self.note(name)
            self.note(hash_tensor(tensor) if self.tensors and tensor is not None else "")

    def visit_object(self, value: Any) -> None:
        self.visit_class(type(value))
        try:
            state = value.__getstate__()
        except Exception:  # a lock, a handle: nothing that decides a result
            return
        if state is not value:
            self.visit(state)


def _list_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _list_codes(part)


def _list_names(code: types.CodeType) -> list[str]:
    """The names that a code and those inside it look up."""
    return sorted({name for part in _list_codes(code) for name in part.co_names})


def _list_assigned(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """How and to what names a code assigns that outlive it."""
    for part in _list_codes(code):
        for step in dis.get_instructions(part):
            if step.opname in ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"):
                yield step.opname, str(step.argval)


def _find_state(cls: type) -> set[str]:
    """The attributes that ``forward``, or what it calls of its own class, assigns."""
    found, queue, seen = set[str](), ["forward", "__call__"], set[str]()
    while queue:
        name = queue.pop()
        method = getattr(cls, name, None)
        if name in seen or not isinstance(method, types.FunctionType) or _is_known(method):
            continue
        seen.add(name)
        found |= {to for how, to in _list_assigned(method.__code__) if how == "STORE_ATTR"}
        queue += _list_names(method.__code__)
    return found

"""What decides a run's results, as hashes: a model's weights, buffers, code and constants.

A rerun with another model, another preprocessing or another function must be told apart, also where
its name is the same. Code is that of functions and classes of the caller's own; of installed
packages and of Python itself names are enough. What a ``forward`` itself assigns (a counter) is a
state and no constant.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
INTERNAL = frozenset(nn.Module().__dict__)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def fingerprint_model(model: Callable[..., Any]) -> dict[str, str]:
    """Hashes of a model's weights, buffers and code with constants; a function has the last."""
    if not isinstance(model, nn.Module):
        return {"code": fingerprint(model)}
    weights, buffers = list(model.named_parameters()), list(model.named_buffers())
    told = {id(tensor): (place, tensor) for place, (_, tensor) in enumerate([*weights, *buffers])}
    return {
        "weights": hash_texts(f"{name} {hash_tensor(tensor)}" for name, tensor in weights),
        "buffers": hash_texts(f"{name} {hash_tensor(tensor)}" for name, tensor in buffers),
        "code": hash_texts(_tell(model, told)),
    }


def hash_tensor(tensor: Tensor) -> str:
    """Return a checksum of a tensor's shape, kind and content."""
    plain = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{plain.dtype} {list(plain.shape)}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint(value: Any) -> str:
    """One hash of any value: arrays, pictures, functions with what they refer to, objects."""
    return hash_texts(_tell(value, {}))


def hash_texts(texts: Iterable[str]) -> str:
    """One hash of some texts."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(f"{text}\0".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()[:16]


def _tell(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    """Texts that tell a value, and all that it refers to, from any other; each thing once.

    ``seen`` has by id the number of each thing, and the thing itself, so that no id is given twice.
    """
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif id(value) in seen:
        yield f"again {seen[id(value)][0]}"
    elif isinstance(value, Tensor):
        yield hash_tensor(value)
    else:
        seen[id(value)] = len(seen), value
        yield "("
        for part in _take_apart(value):
            yield from _tell(part, seen)
        yield ")"


def _take_apart(value: Any) -> Iterable[Any]:
    """The parts that decide what a value is."""
    match value:
        case types.ModuleType() | types.BuiltinFunctionType() | torch.dtype():
            return (getattr(value, "__name__", str(value)),)
        case types.CodeType():
            return value.co_code, value.co_names, value.co_consts
        case types.FunctionType():
            return _list_function(value)
        case staticmethod() | classmethod() | property():
            return [getattr(value, name, None) for name in ("__func__", "fget", "fset")]
        case type():
            return _list_class(value)
        case nn.Module():
            return _list_module(value)
        case torch.jit.ScriptFunction():
            return (value.code,)
        case np.ndarray() if value.dtype != object:
            return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
        case dict():
            return value.items()
        case list() | tuple():
            return value
        case set() | frozenset():
            return sorted(map(fingerprint, value))
    made: Any = getattr(value, "__dict__", None)
    with suppress(Exception):  # a lock, a handle: nothing that decides a result
        reduce = copyreg.dispatch_table.get(type(value))
        made = value.__reduce_ex__(4) if reduce is None else reduce(value)
    parts = made if isinstance(made, tuple) else (made,)  # of what a copy is made of, items last
    return type(value), *(list(part) if isinstance(part, Iterator) else part for part in parts)


def _list_function(function: types.FunctionType) -> Iterator[Any]:
    """Its code, its defaults, and what it refers to but does not assign."""
    yield function.__name__
    if _is_known(function):
        return
    if (compiled := vars(function).get("_torchdynamo_orig_callable")) is not None:
        yield compiled
        return
    code = function.__code__
    yield from (code, function.__defaults__, function.__kwdefaults__)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    names = sorted({name for part in _list_codes(code) for name in part.co_names})
    known = {name: function.__globals__.get(name) for name in names}
    known |= {name: getattr(cell, "cell_contents", None) for name, cell in cells}
    known |= vars(function)
    assigned = _find_assigned(code)
    queue = [value for name, value in known.items() if name not in assigned]
    entered = set[str]()
    for found in queue:
        if not isinstance(found, types.ModuleType) or _is_library(found.__name__):
            yield found
        elif found.__name__ not in entered:  # of a module of the caller's own, what is named
            entered.add(found.__name__)
            queue += [vars(found).get(name) for name in names]


def _list_class(cls: type) -> Iterator[Any]:
    """The methods and constants that a class has of its own or of the caller's other classes."""
    yield cls.__name__
    for base in (base for base in cls.__mro__ if not _is_known(base)):
        for name, part in sorted(vars(base).items()):
            if callable(part) or not name.startswith("__"):
                yield from (name, part)


def _list_module(module: nn.Module) -> Iterator[Any]:
    """Its class, what it holds but for what ``forward`` assigns, its hooks, its parts."""
    yield type(module)
    if isinstance(module, torch.jit.ScriptModule):
        yield getattr(module, "code", None)
    elif "_orig_mod" not in module._modules:  # what a compiled module has besides is torch's
        code = getattr(type(module).forward, "__code__", None)
        state = INTERNAL if code is None else INTERNAL | _find_assigned(code)
        yield {name: value for name, value in sorted(vars(module).items()) if name not in state}
    yield from (list(getattr(module, kind, {}).values()) for kind in HOOKS)
    yield from (dict(module.named_children()), module._parameters, module._buffers)


@functools.lru_cache(256)
def _is_library(module: str) -> bool:
    """Whether a module is installed, and so named by its version rather than its code."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root in ("sea_nn", "torch"):
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return file.startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def _is_known(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or ""
    if module == "builtins":  # classes made by exec say so too
        return getattr(builtins, thing.__name__, None) is thing
    return _is_library(module)


def _list_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _list_codes(part)


def _find_assigned(code: types.CodeType) -> set[str]:
    """The names that a code assigns in ways that outlive it."""
    steps = (step for part in _list_codes(code) for step in dis.get_instructions(part))
    ways = ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF")
    return {str(step.argval) for step in steps if step.opname in ways}

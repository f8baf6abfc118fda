"""A GPU that is pretended: tensors that say they lie on one, and may not meet those of the CPU.

Numbers are computed on the CPU. What CUDA refuses, two devices in one operation or an index on
another device than a tensor on the CPU, is refused here too, so that a machine without a GPU finds
code that forgets to move a tensor.
"""

from __future__ import annotations

import copy
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
_GET = Tensor.__getitem__
_PLAIN = {Tensor.device.__get__: GPU, Tensor.is_cuda.__get__: True, Tensor.is_cpu.__get__: False}


class OnGpu(Tensor):
    """A tensor on the pretended GPU."""


def to_gpu(x: Tensor) -> Tensor:
    return x.as_subclass(OnGpu)


def to_cpu(x: Tensor) -> Tensor:
    return x.as_subclass(Tensor)


def move(model: nn.Module) -> nn.Module:
    """A copy of a model with its weights on the pretended GPU."""
    model = copy.deepcopy(model)
    for part in model.modules():
        for name, weight in list(part._parameters.items()):
            if weight is not None:
                part._parameters[name] = to_gpu(weight.detach()).requires_grad_()
        for name, buffer in list(part._buffers.items()):
            part._buffers[name] = to_gpu(buffer)
    return model


class PretendedGpu(TorchFunctionMode):
    """While it is entered, ``device="cuda"`` is the pretended GPU."""

    def __enter__(self):
        room = {"mem_get_info": (2**33, 2**33), "memory_reserved": 0, "memory_allocated": 0}
        self.patched = [
            mock.patch.object(torch.cuda, name, lambda *_, value=value: value)
            for name, value in room.items()
        ]
        for one in self.patched:
            one.start()
        torch.__future__.set_overwrite_module_params_on_conversion(True)  # else they stay plain
        return super().__enter__()

    def __exit__(self, *error):
        for one in self.patched:
            one.stop()
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        here = any(isinstance(one, OnGpu) for one in given)
        if here and func in _PLAIN:
            return _PLAIN[func]
        if here and func in (Tensor.numpy, Tensor.__array__):
            raise TypeError("can't convert a tensor of the GPU to numpy")
        place = GPU if here else CPU
        wanted = [one for one in (*args, kwargs.get("device")) if _is_place(func, one)]
        if func is Tensor.cpu:
            place, func, args = CPU, Tensor.clone, args[:1]
        elif func is Tensor.to and len(args) > 1 and isinstance(args[1], Tensor):
            place = GPU if isinstance(args[1], OnGpu) else CPU
        elif wanted:
            place = torch.device(wanted[0])
        elif here:
            _check_places(func, given)
        args = tree_map(lambda one: CPU if _is_place(func, one) else one, args)
        if kwargs.get("device") is not None:
            kwargs["device"] = CPU
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
        if given and made is given[0] and place == (GPU if isinstance(made, OnGpu) else CPU):
            return made
        if isinstance(made, torch.Size):  # a tree of its own, which would come back as a tuple
            return made
        wrap = to_gpu if place.type == "cuda" else to_cpu
        return tree_map(lambda one: wrap(one) if isinstance(one, Tensor) else one, made)


def _is_place(func, value) -> bool:
    named = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    return isinstance(value, torch.device) or (named and func is Tensor.to)


def _check_places(func, given) -> None:
    """Refuse what CUDA refuses; numbers without an axis may come from the CPU."""
    name = getattr(func, "__name__", str(func))
    first, *others = given
    if func is _GET:
        if not isinstance(first, OnGpu):
            raise RuntimeError("an index on the GPU for a tensor on the CPU")
        return
    if name in ("__setitem__", "copy_", "__get__", "__set__"):
        return
    for one in others:
        if one.ndim and first.ndim and isinstance(one, OnGpu) != isinstance(first, OnGpu):
            raise RuntimeError(f"{name} of tensors on two devices, {first.shape} and {one.shape}")

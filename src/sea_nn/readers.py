"""Who reads a tensor in a forward pass: layers, and operations outside of them.

A layer may be merged with the next, or run apart, only where nobody else looks at what lies between
them. That is a fact about the model's code, so it is read off the operations of one pass and not
guessed from numbers, which may agree by chance.

>>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
>>> with Readers(model) as readers:
...     output = model(torch.rand(1, 1, 8, 8))
>>> readers.of_output(model[0]) == {model[1]}
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

_FACTS = ("shape", "dtype", "device", "ndim", "layout", "is_cuda", "requires_grad", "is_sparse")
_ASKED = ("size", "dim", "stride", "numel", "nelement", "__len__", "is_contiguous", "get_device")
_METADATA = {getattr(torch.Tensor, name).__get__ for name in _FACTS}
_METADATA |= {getattr(torch.Tensor, name) for name in (*_ASKED, "is_floating_point", "is_complex")}


class Readers(TorchFunctionMode):
    """Listens to a forward pass: which layers and operations read which tensors' values.

    Args:
        layers: what counts as one reader, whatever it does inside.

    Attributes:
        calls: how often each layer ran.
        operations: the names of what each did.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = list(layers)
        self.calls: dict[nn.Module, int] = {}
        self.operations: dict[nn.Module, set[str]] = {}
        self._inside: list[nn.Module] = []
        self._outputs: dict[nn.Module, Tensor] = {}
        self._watched: dict[int, tuple[Tensor, set[Any]]] = {}
        self._handles: list[Any] = []

    def watch(self, tensor: Tensor) -> None:
        """From now on note who reads this tensor."""
        self._watched[id(tensor)] = (tensor, set())

    def of(self, tensor: Tensor) -> set[Any]:
        """The readers of a watched tensor: layers, and functions outside of any."""
        return self._watched[id(tensor)][1]

    def of_output(self, layer: nn.Module) -> set[Any]:
        """The readers of what a layer gave last; none if it gave no tensor."""
        return self.of(self._outputs[layer]) if layer in self._outputs else set()

    def __enter__(self) -> Readers:
        def enter(layer: nn.Module, inputs: Any) -> None:
            self.calls[layer] = self.calls.get(layer, 0) + 1
            self._inside.append(layer)

        def leave(layer: nn.Module, inputs: Any, output: Any) -> None:
            self._inside.pop()
            if isinstance(output, Tensor):
                self._outputs[layer] = output
                self.watch(output)

        try:
            for layer in self.layers:
                self._handles.append(layer.register_forward_pre_hook(enter))
                self._handles.append(layer.register_forward_hook(leave))
        except BaseException:
            self._unhook()
            raise
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._unhook()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _METADATA:
            reader: Any = func
            if self._inside:
                reader = self._inside[-1]
                name = getattr(func, "__name__", str(func))
                self.operations.setdefault(reader, set()).add(name)
            for leaf in tree_leaves((args, kwargs)):
                if id(leaf) in self._watched:
                    self._watched[id(leaf)][1].add(reader)
        return func(*args, **kwargs)

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

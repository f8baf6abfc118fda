"""Who reads a tensor in a forward pass: layers, and operations outside of them.

A layer may be merged with the next, or run apart, only where nobody else looks at what lies between
them. That is a fact about the model's code, so it is read off the operations of one pass and not
guessed from numbers, which may agree by chance.

>>> import torch
>>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
>>> with Readers(model) as readers:
...     output = model(torch.rand(1, 1, 8, 8))
>>> readers.of_output(model[0]) == {model[1]}
True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Readers(TorchDispatchMode):
    """Listens to a forward pass: which layers and operations read which tensors' values.

    It sees what reaches PyTorch's dispatcher, whoever calls it; a size or a type does not.

    Args:
        layers: what counts as one reader, whatever it does inside.

    Attributes:
        calls: how often each layer ran.
        operations: the names of what each did, as the dispatcher calls it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would load its compiler, a second and a half, to keep it from tracing this class;
        # nothing compiled is listened to.
        return False

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = list(layers)
        self.calls: dict[nn.Module, int] = {}
        self.operations: dict[nn.Module, set[str]] = {}
        self._inside: list[nn.Module] = []
        self._outputs: dict[nn.Module, Tensor] = {}
        self._watched: dict[int, tuple[Tensor, set[Any]]] = {}
        self._handles: list[Any] = []

    def watch(self, tensor: Tensor) -> None:
        """From now on note who reads this tensor."""
        self._watched.setdefault(id(tensor), (tensor, set()))  # a layer may give what it got

    def of(self, tensor: Tensor) -> set[Any]:
        """The readers of a watched tensor: layers, and operations outside of any."""
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

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        reader = self._inside[-1] if self._inside else func
        if self._inside:
            self.operations.setdefault(reader, set()).add(func.overloadpacket.__name__)
        for leaf in tree_leaves((args, kwargs)):
            if id(leaf) in self._watched:
                self._watched[id(leaf)][1].add(reader)
        return func(*args, **kwargs)

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

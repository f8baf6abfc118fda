"""Gradient passes as compiled code, checked once against the model itself.

Between the convolutions of a network lie many small operations (biases, activations, residual
sums), each of which reads and writes a whole activation. `torch.compile` joins them, which takes it
some seconds for a model and pays from a few hundred evaluations on, on a GPU most of all.
"""

import threading
import warnings
from collections.abc import Callable
from functools import cached_property
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from sea_nn.model.norm_folding import Fold
from sea_nn.model.outputs import TensorModel

ALIKE = 0.999
"""The least cosine between a compiled pass and the model's own for the former to be trusted."""

# What PyTorch's compiler is doing is known to the whole process, not to a thread.
_COMPILING = threading.RLock()
_TRUSTED: "WeakSet[nn.Module]" = WeakSet()
_REFUSED: "WeakSet[nn.Module]" = WeakSet()
_FOLDS: "WeakKeyDictionary[nn.Module, Fold]" = WeakKeyDictionary()


def keep_fold(twin: nn.Module, fold: Fold | None) -> None:
    """Keep the folded copy that code is made for: another would have to be compiled again."""
    if fold is not None:
        _FOLDS[twin] = fold


def recall_fold(twin: nn.Module | None) -> Fold | None:
    """Return the folded copy that code was made for, with the weights of now."""
    fold = _FOLDS.get(twin) if twin is not None else None
    if fold is not None:
        fold.refresh()
    return fold


def fix_shape(points: Tensor) -> None:
    """Have code made for inputs of this shape, whatever the number of them.

    A model is asked about images and, with its first layer apart, about what that makes of them.
    Two shapes seen would be taken for many to come, and code for any of them is a fifth slower.
    """
    if not torch.compiler.is_compiling():  # another thread of the program's: code for any shape
        torch._dynamo.mark_static(points, list(range(1, points.ndim)))


class Compiled:
    """A model and its compiled form, to run either; the model alone once compiling has failed."""

    def __init__(self, model: TensorModel, module: nn.Module) -> None:
        self.model, self.module = model, module

    @cached_property
    def quick(self) -> TensorModel:
        """The compiled form; made when it is first needed, for a replayed pass needs none."""
        # PyTorch keeps the code it made with the module's own: another call finds it again.
        return TensorModel(torch.compile(self.module), check=False)

    def run(self, work: Callable[[TensorModel], Tensor]) -> Tensor:
        """Return `work(model)` with the compiled model if that gives the same answer."""
        if self.module in _REFUSED:
            return work(self.model)
        try:
            with _COMPILING, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's advice to those who train
                found = work(self.quick)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            return self._give_up(work(self.model), f"{type(error).__name__}: {reason}")
        if self.module in _TRUSTED:
            return found
        expected = work(self.model)
        same = cosine_similarity(found.flatten(1).double(), expected.flatten(1).double())
        still = expected.flatten(1).abs().amax(1) == 0  # no direction to compare
        if not bool(((same >= ALIKE) | still).all()):
            return self._give_up(expected, f"its gradients differ, cosine {float(same.min()):.4f}")
        _TRUSTED.add(self.module)
        return found

    def _give_up(self, answer: Tensor, reason: str) -> Tensor:
        _REFUSED.add(self.module)
        warnings.warn(
            f"the model runs as it is: torch.compile does not help it here ({reason})",
            stacklevel=2,
        )
        return answer

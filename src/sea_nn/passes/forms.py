"""Other forms of a model, and whether they are the model: norms folded, or nothing in place."""

from dataclasses import replace

from torch import Tensor

from sea_nn.errors import UnfitError
from sea_nn.passes.borrowing import copy_twin, find_inplace, is_private
from sea_nn.passes.evaluator import Evaluator
from sea_nn.passes.gradient_sums import input_gradients, sum_behind, sum_gradients
from sea_nn.passes.norm_folding import Fold, may_round
from sea_nn.passes.outputs import TensorModel
from sea_nn.passes.sameness import same_gradients, same_outputs
from sea_nn.passes.tracing import recall_layers


def fold(task: Evaluator, gradients: bool) -> Fold | None:
    """Return the model with its norms folded, or None if it has none that may be.

    Args:
        task: the model and the inputs.
        gradients: whether passes go back as well: a device that rounds then goes forward by the
            model's own weights, or the gradients are not the model's own.
    """
    if task.module is None or not is_private(task.module) or task.args:
        return None
    layers = recall_layers(task.module)
    if not layers.pairs and not layers.norms:
        return None
    faithful = gradients and may_round(task.x.device) and task.autocast is None
    return Fold(task.module, layers, task.autocast, faithful)


def run_by(task: Evaluator, fold: Fold | None) -> Evaluator:
    """Return the same task, running a fold of its model."""
    if fold is None:
        return task
    return replace(task, model=TensorModel(fold.module, check=False), folded=fold)


def check(task: Evaluator, fast: Evaluator, outputs: Tensor | None = None) -> Tensor:
    """Return whether a fast form of the model is the model, for every input; bool, on device.

    Compared are the outputs and, until they were found to be the same once, the gradients at the
    inputs.

    Args:
        task: the model as it is, and the inputs.
        fast: the same inputs with another form of the model.
        outputs: what that form says of the inputs, if known.
    """
    quiet = replace(fast, tick=lambda count: None, compiled=None)
    if outputs is None:
        outputs = quiet.answer()
    alike = same_outputs(outputs, task.outputs, task.autocast)
    if task.kept is not None and task.kept.is_proved(task):
        return alike
    own = input_gradients(task)
    layer = None if task.kept is None else task.kept.find_first(quiet)
    if layer is None:
        found = sum_gradients(quiet, 1, lambda part: task.x[part.rows])
    else:
        found = sum_behind(quiet, layer, 1, lambda part: task.x[part.rows])
    return alike & same_gradients(found, own, task.autocast)


def out_of_place(task: Evaluator, member: str) -> Evaluator:
    """Return the same task on a copy of the model whose layers do not write in place.

    Raises:
        UnfitError: the model has no copy, or layers that write in place are part of what it
            computes.
    """
    if task.module is None or not is_private(task.module):
        raise UnfitError(
            f"{member} changes how layers run, and this model cannot be copied, so that would "
            "show wherever else it is used. Use saliency or integrated_gradients"
        )
    if not find_inplace(task.module):
        return task
    copy = replace(task, model=TensorModel(copy_twin(task.module, inplace=False), check=False))
    if not bool(same_outputs(replace(copy, tick=lambda count: None).answer(), task.outputs)):
        raise UnfitError(
            f"{member} needs layers that do not write in place, and with inplace=False this "
            "model computes something else (an activation overwrites what another layer "
            "reads). Use saliency or integrated_gradients, which run the model as it is"
        )
    return copy

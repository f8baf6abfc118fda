"""Other forms of a model, and whether they are the model: norms folded, or nothing in place."""

from dataclasses import replace

from torch import Tensor

from sea_nn.errors import UnfitError
from sea_nn.model.borrowing import copy_twin, find_inplace, is_private
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.gradient_sums import input_gradients, sum_behind, sum_gradients
from sea_nn.model.norm_folding import Fold, may_round
from sea_nn.model.outputs import TensorModel
from sea_nn.model.sameness import same_gradients, same_outputs
from sea_nn.model.tracing import recall_layers


def fold(evaluator: Evaluator, gradients: bool) -> Fold | None:
    """Return the model with its norms folded, or None if it has none that may be.

    Args:
        evaluator: the model and the inputs.
        gradients: whether passes go back as well: a device that rounds then goes forward by the
            model's own weights, or the gradients are not the model's own.
    """
    if evaluator.module is None or not is_private(evaluator.module) or evaluator.args:
        return None
    layers = recall_layers(evaluator.module)
    if not layers.pairs and not layers.norms:
        return None
    faithful = gradients and may_round(evaluator.x.device) and evaluator.autocast is None
    return Fold(evaluator.module, layers, evaluator.autocast, faithful)


def run_by(evaluator: Evaluator, fold: Fold | None) -> Evaluator:
    """Return the same evaluator, running a fold of its model."""
    if fold is None:
        return evaluator
    return replace(evaluator, model=TensorModel(fold.module, check=False), folded=fold)


def check(evaluator: Evaluator, fast: Evaluator, outputs: Tensor | None = None) -> Tensor:
    """Return whether a fast form of the model is the model, for every input; bool, on device.

    Compared are the outputs and, until they were found to be the same once, the gradients at the
    inputs.

    Args:
        evaluator: the model as it is, and the inputs.
        fast: the same inputs with another form of the model.
        outputs: what that form says of the inputs, if known.
    """
    quiet = replace(fast, tick=lambda count: None, compiled=None)
    if outputs is None:
        outputs = quiet.answer()
    alike = same_outputs(outputs, evaluator.outputs, evaluator.autocast)
    if evaluator.kept is not None and evaluator.kept.is_proved(evaluator):
        return alike
    own = input_gradients(evaluator)
    layer = None if evaluator.kept is None else evaluator.kept.find_first(quiet)
    if layer is None:
        found = sum_gradients(quiet, 1, lambda part: evaluator.x[part.rows])
    else:
        found = sum_behind(quiet, layer, 1, lambda part: evaluator.x[part.rows])
    return alike & same_gradients(found, own, evaluator.autocast)


def out_of_place(evaluator: Evaluator, member: str) -> Evaluator:
    """Return the same evaluator on a copy of the model whose layers do not write in place.

    Raises:
        UnfitError: the model has no copy, or layers that write in place are part of what it
            computes.
    """
    if evaluator.module is None or not is_private(evaluator.module):
        raise UnfitError(
            f"{member} changes how layers run, and this model cannot be copied, so that would "
            "show wherever else it is used. Use saliency or integrated_gradients"
        )
    if not find_inplace(evaluator.module):
        return evaluator
    copy = replace(
        evaluator, model=TensorModel(copy_twin(evaluator.module, inplace=False), check=False)
    )
    if not bool(same_outputs(replace(copy, tick=lambda count: None).answer(), evaluator.outputs)):
        raise UnfitError(
            f"{member} needs layers that do not write in place, and with inplace=False this "
            "model computes something else (an activation overwrites what another layer "
            "reads). Use saliency or integrated_gradients, which run the model as it is"
        )
    return copy

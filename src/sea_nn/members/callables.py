"""Members that are anybody's functions, `(model, x, target) -> maps`, and what they are given."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import MemberError
from sea_nn.members.registry import Entry
from sea_nn.model.adapters import Adapted
from sea_nn.model.opening import copy_twin
from sea_nn.model.outputs import TensorModel, take
from sea_nn.model.probe import Probe

ADVICE = '. Leave it out of methods, or pass on_error="skip" to go on without it'


def from_captum(attribution: type[Any], **options: Any) -> Callable[..., Tensor]:
    """Return a member from a Captum class, with options for its `attribute`.

    For example `methods=["saliency", from_captum(captum.attr.FeatureAblation)]`.
    """

    def member(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Captum warns of hooks it removes by itself
            maps: Tensor = attribution(model).attribute(x, target=target, **options)
        return maps

    member.__name__ = attribution.__name__
    return member


def give_model(entry: Entry, probe: Probe) -> tuple[TensorModel, Tensor]:
    """Return a model for a callable to do with as it likes, where there is a copy, and the classes.

    Of pairs of classes the model has one column, their difference.
    """
    if probe.args:
        raise MemberError(
            f"{entry.label} is called with the model and its first input alone, and this model "
            "takes additional_forward_args; write them into the model you pass, or leave it out"
        )
    module, target, given = probe.model.module, probe.target, probe.model
    if module is not None and probe.private:
        given = TensorModel(copy_twin(module), probe.meter)
    if target.ndim == 1:
        return given, target.clone()
    if bool((target != target[0]).any()):
        raise MemberError(
            f"{entry.label} can explain one pair of classes for all inputs, and here each has its "
            f"own{ADVICE}"
        )

    def subtract(model: TensorModel, x: Tensor) -> Tensor:
        return take(model(x), target[:1].expand(len(x), 2))

    return TensorModel(Adapted(given, subtract)), torch.zeros_like(target[:, 0])

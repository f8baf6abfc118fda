"""The members that a budget starts with: a few evaluations each, chosen by measurement."""

from collections.abc import Callable
from typing import Any

from torch import nn

from sea_nn.features.patches import attends

CONVOLUTIONAL = ("deeplift", "guided_grad_cam")
TRANSFORMER = ("attention_gradient", "attention_lrp")
COLUMNS = ("deeplift", "input_x_gradient")
ANY = ("saliency", "input_x_gradient")
ASKING = ("occlusion",)  # where the model has no gradient


def cheap_members(model: Callable[..., Any], columns: bool = False) -> list[tuple[str, ...]]:
    """Return the members to try for a model, the best first; the last fits all.

    Args:
        model: the model.
        columns: whether its inputs are columns or series, each number a feature.

    >>> cheap_members(nn.Conv2d(3, 2, 3))
    [('deeplift', 'guided_grad_cam'), ('saliency', 'input_x_gradient'), ('occlusion',)]
    >>> cheap_members(nn.TransformerEncoderLayer(8, 2))[0]
    ('attention_gradient', 'attention_lrp')
    """
    if not isinstance(model, nn.Module):
        return [ANY, ASKING]
    if columns:
        return [COLUMNS, ANY, ASKING]
    return [*([TRANSFORMER] if attends(model) else []), CONVOLUTIONAL, ANY, ASKING]

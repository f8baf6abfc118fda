"""A model asked about sets of features, as SEA asks it."""

from typing import Any

from torch import Tensor

from sea_nn.features import Features
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import choose_absence


def ask_only(
    model: Any,
    x: Tensor,
    target: Any,
    sets: Tensor,
    absent: str | None = None,
    output: str | None = None,
    **given: Any,
) -> Tensor:
    """What the model says with only the sets left, bool [N, R, *shape] -> [N, R]."""
    features = Features.of(x)
    hiding, _ = choose_absence(x, features, absent, **given)
    with open_model(model, x, target, features=features, hiding=hiding, output=output) as probe:
        return probe.ask(sets)

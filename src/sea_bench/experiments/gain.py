"""Gain: what a map's first positions keep less what is left without them, in one number."""

from collections.abc import Mapping

from torch import Tensor

GAIN = "gain"
FILLS = ("blur", "mean", "noise")
MEASURES = (
    "Insertion less deletion, summed over positions hidden by blur, by the mean and by noise."
)


def compute_gain(values: Mapping[str, Tensor]) -> Tensor | None:
    """The gain by input and method, [N, m], from the columns it is made of; None without them."""
    if any(f"{what}:{fill}" not in values for what in ("insertion", "deletion") for fill in FILLS):
        return None
    parts = [values[f"insertion:{fill}"] - values[f"deletion:{fill}"] for fill in FILLS]
    total: Tensor = sum(parts[1:], parts[0])
    return total

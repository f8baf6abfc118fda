"""Random draws that belong to an input: the same on every device and in every batch.

An input's draws depend on the seed, on what they are for, and on the input's number, so a data set
scored in parts (``first`` says where a part starts) gets the draws it would get in one piece.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

PURPOSES = ("ties", "noise", "inpaint", "input_noise", "random_map")
_MASK = (1 << 64) - 1


def draw(
    purpose: str,
    count: int,
    sample: Callable[[torch.Generator], Tensor],
    seed: int = 0,
    first: int = 0,
) -> Tensor:
    """Return ``sample(generator)`` for each of ``count`` inputs, stacked, on the CPU.

    >>> whole = draw("noise", 3, lambda generator: torch.rand(4, generator=generator))
    >>> part = draw("noise", 1, lambda generator: torch.rand(4, generator=generator), first=2)
    >>> bool((whole[2] == part[0]).all())
    True
    """
    kind = PURPOSES.index(purpose)
    generator = torch.Generator()
    samples = []
    for index in range(first, first + count):
        generator.manual_seed(_mix(seed, kind, index))
        samples.append(sample(generator))
    return torch.stack(samples)


def random_map(shape: Sequence[int], seed: int = 0, first: int = 0) -> Tensor:
    """Return maps of ``shape`` [N, ...] that know nothing: uniform in [0, 1).

    A method that does not beat this one has said nothing about the model.

    >>> random_map((2, 28, 28)).shape
    torch.Size([2, 28, 28])
    """
    count, *rest = shape
    return draw("random_map", count, lambda g: torch.rand(rest, generator=g), seed, first)


def _mix(seed: int, kind: int, index: int) -> int:
    """Hash three numbers to 32 bits (splitmix64's finaliser), as neighbours must not be alike."""
    word = (seed * 0x9E3779B97F4A7C15 + kind * 0xD1B54A32D192ED03 + index + 1) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = ((word ^ (word >> shift)) * factor) & _MASK
    return (word ^ (word >> 31)) & 0xFFFFFFFF

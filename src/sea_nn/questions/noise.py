"""Random draws that belong to an input: the same on every device and in every batch.

A draw is a hash of the seed, of what it is for, of the input's number and of the position. So there
is no generator to share, a data set scored in parts (``first`` says where a part starts) gets the
draws it would get in one piece, and a GPU makes them where they are needed.

>>> whole = uniform("noise", (3, 4))
>>> bool((whole[2:] == uniform("noise", (1, 4), first=2)).all())
True
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sea_nn.passes.noise import mix, wrap

PURPOSES = ("ties", "noise", "inpaint", "input_noise", "random_map")
_32 = (1 << 32) - 1


def uniform(
    purpose: str,
    shape: Sequence[int],
    seed: int = 0,
    first: int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """Return float32 numbers in [0, 1), evenly spread, of ``shape`` [N, ...].

    Args:
        purpose: one of ``PURPOSES``; draws for different purposes are independent.
        shape: the first axis counts inputs.
        seed: another seed gives other draws.
        first: the number of the first input.
        device: where to make them.
    """
    return _to_unit(_hash(purpose, shape, seed, first, device))


def normal(
    purpose: str,
    shape: Sequence[int],
    seed: int = 0,
    first: int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """Return float32 standard normal numbers of ``shape`` [N, ...] (by Box and Muller)."""
    pairs = uniform(purpose, (shape[0], 2, *shape[1:]), seed, first, device)
    radius = (-2 * torch.log1p(-pairs[:, 0])).sqrt()
    return radius * torch.cos(2 * math.pi * pairs[:, 1])


def permute(
    purpose: str,
    count: int,
    n: int,
    seed: int = 0,
    first: int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """Return a random order of 0 to n - 1 for each of ``count`` inputs, int64 [count, n]."""
    return _hash(purpose, (count, n), seed, first, device).argsort(dim=1, stable=True)


def random_map(
    shape: Sequence[int], seed: int = 0, first: int = 0, device: torch.device | None = None
) -> Tensor:
    """Return maps of ``shape`` [N, ...] that know nothing: uniform in [0, 1).

    A method that does not beat this one has said nothing about the model.

    >>> random_map((2, 28, 28)).shape
    torch.Size([2, 28, 28])
    """
    return uniform("random_map", shape, seed, first, device)


def _hash(
    purpose: str, shape: Sequence[int], seed: int, first: int, device: torch.device | None
) -> Tensor:
    """Return 32 random bits in int64 for every position of every input."""
    kind, count = PURPOSES.index(purpose), shape[0]
    table = _find_keys(seed, kind, first, count, device).unsqueeze(2)
    place = torch.arange(math.prod(shape[1:]), device=device)
    # Two rounds with two keys: after one, the draws of two inputs could be shifts of each other.
    word = _scramble((place * 0x9E3779B9 + table[:, 0]).bitwise_and_(_32))
    return _scramble(word.bitwise_xor_(table[:, 1])).view(*shape)


def _scramble(word: Tensor) -> Tensor:
    """Mix 32 bits in place, by the finaliser of MurmurHash3 (Appleby, public domain)."""
    # Products wrap around at 64 bits on every device; their low 32 bits are right.
    word.bitwise_xor_(word >> 16).mul_(0x85EBCA6B).bitwise_and_(_32)
    word.bitwise_xor_(word >> 13).mul_(0xC2B2AE35).bitwise_and_(_32)
    return word.bitwise_xor_(word >> 16)


def _to_unit(word: Tensor) -> Tensor:
    """The leading 24 bits, as many as float32 holds, as a number in [0, 1)."""
    return (word >> 8).to(torch.float32) * 2.0**-24


def _find_keys(seed: int, kind: int, first: int, count: int, device: Any) -> Tensor:
    """Two keys of 32 bits for each input, int64 [count, 2], by the mixing of splitmix64."""
    start = wrap(seed * 0x9E3779B97F4A7C15 + kind * 0xD1B54A32D192ED03 + first + 1)
    words = mix(torch.arange(count, device=device) + start)
    return torch.stack([(words >> 32).bitwise_and_(_32), words & _32], 1)

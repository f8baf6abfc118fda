"""Random draws that belong to an input: the same in every batch, at every place, on every device.

A draw is a hash of a key and of the position, so any part of it can be made alone, where it is
needed, and no generator is shared. Keys are of two kinds, over one mixing function:

- Members draw by what an input holds (`find_keys`): its map is the same wherever it stands.
- Metrics draw by an input's number in its set (`uniform`, `normal`, `permute`): all methods get the
  same noise and the same order of ties, whatever they made of the input, and a set scored in parts
  (`first` says where a part starts) gets the draws of one piece. These have 32 bits, enough for
  float32 and half the work; the published tables hang on them.

>>> import torch
>>> keys = find_keys(torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]), seed=0)
>>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
(True, False)
>>> draw_normal(keys, 0, (4,)).shape
torch.Size([3, 4])
>>> whole = uniform("noise", (3, 4))
>>> bool((whole[2:] == uniform("noise", (1, 4), first=2)).all())
True
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood 2014): a counter in steps of the golden ratio, then mixed.
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
PURPOSES = ("ties", "noise", "inpaint", "input_noise", "random_map")
_32 = (1 << 32) - 1


def find_keys(x: Tensor, seed: int = 0) -> Tensor:
    """Return one whole number for each input of x [N, ...], int64 [N], on the device of `x`.

    The bits of an input's values are multiplied by odd numbers that depend on the place, and
    added up modulo 2^64: exact, so no order of addition changes it.
    """
    places = torch.arange(x[0].numel(), device=x.device)
    factors = mix((places + 1) * STEP) | 1
    start = int(mix(torch.tensor(wrap(seed) ^ STEP)))
    keys = []
    for own in x.detach():
        # In single precision, so that an input draws alike in every precision; -0.0 counts as 0.0.
        flat = (own.float() + 0.0).reshape(-1)
        keys.append((flat.view(torch.int32).long() * factors).sum())
    return mix(torch.stack(keys) + start)


def draw_normal(keys: Tensor, stream: int | Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return standard normal draws for each key [P], float64 [P, *shape].

    Args:
        keys: of the inputs, `find_keys(x)[rows]`.
        stream: which draw of that shape, one number or one a key [P].
        shape: of one draw.
    """
    size = math.prod(shape)
    half = (size + 1) // 2
    streams = torch.as_tensor(stream, device=keys.device).expand_as(keys)
    bits = _draw_bits(keys, streams, half)
    # Box and Muller (1958): two uniform numbers give two normal ones.
    radius = (bits & 0xFFFFFFFF).double().add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = _shift(bits, 32).double().mul_(2 * math.pi * 2.0**-32)
    pairs = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
    return pairs[:, :size].reshape(len(keys), *shape)


def draw_uniform(keys: Tensor, stream: int, count: int) -> Tensor:
    """Return draws from [0, 1) for each key [P], float64 [P, count]."""
    bits = _draw_bits(keys, torch.full_like(keys, stream), count)
    return _shift(bits, 11).double() * 2.0**-53


def _draw_bits(keys: Tensor, streams: Tensor, count: int) -> Tensor:
    # A stream starts at a place of its own; were it only an offset, unequal counts could overlap.
    starts = mix(keys + (streams + 1) * FACTORS[0])
    steps = torch.arange(1, count + 1, device=keys.device) * STEP
    return mix(starts[:, None] + steps)


def mix(z: Tensor) -> Tensor:
    """Return whole numbers whose every bit depends on every bit of `z`, one to one."""
    z = (z ^ _shift(z, 30)).mul_(FACTORS[0])
    z = z.bitwise_xor_(_shift(z, 27)).mul_(FACTORS[1])
    return z.bitwise_xor_(_shift(z, 31))


def _shift(z: Tensor, count: int) -> Tensor:
    """Shift to the right and fill with zeros; PyTorch's own shift repeats the sign."""
    return (z >> count).bitwise_and_((1 << (64 - count)) - 1)


def wrap(number: int) -> int:
    """Return the number modulo 2^64, as a signed one."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


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
    # The leading 24 bits, as many as float32 holds.
    return (_hash(purpose, shape, seed, first, device) >> 8).to(torch.float32) * 2.0**-24


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
    start = seed * 0x9E3779B97F4A7C15 + PURPOSES.index(purpose) * 0xD1B54A32D192ED03 + first + 1
    keys = mix(torch.arange(shape[0], device=device) + wrap(start)).unsqueeze(1)
    place = torch.arange(math.prod(shape[1:]), device=device)
    # Two rounds with two keys: after one, the draws of two inputs could be shifts of each other.
    word = _scramble((place * 0x9E3779B9 + _shift(keys, 32)).bitwise_and_(_32))
    return _scramble(word.bitwise_xor_(keys & _32)).view(*shape)


def _scramble(word: Tensor) -> Tensor:
    """Mix 32 bits in place, by the finaliser of MurmurHash3 (Appleby, public domain)."""
    # Products wrap around at 64 bits on every device; their low 32 bits are right.
    word.bitwise_xor_(word >> 16).mul_(0x85EBCA6B).bitwise_and_(_32)
    word.bitwise_xor_(word >> 13).mul_(0xC2B2AE35).bitwise_and_(_32)
    return word.bitwise_xor_(word >> 16)

"""Cross-validation: a set in parts, each of which is tested by what was trained on the others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sea_bench.data.items import ImageSet
from sea_nn.errors import InputError

_SUFFIX = re.compile(r"(?P<name>.+)@(?:(?P<number>\d+)of)?(?P<count>\d+)")


@dataclass(frozen=True)
class Part:
    """One of the parts of a set: ``number``, from 1, of ``count``.

    >>> str(Part(2, 5))
    '2of5'
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}of{self.count}"


def read_parts(name: str) -> tuple[str, tuple[Part, ...]]:
    """Take a name apart: NAME@5 stands for five parts, NAME@2of5 for the second, NAME for none.

    >>> read_parts("btd/vgg@2of5")
    ('btd/vgg', (Part(number=2, count=5),))
    >>> len(read_parts("btd/vgg@5")[1]), read_parts("btd/vgg")
    (5, ('btd/vgg', ()))
    """
    found = _SUFFIX.fullmatch(name)
    if found is None:
        return name, ()
    count = int(found["count"])
    number = None if found["number"] is None else int(found["number"])
    if count < 2 or (number is not None and not 1 <= number <= count):
        raise InputError(
            f"{name} names no parts: write @5 for all of five, @1of5 to @5of5 for one of them."
        )
    numbers = range(1, count + 1) if number is None else (number,)
    return found["name"], tuple(Part(one, count) for one in numbers)


def hold_out(images: ImageSet, part: Part) -> ImageSet:
    """Return a whole set split anew: the part is "test", all else is "train".

    Groups stay whole, and the parts of one count are disjoint and make up the set. They are the
    same in every call.
    """
    groups = [item.group or item.name for item in images]
    dealt = (deal_parts(groups, images.labels, count=part.count) == part.number - 1).tolist()
    items = (
        replace(item, split="test" if held else "train")
        for item, held in zip(images, dealt, strict=True)
    )
    return replace(images, items=tuple(items))


def deal_parts(groups: Sequence[str], labels: Tensor, seed: int = 0, count: int = 5) -> Tensor:
    """Return a part, from 0, for each item [N]: groups stay whole, labels are spread over parts.

    Groups are dealt out in random order, label after label; a group has its first item's label.
    """
    first: dict[str, int] = {}
    for group, label in zip(groups, labels.tolist(), strict=True):
        first.setdefault(group, label)
    names = sorted(first)
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    order.sort(key=first.__getitem__)
    part = {group: number % count for number, group in enumerate(order)}
    return torch.tensor([part[group] for group in groups])

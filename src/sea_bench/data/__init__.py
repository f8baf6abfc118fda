"""Data sets: where their files lie, and readers for them.

Nothing here downloads anything. Sets that cannot be shipped are looked for in the folder that
the environment variable ``SEA_NN_DATA`` names; a missing one raises an error that says where to
get it and how to lay it out.

>>> names()[:4]
('fashion', 'btd', 'cub20', 'tiny_imagenet')
>>> describe("cub20").terms
'Caltech; non-commercial research'

After ``birds = load("cub20")``, ``birds[0].view(preprocess)`` has the model's input, the mask
and the boxes, all lined up.
"""

from sea_bench.data.catalogue import describe, load, names
from sea_bench.data.items import ImageSet, Item, Split

__all__ = ["ImageSet", "Item", "Split", "describe", "load", "names"]

"""Data sets: where their files lie, and readers for them.

Nothing here downloads anything. Sets that cannot be shipped are looked for in the folder that
the environment variable ``SEA_NN_DATA`` names; a missing one raises an error that says where to
get it and how to lay it out.

>>> describe("cub20").terms
'Caltech; non-commercial research'

After ``birds = load("cub20")``, ``birds[0].view(preprocess)`` has the model's input, the mask
and the boxes, all lined up.
"""

from sea_bench.data.catalogue import SETS, describe, load
from sea_bench.data.items import ImageSet, Item, Split

__all__ = ["SETS", "ImageSet", "Item", "Split", "describe", "load"]

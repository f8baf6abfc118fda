"""Where people look: 25 photographs with maps of seven kinds."""

from functools import partial
from pathlib import Path

import numpy as np

from sea_bench.data.files import Mask, Place, SetInfo
from sea_bench.data.items import ImageSet, Item
from sea_nn.vision.images import load_image

ATTENTION = SetInfo(
    name="human_attention",
    title="25 photographs with 7 maps of human attention each",
    folder="human_attention",
    source="https://github.com/czhao39/neurips-attention (Langlois et al., NeurIPS 2021)",
    layout="images/image_r_NUMBER.jpg and maps/imgNUMBER.npz, which holds one uint8 array a kind",
    terms="photographs CC BY 4.0; no licence stated for the maps",
)
KINDS = ("humanPC", "chainKDE", "discr", "freeFIX", "objFIX", "patchRate", "salFIX")
"""The kinds of map. ``humanPC`` is what the six others share: in every one of the 25 photographs
it is, to rounding, a weighted sum of them. The six come from localisation by memory, from
discrimination, from fixations (free viewing, object search, saliency search) and from rating
patches."""


def read_attention(place: Place) -> ImageSet:
    """The 25 photographs; ``item.view(preprocess, mask="freeFIX")`` picks a kind of map.

    The pictures have no labels. This is not the benchmark of Mohseni et al.
    """
    items = []
    for path in place.list_images("images"):
        maps = place.need(f"maps/img{path.stem.rpartition('_')[2]}.npz")
        masks = {kind: partial(_read_map, maps, kind) for kind in KINDS}
        items.append(Item(path.stem, partial(load_image, path), masks=masks))
    return ImageSet(tuple(items))


def _read_map(path: Path, kind: str) -> Mask:
    with np.load(path, allow_pickle=False) as maps:
        return np.asarray(maps[kind], np.float32) / np.float32(255)

"""Where people look: 25 photographs with maps of seven kinds, and folders of pictures and masks."""

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sea_bench.data.files import SetInfo, find_folder, list_images, need, read_graded_mask
from sea_bench.data.items import ImageSet, Item, Split
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image

ATTENTION = SetInfo(
    name="human_attention",
    title="25 photographs with 7 maps of human attention each",
    folder="human_attention",
    source="https://github.com/czhao39/neurips-attention (Langlois et al., NeurIPS 2021)",
    layout="images/image_r_NUMBER.jpg and maps/imgNUMBER.npz, which holds one uint8 array a kind",
    terms="photographs CC BY 4.0; no licence stated for the maps",
)
MASKED = SetInfo(
    name="masked_folder",
    title="any pictures with masks of equal names",
    folder="",
    source="Mohseni et al.'s human-attention benchmark, for example: "
    "https://github.com/SinaMohseni/ML-Interpretability-Evaluation-Benchmark, folder Image",
    layout="a folder of pictures (images, original_images or org_img) and one of masks with the "
    "same names (masks, human_attention_mask or object_segmentation_mask)",
    terms="those of the pictures",
)
KINDS = ("humanPC", "chainKDE", "discr", "freeFIX", "objFIX", "patchRate", "salFIX")
"""The kinds of map. ``humanPC`` is what the six others share: in every one of the 25 photographs
it is, to rounding, a weighted sum of them. The six come from localisation by memory, from
discrimination, from fixations (free viewing, object search, saliency search) and from rating
patches."""
_PICTURES = ("images", "original_images", "org_img")
_MASKS = ("masks", "human_attention_mask", "object_segmentation_mask")


def load_human_attention(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load the 25 photographs; ``item.view(preprocess, mask="freeFIX")`` picks a kind of map.

    The pictures have no labels. This is not the benchmark of Mohseni et al.; for that one see
    ``load_masked_folder``.
    """
    place = find_folder(ATTENTION, folder)
    items = []
    for path in list_images(need(place / "images", ATTENTION)):
        number = path.stem.rpartition("_")[2]
        maps = need(place / "maps" / f"img{number}.npz", ATTENTION)
        items.append(
            Item(
                name=path.stem,
                image=partial(load_image, path),
                masks={kind: partial(_read_map, maps, kind) for kind in KINDS},
                path=path,
            )
        )
    return ImageSet(ATTENTION.name, tuple(items), (), ATTENTION.terms).split(split)


def _read_map(path: Path, kind: str) -> NDArray[np.float32]:
    try:
        with np.load(path, allow_pickle=False) as maps:
            values = np.asarray(maps[kind], np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} should hold a numeric array {kind!r} ({error}).") from error
    return values / np.float32(255)


def load_masked_folder(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load pictures and masks that have equal names but for the ending, such as Mohseni et al.'s.

    Masks may be shades: brighter means that more people marked the place. Where a folder has
    masks of several kinds, each is a mask of its folder's name; pictures without any are left out.
    """
    place = find_folder(MASKED, folder)
    pictures = next((place / name for name in _PICTURES if (place / name).is_dir()), None)
    kinds = [name for name in _MASKS if (place / name).is_dir()]
    if pictures is None or not kinds:
        found = ", ".join(sorted(path.name for path in place.iterdir() if path.is_dir()))
        raise InputError(f"{place} should hold {MASKED.layout}; it holds {found or 'no folders'}.")
    masks = {kind: {path.stem: path for path in list_images(place / kind)} for kind in kinds}
    items, missing = [], []
    for path in list_images(pictures):
        own = {kind: partial(read_graded_mask, masks[kind][path.stem])
               for kind in kinds if path.stem in masks[kind]}  # fmt: skip
        if own:
            items.append(Item(path.stem, partial(load_image, path), masks=own, path=path))
        else:
            missing.append(path.name)
    if not items:
        raise InputError(f"No picture in {pictures} has a mask of its name in {', '.join(kinds)}.")
    notes = (f"left out, without a mask: {', '.join(missing)}",) if missing else ()
    return ImageSet(MASKED.name, tuple(items), (), MASKED.terms, notes).split(split)

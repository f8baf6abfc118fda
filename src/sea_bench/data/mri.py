"""Magnetic resonance imaging: pictures with a brain tumour or without, and brains as volumes."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sea_bench.data.files import Mask, Place, Reader, SetInfo, read_mask, read_side
from sea_bench.data.items import ImageSet, Item
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image

BTD = SetInfo(
    name="btd",
    title="brain tumour detection, 253 MRI pictures",
    folder="brain_tumor_detection",
    source="https://www.kaggle.com/navoneel/brain-mri-images-for-brain-tumor-detection",
    layout="yes/ and no/ with the pictures",
    terms="no licence stated by its author; research only",
)
LGG = SetInfo(
    name="lgg",
    title="MRI slices of lower-grade gliomas with tumour masks",
    folder="lgg_tumor_masks",
    source="https://www.kaggle.com/mateuszbuda/lgg-mri-segmentation (Buda et al., TCGA-LGG)",
    layout="images/NAME.jpg, masks/NAME.png, and labels.csv with the columns file (NAME), "
    "patient, tumour (0 or 1) and split (train or test, the same for all slices of a patient)",
    terms="CC BY-NC-SA 4.0",
)
CLASSES = ("no tumour", "tumour")
_THUMBNAIL = 32
# In this set, thumbnails of rescaled copies correlate by 0.98 and more; the next pairs are
# neighbouring slices at 0.967 and less.
_SAME_PICTURE = 0.98
_TEST_SHARE = 0.25
DEPTH, SIDE = 8, 64  # of a volume


def read_btd(place: Place) -> ImageSet:
    """The tumour pictures: label 1 for ``yes``; exact duplicates are kept once.

    The set holds many copies. Files that decode to the same pixels are kept once, and dropped
    altogether if their labels differ (``notes`` names them). Copies at another size are kept but
    share a ``group``, and the split, which is drawn for each label, keeps groups together, so no
    test picture was seen in training.
    """
    same: dict[str, list[tuple[str, Path, int]]] = defaultdict(list)
    thumbnails = {}
    for label, folder in enumerate(("no", "yes")):
        for path in place.list_images(folder):
            picture = load_image(path)
            key = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).hexdigest()
            same[key].append((f"{folder}/{path.name}", path, label))
            small = picture.convert("L").resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX)
            thumbnails[key] = np.asarray(small, np.float64).ravel()
    notes = []
    for key, copies in list(same.items()):
        if len({label for _, _, label in copies}) > 1:
            names = ", ".join(name for name, _, _ in same.pop(key))
            notes.append(f"dropped, for the same picture has both labels: {names}")
    removed = sum(len(copies) - 1 for copies in same.values())
    notes.insert(0, f"{removed} exact duplicate{'' if removed == 1 else 's'} removed")
    groups = _group_alike(np.array([thumbnails[key] for key in same]))
    kept = [copies[0] for copies in same.values()]
    sides = _split_groups(groups, [label for _, _, label in kept])
    items = tuple(
        Item(name, partial(load_image, path), label, sides[i], str(groups[i]))
        for i, (name, path, label) in enumerate(kept)
    )
    n_copies = len(items) - len(set(groups))
    are = "picture is a rescaled copy" if n_copies == 1 else "pictures are rescaled copies"
    return ImageSet(items, CLASSES, (*notes, f"{n_copies} {are} of another"))


def _group_alike(thumbnails: NDArray[np.float64]) -> list[int]:
    """Number the groups of pictures [N, pixels] that correlate, directly or through others."""
    groups = np.arange(len(thumbnails))
    centred = thumbnails - thumbnails.mean(1, keepdims=True)
    norms = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
    alike = (centred / norms) @ (centred / norms).T >= _SAME_PICTURE
    for i, j in zip(*np.nonzero(np.triu(alike, 1)), strict=True):
        groups[groups == groups[j]] = groups[i]
    return [int(group) for group in groups]


def _split_groups(groups: list[int], labels: list[int]) -> list[str]:
    """Return the side of each picture: groups stay whole, labels keep their shares."""
    generator, test = np.random.default_rng(0), set[int]()
    for label in range(len(CLASSES)):
        own = {group for group in groups if labels[groups.index(group)] == label}
        room = round(_TEST_SHARE * labels.count(label))
        for group in generator.permutation(sorted(own)).tolist():
            if groups.count(group) <= room:
                room -= groups.count(group)
                test.add(group)
    return ["test" if group in test else "train" for group in groups]


def read_lgg(place: Place) -> ImageSet:
    """The glioma slices: label 1 and a mask where there is a tumour, an empty mask elsewhere.

    A patient is a ``group``; the split in labels.csv is by patient, which is checked.
    """
    columns: dict[str, Reader] = {"file": str, "patient": str, "split": read_side}
    rows = place.read_table("labels.csv", {**columns, "tumour": ["0", "1"].index})
    sides: dict[str, str] = {}
    for row in rows:
        if sides.setdefault(row["patient"], row["split"]) != row["split"]:
            raise InputError(
                f"{place.path / 'labels.csv'} puts the patient {row['patient']} in both splits; "
                "slices of one patient look alike, so results would be too good."
            )
    items = []
    for row in rows:
        read = partial(load_image, place.path / "images" / f"{row['file']}.jpg")
        mask = partial(read_mask, place.path / "masks" / f"{row['file']}.png")
        about = (row["tumour"], row["split"], row["patient"], {"tumour": mask})
        items.append(Item(row["file"], read, *about))
    return ImageSet(tuple(items), CLASSES)


@dataclass(frozen=True)
class Brains:
    """Volumes [N, 3, D, H, W] in [0, 1], tumour masks [N, D, H, W] and the names of patients.

    Channels are three sequences: before contrast, FLAIR, after contrast.
    """

    volumes: Tensor
    masks: Tensor
    patients: tuple[str, ...]

    @property
    def sides(self) -> Tensor:
        """The half of the picture with more of the tumour, int64 [N]: 0 left, 1 right."""
        left, right = (half.flatten(1).sum(1) for half in self.masks.chunk(2, 3))
        return (right > left).long()


def stack_brains(slices: ImageSet) -> Brains:
    """One volume of 8 slices of 64 x 64 for each patient, of all slices that the set has of it.

    The set holds about nine slices of each patient, some of their neighbours missing, so a
    volume's slices are not evenly apart. They are shown to the network as they come.
    """
    by_patient: dict[str, list[Item]] = {}
    for item in slices:
        by_patient.setdefault(item.group, []).append(item)
    volumes, masks = [], []
    for items in by_patient.values():
        ordered = sorted(items, key=read_place)
        places = np.round(np.linspace(0, len(ordered) - 1, DEPTH)).astype(int)
        chosen = [ordered[k] for k in places]
        volumes.append(np.stack([shrink(item.read()) for item in chosen], 1))
        masks.append(np.stack([_shrink_mask(item.read_mask()) for item in chosen]))
    return Brains(
        torch.as_tensor(np.stack(volumes)), torch.as_tensor(np.stack(masks)), tuple(by_patient)
    )


def read_place(item: Item) -> int:
    """The number of a slice within its scan, the end of its name."""
    return int(item.name.rpartition("_")[2])


def shrink(picture: Image.Image) -> NDArray[np.float32]:
    """A slice as float32 [3, 64, 64] in [0, 1]."""
    small = picture.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32).transpose(2, 0, 1) / np.float32(255)


def _shrink_mask(mask: Mask) -> Mask:
    small = Image.fromarray(mask).resize((SIDE, SIDE), Image.Resampling.BOX)
    return (np.asarray(small) >= 0.5).astype(np.float32)

"""Pictures of magnetic resonance imaging: brain tumour yes or no, with and without masks."""

import hashlib
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from sea_bench.data.files import (
    SIDES,
    SetInfo,
    find_folder,
    list_images,
    need,
    read_binary_mask,
    read_table,
)
from sea_bench.data.items import ImageSet, Item, Split
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


def load_btd(folder: str | Path | None = None, split: Split = "test", seed: int = 0) -> ImageSet:
    """Load the tumour pictures: label 1 for ``yes``; exact duplicates are kept once.

    The set holds many copies. Files that decode to the same pixels are kept once, and dropped
    altogether if their labels differ (``notes`` names them). Copies at another size are kept but
    share a ``group``, and the split, which is drawn for each label with ``seed``, keeps groups
    together, so no test picture was seen in training.
    """
    place = find_folder(BTD, folder)
    files = [
        (path, label)
        for label, name in enumerate(("no", "yes"))
        for path in list_images(need(place / name, BTD))
    ]
    kept, thumbnails, notes = _drop_copies(files)
    groups = _group_alike(np.stack(thumbnails)) if thumbnails else []
    sides = _split_groups(groups, [label for _, label in kept], seed)
    items = tuple(
        Item(
            name=f"{path.parent.name}/{path.name}",
            image=partial(load_image, path),
            label=label,
            split=sides[i],
            group=str(groups[i]),
            path=path,
        )
        for i, (path, label) in enumerate(kept)
    )
    copies = len(items) - len(set(groups))
    notes.append(
        f"{copies} pictures are rescaled copies of another"
        if copies != 1
        else "1 picture is a rescaled copy of another"
    )
    return ImageSet(BTD.name, items, CLASSES, BTD.terms, tuple(notes)).split(split)


def _drop_copies(
    files: list[tuple[Path, int]],
) -> tuple[list[tuple[Path, int]], list[np.ndarray[tuple[int], np.dtype[np.float64]]], list[str]]:
    """Keep one file of each picture; return files, their thumbnails and notes."""
    same: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    thumbnails = {}
    for path, label in files:
        picture = load_image(path)
        key = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).hexdigest()
        same[key].append((path, label))
        small = picture.convert("L").resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX)
        thumbnails[key] = np.asarray(small, np.float64).ravel()
    notes = []
    conflicts = [key for key, copies in same.items() if len({label for _, label in copies}) > 1]
    for key in conflicts:
        names = ", ".join(f"{path.parent.name}/{path.name}" for path, _ in same.pop(key))
        notes.append(f"dropped, for the same picture has both labels: {names}")
    removed = sum(len(copies) - 1 for copies in same.values())
    notes.insert(0, f"{removed} exact duplicate{'' if removed == 1 else 's'} removed")
    return [copies[0] for copies in same.values()], [thumbnails[key] for key in same], notes


def _group_alike(thumbnails: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[int]:
    """Number the groups of pictures [N, pixels] that correlate, directly or through others."""
    centred = thumbnails - thumbnails.mean(1, keepdims=True)
    norms = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
    alike = (centred / norms) @ (centred / norms).T >= _SAME_PICTURE
    groups = list(range(len(thumbnails)))
    for i, j in zip(*np.nonzero(np.triu(alike, 1)), strict=True):
        old, new = groups[j], groups[i]
        groups = [new if group == old else group for group in groups]
    return groups


def _split_groups(groups: list[int], labels: list[int], seed: int) -> list[str]:
    """Return the side of each picture: groups stay whole, labels keep their shares."""
    generator = np.random.default_rng(seed)
    members: dict[int, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    sides = ["train"] * len(groups)
    for label in range(len(CLASSES)):
        own = [group for group, among in members.items() if labels[among[0]] == label]
        room = round(_TEST_SHARE * labels.count(label))
        for group in generator.permutation(sorted(own)):
            if len(members[group]) <= room:
                room -= len(members[group])
                for i in members[group]:
                    sides[i] = "test"
    return sides


def load_lgg(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load the glioma slices: label 1 and a mask where there is a tumour, an empty mask elsewhere.

    A patient is a ``group``; the split in labels.csv is by patient, which is checked.
    """
    place = find_folder(LGG, folder)
    rows = read_table(
        place / "labels.csv",
        {"file": str, "patient": str, "tumour": ("0", "1"), "split": SIDES},
        LGG,
    )
    sides: dict[str, str] = {}
    for row in rows:
        if sides.setdefault(row["patient"], row["split"]) != row["split"]:
            raise InputError(
                f"{place / 'labels.csv'} puts the patient {row['patient']} in both splits; slices "
                "of one patient look alike, so results would be too good. Correct the column split."
            )
    items = tuple(
        Item(
            name=row["file"],
            image=partial(load_image, place / "images" / f"{row['file']}.jpg"),
            label=int(row["tumour"]),
            split=row["split"],
            group=row["patient"],
            masks={"tumour": partial(read_binary_mask, place / "masks" / f"{row['file']}.png")},
            path=place / "images" / f"{row['file']}.jpg",
        )
        for row in rows
    )
    return ImageSet(LGG.name, items, CLASSES, LGG.terms).split(split)

"""Brains as volumes: the slices of each patient of the glioma set, stacked.

The set holds about nine slices of each patient, some of their neighbours missing, so a volume's
slices are not evenly apart. They are shown to the network as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sea_bench.data.items import Item
from sea_bench.data.mri import load_lgg

DEPTH, SIDE = 8, 64


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


def load_brains(folder: str | Path | None = None) -> Brains:
    """One volume of 8 slices of 64 x 64 for each patient, of all slices that the set has of it."""
    by_patient: dict[str, list[Item]] = {}
    for item in load_lgg(folder, "all").items:
        by_patient.setdefault(item.group, []).append(item)
    volumes, masks = [], []
    for items in by_patient.values():
        ordered = sorted(items, key=read_number)
        places = np.round(np.linspace(0, len(ordered) - 1, DEPTH)).astype(int)
        chosen = [ordered[k] for k in places]
        volumes.append(np.stack([shrink(item.read()) for item in chosen], 1))
        masks.append(np.stack([_shrink_mask(item.read_mask()) for item in chosen]))
    return Brains(
        torch.as_tensor(np.stack(volumes)), torch.as_tensor(np.stack(masks)), tuple(by_patient)
    )


def read_number(item: Item) -> int:
    """The number of a slice within its scan, the end of its name."""
    return int(item.name.rpartition("_")[2])


def shrink(picture: Image.Image) -> NDArray[np.float32]:
    """A slice as float32 [3, 64, 64] in [0, 1]."""
    small = picture.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32).transpose(2, 0, 1) / np.float32(255)


def _shrink_mask(mask: NDArray[np.float32]) -> NDArray[np.float32]:
    small = Image.fromarray(mask).resize((SIDE, SIDE), Image.Resampling.BOX)
    return (np.asarray(small) >= 0.5).astype(np.float32)

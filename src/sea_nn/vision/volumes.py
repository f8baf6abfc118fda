"""Volumes from files: NIfTI by nibabel, DICOM series by pydicom; both read numbers, run nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.extras import import_extra
from sea_nn.vision.names import NIFTI


def load_volume(path: str | Path) -> Tensor:
    """Read a volume as float32 [1, D, H, W], in the values that the file says its numbers mean.

    Args:
        path: a NIfTI file (``.nii``, ``.nii.gz``), of which the last axis becomes D, or a folder
            with the DICOM files of one series, ordered along the patient.
    """
    source = Path(path)
    if os.path.isdir(source):
        values = _read_dicom(source)
    elif source.name.lower().endswith(NIFTI):
        values = _read_nifti(source)
    else:
        raise InputError(
            f"a volume is a file of {' or '.join(NIFTI)}, or a folder of DICOM files; got {source}"
        )
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]


def _read_nifti(source: Path) -> np.ndarray[Any, Any]:
    nibabel = import_extra("nibabel", "NIfTI")
    if not os.path.isfile(source):  # which minds no name, however long or odd
        raise InputError(f"there is no file {str(source)!r}; check its name")
    try:
        found: Any = nibabel.load(source)
        values = np.asarray(found.dataobj, dtype=np.float32)
    except Exception as error:  # nibabel's own, zlib's, or of the file system
        raise InputError(f"{source} could not be read as NIfTI: {error}") from error
    if values.ndim != 3:
        raise InputError(f"a volume has three axes; {source} has {list(values.shape)}: cut one out")
    return np.moveaxis(values, 2, 0)


def _read_dicom(source: Path) -> np.ndarray[Any, Any]:
    pydicom = import_extra("pydicom", "DICOM")
    slices = []
    try:
        for path in sorted(p for p in source.iterdir() if p.is_file()):
            with suppress(pydicom.errors.InvalidDicomError):  # a readme, say
                one = pydicom.dcmread(path)
                slices += [one] if hasattr(one, "PixelData") else []
        series = {one.get("SeriesInstanceUID") for one in slices}
        if len(series) == 1:
            return np.stack([_read_slice(one) for one in sorted(slices, key=_place)])
    except Exception as error:  # damaged, of several sizes, or compressed in an unknown way
        raise InputError(f"{source} could not be read as DICOM: {error}") from error
    if not series:
        raise InputError(f"{source} holds no DICOM files with pictures")
    raise InputError(f"{source} holds several series; give each a folder of its own")


def _read_slice(one: Any) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = one.pixel_array.astype(np.float32)
    return values * float(one.get("RescaleSlope") or 1) + float(one.get("RescaleIntercept") or 0)


def _place(one: Any) -> float:
    """Where a slice lies along the normal of its plane, or its number."""
    position, plane = one.get("ImagePositionPatient"), one.get("ImageOrientationPatient")
    if position is None or plane is None:
        return float(one.get("InstanceNumber") or 0)
    axes = np.asarray(plane, dtype=float)
    return float(np.dot(np.cross(axes[:3], axes[3:]), np.asarray(position, dtype=float)))

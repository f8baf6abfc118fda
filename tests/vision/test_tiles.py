"""Large images by tiles; volumes from NIfTI files and DICOM series."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.errors import InputError
from sea_nn.vision.tiles import explain_tiles
from sea_nn.vision.volumes import load_volume


def test_a_tile_with_the_class_is_found_in_a_picture_that_the_model_cannot_take():
    class Bright(nn.Module):
        """Takes 8 x 8 pixels: are they bright?"""

        def forward(self, x):
            assert x.shape[2:] == (8, 8)
            mean = x.mean((1, 2, 3))
            return torch.stack([torch.zeros_like(mean), 20 * mean - 5], 1)

    x = 0.05 * torch.rand(1, 1, 24, 20, generator=torch.Generator().manual_seed(0))
    x[..., 10:16, 4:10] += 1
    sea = SEA(Bright(), ("input_x_gradient", "saliency"))
    e = explain_tiles(sea, x, 1, size=8)
    found = e.attribution
    assert found.shape == (1, 1, 24, 20)
    assert e.maps.shape == (1, 2, 24, 20)
    one = sea.explain(x[..., :8, :8], 1)
    assert sum(e.evaluations.values()) == 20 * sum(one.evaluations.values())  # 5 x 4 tiles
    assert float(e.score) == pytest.approx(float(sea.explain(x[..., 8:16, 4:12], 1).score), rel=0.2)
    assert float(found[..., 10:16, 4:10].sum()) > 0.8 * float(found.sum())


def test_a_tile_as_large_as_the_picture_is_its_map_times_its_score(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    x = torch.rand(2, 1, 8, 8)
    sea = SEA(model, ("saliency", "input_x_gradient"))
    e = sea.explain(x, 1)
    expected = e.attribution * e.score.view(-1, 1, 1, 1)
    tiled = explain_tiles(sea, x, 1, size=8)
    torch.testing.assert_close(tiled.attribution, expected)
    torch.testing.assert_close(tiled.score, e.score)
    assert torch.equal(
        Explanation.load(tiled.save(tmp_path / "tiled.safetensors")).order, tiled.order
    )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"size": 9, "target": 1}, "at least 9"),
        ({"size": 4, "target": None}, "one class"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(options, match):
    sea = SEA(nn.Flatten(), "saliency")
    with pytest.raises(InputError, match=match):
        explain_tiles(sea, torch.rand(1, 1, 8, 8), **options)


def test_a_nifti_file_is_read_slice_by_slice(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "x.nii.gz")
    found = load_volume(tmp_path / "x.nii.gz")
    assert found.shape == (1, 4, 2, 3)
    assert torch.equal(found[0, 1], torch.as_tensor(values[:, :, 1]).float())
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "x.nii.gz").read_bytes()[:40])
    with pytest.raises(InputError, match="could not be read"):
        load_volume(tmp_path / "cut.nii.gz")
    (tmp_path / "folder.nii").symlink_to("/dev/zero")
    for name in ("none.nii", "folder.nii", "a" * 300 + ".nii", "a\0.nii"):
        with pytest.raises(InputError, match="no file"):
            load_volume(tmp_path / name)


def write_slice(folder, number, place, series="1.2", size=3):
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = f"1.2.3.{number}"
    one = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    one.SOPClassUID, one.SOPInstanceUID = pydicom.uid.CTImageStorage, f"1.2.3.{number}"
    one.SeriesInstanceUID, one.InstanceNumber = series, number
    one.Rows, one.Columns, one.SamplesPerPixel = size, size, 1
    one.PhotometricInterpretation, one.PixelRepresentation = "MONOCHROME2", 0
    one.BitsAllocated, one.BitsStored, one.HighBit = 16, 16, 15
    one.RescaleSlope, one.RescaleIntercept = 2, -1000
    one.ImagePositionPatient, one.ImageOrientationPatient = [0, 0, place], [1, 0, 0, 0, 1, 0]
    one.PixelData = np.full((size, size), number, np.uint16).tobytes()
    one.save_as(folder / f"{number}.dcm", enforce_file_format=True)


def test_a_dicom_series_is_ordered_along_the_patient_in_its_units(tmp_path):
    for number, place in ((1, 5.0), (2, -5.0), (3, 0.0)):
        write_slice(tmp_path, number, place)
    (tmp_path / "readme.txt").write_text("no picture")
    found = load_volume(tmp_path)
    assert found.shape == (1, 3, 3, 3)
    assert found[0, :, 0, 0].tolist() == [-996.0, -994.0, -998.0]


def test_folders_that_are_no_series_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.nii"):
        load_volume(tmp_path / "x.png")
    pytest.importorskip("pydicom")
    with pytest.raises(InputError, match="no DICOM"):
        load_volume(tmp_path)
    write_slice(tmp_path, 1, 0.0)
    write_slice(tmp_path, 2, 1.0, size=4)
    with pytest.raises(InputError, match="same shape"):
        load_volume(tmp_path)
    write_slice(tmp_path, 2, 1.0)
    (tmp_path / "2.dcm").write_bytes((tmp_path / "2.dcm").read_bytes()[:-9])
    with pytest.raises(InputError, match="could not be read as DICOM"):
        load_volume(tmp_path)
    write_slice(tmp_path, 2, 1.0, series="9.9")
    with pytest.raises(InputError, match="several series"):
        load_volume(tmp_path)

"""``sea explain`` of volumes and of pictures larger than the model."""

import json

import numpy as np
import pytest
from PIL import Image

from sea_nn import Explanation
from tests.helpers.command import sea, write_model

__all__ = ["sea"]

VOLUME_MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        total = 8 * x[..., 4:, 4:, 4:].mean((1, 2, 3, 4)) / 1000 - 4
        return torch.stack([-total, total], 1)

def make():
    return Model(), ("healthy", "ill")
"""


def test_a_nifti_file_is_explained_in_slices(sea, tmp_path):
    nibabel = pytest.importorskip("nibabel")
    (tmp_path / "net.py").write_text(VOLUME_MODEL)
    scan = np.zeros((8, 8, 8), np.int16)
    scan[4:, 4:, 4:] = 1000
    nibabel.save(nibabel.Nifti1Image(scan, np.eye(4)), tmp_path / "scan.nii.gz")
    given = ("explain", tmp_path / "scan.nii.gz", "--model", f"{tmp_path / 'net.py'}:make")
    out, _ = sea(*given, "--budget", "160", "--target", "ill", "--json", "-o", tmp_path / "out",
                 drawn=True)  # fmt: skip
    (told,) = json.loads(out)["inputs"]
    assert told["target"]["label"] == "ill"
    assert len(told["feature_shape"]) == 3
    e = Explanation.load(tmp_path / "out/scan/explanation.safetensors")
    assert e.view == "slices"
    inside = e.attribution[0, 0, 4:, 4:, 4:].sum()
    assert float(inside) > 0.5 * float(e.attribution.sum())  # an eighth by chance
    assert (tmp_path / "out/scan/strip.png").exists()
    assert (tmp_path / "out/report.html").exists()


def test_a_volume_that_cannot_be_read_is_said(sea, tmp_path):
    scan = tmp_path / "scan.nii"
    scan.write_bytes(b"no scan")
    (tmp_path / "net.py").write_text(VOLUME_MODEL)
    model = ("--model", f"{tmp_path / 'net.py'}:make")
    pytest.importorskip("nibabel")
    assert "could not be read" in " ".join(sea("explain", scan, *model, code=1)[1].split())


def test_a_large_picture_keeps_its_size_in_tiles(sea, tmp_path):
    model = write_model(tmp_path, "total = 20 * x.mean((1, 2, 3)) - 4")
    pixels = np.zeros((24, 36, 3), np.uint8)
    pixels[6:12, 24:30] = 255
    Image.fromarray(pixels).save(tmp_path / "large.png")
    given = ("explain", tmp_path / "large.png", "--model", model, "--tile", "--target", "0")
    methods = ("--methods", "input_x_gradient,occlusion")
    sea(*given, *methods, "-o", tmp_path / "out")
    e = Explanation.load(tmp_path / "out/large/explanation.safetensors")
    assert e.attribution.shape == (1, 1, 24, 36)
    assert float(e.attribution[0, 0, 4:14, 22:32].sum()) > 0.8 * float(e.attribution.sum())
    assert e.provenance.call["tile"] == 12
    Image.fromarray(pixels[:8]).save(tmp_path / "large.png")
    assert "at least 12 x 12 pixels" in " ".join(sea(*given, *methods, code=1)[1].split())

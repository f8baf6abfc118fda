"""What is interrupted, killed or has no room loses nothing that was finished."""

import errno
import json
import os

import numpy as np
import pytest
from PIL import Image

from sea_nn import Explanation
from tests.helpers.command import FILES, QUICK, write_model


def test_ctrl_c_keeps_what_is_finished(sea, tmp_path):
    body = """if x.flatten(1).mean(1).max() > 0.5:
            raise KeyboardInterrupt
        total = (x * x).flatten(1).sum(1)"""
    model = write_model(tmp_path, body)
    for name, shade in (("a", 30), ("b", 250), ("c", 30)):
        picture = Image.new("RGB", (12, 12), (shade,) * 3)
        picture.putpixel((4, 4), (90, 90, 90))
        picture.save(tmp_path / f"{name}.png")
    given = ("explain", tmp_path / "*.png", "--model", model, "--methods", "saliency",
             "--device", "cpu", "-o", tmp_path / "out")  # fmt: skip
    out, err = sea(*given, code=130)
    assert "1 of 3 inputs were finished" in err
    assert "a/map.png" in out
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"a", "report.html"}
    out, _ = sea(*given, "--json", code=130)
    assert json.loads(out)["interrupted"] is True


@pytest.mark.parametrize("tile", [False, True])
def test_ctrl_c_while_questions_are_asked_ends_the_work(sea, tmp_path, tile):
    body = """if len(x) > 2 and not torch.is_grad_enabled():
            raise KeyboardInterrupt
        total = (x * x).flatten(1).sum(1)"""
    for name in "ab":
        Image.effect_noise((12 + 6 * tile, 12), 80).save(tmp_path / f"{name}.png")
    more = ("--budget", "64", "--target", "0", "-o", tmp_path / "out", *["--tile"] * tile)
    _, err = sea("explain", tmp_path / "*.png", "--model", write_model(tmp_path, body), *more,
                 code=130)  # fmt: skip
    assert f"{1 - tile} of 2 inputs were finished" in err
    if not tile:  # a map of what was answered until then
        e = Explanation.load(tmp_path / "out/a/explanation.safetensors")
        assert any(check.message.endswith("interrupted") for check in e.checks)


def test_a_picture_is_written_whole_or_not_at_all(sea, clothes, tmp_path, monkeypatch):
    def read():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop(*_):
        raise KeyboardInterrupt

    common = ("explain", clothes / "boot.png", *QUICK, "--no-report", "-o", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Explanation, "save", stop)
        sea(*common, code=130)
        assert not list(tmp_path.iterdir())
    sea(*common)
    (tmp_path / "boot" / "notes.txt").write_text("one's own")
    before = read()
    with monkeypatch.context() as patch:
        patch.setattr(Explanation, "save", stop)
        sea(*common, "--target", "0", code=130)
    assert read() == before
    sea(*common, "--target", "0")
    after = read()
    assert {path.name for path in before if before[path] != after[path]} == FILES
    assert after.keys() == before.keys()


def test_a_full_disk_keeps_what_is_written_and_says_so(sea, clothes, tmp_path, monkeypatch):
    plain = Explanation.save

    def save(e, path):
        if e.labels != ("Ankle boot",):
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(e, path)

    monkeypatch.setattr(Explanation, "save", save)
    given = ("explain", clothes / "boot.png", clothes / "sandal.png", clothes / "trouser.png")
    _, err = sea(*given, *QUICK, "-o", tmp_path, code=1)
    assert err.count("No space left on device") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"boot", "report.html"}


def test_a_file_in_the_way_of_one_result_stops_that_one_only(sea, clothes, tmp_path):
    (tmp_path / "boot").touch()
    given = ("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK, "-o", tmp_path)
    _, err = sea(*given, "--no-report", code=1)
    assert "results need a folder of this name" in " ".join(err.split())
    assert {path.name for path in tmp_path.iterdir()} == {"boot", "sandal"}
    (tmp_path / "report.html").mkdir()
    sea(*given, code=2)  # before anything is computed


def test_what_is_left_of_earlier_runs_is_said_or_removed(sea, clothes, tmp_path):
    draft = tmp_path / ".sea-0123"
    draft.mkdir()
    os.utime(draft, (0, 0))  # long ago
    assert "earlier run" not in sea("explain", clothes / "boot.png", *QUICK, "-o", tmp_path)[0]
    first = (tmp_path / "boot" / "explanation.safetensors").stat().st_mtime_ns
    out, _ = sea("explain", clothes / "sandal.png", *QUICK, "-o", tmp_path, "--no-report")
    assert "report.html is of an earlier run" in out
    assert {path.name for path in tmp_path.iterdir()} == {"boot", "sandal", "report.html"}
    sea("explain", clothes / "boot.png", *QUICK, "-o", tmp_path)
    assert (tmp_path / "boot" / "explanation.safetensors").stat().st_mtime_ns > first
    assert "sandal" not in (tmp_path / "report.html").read_text()


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
    (tmp_path / "scan.nii.gz").write_bytes(b"no scan")
    assert "could not be read" in " ".join(sea(*given, code=1)[1].split())


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

"""Reading results: by id, as tables, half-finished; `sea run` and `sea summary`."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from sea_nn import read_dataset
from sea_nn.cli import app
from sea_nn.datasets.storage import rows_path
from sea_nn.errors import InputError
from tests.datasets.small import make_inputs, make_sea, run


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    rows = [(x, i % 3) for i, x in enumerate(make_inputs(9))]
    rows[4] = (torch.full_like(rows[4][0], torch.nan), 1)
    run(folder, rows, shard_size=4, members=True, labels=("a", "b", "c"))
    return folder


def test_rows_as_tables(out):
    data = read_dataset(out)
    assert len(data) == data.manifest.count == 9
    table = data.to_arrow()
    assert table.num_rows == 9
    frame = pytest.importorskip("pandas") and data.to_pandas()
    assert list(frame["id"]) == [str(i) for i in range(9)]
    assert frame["seconds"].min() > 0
    assert frame["error"].notna().sum() == 1
    assert frame["correct"].notna().sum() == 8


def test_a_gallery_selects_and_sorts(out):
    data = read_dataset(out)
    rows = {one.id: one.row for one in data}
    assert data.select(failed=True) == ["4"]
    assert set(data.select(correct=False)) == {i for i, r in rows.items() if r["correct"] is False}
    by_class = data.select(target_name="b", agreement=(-1, 1))
    assert set(by_class) == {i for i, r in rows.items() if r["target"] == 1}
    order = data.select(sort="-score")
    values = [rows[i]["score"] for i in order[:-1]]
    assert values == sorted(values, reverse=True)
    assert order[-1] == "4"  # it has none
    with pytest.raises(InputError, match="no column 'colour'"):
        data.select(colour=1)


def test_an_input_by_id_has_map_members_and_picture(out):
    one = read_dataset(out)["3"]
    wanted = make_sea().explain(make_inputs(9)[2:4])[1]
    assert one.methods == wanted.methods
    assert torch.allclose(one.members, wanted.maps[0], atol=3e-4)
    assert one.thumbnail.shape == (8, 8, 3)
    assert "3" in read_dataset(out)
    assert "99" not in read_dataset(out)
    with pytest.raises(InputError, match="no input '99'"):
        read_dataset(out)["99"]


def test_a_loader_gives_maps_without_the_failed(out):
    data = read_dataset(out).to_torch()
    assert len(data) == 8
    batch = next(iter(DataLoader(data, 4)))
    assert batch["map"].shape == (4, 8, 8)


def test_a_run_that_is_not_finished_can_be_read(out, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(out, half)
    rows_path(half, 1).unlink()
    data = read_dataset(half)
    assert len(data) == 5
    assert data["8"].map.shape == (8, 8)
    with pytest.raises(InputError, match="not explained yet"):
        data["4"]
    assert data.summary().n_done == 5
    for shard in (0, 2):
        rows_path(half, shard).unlink()
    with pytest.raises(InputError, match="nothing to summarize"):
        read_dataset(half).summary()


def test_what_is_no_run_or_of_another_version_is_refused(out, tmp_path):
    with pytest.raises(InputError, match=r"no manifest\.json"):
        read_dataset(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        read_dataset(tmp_path)
    facts = json.loads((out / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**facts, "version": 1}))
    with pytest.raises(InputError, match=r"sea_nn.dataset 1, and .* reads sea_nn.dataset 5"):
        read_dataset(tmp_path)


OPTIONS = ("--model", "fashion-cnn", "--methods", "saliency,input_x_gradient", "--device", "cpu")


@pytest.fixture
def pictures(tmp_path):
    from sea_nn.vision.shipped import load_sample

    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, image in enumerate(load_sample().images[:4]):
        pixels = (image[0] * 255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def sea(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_run_and_summary_of_a_folder(pictures, tmp_path):
    out = tmp_path / "out"
    (pictures / "broken.png").write_bytes(b"not a picture")
    first = sea("run", pictures, "-o", out, *OPTIONS)
    assert first.exit_code == 0, first.output
    assert "failed (load): 1" in first.output
    again = sea("run", pictures, "-o", out, *OPTIONS, "--strict")
    assert again.exit_code == 1
    assert "0 now" in again.output
    assert read_dataset(out)["0.png"].row["target_name"]
    other = sea("run", pictures, "-o", out, *OPTIONS, "--seed", "3")
    assert other.exit_code == 2
    assert "setting seed" in other.output
    shown = sea("summary", out)
    assert shown.exit_code == 0, shown.output
    assert (out / "summary" / "summary.html").is_file()
    told = sea("report", out, "-o", tmp_path / "report.html")
    assert told.exit_code == 0, told.output
    assert "4 inputs" in told.output

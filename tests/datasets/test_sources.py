"""Every kind of source gives the same inputs, with ids, labels and a fingerprint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from sea_nn import SEA, explain_dataset, read_dataset
from sea_nn.datasets.items import Reader
from sea_nn.datasets.sources import open_source
from sea_nn.datasets.summary import write_pages
from sea_nn.errors import InputError, KindError
from sea_nn.vision.images import Preprocess
from tests.datasets.small import make_inputs

PREPROCESS = Preprocess(resize=8, crop=8, mean=(0.0,), std=(1.0,), channels=1)


@pytest.fixture
def pictures(tmp_path):
    for name in ("cat/a.png", "cat/b.png", "dog/c.png"):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = np.random.default_rng(len(name) + ord(name[-5])).integers(0, 255, (9, 9), np.uint8)
        Image.fromarray(grey).save(path)
    return tmp_path / "pictures"


def test_a_folder_of_pictures_names_files_and_labels_by_folder(pictures):
    source = open_source(pictures, Reader(PREPROCESS, ("Dog", "Cat")))
    assert list(source.ids) == ["cat/a.png", "cat/b.png", "dog/c.png"]
    assert source.read(2).label == 0
    assert source.read(0).label == 1
    assert source.read(0).x.shape == (1, 8, 8)


def test_what_matches_is_an_input_but_for_hidden_files_and_results(pictures):
    out = pictures / "out"
    out.mkdir()
    (out / "manifest.json").write_text("{}")
    (out / "0000001.0123456789ab.safetensors").write_bytes(b"")
    Image.new("L", (3, 3)).save(pictures / ".hidden.png")
    assert len(open_source(pictures, Reader(PREPROCESS))) == 3
    assert len(open_source(str(pictures / "cat" / "*.png"), Reader(PREPROCESS))) == 2


def test_a_folder_of_volumes_is_explained(tmp_path):
    """NIfTI files, whatever lies beside them, through to the page of the summary."""
    nibabel = pytest.importorskip("nibabel", reason="NIfTI needs nibabel: sea-nn[medical]")
    x = torch.rand(3, 4, 6, 5, generator=torch.Generator().manual_seed(0))
    for i, values in enumerate(x):
        name = f"{i}.nii.gz" if i else "0.nii"
        nibabel.Nifti1Image(values.permute(1, 2, 0).numpy(), np.eye(4)).to_filename(tmp_path / name)
    (tmp_path / "notes.txt").write_text("of three patients")
    source = open_source(tmp_path)
    assert list(source.ids) == ["0.nii", "1.nii.gz", "2.nii.gz"]
    assert torch.allclose(source.read(1).x, x[1:2])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(120, 2))
    sea = SEA(model, ("saliency", "input_x_gradient"))
    explain_dataset(tmp_path, sea, tmp_path / "out", quiet=True)
    found = read_dataset(tmp_path / "out")
    assert found["2.nii.gz"].map.shape == (4, 6, 5)
    assert found["2.nii.gz"].thumbnail.shape == (6, 5, 3)  # the middle slice
    assert found["2.nii.gz"].to_explanation().attribution.shape == (1, 1, 4, 6, 5)
    assert write_pages(found.summary(), tmp_path / "pages").is_file()


def test_a_table_of_paths(pictures, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("path,label\npictures/cat/a.png,1\npictures/none.png,0\n")
    source = open_source(table, Reader(PREPROCESS))
    assert source.read(0).label == 1
    with pytest.raises(InputError):
        source.read(1)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_features(tmp_path, suffix):
    path = tmp_path / f"table.{suffix}"
    if suffix == "csv":
        path.write_text("id,age,height,label\na,1.5,2,cat\nb,3,oops,nan\n")
    else:
        columns = {"age": [1.5, 3], "height": [2, None], "label": ["cat", None]}
        pa.parquet.write_table(pa.table({"id": ["a", "b"], **columns}), path)
    source = open_source(path, Reader(label_names=("dog", "cat")))
    assert list(source.ids) == ["a", "b"]
    assert source.read(0).x.tolist() == [1.5, 2.0]
    assert [source.read(i).label for i in range(2)] == [1, None]
    assert source.read(1).x.isnan().tolist() == [False, True]
    assert source.feature_names == ("age", "height")


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_files_of_tensors(tmp_path, kind):
    x, labels = make_inputs(5), torch.arange(5)
    for name, rows in (("u", slice(0, 2)), ("v", slice(2, 5))):
        path = tmp_path / "shards" / name / f"a.{kind}"
        path.parent.mkdir(parents=True)
        if kind == "npz":
            np.savez(path, x=x[rows].numpy(), label=labels[rows].numpy())
        else:
            save_file({"x": x[rows].clone(), "label": labels[rows].clone()}, path)
    source = open_source(tmp_path / "shards")
    assert list(source.ids) == ["u/a/0", "u/a/1", "v/a/0", "v/a/1", "v/a/2"]
    assert torch.equal(source.read(3).x, x[3])
    assert source.read(3).label == 3


def test_data_sets_and_loaders(tmp_path):
    x = make_inputs(6)
    data = TensorDataset(x, torch.arange(6))
    for given in (data, DataLoader(data, 2), DataLoader(data, 4, shuffle=True)):
        source = open_source(given)
        assert len(source) == 6
        assert torch.equal(source.read(4).x, x[4])
        assert source.read(4).label == 4
    some = open_source(DataLoader(data, 2, sampler=SubsetRandomSampler([5, 1])))
    assert list(some.ids) == ["1", "5"]
    assert torch.equal(some.read(1).x, x[5])
    assert list(open_source(DataLoader(list(x), sampler=[4, 2])).ids) == ["2", "4"]


def test_a_data_set_that_numbers_classes_otherwise_is_read_by_their_names():
    """As Hugging Face's do (features), and torchvision's folders (classes)."""

    class Fake:
        _fingerprint = "abc"
        features = {"label": type("ClassLabel", (), {"names": ["dog", "Cat"]})}  # noqa: RUF012

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return {"image": Image.new("L", (9, 9), 40 * index), "label": index}

    assert open_source(Fake(), Reader(PREPROCESS)).read(1).label == 1
    by_name = open_source(Fake(), Reader(PREPROCESS, ("cat", "emu", "dog")))
    assert [by_name.read(i).label for i in range(2)] == [2, 0]
    assert by_name.digests != open_source(Fake(), Reader(PREPROCESS)).digests
    assert by_name.read(1).x.shape == (1, 8, 8)


def test_streams_and_loaders_that_make_batches_of_their_own_are_refused_with_advice():
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1, 8, 8)

    for given in (Stream(), DataLoader(Stream())):
        with pytest.raises(KindError, match="map-style"):
            open_source(given)
    loader = DataLoader(TensorDataset(make_inputs(4)), 2, collate_fn=lambda rows: rows[0])
    with pytest.raises(KindError, match="collate_fn"):
        open_source(loader)


def test_what_cannot_be_a_source_is_refused(tmp_path):
    for nothing in ([], torch.zeros(0, 1, 8, 8), TensorDataset(torch.zeros(0, 3))):
        with pytest.raises(InputError, match="holds no inputs"):
            open_source(nothing)
    with pytest.raises(InputError, match="holds no pictures"):
        open_source(tmp_path)
    Image.new("L", (3, 3)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match="preprocess"):
        open_source(tmp_path)
    (tmp_path / "b.txt").write_text("x")
    with pytest.raises(InputError, match="known are"):
        open_source(tmp_path / "b.txt")
    table = tmp_path / "t.csv"
    table.write_text("id,a\nx,1\nx,2\n")
    with pytest.raises(InputError, match="unique"):
        open_source(table)

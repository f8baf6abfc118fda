"""Fashion-MNIST: the IDX reader, the shipped sample and the shipped CNN."""

import gzip
import json
import struct
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from sea_bench import data
from sea_bench.data.fashion import FASHION, load_fashion, read_idx
from sea_nn.errors import InputError
from sea_nn.vision.folders import find_data
from sea_nn.vision.shipped import CLASSES, load_cnn, load_sample

ASSETS = Path(str(files("sea_nn.vision"))) / "assets"
needs_fashion = pytest.mark.skipif(
    not FASHION.elsewhere[0].is_dir() and find_data("fashion_mnist") is None,
    reason="Fashion-MNIST is not here: apt install dataset-fashion-mnist",
)


def encode_idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def write_split(folder, images, labels):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"t10k-{name}-ubyte.gz"
        path.write_bytes(gzip.compress(encode_idx(array), mtime=0))


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_read_idx_gives_back_what_was_written(tmp_path, images, compress):
    path = tmp_path / "images"
    path.write_bytes(compress(encode_idx(images)))
    assert np.array_equal(read_idx(path), images)


@pytest.mark.parametrize(
    "content",
    [
        b"\x01\x02\x08\x01" + bytes(8),
        struct.pack(">BBBBI", 0, 0, 0x0D, 1, 4) + bytes(16),  # numbers of another type
        struct.pack(">BBBBI", 0, 0, 8, 1, 4) + bytes(3),
        struct.pack(">BBBBI", 0, 0, 8, 1, 4) + bytes(5),
        gzip.compress(bytes(1000), mtime=0)[:-9],
    ],
)
def test_read_idx_refuses_damaged_files(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((ValueError, EOFError)):
        read_idx(path)


def test_the_given_folder_comes_before_the_data_variable(tmp_path, images, monkeypatch):
    labels = np.arange(5, dtype=np.uint8)
    write_split(tmp_path / "given", images, labels)
    write_split(tmp_path / "data" / "fashion_mnist", 255 - images, labels)
    monkeypatch.setenv("SEA_NN_DATA", str(tmp_path / "data"))
    assert np.array_equal(load_fashion("test", tmp_path / "given")[0], images)
    found, found_labels = load_fashion("test")
    assert np.array_equal(found, 255 - images)
    assert (found_labels.dtype, found_labels.tolist()) == (np.int64, [0, 1, 2, 3, 4])
    with pytest.raises(InputError, match="apt install dataset-fashion-mnist"):
        load_fashion("train", tmp_path)
    write_split(tmp_path, images, np.zeros(4, np.uint8))
    with pytest.raises(InputError, match="shape"):
        load_fashion("test", tmp_path)


def test_the_shipped_sample_and_the_shipped_cnn():
    sample, cnn = load_sample(), load_cnn()
    assert sample.images.shape == (200, 1, 28, 28)
    assert (float(sample.images.min()), float(sample.images.max())) == (0.0, 1.0)
    assert sample.labels.bincount().tolist() == [20] * 10
    assert sample.names == CLASSES
    with torch.no_grad():
        right = (cnn(sample.images).argmax(1) == sample.labels).sum()
        assert int(right) == pytest.approx(187, abs=1)  # kernels differ between machines
        cnn.conv1.weight.zero_()
    assert load_cnn().conv1.weight.abs().sum() > 0  # another one


@needs_fashion
def test_items_are_the_arrays_and_the_sample_is_the_first_twenty_of_each_class():
    images, labels = load_fashion("test")
    loaded = data.load("fashion")
    assert [item.label for item in loaded] == labels.tolist()
    assert np.array_equal(np.asarray(loaded[7].read()), images[7])
    first = np.concatenate([np.flatnonzero(labels == k)[:20] for k in range(10)])
    sample = load_sample()
    assert np.array_equal((sample.images[:, 0] * 255).round().numpy(), images[first])
    assert np.array_equal(sample.labels.numpy(), labels[first])


def test_assets_are_small_and_their_sources_are_named():
    sources = (ASSETS / "SOURCES.md").read_text()
    shipped = [path for path in ASSETS.iterdir() if path.name != "SOURCES.md"]
    assert len(shipped) >= 5
    assert all(f"`{path.name}`" in sources for path in shipped)
    assert sum(path.stat().st_size for path in shipped) < 1_500_000
    with safe_open(ASSETS / "fashion_cnn.safetensors", "pt") as file:
        assert json.loads(file.metadata()["epochs"]) > 0

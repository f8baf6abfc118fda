"""Classifiers, trained on small folders or shipped; the sample and the IDX files they know."""

import gzip
import json
import struct
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from sea_bench import data, training
from sea_bench.classifiers import PROBLEMS, load_classifier, read_card, train_classifier
from sea_bench.data.fashion import load_fashion, read_idx
from sea_nn.errors import InputError
from sea_nn.vision.shipped import CLASSES, load_cnn, load_sample
from tests.helpers.small_sets import make_lgg, make_scenes

CPU, SCENES = torch.device("cpu"), PROBLEMS["scenes"]
NETWORK = """
import torch
from torch import nn
from sea_nn.vision.images import Preprocess

def make():
    torch.manual_seed({seed})
    layers = [nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 24, 3), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 1000))
    return model, Preprocess(40, 32), [str(k) for k in range(1000)]
"""


def write_network(folder: Path, seed: int = 0) -> str:
    """Write a file that makes a small "pretrained" network; return its name for load_model."""
    path = folder / "net.py"
    path.write_text(NETWORK.format(seed=seed))
    return f"{path}:make"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small data sets, and an empty cache."""
    scenes = partial(make_scenes, train=8, test=4), "objects_on_scenes"
    for make, name in (scenes, (make_lgg, "lgg_tumor_masks")):
        (tmp_path / name).mkdir()
        make(tmp_path / name)
    monkeypatch.setenv("SEA_NN_DATA", str(tmp_path))
    monkeypatch.setenv("SEA_NN_CACHE", str(tmp_path / "cache"))
    return tmp_path


# The parts.


def test_a_fitted_head_separates_and_holds_useless_features_back():
    generator = torch.Generator().manual_seed(0)
    groups, labels = [str(i) for i in range(80)], torch.arange(80) % 4
    centres = 3 * torch.randn(4, 20, generator=generator)
    features = 50 + centres[labels] + torch.randn(80, 20, generator=generator)
    head = training.fit_head(features, labels, groups, 4)
    assert ((features @ head.weight.T + head.bias).argmax(1) == labels).all()
    noise = torch.randn(80, 100, generator=generator)
    noise[:, 0] += 3 * (labels % 2)  # the other 99 say nothing
    assert training.fit_head(noise, labels % 2, groups, 2).penalty >= 0.01


def test_parts_keep_groups_whole_and_labels_spread():
    labels = torch.arange(120) % 3
    groups = [f"group {i // 6 * 3 + i % 3}" for i in range(120)]  # pairs of one label
    parts = training.deal_parts(groups, labels)
    for group in set(groups):
        assert len({int(parts[i]) for i in range(120) if groups[i] == group}) == 1
    for part in range(5):
        assert torch.bincount(labels[parts == part], minlength=3).tolist() == [8, 8, 8]
    assert not parts.equal(training.deal_parts(groups, labels, seed=1))


# Training, storing, loading.


def test_a_head_on_a_network_of_ones_own(folder, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "scenes", replace(SCENES, network=write_network(folder)))
    state = torch.random.get_rng_state()
    loaded = load_classifier("scenes")  # trained, as there is none
    assert torch.random.get_rng_state().equal(state)
    card = read_card("scenes")
    assert card.accuracy > 0.9
    (path,) = (folder / "cache").rglob("*.safetensors")
    with safe_open(path, "pt") as file:
        assert set(file.keys()) == {"weight", "bias"}  # the head alone
    assert loaded.labels == ("forest", "sea", "street")
    assert loaded.preprocess.resize == (32, 32)  # the whole picture
    assert not loaded.model.training
    test = data.load("objects_on_scenes")
    right = training.check_items(loaded.model, test.items, loaded.preprocess, CPU)
    assert float(right.float().mean()) == card.accuracy
    inputs = test[0].view(loaded.preprocess).tensor.unsqueeze(0).requires_grad_()
    loaded.model(inputs)[0, 1].backward()
    assert inputs.grad.abs().sum() > 0
    write_network(folder, seed=1)
    with pytest.raises(InputError, match="other weights"):
        load_classifier("scenes")


def test_training_repeats_and_what_is_stored_is_loaded(folder):
    said = []
    for again in (False, True, True):
        if again:
            train_classifier("lgg")
        said.append(load_classifier("lgg").model(torch.zeros(1, 3, 112, 112)).detach())
    assert torch.allclose(said[0], said[1])
    assert torch.equal(said[1], said[2])
    assert read_card("lgg").trained == "all"
    (path,) = (folder / "cache").rglob("*.safetensors")
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="trained again"):
        load_classifier("lgg")


ASSETS = Path(str(files("sea_nn.vision"))) / "assets"


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


def test_assets_are_small_and_their_sources_are_named():
    sources = (ASSETS / "SOURCES.md").read_text()
    shipped = [path for path in ASSETS.iterdir() if path.name != "SOURCES.md"]
    assert len(shipped) >= 5
    assert all(f"`{path.name}`" in sources for path in shipped)
    assert sum(path.stat().st_size for path in shipped) < 1_500_000
    with safe_open(ASSETS / "fashion_cnn.safetensors", "pt") as file:
        assert json.loads(file.metadata()["epochs"]) > 0

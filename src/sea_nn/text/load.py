"""Text models from a folder on this machine: safetensors alone, and no code of the folder's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from sea_nn.errors import InputError
from sea_nn.extras import check_extras, import_extra
from sea_nn.text.zero_shot import ZeroShot

SAFE = {"local_files_only": True, "trust_remote_code": False}
UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")


def import_transformers() -> Any:
    """The package transformers, or how to get it."""
    return import_extra("transformers", "a text model")


def load_text_model(
    folder: str | Path, labels: Sequence[str] | None = None
) -> tuple[nn.Module, Any]:
    """The model in a folder that ``save_pretrained`` wrote, and its tokenizer.

    Nothing is fetched, no pickle is opened and no code of the folder runs. An encoder without a
    head becomes a classifier of ``labels`` (``ZeroShot``). A ``.gguf`` file is a language model
    with its tokenizer; it needs the packages gguf and accelerate.
    """
    path = Path(folder).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return _load_gguf(path)
    if not path.is_dir():
        raise InputError(
            f"there is no folder {str(folder)!r}: a text model is read from a folder on this "
            "machine that save_pretrained wrote; nothing is fetched"
        )
    if not (path / "config.json").is_file():
        raise InputError(f"{path} has no config.json: give a folder that save_pretrained wrote")
    if not any(path.glob("*.safetensors")):
        pickled = sorted(found.name for kind in UNSAFE for found in path.glob(kind))
        what = f"{pickled[0]}, which may run code when opened" if pickled else "no weights"
        raise InputError(
            f"{path} has {what}, and only .safetensors are read: save the model again with "
            "model.save_pretrained(folder)"
        )
    transformers = import_transformers()
    with _loading(transformers, path):
        config = transformers.AutoConfig.from_pretrained(path, **SAFE)
        make = transformers.AutoModel if labels else _find_loader(transformers, config)
        model = make.from_pretrained(path, use_safetensors=True, **SAFE).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **SAFE)
    return (ZeroShot(model, tokenizer, labels) if labels else model), tokenizer


def _load_gguf(path: Path) -> tuple[nn.Module, Any]:
    transformers = import_transformers()
    check_extras(path.name, "gguf", "accelerate")
    where: dict[str, Any] = {**SAFE, "gguf_file": path.name}
    with _loading(transformers, path):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **where)
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **where).eval()
    return model, tokenizer


@contextmanager
def _loading(transformers: Any, path: Path) -> Iterator[None]:
    """Without progress bars, and with an error for people where it fails."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"transformers could not load {path}: {error}") from error
    finally:
        if shown:
            bars.enable_progress_bar()


def _find_loader(transformers: Any, config: Any) -> Any:
    """The head that the folder's weights have, by the class that wrote them."""
    written = " ".join(getattr(config, "architectures", None) or ())
    if "ForSequenceClassification" in written:
        return transformers.AutoModelForSequenceClassification
    if "ForCausalLM" in written or "LMHeadModel" in written:
        return transformers.AutoModelForCausalLM
    raise InputError(
        f"the folder holds {written or 'an unknown model'}: sequence classifiers and causal "
        "language models are explained, and encoders with labels"
    )

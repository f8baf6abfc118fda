"""Text models from a folder on this machine: safetensors alone, and no code of the folder's own.

An encoder of sentences is a classifier without training: which label's sentence is nearest?
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError
from sea_nn.extras import check_extras, import_extra
from sea_nn.model.opening import borrow

SAFE = {"local_files_only": True, "trust_remote_code": False}


def load_text_model(
    folder: str | Path, labels: Sequence[str] | None = None
) -> tuple[nn.Module, Any]:
    """The model in a folder that ``save_pretrained`` wrote, and its tokenizer.

    Nothing is fetched, no pickle is opened and no code of the folder runs. An encoder without a
    head becomes a classifier of ``labels`` (``ZeroShot``). A ``.gguf`` file is a language model
    with its tokenizer; it needs the packages gguf and accelerate.
    """
    path, where = Path(folder).expanduser(), dict[str, Any](SAFE)
    if path.suffix == ".gguf" and path.is_file():
        check_extras(path.name, "gguf", "accelerate")
        path, where["gguf_file"], labels = path.parent, path.name, None
    elif not any(path.glob("*.safetensors")):
        raise InputError(
            f"there is no folder {str(path)!r} with .safetensors: a text model is read from a "
            "folder on this machine that model.save_pretrained(folder) wrote. Nothing is fetched, "
            "and other weights are not read: they may run code when opened"
        )
    transformers = import_extra("transformers", "a text model")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **where)
        make = transformers.AutoModelForCausalLM
        if "gguf_file" not in where:
            config = transformers.AutoConfig.from_pretrained(path, **SAFE)
            make = transformers.AutoModel if labels else _find_loader(transformers, config)
            where["use_safetensors"] = True
        with redirect_stderr(StringIO()):  # bars of progress; warnings have a way of their own
            model = make.from_pretrained(path, **where).eval()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"transformers could not load {path}: {error}") from error
    return (ZeroShot(model, tokenizer, labels) if labels else model), tokenizer


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


class ZeroShot(nn.Module):
    """Logits are similarities of mean embeddings, text and labels, times ``scale``.

    Args:
        encoder: of Hugging Face, such as MiniLM; its mean over tokens is a sentence's embedding.
        tokenizer: of the encoder.
        labels: a sentence for each class, such as "This text is about sports."
        scale: similarities lie in [-1, 1]; a softmax of 20 times them tells classes apart.
    """

    pooling = "mean"

    def __init__(
        self, encoder: nn.Module, tokenizer: Any, labels: Sequence[str], scale: float = 20.0
    ) -> None:
        super().__init__()
        if isinstance(labels, str) or len(labels) < 2:
            raise InputError("give a sentence for each of at least two classes")
        self.encoder, self.scale, self.config = encoder, scale, encoder.config
        self.names = tuple(labels)
        given = tokenizer(list(labels), padding=True, truncation=True, return_tensors="pt")
        device = next(encoder.parameters()).device
        with torch.no_grad(), borrow(encoder) as twin:
            embedded = _embed(twin, {name: part.to(device) for name, part in given.items()})
        self.register_buffer("targets", embedded)

    def forward(self, **given: Any) -> Any:
        """Logits [N, classes], as ``.logits``, of what the tokenizer gives."""
        embedded = _embed(self.encoder, given)
        return SimpleNamespace(logits=self.scale * embedded @ self.get_buffer("targets").mT)

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's own."""
        found: nn.Module = self.encoder.get_input_embeddings()  # type: ignore[operator]
        return found


def _embed(encoder: nn.Module, given: dict[str, Tensor]) -> Tensor:
    """The mean of the last layer over the tokens that count, of length 1: [N, D]."""
    hidden: Tensor = encoder(**given).last_hidden_state
    counts = given.get("attention_mask", torch.ones(hidden.shape[:2], device=hidden.device))
    mean = (hidden * counts.unsqueeze(2)).sum(1) / counts.sum(1, keepdim=True).clamp_min(1)
    return nn.functional.normalize(mean, dim=1)

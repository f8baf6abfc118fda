"""An encoder of sentences as a classifier without training: which label's sentence is nearest?"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError
from sea_nn.model.borrowing import borrow


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

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Any:
        """Logits [N, classes], as ``.logits``."""
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        given |= {"token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        embedded = _embed(self.encoder, {k: v for k, v in given.items() if v is not None})
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

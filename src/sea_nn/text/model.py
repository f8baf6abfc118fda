"""A borrowed text model: outputs for many variants of a text, gradients, attention.

Outputs are columns [R, K]: of a classifier its K classes, of a language model the log-probabilities
of K continuations. Variants run in full batches, those of nearly equal length together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, KindError, UnfitError
from sea_nn.members.attention import HoldAttention, RecordAttention
from sea_nn.model.outputs import check_value
from sea_nn.text.absent import Absent, Rows, hide
from sea_nn.text.reading import Reading

BATCH_TOKENS = {"cpu": 2048, "cuda": 1 << 16}
BATCH_NUMBERS = {"cpu": 1 << 25, "cuda": 1 << 29}
"""The most tokens, and logits of a language model, in one pass."""
End = tuple[int, ...]
"""A continuation, by its tokens."""


class TextModel:
    """A model in eval mode and what its tokenizer says of special tokens.

    Args:
        module: takes ``input_ids`` and ``attention_mask`` and gives logits, as Hugging Face's do.
        tokenizer: of Hugging Face.
        language: whether it is a causal language model; else a classifier.
        absent: what becomes of absent words.
        batch: the most rows in one pass; left out, by the number of tokens.
        value: of a classifier, a function from its output to numbers [N]: they are its one column.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        language: bool = False,
        absent: Absent = "mask",
        batch: int | None = None,
        value: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.module, self.language, self.absent, self.batch = module, language, absent, batch
        self.value = value
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        self.mask: int | None = tokenizer.mask_token_id
        marks = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        self.pad = int(next(mark for mark in marks if mark is not None))  # nothing attends to it
        config: Any = getattr(module, "config", None)
        if not language and hasattr(config, "pad_token_id"):
            # A classifier that reads the last token of a row looks for it before this padding.
            if config.pad_token_id is None and absent == "pad":
                raise InputError(
                    'absent="pad" needs a model that knows its padding: set its '
                    'config.pad_token_id, or say absent="delete"'
                )
            if config.pad_token_id is None:
                self.batch = 1
            else:
                self.pad = int(config.pad_token_id)
        names = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        self.knows: Callable[[str], bool] = lambda name: anything or name in names
        self.plain = {"use_cache": False} if "use_cache" in names else {}

    def ask(self, reading: Reading, sets: Tensor, ends: Sequence[End] = ()) -> Tensor:
        """The columns with only these features left: bool [R, n] -> [R, K]."""

        def run(tail: End, ends: Sequence[End]) -> Tensor:
            rows = self._hide(reading, sets.to(self.device), tail)
            order = rows.lengths.argsort(descending=True, stable=True)
            parts = []
            for which in self._split(order, rows.lengths, ends):
                part = rows.take(which)
                parts.append(self._forward(part.given, part.lengths, ends))
            found = torch.cat(parts)
            return torch.empty_like(found).index_copy_(0, order, found)

        with torch.no_grad():
            return _by_tails(ends, run)

    def _split(self, order: Tensor, lengths: Tensor, ends: Sequence[End]) -> Iterator[Tensor]:
        """Batches of rows, the longest first, that fit into one pass."""
        start, sizes = 0, lengths[order].tolist()
        while start < len(sizes):
            most = max(1, self._room(BATCH_TOKENS) // max(1, sizes[start]))
            if ends:
                shortest = sizes[min(len(sizes), start + most) - 1]
                seen = sizes[start] - shortest + max(map(len, ends))
                vocabulary = int(getattr(getattr(self.module, "config", None), "vocab_size", 1))
                most = max(1, min(most, self._room(BATCH_NUMBERS) // (seen * vocabulary)))
            most = min(most, self.batch or most)
            yield order[start : start + most]
            start += most

    def _room(self, most: Mapping[str, int]) -> int:
        return most.get(self.device.type, most["cpu"])

    def _forward(self, given: dict[str, Tensor], lengths: Tensor, ends: Sequence[End]) -> Tensor:
        """One pass: the K columns of a classifier, or one for each continuation, [B, K]."""
        if not self.language:
            output = self.module(**given, **self.plain)
            if self.value is not None:
                return check_value(self.value(output), len(lengths)).unsqueeze(1)
            logits = find_logits(output)
            if logits.ndim != 2 or logits.shape[0] != len(lengths):
                raise InputError(
                    f"a text classifier gives [N, classes]; this model's logits are "
                    f"{list(logits.shape)}"
                )
            return logits
        width = int(lengths.max())
        seen = width - int(lengths.min()) + max(map(len, ends))
        keep = {"logits_to_keep": seen} if self.knows("logits_to_keep") else {}
        logits = find_logits(self.module(**given, **self.plain, **keep))
        before = width - logits.shape[1]  # positions whose logits were not asked for
        rows, found = torch.arange(len(logits), device=logits.device)[:, None], []
        for end in ends:
            token = torch.tensor(end, device=logits.device).expand(len(logits), -1)
            place = lengths[:, None] - len(end) + torch.arange(len(end), device=logits.device)
            said = logits[rows, place - before].float().log_softmax(2)
            found.append(said.gather(2, token.unsqueeze(2)).sum((1, 2)))
        return torch.stack(found, 1)

    def expect(self, reading: Reading) -> tuple[int, Tensor]:
        """The token that a language model expects after the text, and its log-probability."""
        with torch.no_grad():
            logits = find_logits(self.module(**self._whole(reading).given, **self.plain))
        said = logits[0, -1].float().log_softmax(0)
        return int(said.argmax()), said.max()

    def embed(self, reading: Reading) -> Tensor:
        """The embeddings of the whole text's tokens, [L, D]."""
        ids = reading.given["input_ids"].to(self.device)
        embedded: Tensor = self._embedding()(ids).detach()
        return embedded

    def embed_absent(self) -> Tensor:
        """The embedding of an absent token: of the mask token, of padding where there is none."""
        token = self.pad if self.mask is None else self.mask
        embedded: Tensor = self._embedding()(torch.tensor(token, device=self.device))
        return embedded.detach()

    def differentiate(
        self,
        reading: Reading,
        points: Tensor,
        ends: Sequence[End],
        read: Callable[[Tensor], Tensor],
        hold: bool = False,
    ) -> Tensor:
        """Gradients at embeddings of the text: [P, L, D] twice.

        ``read`` says what of the columns is explained: [P, K] -> [P]. With ``hold``, attention,
        norms and activations count as constants (``HoldAttention``).
        """
        if not self.knows("inputs_embeds"):
            raise UnfitError("the model takes no inputs_embeds, so it has no gradients of words")

        def differentiate(part: Tensor) -> Tensor:
            leaf = part.detach().clone().requires_grad_(True)

            def run(tail: End, ends: Sequence[End]) -> Tensor:
                rows = self._whole(reading, tail)
                given = {k: v.expand(len(leaf), -1) for k, v in rows.given.items()}
                more = self._embedding()(given.pop("input_ids")[:, leaf.shape[1] :]).detach()
                given["inputs_embeds"] = torch.cat([leaf, more], 1)
                return self._forward(given, rows.lengths.expand(len(leaf)), ends)

            return torch.autograd.grad(read(_by_tails(ends, run)).sum(), leaf)[0]

        size = min(max(1, self._room(BATCH_TOKENS) // points.shape[1]), self.batch or len(points))
        holding = HoldAttention([]) if hold else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), holding:
            return torch.cat([differentiate(part) for part in points.split(size)])

    def attend(self, reading: Reading) -> list[Tensor]:
        """The attention of every layer over the whole text, averaged over heads: [L, L] each."""
        rows = self._whole(reading)
        with torch.no_grad(), RecordAttention(1) as record:
            self.module(**rows.given, **self.plain)
        width = int(rows.lengths[0])
        if not record.weights or any(w.shape[-1] != width for w in record.weights):
            raise UnfitError("the model has no attention over all tokens at once")
        return [layer[0].float().mean(0) for layer in record.weights]

    def _whole(self, reading: Reading, tail: End = ()) -> Rows:
        """The text with all of its features, one row."""
        sets = torch.ones(1, len(reading), dtype=torch.bool, device=self.device)
        return self._hide(reading, sets, tail).take(sets.new_zeros(1, dtype=torch.int64))

    def _hide(self, reading: Reading, sets: Tensor, tail: End = ()) -> Rows:
        return hide(reading, sets, self.absent, mask=self.mask, pad=self.pad, tail=tail)

    def _embedding(self) -> nn.Module:
        found = getattr(self.module, "get_input_embeddings", lambda: None)()
        if not isinstance(found, nn.Module):
            raise UnfitError("the model has no get_input_embeddings(), so no gradients of words")
        return found


def find_logits(output: Any) -> Tensor:
    """The logits in what a model gave: a tensor, or an object or a dict that has them."""
    if isinstance(output, dict) and not hasattr(output, "logits"):
        output = output.get("logits")
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise KindError(
            f"the model gave {type(output).__name__} without logits: load it with a head, such as "
            "AutoModelForSequenceClassification or AutoModelForCausalLM"
        )
    return logits


def group_tails(ends: Sequence[End]) -> list[tuple[End, list[int]]]:
    """What must follow the text to read off continuations, and which each serves.

    The last token of a continuation need not be there; continuations of one token share a pass.

    >>> group_tails([(7,), (8,), (5, 6)])
    [((), [0, 1]), ((5,), [2])]
    """
    tails: dict[End, list[int]] = {} if ends else {(): []}
    for k, end in enumerate(ends):
        tails.setdefault(end[:-1], []).append(k)
    return list(tails.items())


def _by_tails(ends: Sequence[End], run: Callable[[End, Sequence[End]], Tensor]) -> Tensor:
    """A classifier's columns, or one a continuation: those that need the same tail in one run."""
    groups = group_tails(ends)
    found = torch.cat([run(tail, [ends[k] for k in which]) for tail, which in groups], 1)
    order = [k for _, which in groups for k in which]
    return found[:, torch.tensor(order).argsort()] if order else found

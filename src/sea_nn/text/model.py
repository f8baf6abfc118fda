"""A borrowed text model: outputs for many variants of a text, gradients, attention.

Outputs are columns [R, K]: of a classifier its K classes, of a language model the log-probabilities
of K continuations. Variants run in full batches, those of nearly equal length together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
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
        self.pad = find_pad(tokenizer)
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
        columns: dict[int, Tensor] = {}
        with torch.no_grad():
            for tail, which in group_tails(ends):
                rows = self._hide(reading, sets.to(self.device), tail)
                found = self._run(rows, [ends[k] for k in which])
                columns |= dict(zip(which or [0], found.unbind(2), strict=True))
        return _put_in_order(columns)

    def _run(self, rows: Rows, ends: Sequence[End]) -> Tensor:
        """The columns of rows, the longest first: [R, K, 1] of a classifier, else [R, 1, ends]."""
        order = rows.lengths.argsort(descending=True, stable=True)
        parts = []
        for which in self._split(order, rows.lengths, ends):
            part = rows.take(which)
            parts.append(self._forward(part.given, part.lengths, ends))
        found = torch.cat(parts)
        return torch.empty_like(found).index_copy_(0, order, found)

    def _split(self, order: Tensor, lengths: Tensor, ends: Sequence[End]) -> Iterator[Tensor]:
        """Batches of rows, sorted by length, that fit into one pass."""
        room = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])
        start, sizes = 0, lengths[order].tolist()
        while start < len(sizes):
            most = max(1, room // max(1, sizes[start]))
            if ends:
                shortest = sizes[min(len(sizes), start + most) - 1]
                seen = sizes[start] - shortest + max(map(len, ends))
                numbers = BATCH_NUMBERS.get(self.device.type, BATCH_NUMBERS["cpu"])
                most = max(1, min(most, numbers // (seen * self._vocabulary)))
            most = min(most, self.batch or most)
            yield order[start : start + most]
            start += most

    @property
    def _vocabulary(self) -> int:
        return int(getattr(getattr(self.module, "config", None), "vocab_size", 1) or 1)

    def _forward(self, given: dict[str, Tensor], lengths: Tensor, ends: Sequence[End]) -> Tensor:
        """One pass: [B, K, 1] of a classifier, [B, 1, ends] of a language model."""
        if not self.language:
            output = self.module(**given, **self.plain)
            if self.value is not None:
                return check_value(self.value(output), len(lengths)).view(-1, 1, 1)
            logits = find_logits(output)
            if logits.ndim != 2 or logits.shape[0] != len(lengths):
                raise InputError(
                    f"a text classifier gives [N, classes]; this model's logits are "
                    f"{list(logits.shape)}"
                )
            return logits.unsqueeze(2)
        width = int(lengths.max())
        seen = width - int(lengths.min()) + max(map(len, ends))
        keep = {"logits_to_keep": seen} if self.knows("logits_to_keep") else {}
        logits = find_logits(self.module(**given, **self.plain, **keep))
        before = width - logits.shape[1]  # positions whose logits were not asked for
        found = []
        for end in ends:
            token = torch.tensor(end, device=logits.device)
            place = lengths[:, None] - len(end) + torch.arange(len(end), device=logits.device)
            rows = torch.arange(len(logits), device=logits.device)[:, None]
            said = logits[rows, place - before].float().log_softmax(2)
            found.append(said.gather(2, token.view(1, -1, 1).expand(len(said), -1, 1)).sum((1, 2)))
        return torch.stack(found, 1).unsqueeze(1)

    def expect(self, reading: Reading) -> tuple[int, Tensor]:
        """The token that a language model expects after the text, and its log-probability."""
        with torch.no_grad():
            logits = find_logits(self.module(**self._whole(reading).given, **self.plain))
        said = logits[0, -1].float().log_softmax(0)
        return int(said.argmax()), said.max()

    def embed(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """The embeddings of the whole text's tokens, [L, D], and their owners, [L]."""
        ids = reading.given["input_ids"].to(self.device)
        embedded: Tensor = self._embedding()(ids).detach()
        return embedded, reading.owner.to(self.device)

    def embed_absent(self) -> Tensor:
        """The embedding of an absent token: of the mask token, of padding where there is none."""
        token = self.pad if self.mask is None else self.mask
        embedded: Tensor = self._embedding()(torch.tensor(token, device=self.device))
        return embedded.detach()

    def slopes(
        self,
        reading: Reading,
        points: Tensor,
        ends: Sequence[End],
        read: Callable[[Tensor], Tensor],
        hold: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Columns and gradients at embeddings [P, L, D] of the text: [P, K] and [P, L, D].

        ``read`` says what of the columns is explained: [P, K] -> [P]. With ``hold``, attention,
        norms and activations count as constants (``HoldAttention``).
        """
        if not self.knows("inputs_embeds"):
            raise UnfitError("the model takes no inputs_embeds, so it has no gradients of words")
        room = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])
        size = min(max(1, room // points.shape[1]), self.batch or len(points))
        found = [self._slope(reading, part, ends, read, hold) for part in points.split(size)]
        columns, gradients = zip(*found, strict=True)
        return torch.cat(columns), torch.cat(gradients)

    def _slope(
        self,
        reading: Reading,
        points: Tensor,
        ends: Sequence[End],
        read: Callable[[Tensor], Tensor],
        hold: bool,
    ) -> tuple[Tensor, Tensor]:
        columns: dict[int, Tensor] = {}
        holding = HoldAttention([]) if hold else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), holding:
            leaf = points.detach().clone().requires_grad_(True)
            for tail, which in group_tails(ends):
                rows = self._whole(reading, tail)
                given = {k: v.expand(len(leaf), -1) for k, v in rows.given.items()}
                more = self._embedding()(given.pop("input_ids")[:, leaf.shape[1] :]).detach()
                given["inputs_embeds"] = torch.cat([leaf, more], 1)
                lengths = rows.lengths.expand(len(leaf))
                found = self._forward(given, lengths, [ends[k] for k in which])
                columns |= dict(zip(which or [0], found.unbind(2), strict=True))
            joined = _put_in_order(columns)
            (gradient,) = torch.autograd.grad(read(joined).sum(), leaf)
        return joined.detach(), gradient

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


def find_pad(tokenizer: Any) -> int:
    """The token that fills rows up; nothing attends to it, so that any will do."""
    marks = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return int(next(mark for mark in marks if mark is not None))


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


def _put_in_order(columns: dict[int, Tensor]) -> Tensor:
    """[R, K]: a classifier's columns, or one a continuation."""
    return torch.cat([columns[k] for k in sorted(columns)], 1)

"""A text as a model of which of its words are there: 1 and 0, [B, n] in, columns [B, K] out.

So a text is explained as every input is: its n features are the columns of a table in which every
word is there, and what is left out is 0. Columns are a classifier's K classes, or a language
model's log-probabilities of K continuations. Variants of a text run in full batches, those of
nearly equal length together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sea_nn.errors import InputError, KindError, UnfitError
from sea_nn.members.attention import RecordAttention
from sea_nn.model.adapters import check_value
from sea_nn.text.reading import NOBODY, Reading

BATCH_TOKENS = {"cpu": 2048, "cuda": 1 << 16}
"""The most tokens in one pass."""
Absent = Literal["mask", "delete", "pad"]
ABSENT: dict[Absent, str] = {
    "mask": "becomes mask tokens",
    "delete": "goes, and its neighbours move together",
    "pad": "stays in its place, and nothing attends to it",
}
"""What becomes of a word that is left out."""
End = tuple[int, ...]
"""A continuation, by its tokens."""
Row = dict[str, Tensor]
"""One variant of a text: the model's arguments, "input_ids" and "attention_mask" among them, [L]"""


class AskedText:
    """One text, the borrowed model that reads it, and what is explained of it.

    Args:
        module: takes ``input_ids`` and ``attention_mask`` and gives logits, as Hugging Face's do.
        tokenizer: of Hugging Face.
        reading: the text.
        target: the column that is explained, or a pair; None: the largest.
        ends: a language model's continuations. If there are none, the first answer, about the
            whole text, chooses the token that the model expects. ``names`` has them as text.
        absent: what becomes of absent words.
        value: of a classifier, a function from its output to numbers [N]: they are its one column.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        reading: Reading,
        target: Any = None,
        ends: Sequence[End] = (),
        *,
        absent: Absent = "mask",
        value: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.module, self.tokenizer, self.reading = module, tokenizer, reading
        self.target, self.ends, self.value = target, tuple(ends), value
        self.names = [repr(tokenizer.decode(list(end))) for end in ends]
        self.language, self.absent, self.alone = speaks(module), absent, False
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        bos, eos, pad = (getattr(tokenizer, f"{m}_token_id") for m in ("bos", "eos", "pad"))
        # What is read where nothing is left, and what nothing attends to.
        self.start = next((mark for mark in (bos, eos, pad) if mark is not None), None)
        self.pad = int(next(mark for mark in (pad, eos, 0) if mark is not None))
        config: Any = getattr(module, "config", None)
        if not self.language and hasattr(config, "pad_token_id"):
            # A classifier that reads the last token of a row looks for it before this padding.
            if config.pad_token_id is None and absent == "pad":
                raise InputError(
                    'absent="pad" needs a model that knows its padding: set its '
                    'config.pad_token_id, or say absent="delete"'
                )
            self.alone = config.pad_token_id is None
            self.pad = self.pad if self.alone else int(config.pad_token_id)
        mask = tokenizer.mask_token_id
        self.mask = self.pad if mask is None else int(mask)
        names = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        self.knows: Callable[[str], bool] = lambda name: anything or name in names
        self.plain = {"use_cache": False} if "use_cache" in names else {}

    def __call__(self, there: Tensor) -> Tensor:
        """The columns [B, K] with only the words left that are 1."""
        if self.language and not self.ends:
            with torch.no_grad():
                logits = find_logits(self.module(**self._stack([self.hide()]), **self.plain))
            said = logits[0, -1].float().log_softmax(0)
            self.ends = ((int(said.argmax()),),)
            self.names.append(repr(self.tokenizer.decode(self.ends[0])))
            return said.max().expand(len(there), 1)
        rows = [left > 0.5 for left in there.cpu()]
        with torch.no_grad():
            return self._by_tails(lambda tail, ends: self._ask(rows, tail, ends))

    def _ask(self, sets: Sequence[Tensor], tail: End, ends: Sequence[End]) -> Tensor:
        """The columns with only these features left, bool [n] each, those of continuations."""
        rows = [self.hide(left, tail) for left in sets]
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        order, parts, done = lengths.argsort(descending=True, stable=True), [], 0
        while done < len(order):  # the longest first
            which = order[done : done + self.fit(int(lengths[order[done]]))]
            done += len(which)
            given = self._stack([rows[i] for i in which.tolist()])
            parts.append(self._forward(given, lengths[which].to(self.device), ends))
        return torch.cat(parts)[order.argsort().to(self.device)]

    def read_embedded(self, points: Tensor) -> Tensor:
        """The columns of the whole text with these embeddings of its tokens, [P, L, D]: [P, K]."""
        width = points.shape[1]

        def run(tail: End, ends: Sequence[End]) -> Tensor:
            given = self._stack([self.hide(tail=tail)] * len(points))
            after = self.embed(given.pop("input_ids")[:, width:])
            given["inputs_embeds"] = torch.cat([points, after], 1)
            lengths = torch.full((len(points),), width + len(tail), device=self.device)
            return self._forward(given, lengths, ends)

        return self._by_tails(run)

    def hide(self, left: Tensor | None = None, tail: End = ()) -> Row:
        """The text with only some features left, bool [n], and with tokens that follow it.

        Where no token at all would be left, as in models without special tokens, it is the token
        that texts start with, alone.
        """
        row, owner = dict(self.reading.given), self.reading.owner
        kept = torch.ones_like(owner, dtype=torch.bool) if left is None else left[owner]
        kept = kept | (owner == NOBODY)
        if self.absent != "mask" and not bool(kept.any()):
            if self.start is None:
                raise InputError(
                    "with every word left out the model would read nothing, and the tokenizer has "
                    "no token to begin a text with (bos, eos or pad): set one, such as "
                    'tokenizer.bos_token = "<s>"'
                )
            row = {name: values[:1] for name, values in row.items()}
            row["input_ids"] = torch.tensor([self.start])
        elif self.absent == "delete":
            row = {name: values[kept] for name, values in row.items()}
        else:
            instead = self.mask if self.absent == "mask" else self.pad
            row["input_ids"] = torch.where(kept, row["input_ids"], instead)
            if self.absent == "pad":
                row["attention_mask"] = row["attention_mask"] * kept
        more, none = {"input_ids": tail, "attention_mask": (1,) * len(tail)}, (0,) * len(tail)
        return {
            name: torch.cat([values, values.new_tensor(more.get(name, none))])
            for name, values in row.items()
        }

    def fit(self, length: int) -> int:
        """How many rows of a length fit into one pass."""
        room = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])
        return 1 if self.alone else max(1, room // max(1, length))

    def _stack(self, rows: Sequence[Row]) -> Row:
        """Rows in one batch, [B, L], the shorter ones padded on the right."""
        batch = {}
        for name in rows[0]:
            fill = self.pad if name == "input_ids" else 0
            batch[name] = pad_sequence([row[name] for row in rows], True, fill).to(self.device)
        return batch

    def _forward(self, given: Row, lengths: Tensor, ends: Sequence[End]) -> Tensor:
        """One pass: the K columns of a classifier, or one for each continuation, [B, K]."""
        if not self.language:
            output = self.module(**given, **self.plain)
            if self.value is None:
                return find_logits(output)
            return check_value(self.value(output), len(lengths)).unsqueeze(1)
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

    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings of tokens [...], [..., D]."""
        found = getattr(self.module, "get_input_embeddings", lambda: None)()
        if not isinstance(found, nn.Module) or not self.knows("inputs_embeds"):
            raise UnfitError(
                "the model has no get_input_embeddings() or takes no inputs_embeds, so it has no "
                "gradients of words"
            )
        with torch.no_grad():
            embedded: Tensor = found(tokens.to(self.device))
        return embedded

    def attend(self) -> list[Tensor]:
        """The attention of every layer over the whole text, [1, heads, L, L] each."""
        given, record = self._stack([self.hide()]), RecordAttention(1)
        with torch.no_grad(), record:
            self.module(**given, **self.plain)
        width = given["input_ids"].shape[1]
        if not record.weights or any(w.shape[-1] != width for w in record.weights):
            raise UnfitError("the model has no attention over all tokens at once")
        return record.by_head(record.weights)

    @property
    def tails(self) -> list[End]:
        """What must follow the text to read off its continuations, a row of tokens an answer each.

        The last token of a continuation need not be there; continuations of one token share a row.
        """
        return list(dict.fromkeys(end[:-1] for end in self.ends)) or [()]

    def _by_tails(self, run: Callable[[End, Sequence[End]], Tensor]) -> Tensor:
        """A classifier's columns, or one a continuation: those with the same tail in one run."""
        if not self.ends:
            return run((), ())
        columns: dict[End, Tensor] = {}
        for tail in self.tails:
            own = [end for end in self.ends if end[:-1] == tail]
            columns.update(zip(own, run(tail, own).unbind(1), strict=True))
        return torch.stack([columns[end] for end in self.ends], 1)


class AskedWords:
    """One text of a model that is a function of lists of lists of words."""

    device, tails, names = None, ((),), ()

    def __init__(self, model: Any, reading: Reading, target: Any, value: Any) -> None:
        self.model, self.reading, self.target, self.value = model, reading, target, value

    def __call__(self, there: Tensor) -> Tensor:
        """What the function says of the words that are 1."""
        words = self.reading.words
        said = self.model([list(compress(words, row)) for row in (there > 0.5).tolist()])
        if self.value is not None:
            return check_value(self.value(said), len(there))
        return torch.as_tensor(said).float()


OneText = AskedText | AskedWords


def speaks(model: Any) -> bool:
    """Whether it is a causal language model, by what transformers says; else a classifier."""
    return bool(getattr(model, "can_generate", lambda: False)())


def find_logits(output: Any) -> Tensor:
    """The logits in what a model gave: a tensor, or an object or a dict that has them."""
    logits = getattr(output, "logits", output)
    logits = output.get("logits") if isinstance(output, dict) else logits
    if not isinstance(logits, Tensor):
        raise KindError(
            f"the model gave {type(output).__name__} without logits: load it with a head, such as "
            "AutoModelForSequenceClassification or AutoModelForCausalLM"
        )
    return logits

"""A text as a model of which of its words are there: 1 and 0, [B, n] in, columns [B, K] out.

So a text is explained as every input is: its n features are the columns of a table in which every
word is there, and what is left out is 0. Columns are a classifier's K classes, or a language
model's log-probabilities of K continuations. Variants of a text run in full batches, those of
nearly equal length together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sea_nn.errors import InputError, KindError, UnfitError
from sea_nn.members.attention import RecordAttention
from sea_nn.model.adapters import check_value
from sea_nn.text.reading import Reading

BATCH_TOKENS = {"cpu": 2048, "cuda": 1 << 16}
BATCH_NUMBERS = {"cpu": 1 << 25, "cuda": 1 << 29}
"""The most tokens, and logits of a language model, in one pass."""
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


class TextModel:
    """A borrowed model and what its tokenizer says of special tokens.

    Args:
        module: takes ``input_ids`` and ``attention_mask`` and gives logits, as Hugging Face's do.
        tokenizer: of Hugging Face.
        language: whether it is a causal language model; else a classifier.
        absent: what becomes of absent words.
        value: of a classifier, a function from its output to numbers [N]: they are its one column.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        language: bool = False,
        absent: Absent = "mask",
        value: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.module, self.language, self.absent = module, language, absent
        self.value, self.alone = value, False
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
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
            self.alone = config.pad_token_id is None
            self.pad = self.pad if self.alone else int(config.pad_token_id)
        mask = tokenizer.mask_token_id
        self.mask = self.pad if mask is None else int(mask)
        names = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        self.knows: Callable[[str], bool] = lambda name: anything or name in names
        self.plain = {"use_cache": False} if "use_cache" in names else {}

    def ask(self, reading: Reading, sets: Tensor, ends: Sequence[End] = ()) -> Tensor:
        """The columns with only these features left: bool [R, n] -> [R, K]."""

        def run(tail: End, ends: Sequence[End]) -> Tensor:
            rows = [self.hide(reading, left, tail) for left in sets.cpu()]
            lengths = torch.tensor([len(row["input_ids"]) for row in rows])
            order, parts, done = lengths.argsort(descending=True, stable=True), [], 0
            while done < len(order):  # the longest first
                which = order[done : done + self.fit(int(lengths[order[done]]))]
                done += len(which)
                given = self._stack([rows[i] for i in which.tolist()])
                parts.append(self._forward(given, lengths[which].to(self.device), ends))
            return torch.cat(parts)[order.argsort().to(self.device)]

        with torch.no_grad():
            return _by_tails(ends, run)

    def hide(self, reading: Reading, left: Tensor, tail: End = ()) -> Row:
        """The text with only some features left, bool [n], and with tokens that follow it.

        Where no token at all would be left, as in models without special tokens, the text is its
        ``start`` alone.
        """
        row, kept = dict(reading.given), reading.keep(left)
        row.setdefault("attention_mask", torch.ones_like(row["input_ids"]))
        if self.absent != "mask" and not bool(kept.any()):
            if reading.start is None:
                raise InputError(
                    "with every word left out the model would read nothing, and the tokenizer has "
                    "no token to begin a text with (bos, eos or pad): set one, such as "
                    'tokenizer.bos_token = "<s>"'
                )
            row = {name: values[:1] for name, values in row.items()}
            row["input_ids"] = torch.tensor([reading.start])
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
        kind = self.device.type if self.device.type in BATCH_TOKENS else "cpu"
        room = BATCH_TOKENS[kind]
        if self.language:
            config = getattr(self.module, "config", None)
            room = min(room, BATCH_NUMBERS[kind] // int(getattr(config, "vocab_size", 1)))
        return 1 if self.alone else max(1, room // max(1, length))

    def _stack(self, rows: Sequence[Row]) -> Row:
        """Rows in one batch, [B, L], the shorter ones padded on the right."""
        fill = {"input_ids": self.pad}
        return {
            name: pad_sequence([row[name] for row in rows], True, fill.get(name, 0)).to(self.device)
            for name in rows[0]
        }

    def _forward(self, given: Row, lengths: Tensor, ends: Sequence[End]) -> Tensor:
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
            logits = find_logits(self.module(**self._stack([self.whole(reading)]), **self.plain))
        said = logits[0, -1].float().log_softmax(0)
        return int(said.argmax()), said.max()

    def whole(self, reading: Reading, tail: End = ()) -> Row:
        """The text with all of its features."""
        return self.hide(reading, torch.ones(len(reading), dtype=torch.bool), tail)

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

    def read_embedded(self, reading: Reading, points: Tensor, ends: Sequence[End]) -> Tensor:
        """The columns of the whole text with these embeddings of its tokens, [P, L, D]: [P, K]."""

        def run(tail: End, ends: Sequence[End]) -> Tensor:
            given = self._stack([self.whole(reading, tail)] * len(points))
            after = self.embed(given.pop("input_ids")[:, points.shape[1] :])
            given["inputs_embeds"] = torch.cat([points, after], 1)
            width = points.shape[1] + len(tail)
            return self._forward(given, torch.full((len(points),), width).to(self.device), ends)

        return _by_tails(ends, run)

    def attend(self, reading: Reading) -> list[Tensor]:
        """The attention of every layer over the whole text, averaged over heads: [L, L] each."""
        given = self._stack([self.whole(reading)])
        with torch.no_grad(), RecordAttention(1) as record:
            self.module(**given, **self.plain)
        width = given["input_ids"].shape[1]
        if not record.weights or any(w.shape[-1] != width for w in record.weights):
            raise UnfitError("the model has no attention over all tokens at once")
        return [layer[0].float().mean(0) for layer in record.weights]


def find_logits(output: Any) -> Tensor:
    """The logits in what a model gave: a tensor, or an object or a dict that has them."""
    logits = output.get("logits") if isinstance(output, dict) else output
    logits = getattr(output, "logits", logits)
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


@dataclass
class AskedText:
    """One text, and what is explained of it.

    Attributes:
        model: a ``TextModel``.
        reading: the text.
        target: the column that is explained, or a pair; None: the largest.
        ends: a language model's continuations. If there are none, the first answer, about the
            whole text, chooses the token that the model expects.
        tokenizer: of a language model, to name them.
    """

    model: Any
    reading: Reading
    target: Any
    ends: tuple[End, ...] = ()
    tokenizer: Any = None

    def __call__(self, there: Tensor) -> Any:
        """The columns [B, K] with only the words left that are 1."""
        if self.model.language and not self.ends:
            token, said = self.model.expect(self.reading)
            self.ends = ((token,),)
            return said.expand(len(there), 1)
        return self.model.ask(self.reading, there > 0.5, self.ends)

    @property
    def passes(self) -> int:
        """How many rows of tokens an answer takes; continuations of one token share one."""
        return len(group_tails(self.ends))

    def name(self) -> str | None:
        """The continuations, once they are known; None of a classifier."""
        if self.tokenizer is None:
            return None
        return ", not ".join(repr(self.tokenizer.decode(list(end))) for end in self.ends)


class AskedWords(AskedText):
    """One text of a model that is a function of lists of lists of words."""

    def __call__(self, there: Tensor) -> Any:
        """What the function says of the words that are 1."""
        rows, words = (there > 0.5).tolist(), self.reading.words
        said = self.model(
            [[w for w, stays in zip(words, row, strict=True) if stays] for row in rows]
        )
        if isinstance(said, list) or hasattr(said, "__array_interface__"):
            said = torch.as_tensor(said)
        return said.float() if isinstance(said, Tensor) else said

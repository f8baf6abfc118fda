"""SEA for texts: the words that a Hugging Face classifier or language model answers to.

A text is an input like others: its words are there, 1, or left out, 0 (``AskedText``), and
``sea_nn.explain`` explains it. Here is what is of texts alone: reading them, and their targets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from sea_nn.call import About, Call, Request, Running, Settings
from sea_nn.config import check_choice, check_seed, check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.explain import explain
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import TEXT, Features
from sea_nn.members.registry import Entry, Methods, count_price
from sea_nn.model.opening import borrow
from sea_nn.model.outputs import Output
from sea_nn.questions.absent import prepare
from sea_nn.text.assemble import Found, find_earlier, join_texts
from sea_nn.text.load import ZeroShot
from sea_nn.text.members import expand
from sea_nn.text.model import ABSENT, Absent, AskedText, AskedWords, End, OneText, speaks
from sea_nn.text.reading import FEATURES, read_text, read_words

DEFAULT_METHODS = ("saliency", "input_x_gradient")
PROBLEMS = {"multi_label_classification": "sigmoid", "regression": "value"}


class TextSEA:
    """What ``SEA.for_text`` gives: ``explain`` takes texts.

    Args:
        model: a sequence classifier or a causal language model of Hugging Face, or a module that
            takes ``input_ids`` and ``attention_mask`` and gives class logits; it comes back as it
            was. Without a tokenizer, any function that is given a list of texts, each a list of its
            words, and answers as a classifier does, [B, K].
        tokenizer: the model's.
        budget: the most rows of tokens that the model sees for a text: members, questions and
            looking at it together.
        methods: members: saliency, input_x_gradient, integrated_gradients, attention_rollout,
            attention_lrp, leave_one_out, or pairs of a name and its options, such as
            ``("integrated_gradients", {"n_steps": 32})``. Left out, the first two, which share one
            pass, or none where the model has no embeddings.
        features: what is explained: "words", "tokens", "sentences", or spans, (start, end) in
            characters, of one text or a list of them for each. Special tokens never take part.
        absent: what becomes of words when the model is asked without them: "mask" (the mask
            token), "delete", or "pad" (nothing attends to them). Left out, "mask", or "delete"
            where there is no mask token. Language models and functions of words read the words
            that are left.
        output: what the model's outputs are, as for ``SEA``; left out, by the model's
            ``problem_type``.
        seed: starts every random draw.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[list[list[str]]], Any],
        tokenizer: Any = None,
        *,
        budget: int = 128,
        methods: Methods | None = None,
        features: str | Sequence[Any] = "words",
        absent: Absent | None = None,
        output: str | None = None,
        seed: int = 0,
    ) -> None:
        plain = tokenizer is None
        read = isinstance(model, nn.Module) and hasattr(tokenizer, "all_special_ids")
        if not (callable(model) if plain else read):
            raise KindError(
                "give a torch.nn.Module and its tokenizer of Hugging Face, or a function of lists "
                f"of words alone; got {type(model).__name__} and {type(tokenizer).__name__}"
            )
        if isinstance(features, str):
            check_choice("features", features, FEATURES)
        if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            raise InputError(
                "models with an encoder and a decoder are not explained: sequence classifiers and "
                "causal language models are"
            )
        if plain and (methods is not None or features != "words"):
            raise InputError(
                "methods and features need a tokenizer, and a function of words has none"
            )
        check_whole("budget", budget, 1)
        self.model: Any = model
        self.tokenizer, self.seed = tokenizer, check_seed(seed)
        self.budget, self.features, self.methods = budget, features, methods
        self.language, self.labels = speaks(model), _find_labels(model)
        if self.language and output is not None:
            raise InputError("a language model says log-probabilities of continuations: no output=")
        named = DEFAULT_METHODS if methods is None else methods
        self.entries: tuple[Entry, ...] = () if plain else expand(named)
        self.absent, self.says = _choose_absent(absent, tokenizer, self.language)
        self.output: Any = Output(output) if output else None if plain else _find_output(model)
        self.limit = None if plain else _find_limit(self.model, tokenizer)

    def explain(
        self,
        texts: Sequence[str | tuple[str, str] | Sequence[str]] | str,
        target: Any = None,
        *,
        labels: Sequence[str] | None = None,
        model_name: str = "",
        previous: Explanation | None = None,
        running: Running | None = None,
    ) -> Explanation:
        """Explain what the model says of each text.

        Args:
            texts: a list of texts, or one. A pair (question, document) in the list is read as the
                tokenizer reads pairs, and the words of both are explained. Of a function of words,
                a text may be a list of its words.
            target: of a classifier a class, by number or name; of a language model a continuation
                such as " Paris", or a token's number. A tuple (a, b): why a and not b. A list has
                one target for each text. None: what the model predicts. A function from a
                classifier's output to numbers [N] explains these.
            labels: names of all the model's classes; left out, the model's own.
            model_name: what to call the model in reports.
            previous: an explanation of the same texts: what the model answered then counts as
                asked, of a classifier whatever the target was.
            running: progress, rounds, when to stop, and what an error does. Progress and rounds
                are of the text at hand, which has an equal share of the seconds that are left.

        An interrupt (Ctrl-C) ends the questions: the explanation is of the texts until then.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        count, started = len(texts), time.perf_counter()
        if not texts:
            raise InputError("there is no text to explain")
        names, output, value = self.labels if labels is None else labels, self.output, None
        if callable(target):
            if self.language:
                raise KindError("a language model's target is a continuation, not a function")
            label = getattr(target, "__name__", "<lambda>")
            names = ("value" if label == "<lambda>" else label,)
            value, target, output = target, 0, Output("value", found="a function of the output")
        targets = _split_targets(target, count)
        if self.language:  # of two continuations they are logits: one if it can only be these
            kind = "logits" if isinstance(targets[0], tuple) else "value"
            output = Output(kind, found="log-probabilities of continuations")
        else:
            targets = [_find_class(one, names) for one in targets]
        running, about = running or Running(), About(model_name=model_name)
        spans = self._split_features(count)
        if previous is not None:
            _check_count("previous", len(previous), count)
        found: list[Found] = []
        with borrow(self.model) as twin:
            for i, text in enumerate(texts):
                left = running.seconds
                if left is not None:
                    left = max(0.0, left + started - time.perf_counter()) / (count - i)
                request = Request(
                    None,
                    labels=names,
                    about=about,
                    previous=None if previous is None else previous[i],
                    running=replace(running, seconds=left),
                )
                try:
                    asked = self._read(twin, value, text, spans[i], targets[i])
                    found.append((asked, explain(self._prepare(asked, output, request))))
                except InputError as error:
                    where = f"text {i}: " if count > 1 else ""
                    raise InputError(f"{where}{error}") from error
                if any(c.message.endswith("interrupted") for c in found[-1][1].checks):
                    break
        return join_texts(found)

    def _split_features(self, count: int) -> list[Any]:
        """The features of each text: a name is for all; spans are of one text or of each."""
        if isinstance(self.features, str):
            return [self.features] * count
        spans = list(self.features)
        if all(isinstance(end, int) for one in spans for end in one):
            spans = [spans]
        _check_count("features", len(spans), count)
        return spans

    def _read(self, model: Any, value: Any, text: Any, features: Any, target: Any) -> OneText:
        """One text as the model reads it, and what is explained of it."""
        if self.tokenizer is None:
            return AskedWords(model, read_words(text), target, value)
        how: Any = {"absent": self.absent, "value": value}
        if not self.language:
            reading = read_text(self.tokenizer, text, features, limit=self.limit)
            return AskedText(model, self.tokenizer, reading, target, **how)
        both = target if isinstance(target, tuple) else () if target is None else (target,)
        ends = [_find_end(one, self.tokenizer) for one in both]
        room = self.limit and self.limit - max(map(len, ends), default=1) + 1
        reading = read_text(self.tokenizer, text, features, limit=room, keep_end=True)
        pair = tuple(map(ends.index, ends)) if isinstance(target, tuple) else 0
        return AskedText(model, self.tokenizer, reading, pair, ends, **how)

    def _prepare(self, asked: OneText, output: Output | None, request: Request) -> Call:
        """The call that explains one text; a budget that is too small is refused."""
        running, earlier, look = request.running, request.previous, request.running.on_round

        def on_round(e: Explanation) -> Any:
            return look and look(join_texts([(asked, e)]))

        request = replace(
            request,
            running=replace(running, on_round=look and on_round),
            previous=None if earlier is None else find_earlier(earlier, asked, self.absent),
        )
        n, budget = len(asked.reading), max(1, self.budget // len(asked.tails))
        named = type(self.model).__name__
        units = self.features if isinstance(self.features, str) else "spans"
        x, features = torch.ones(1, n, device=asked.device), Features(TEXT, (n,), input_shape=(n,))
        return Call(
            settings=Settings(asked, budget=budget, seed=self.seed),
            request=request,
            model=asked,
            x=x,
            target=asked.target,
            output=output,
            features=features,
            asked=features,
            hiding=prepare(x, "baseline"),
            absent=self.says,
            entries=self.entries,
            named=self.methods is not None,
            price=count_price(self.entries, (n,)),
            labels=asked.names if self.language else request.labels,
            name=request.about.model_name or getattr(self.model, "__name__", named),
            told={"budget": self.budget, "absent": self.absent, "features": units},
        )


def _find_labels(model: Any) -> tuple[str, ...] | None:
    """The names of a classifier's classes, as far as it says."""
    if isinstance(model, ZeroShot):
        return model.names
    known = getattr(getattr(model, "config", None), "id2label", None)
    return tuple(str(known[k]) for k in sorted(known)) if known and not speaks(model) else None


def _find_limit(model: Any, tokenizer: Any) -> int | None:
    """The most tokens that a model reads; None if that is not known."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", 0) or 0
    for name, module in model.named_modules():
        first = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and first is not None:
            positions -= first + 1  # RoBERTa counts positions from there
    known = (int(getattr(tokenizer, "model_max_length", 0) or 0), int(positions))
    return min((length for length in known if 0 < length < 1 << 30), default=None)


def _choose_absent(absent: Absent | None, tokenizer: Any, language: bool) -> tuple[Absent, str]:
    """What becomes of words that are left out, and how that is said."""
    mask = None if language else getattr(tokenizer, "mask_token_id", None)
    if absent is not None:
        check_choice("absent", absent, tuple(ABSENT))
    if absent not in (None, "delete") and (tokenizer is None or language):
        who = "a language model" if language else "a function of words"
        raise InputError(f'{who} reads the words that are left: absent="delete" or nothing')
    if absent == "mask" and mask is None:
        raise InputError('the tokenizer has no mask token: absent="delete" or absent="pad"')
    why = "as said by the caller" if absent else "nothing was said"
    if absent is None and mask is None:
        absent, why = "delete", f"{why}, and there is no mask token"
    chosen = absent or "mask"
    return chosen, f"a word that is left out {ABSENT[chosen]} ({why})"


def _find_output(model: Any) -> Output:
    """What a classifier's columns are."""
    config = getattr(model, "config", None)
    problem = PROBLEMS.get(getattr(config, "problem_type", None) or "")
    if problem is not None:
        return Output(problem, found="the problem_type of its configuration")
    if getattr(config, "num_labels", 2) == 1:
        return Output(
            "value",
            "the model has one output: taken for a value, as of a regression. Say so with "
            'output="value", or output="sigmoid" for a logit',
            "one output",
        )
    return Output("logits", found="a classifier of texts, and nothing says otherwise")


def _check_count(what: str, given: int, count: int) -> None:
    """Refuse what does not have as many entries as there are texts."""
    if given != count:
        raise InputError(f"{what} must have one entry for each of the {count} texts; got {given}")


def _split_targets(target: Any, count: int) -> list[Any]:
    """The target of each text: a list has one for each, anything else is for all."""
    if not isinstance(target, list):
        return [target] * count
    each = [tuple(one) if isinstance(one, list) else one for one in target]
    _check_count("target", len(each), count)
    if len({isinstance(one, tuple) for one in each}) > 1:
        raise InputError("targets of one call are all single, or all pairs (a, b): call twice")
    return each


def _find_class(one: Any, names: Sequence[str] | None) -> Any:
    """A classifier's target by numbers: a class, a pair of them, or None."""
    if isinstance(one, tuple):
        return tuple(_find_class(part, names) for part in one)
    if not isinstance(one, str):
        return one
    known = list(names or ())
    if one not in known:
        raise InputError(f"the model has no class {one!r}; its classes: {', '.join(known[:20])}")
    return known.index(one)


def _find_end(one: Any, tokenizer: Any) -> End:
    """The tokens of a continuation."""
    end = tokenizer.encode(one, add_special_tokens=False) if isinstance(one, str) else (one,)
    known = all(isinstance(token, int) and 0 <= token < len(tokenizer) for token in end)
    if not end or not known:
        raise InputError(
            "the target of a language model is a continuation, such as ' Paris', or the number of "
            f"a token below {len(tokenizer)}; got {one!r}"
        )
    return tuple(end)

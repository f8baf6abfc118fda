"""SEA for texts: the words that a Hugging Face classifier or language model answers to."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from torch import Tensor, nn

from sea_nn.call import Running, check_previous
from sea_nn.config import check_whole
from sea_nn.errors import AssumptionWarning, InputError, KindError
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance, find_versions
from sea_nn.members.checks import Check
from sea_nn.model.borrowing import borrow
from sea_nn.model.outputs import Output
from sea_nn.model.wrapped import Progress
from sea_nn.text.absent import ABSENT, Absent
from sea_nn.text.assemble import assemble_texts, find_earlier, rank_texts
from sea_nn.text.learn import AskedText, ExplainedText, explain_text
from sea_nn.text.members import check_methods
from sea_nn.text.model import TextModel
from sea_nn.text.reading import FEATURES, read_text
from sea_nn.text.targets import find_classes, find_ends, name_classes, split_targets

DEFAULT_METHODS = ("saliency", "input_x_gradient")
DEFAULT_ABSENT: Absent = "mask"
FALLBACK: Absent = "delete"


class TextSEA:
    """What ``SEA.for_text`` gives: ``explain`` takes texts.

    Args:
        model: a sequence classifier or a causal language model of Hugging Face, or a module that
            takes ``input_ids`` and ``attention_mask`` and gives class logits. It comes back as it
            was.
        tokenizer: the model's.
        budget: model evaluations a text, members and questions together.
        methods: members: saliency, input_x_gradient, integrated_gradients, attention_rollout,
            attention_lrp, leave_one_out; left out, the first two, which share one pass.
        features: what is explained: "words", "tokens", "sentences", or spans, (start, end) in
            characters (of several texts, a list of spans for each). Special tokens never take part.
        absent: what becomes of words when the model is asked without them: "mask" (the mask
            token), "delete", or "pad" (nothing attends to them). Left out, "mask"; language models
            and tokenizers without a mask token always delete.
        options: of members, such as ``{"integrated_gradients": {"n_steps": 32}}``.
        output: what the model's outputs are, as for ``SEA``; left out, by the model's
            ``problem_type``.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        budget: int = 128,
        methods: Sequence[str] | None = None,
        features: str | Sequence[Any] = "words",
        absent: Absent | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        output: str | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise KindError(f"a text model is a torch.nn.Module; got {type(model).__name__}")
        if not callable(tokenizer) or not hasattr(tokenizer, "all_special_ids"):
            raise KindError(
                f"the tokenizer must be one of Hugging Face's; got {type(tokenizer).__name__}"
            )
        if absent is not None and absent not in ABSENT:
            raise InputError(f"absent must be {', '.join(map(repr, ABSENT))}; got {absent!r}")
        if isinstance(features, str) and features not in FEATURES:
            raise InputError(
                f"features must be {', '.join(map(repr, FEATURES))}, or spans (start, end); got "
                f"{features!r}"
            )
        config = getattr(model, "config", None)
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(
                "models with an encoder and a decoder are not explained: sequence classifiers and "
                "causal language models are"
            )
        self.model, self.tokenizer = model, tokenizer
        self.language = bool(getattr(model, "can_generate", lambda: False)())
        self.options = {name: dict(own) for name, own in (options or {}).items()}
        self.methods = check_methods(DEFAULT_METHODS if methods is None else methods, self.options)
        check_whole("budget", budget, 1)
        self.budget, self.features = budget, features
        self.absent, self.notes = _choose_absent(absent, tokenizer, self.language)
        if self.language and output is not None:
            raise InputError("a language model says log-probabilities of continuations: no output=")
        self.output = _find_output(output, config)
        self.limit = find_limit(model, tokenizer)

    def explain(
        self,
        texts: Sequence[str | tuple[str, str]] | str,
        target: Any = None,
        *,
        labels: Sequence[str] | None = None,
        model_name: str = "",
        progress: Progress | None = None,
        internal_batch_size: int | None = None,
        previous: Explanation | None = None,
        on_round: Callable[[Explanation], bool | None] | None = None,
        seconds: float | None = None,
        tolerance: float | None = None,
    ) -> Explanation:
        """Explain what the model says of each text.

        Args:
            texts: a list of texts, or one. A pair (question, document) in the list is read as the
                tokenizer reads pairs, and the words of both are explained.
            target: of a classifier a class, by number or name; of a language model a continuation
                such as " Paris", or a token's number. A tuple (a, b): why a and not b. A list has
                one target for each text. None: what the model predicts. A function from a
                classifier's output to numbers [N] explains these.
            labels: names of all the model's classes; left out, the model's own.
            model_name: what to call the model in reports.
            progress: called with (member, evaluations done, evaluations in all).
            internal_batch_size: the most variants in one pass; by default by their lengths.
            previous: an explanation of the same texts: what the model answered then counts as
                asked, of a classifier whatever the target was.
            on_round: is given the explanation of the text at hand after each round of questions,
                and may return False to ask no more about it.
            seconds: ask no more after this time in all; each text has an equal share of what is
                left.
            tolerance: ask no more about a text once its ``predict_error`` is at most this.

        An interrupt (Ctrl-C) ends the questions: the explanation is of the texts until then.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not texts:
            raise InputError("there is no text to explain")
        started = time.perf_counter()
        Running(progress=progress, on_round=on_round, seconds=seconds, tolerance=tolerance)
        check_previous(previous, self.budget)
        if previous is not None and len(previous) != len(texts):
            raise InputError(f"previous is of {len(previous)} texts, and there are {len(texts)}")
        value = target if callable(target) else None
        names, output = self._name_labels(labels), self.output
        if value is not None:
            if self.language:
                raise KindError("a language model's target is a continuation, not a function")
            name = getattr(value, "__name__", "<lambda>")
            names = ("value" if name == "<lambda>" else name,)
            target, output = 0, Output("value")
        targets, spans = split_targets(target, len(texts)), self._split_features(len(texts))
        if self.language:  # log-probabilities; of two they are logits: one if it can only be these
            output = Output("logits" if isinstance(targets[0], tuple) else "value")
        found: list[ExplainedText] = []
        done, total = 0, self.budget * len(texts)

        def tick(member: str, count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(member, min(done, total), total)

        def put(some: Sequence[ExplainedText]) -> Explanation:
            told = self._tell(some, model_name, time.perf_counter() - started, model, output)
            ranked = None if self.language else rank_texts(some, names)
            return assemble_texts(some, ranked, self.notes, told)

        with borrow(self.model) as twin:
            how: dict[str, Any] = {"language": self.language, "absent": self.absent}
            how |= {"batch": internal_batch_size, "value": value}
            model = TextModel(twin, self.tokenizer, **how)
            for i, text in enumerate(texts):
                share = None
                if seconds is not None:
                    left = seconds - (time.perf_counter() - started)
                    share = max(0.0, left) / (len(texts) - i)
                try:
                    asked = self._read(model, text, spans[i], targets[i], names, output)
                    earlier = None
                    if previous is not None:
                        earlier = find_earlier(previous[i], asked, self.absent)
                    one = explain_text(
                        model,
                        asked,
                        methods=self.methods,
                        options=self.options,
                        budget=self.budget,
                        tick=tick,
                        previous=earlier,
                        on_round=None if on_round is None else lambda one: on_round(put([one])),
                        seconds=share,
                        tolerance=tolerance,
                    )
                except InputError as error:
                    where = f"text {i}: " if len(texts) > 1 else ""
                    raise InputError(f"{where}{error}") from error
                found.append(one)
                if one.learned.stopped == "interrupted":
                    break
        if output.notice:
            warnings.warn(output.notice, AssumptionWarning, stacklevel=2)
        return put(found)

    def _read(
        self,
        model: TextModel,
        text: str | tuple[str, str],
        features: Any,
        target: Any,
        names: Sequence[str] | None,
        output: Output,
    ) -> AskedText:
        """One text as the model reads it, and what is explained of it."""
        if not self.language:
            reading = read_text(self.tokenizer, text, features, limit=self.limit)
            numbers = {name: k for k, name in enumerate(names or ())}

            def choose(columns: Tensor) -> Tensor:
                return find_classes(target, columns, numbers, output)

            return AskedText(reading, choose, lambda chosen: name_classes(chosen, names), output)
        given = None if target is None else find_ends(target, self.tokenizer)
        room = None
        if self.limit is not None:
            room = self.limit - max(map(len, given or [(0,)])) + 1
        reading = read_text(
            self.tokenizer, text, features, limit=room, keep_end=True, start=self._find_start()
        )
        ends = given if given is not None else [(model.next_token(reading),)]
        pair = [[0, 1]] if len(ends) == 2 else [0]
        label = ", not ".join(repr(self.tokenizer.decode(list(end))) for end in ends)
        return AskedText(
            reading,
            lambda columns: columns.new_tensor(pair).long(),
            lambda chosen: label,
            output,
            tuple(ends),
        )

    def _find_start(self) -> int:
        """What a language model reads where all words are absent."""
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if (token := getattr(self.tokenizer, name)) is not None:
                return int(token)
        raise InputError(
            "the tokenizer has no token to begin a text with (bos, eos or pad): set one, such "
            'as tokenizer.bos_token = "<s>"'
        )

    def _split_features(self, n_texts: int) -> list[Any]:
        """The features of each text: a name is for all; spans are of one text or of each."""
        if isinstance(self.features, str):
            return [self.features] * n_texts
        spans = list(self.features)
        flat = all(len(one) == 2 and all(isinstance(end, int) for end in one) for one in spans)
        spans = [spans] if flat and n_texts == 1 else spans
        if len(spans) != n_texts or (flat and n_texts > 1):
            raise InputError(f"features must be a list of spans for each of the {n_texts} texts")
        return spans

    def _name_labels(self, labels: Sequence[str] | None) -> Sequence[str] | None:
        """The names of all classes."""
        if labels is not None or self.language:
            return labels
        own = getattr(self.model, "names", None)  # of ZeroShot
        if own is not None:
            return tuple(own)
        known = getattr(getattr(self.model, "config", None), "id2label", None)
        return None if not known else tuple(str(known[k]) for k in sorted(known))

    def _tell(
        self,
        found: Sequence[ExplainedText],
        name: str,
        seconds: float,
        model: TextModel,
        output: Output,
    ) -> Provenance:
        """Where the explanation comes from."""
        members = found[0].members.evaluations
        spent = {name: sum(one.members.evaluations[name] for one in found) for name in members}
        took = {name: sum(one.members.seconds[name] for one in found) for name in members}
        features = self.features if isinstance(self.features, str) else "spans"
        return Provenance(
            config={"absent": self.absent},
            members={name: self.options.get(name, {}) for name in self.methods},
            call={"output": output.kind, "budget": self.budget, "features": features},
            versions=find_versions(),
            seed=0,  # nothing is drawn
            seconds={**took, "total": seconds},
            evaluations=spent,
            model=name or type(self.model).__name__,
            device=str(model.device),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def find_limit(model: nn.Module, tokenizer: Any) -> int | None:
    """The most tokens that a model reads; None if that is not known."""
    known = [int(getattr(tokenizer, "model_max_length", 0) or 0)]
    known.append(int(getattr(getattr(model, "config", None), "max_position_embeddings", 0) or 0))
    for name, module in model.named_modules():
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            known[1] -= module.padding_idx + 1  # RoBERTa counts positions from there
            break
    known = [length for length in known if 0 < length < 1 << 30]
    return min(known, default=None)


def _choose_absent(
    absent: Absent | None, tokenizer: Any, language: bool
) -> tuple[Absent, tuple[Check, ...]]:
    """What becomes of absent words, and what to say of it."""
    wanted = absent or ("delete" if language else DEFAULT_ABSENT)
    if language and wanted != "delete":
        message = "a language model reads what is there: absent words are deleted"
        return "delete", (Check("warn", "tokenizer", message, 'pass absent="delete"'),)
    if wanted == "mask" and tokenizer.mask_token_id is None:
        message = f"it has no mask token: absent words are handled by {FALLBACK!r}"
        advice = 'pass absent="delete" or absent="pad"'
        return FALLBACK, (Check("warn", "tokenizer", message, advice),)
    return wanted, ()


def _find_output(output: str | None, config: Any) -> Output:
    """What a classifier's columns are."""
    if output is not None:
        return Output(output)
    problem = getattr(config, "problem_type", None)
    if problem == "multi_label_classification":
        return Output("sigmoid")
    if problem == "regression":
        return Output("value")
    if getattr(config, "num_labels", 2) == 1:
        return Output(
            "value",
            "the model has one output: taken for a value, as of a regression. Say so with "
            'output="value", or output="sigmoid" for a logit',
        )
    return Output("logits")

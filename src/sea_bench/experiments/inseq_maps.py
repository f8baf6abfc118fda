"""Maps of prompts by the package inseq, where it is installed beside this one."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.text_maps import Marked
from sea_nn.text.members import STEPS
from sea_nn.text.model import TextModel

CONTRASTIVE = ("saliency", "input_x_gradient")


def find_inseq() -> str | None:
    """The installed version, if there is one."""
    try:
        return importlib.metadata.version("inseq")
    except importlib.metadata.PackageNotFoundError:
        return None


def explain_by_inseq(model: TextModel, tokenizer: Any, item: Marked) -> dict[str, Tensor]:
    """Why the first continuation and not the second: [n] each.

    Saliency and input times gradient are of the difference of the two logits. Integrated gradients
    cannot be: they are the difference of two runs, one a continuation.
    """
    import inseq

    text = item.reading.text
    both = [text + tokenizer.decode(list(end)) for end in item.ends]
    maps = {}
    for method in (*CONTRASTIVE, "integrated_gradients"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = inseq.load_model(model.module, method, tokenizer=tokenizer)
            if method in CONTRASTIVE:
                asked = {"attributed_fn": "contrast_logits_diff", "contrast_targets": both[1]}
                found = _attribute(explainer, text, both[0], asked)
            else:
                asked = {"attributed_fn": "logit", "n_steps": STEPS}
                found = _attribute(explainer, text, both[0], asked)
                found = found - _attribute(explainer, text, both[1], asked)
        by_token = found.norm(dim=1) if method == "saliency" else found.sum(1)
        own = item.reading.owner[item.reading.owner >= 0]
        sums = torch.zeros(len(item.reading), dtype=torch.float64)
        maps[f"inseq, {method}"] = sums.index_add_(0, own, by_token.double().cpu())
    return maps


def _attribute(explainer: Any, text: str, whole: str, asked: dict[str, Any]) -> Tensor:
    """What each token of a prompt has for the one token after it: [L, D]."""
    found = explainer.attribute(text, whole, show_progress=False, **asked)
    step: Tensor = found.sequence_attributions[0].target_attributions[:-1, 0]
    return step

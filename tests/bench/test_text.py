"""The study of texts: marks, curves of words, and other methods, against slow forms."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from sea_bench.catalogue import EXPERIMENTS
from sea_bench.data.toxic_spans import load_toxic_spans
from sea_bench.experiments import run_experiment, texts
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text
from tests.helpers.texts import make_classifier, make_tokenizer

ABSENCES = ("mask", "delete", "pad")
TEXT = "the film was bad , not good"


@pytest.fixture(scope="module")
def item():
    marked = torch.tensor([False, True, False, True, False, False, True])
    return texts.Marked(read_text(make_tokenizer(), TEXT), marked, 1)


def test_marks_are_scored_as_scikit_learn_does():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(20):
        marked, values = random.random(12) < 0.4, random.random(12)
        marked[0], marked[1] = True, False
        order = torch.from_numpy(np.argsort(-values))
        found = texts.match_marks(order, torch.from_numpy(marked))
        chosen = np.zeros(12, bool)
        chosen[order[: marked.sum()]] = True
        assert found["AUPRC"] == pytest.approx(metrics.average_precision_score(marked, values))
        assert found["F1"] == pytest.approx(metrics.f1_score(marked, chosen))


def test_curves_of_words_by_hand(item):
    parts = make_classifier(2), make_tokenizer()
    models = {absent: partial(AskedText, *parts, absent=absent) for absent in ABSENCES}
    asks = {absent: texts.make_text_score(ask, item) for absent, ask in models.items()}
    maps = texts.compute_text_maps(models["mask"], item, budgets=(20,), seed=0)
    scores = texts.score_text_maps(asks, item, maps)
    for absent, ask in models.items():
        asked = ask(item.reading)
        for name, values in list(maps.items())[:3]:
            order, kept, lost = values.argsort(descending=True, stable=True), [], []
            for count in range(1, 7):
                left = torch.zeros(7, dtype=torch.bool)
                left[order[:count]] = True
                kept.append(_say(asked, left))
                lost.append(_say(asked, ~left))
            for what, said in (("insertion", kept), ("deletion", lost)):
                found = scores[f"{what}:{absent} {name}"]
                assert float(found) * 6 == pytest.approx(sum(said), abs=1e-4)


def _say(asked, left):
    return float(asked(left.unsqueeze(0)).double().softmax(1)[0, 1])


def test_sentences_are_cut_from_posts_with_their_marks(tmp_path):
    text = "You are bad people here. This is quite fine though."
    spans = list(range(8, 18))
    (tmp_path / "dev.csv").write_text(f'spans,text\n"{spans}","{text}"\n')
    first, second = load_toxic_spans("dev", tmp_path)
    assert first.text == "You are bad people here."
    assert first.marked == (False, False, True, True, False)
    assert first.toxic
    assert not second.toxic
    (tmp_path / "dev.csv").write_text('spans,text\n"import os","a b c d"\n')
    with pytest.raises(json.JSONDecodeError):
        load_toxic_spans("dev", tmp_path)


def test_the_study_writes_its_page_from_data_and_a_classifier(tmp_path, monkeypatch):
    folder = tmp_path / "classifier"
    classifier = make_classifier(2)
    classifier.classifier.bias.data[1] += 9  # calls everything toxic
    classifier.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    known = {"n": 1, "accuracy": 1.0}
    (folder / "card.json").write_text(json.dumps({"n_train": 0, "dev": known, "machine": "CPU"}))
    data = tmp_path / "data" / "toxic_spans"
    data.mkdir(parents=True)
    (data / "dev.csv").write_text('spans,text\n"[4, 5, 6, 7]","the film was bad"\n')
    monkeypatch.setenv("SEA_NN_DATA", str(data.parent))
    monkeypatch.setenv("SEA_NN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sea_bench.experiments.texts.find_toxic_classifier", lambda: folder)
    given = {"count": 1, "device": "cpu", "out": tmp_path}
    page = run_experiment(EXPERIMENTS["text"], **given).page.read_text()
    assert "| SEA, 512 |" in page
    assert "the film" not in page
    assert run_experiment(EXPERIMENTS["text"], **given).n_reused == 1

"""The path of a call can be held in the head: it crosses few files, and none both ways."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sea_bench.catalogue import EXPERIMENTS

SCRIPT = Path(__file__).parents[1] / "scripts" / "walk.py"
LIMITS = {
    # walk: files, functions, times the model is opened, pairs of modules that call both ways
    "explain": (19, 230, 1, 0),  # the aim: 16, 220, 1, 0
    "command": (41, 491, 1, 0),  # the aim: 32 files
    "run": (42, 436, 4, 0),  # the aim: 1
    "bench": (35, 312, 9, 0),  # the aim: 1 and 0
}


@pytest.fixture(scope="module")
def walk():
    spec = importlib.util.spec_from_file_location("walk", SCRIPT)
    module = sys.modules["walk"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["walk"]


@pytest.mark.parametrize("name", LIMITS)
def test_a_walk_crosses_few_files_and_none_both_ways(name, walk, monkeypatch):
    short = replace(EXPERIMENTS["predicts_fmnist"], metrics=("r2@60", "error@60"))
    monkeypatch.setitem(EXPERIMENTS, "predicts_fmnist", short)
    found = walk.walk_by_name(name)
    files, functions, opened, pairs = LIMITS[name]
    assert len(found.files) <= files, found.files
    assert len(found.functions) <= functions
    assert 1 <= found.opened <= opened
    assert len(found.both_ways) <= pairs, found.both_ways


def test_a_walk_sees_functions_in_threads_and_comprehensions(walk):
    import threading

    from sea_nn.vision.shipped import load_sample

    thread = threading.Thread(target=load_sample)
    found = walk.draw_walk(lambda: (thread.start(), thread.join()))
    assert list(found.files) == ["vision/shipped.py"]
    assert "load_sample" in {code.co_name for code in found.functions}
    assert not found.both_ways
    assert found.opened == 0

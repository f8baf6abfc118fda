from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save as serialize

from sea_nn.errors import InputError, KindError
from sea_nn.explanation import atomic
from sea_nn.explanation.explanation import Explanation
from sea_nn.members.run import Check
from sea_nn.paper.agreement import agreement
from sea_nn.show.viewer import write_report
from tests.helpers.samples import (
    CHECKS,
    EVIL,
    explain_images,
    explain_in_budget,
    explain_series,
    explain_table,
)

TENSORS = ("attribution", "target", "score", "order", "gains", "features", "images", "values")
FACTS = ("methods", "feature_shape", "labels", "checks", "provenance", "feature_names")

KINDS = {
    "grid": lambda: explain_images(),
    "uneven grid": lambda: explain_images(2, 30, 22, (8, 7)),
    "pixels": lambda: explain_images(1, 12, 16, None),
    "table": lambda: explain_table(),
    "series": lambda: explain_series(),
}


@pytest.fixture(params=KINDS)
def explanation(request: pytest.FixtureRequest) -> Explanation:
    return KINDS[request.param]()


def test_attribution_is_the_gain_of_each_pixel_feature(explanation):
    e = explanation
    by_feature = torch.zeros_like(e.gains).scatter(1, e.order, e.gains)
    spread = e.spread(by_feature).reshape(e.attribution.shape)
    assert torch.allclose(spread, e.attribution)


def test_top_follows_greedy_and_its_mask_covers_just_those_features(explanation):
    e = explanation
    for p in (0, 1, 5, e.order.shape[1]):
        assert torch.equal(e.top(p), e.order[:, :p])
        mask = e.top_mask(p)
        assert mask.shape == (len(e), *e.shape)
        for i in range(len(e)):
            chosen = set(e.order[i, :p].tolist())
            if e.features is None:
                where = torch.arange(e.order.shape[1]).reshape(e.shape)
            else:
                where = e.features[0]
            slow = [int(f) in chosen for f in where.flatten()]
            assert mask[i].flatten().tolist() == slow


def test_share_of_features_is_a_count():
    e = explain_images()
    assert e.top(0.25).shape[1] == 16
    assert e.top(1.0).shape[1] == 64
    assert e.top(1).shape[1] == 1
    assert e.top(0.0001).shape[1] == 1


def test_impossible_sizes_are_refused():
    for p in (-1, 65, 1.5, 0.0, -0.1, float("nan")):
        with pytest.raises(InputError, match="p must be a count from 0 to 64"):
            explain_images().top(p)
    for p in (True, "5", None):
        with pytest.raises(KindError, match="p is a count"):
            explain_images().top(p)


def test_agreement_with_sea_contains_the_members(explanation):
    e = explanation
    m = len(e.methods)
    assert e.agreement.shape == (len(e), m, m)
    assert torch.allclose(e.agreement, agreement(e.maps), equal_nan=True)
    assert e.agreement_with_sea.shape == (len(e), m + 1, m + 1)
    assert torch.allclose(e.agreement_with_sea.diagonal(dim1=1, dim2=2), torch.ones(()).double())


def test_indexing_takes_one_input_or_a_slice():
    e = explain_images()
    for i, one in enumerate(e):
        assert len(one) == 1
        assert torch.equal(one.attribution[0], e.attribution[i])
        assert one.labels == (e.labels[i],)
    assert torch.equal(e[-1].order, e[2].order)
    back = e[::-1]
    assert back.labels == e.labels[::-1]
    assert torch.equal(back.maps, e.maps.flip(0))
    for error in (IndexError, InputError):
        with pytest.raises(error, match="3 inputs"):
            e[3]
    with pytest.raises(InputError, match="none of the 3"):
        e[5:]
    with pytest.raises(KindError, match="integer or a slice"):
        e["a"]
    mine = replace(e, features=e.features.expand(3, -1, -1).clone())
    assert mine[1].features.shape == (1, 32, 32)
    assert torch.equal(mine[1:].top_mask(5), e[1:].top_mask(5))


def test_checks_of_one_input_follow_it():
    own = tuple(Check("fail", f"input {i}", f"about {i}") for i in (0, 2))
    e = replace(explain_images(), checks=(*CHECKS, *own))
    assert e[0].checks == (*CHECKS, own[0])
    assert e[1].checks == CHECKS
    assert e[::-1].checks == (
        *CHECKS,
        replace(own[0], subject="input 2"),
        replace(own[1], subject="input 0"),
    )
    assert e[1:].checks == (*CHECKS, replace(own[1], subject="input 1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attribution": torch.zeros(3)}, "attribution must be"),
        ({"attribution": torch.full((3, 1, 32, 32), -1.0)}, "attribution must be >= 0"),
        ({"attribution": torch.full((3, 1, 32, 32), torch.nan)}, "without nan"),
        ({"maps": torch.zeros(3, 2, 32, 32)}, r"maps must be \[3, 3, 32, 32\]"),
        ({"maps": torch.full((3, 3, 32, 32), 1.5)}, r"maps must lie in \[0, 1\]"),
        ({"methods": ()}, "needs an input and a method"),
        ({"order": torch.zeros(3, 64, dtype=torch.int64)}, "each feature 0 … 63 once"),
        ({"order": torch.arange(64).repeat(3, 1) + 1}, "each feature 0 … 63 once"),
        ({"order": torch.zeros(3, 64)}, "order must be of dtype"),
        ({"features": None}, "pass features"),
        ({"features": torch.full((1, 32, 32), 64)}, "features must lie in"),
        ({"features": torch.zeros(2, 32, 32, dtype=torch.int64)}, "of 3 inputs or of 1"),
        ({"labels": ("a",)}, "labels must name the 3"),
        ({"images": torch.zeros(3, 32, 32, 3)}, "images must be of dtype"),
        ({"gains": torch.zeros(3, 63)}, r"gains must be \[3, 64\]"),
    ],
)
def test_parts_that_do_not_fit_are_named(change, message):
    with pytest.raises(InputError, match=message):
        replace(explain_images(), **change)


def test_summary_names_what_matters():
    text = explain_images().summary()
    assert "questions" not in text
    e = explain_in_budget()
    assert f"{e.questions} questions about sets of features of each input" in e.summary()
    for word in ("3 inputs", "a small network", "integrated_gradients", "kind <1>", "64 features"):
        assert word in text
    first = divmod(int(explain_images().order[0, 0]), 8)
    assert f"{first}, (" in text
    assert "1 of 2 fine" in text
    assert "Take smaller windows." in text
    assert explain_table().summary().count("class ") == 2
    assert f"column {int(explain_table().order[1, 0])} in $, " in explain_table().summary()
    channel, step = divmod(int(explain_series().order[0, 0]), 40)
    assert f"sensor {channel} at {step}, " in explain_series().summary()


def test_notebook_view_is_one_frame_and_escapes_names():
    view = explain_images(5)._repr_html_()
    assert "the first 3 of 5 inputs" in view
    for e in (explain_table(), explain_series(), explain_in_budget()):
        names = None if e.feature_names is None else tuple(EVIL for _ in e.feature_names)
        checks = (Check("warn", EVIL, EVIL, EVIL),)
        hostile = replace(e, feature_names=names, labels=(EVIL,) * len(e), checks=checks)
        page = hostile._repr_html_()
        assert re.findall(r"<(\w+)", page) == ["iframe", "details", "summary", "pre"]
        assert escape(EVIL) in page


# ---- files ----------------------------------------------------------------------------------


def same(a: Explanation, b: Explanation) -> None:
    for name in TENSORS:
        mine, yours = getattr(a, name), getattr(b, name)
        assert (mine is None) == (yours is None), name
        if mine is not None:
            assert torch.equal(mine.to(yours.dtype), yours), name
    assert torch.allclose(a.maps, b.maps, atol=3e-4)
    for name in FACTS:
        assert getattr(a, name) == getattr(b, name), name


def test_saved_explanation_loads_as_it_was(explanation, tmp_path):
    path = explanation.save(tmp_path / "deep" / "er" / "x.safetensors")
    loaded = Explanation.load(path)
    same(explanation, loaded)
    assert torch.equal(loaded.top_mask(3), explanation.top_mask(3))
    # Half precision keeps what maps say.
    assert torch.allclose(loaded.agreement, explanation.agreement, atol=1e-3)
    again = Explanation.load(loaded.save(tmp_path / "y.safetensors"))
    assert torch.equal(again.maps, loaded.maps)
    assert (tmp_path / "y.safetensors").read_bytes() == path.read_bytes()


def test_own_features_and_own_maps_are_kept(tmp_path):
    e = explain_images()
    groups = torch.randint(0, 64, (3, 32, 32), generator=torch.Generator().manual_seed(0))
    smooth = e.attribution + 0.5
    changed = replace(e, features=groups, attribution=smooth)
    loaded = Explanation.load(changed.save(tmp_path / "x.safetensors"))
    same(changed, loaded)


def test_file_leaves_out_what_it_can_derive(tmp_path):
    path = explain_images().save(tmp_path / "x.safetensors")
    with safe_open(path, "numpy") as file:
        kinds = {key: str(file.get_tensor(key).dtype) for key in file.keys()}  # noqa: SIM118
    assert kinds == {
        "maps": "float16", "target": "int64", "score": "float32", "order": "uint16",
        "gains": "float32", "images": "uint8", "ranking.classes": "int64",
        "ranking.scores": "float32",
    }  # fmt: skip


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 900, 0.5, 0.99, -1])
def test_cut_file_is_refused(keep, tmp_path):
    path = explain_images().save(tmp_path / "x.safetensors")
    data = path.read_bytes()
    end = int(keep * len(data)) if isinstance(keep, float) else keep
    path.write_bytes(data[:end])
    with pytest.raises(InputError, match=r"x\.safetensors"):
        Explanation.load(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(serialize({"weight": np.zeros(3)}))
    with pytest.raises(InputError, match="not an explanation"):
        Explanation.load(path)
    path.write_bytes(b"PK\x03\x04 this is some zip file, perhaps a pickle of a model")
    with pytest.raises(InputError, match="not a whole safetensors file"):
        Explanation.load(path)
    with pytest.raises(InputError, match="is a folder"):
        Explanation.load(tmp_path)
    for name in ("absent.safetensors", "a\0b"):
        with pytest.raises(InputError, match="there is no file"):
            Explanation.load(tmp_path / name)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        Explanation.load("/dev/null")


def test_only_files_are_replaced_and_links_stay_links(tmp_path):
    e, real = explain_table(), tmp_path / "real.safetensors"
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "link.safetensors").symlink_to(real)
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    e.save(tmp_path / "link.safetensors")
    assert (tmp_path / "link.safetensors").is_symlink()
    same(e, Explanation.load(real))
    for path, message in (
        (tmp_path / "pipe.safetensors", "a pipe"),
        ("/dev/null", "is a device"),
        (tmp_path, "is a folder"),
        (tmp_path / "loop.safetensors", "no place for a file"),
        (tmp_path / "x.npz", r"save to 'x\.safetensors'"),
    ):
        with pytest.raises(InputError, match=message):
            e.save(path)
    with pytest.raises(KindError, match="got NoneType"):
        e.save(None)
    with pytest.raises(InputError, match="is a device"):
        write_report(e, "/dev/null")
    assert Path("/dev/null").is_char_device()
    assert stat.S_ISFIFO((tmp_path / "pipe.safetensors").stat().st_mode)
    e.save(tmp_path / ("a" * 240))


def test_drafts_are_removed_once_they_are_old_and_nothing_else(tmp_path):
    paths = [tmp_path / name for name in (".sea-1", ".sea-2", ".sea-3", "sea-4")]
    for path in paths:
        path.mkdir()
        (path / "map.png").touch()
    for path in (paths[0], paths[3]):
        os.utime(path, (0, 0))
    atomic.remove_drafts(tmp_path, atomic.DAY)
    assert set(tmp_path.iterdir()) == set(paths[1:])
    atomic.remove_drafts(tmp_path)
    assert set(tmp_path.iterdir()) == {paths[3]}


def test_names_become_texts_that_can_be_drawn(tmp_path):
    e = replace(explain_images(), labels=(3, None, "\ud800"), methods=("a", "b", "\udfff"))
    assert e.labels == ("3", "None", "?")
    assert "None" in e.summary()
    e.plot("strip", tmp_path / "x.png")


def rewrite(path, change_facts=None, change_tensors=None):
    """Write a saved file again with some of it changed."""
    with safe_open(path, "numpy") as file:
        facts = json.loads(file.metadata()["sea_nn.explanation"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if change_facts:
        change_facts(facts)
    if change_tensors:
        change_tensors(tensors)
    path.write_bytes(serialize(tensors, {"sea_nn.explanation": json.dumps(facts)}))


@pytest.mark.parametrize("version", [2, -3, True])
def test_unknown_formats_ask_for_an_upgrade(tmp_path, version):
    path = explain_images().save(tmp_path / "x.safetensors")
    rewrite(path, lambda facts: facts.update(version=version))
    with pytest.raises(InputError, match="pip install --upgrade sea-nn"):
        Explanation.load(path)


@pytest.mark.parametrize(
    ("facts", "tensors"),
    [
        (lambda f: f.pop("methods"), None),
        *((lambda f, change=change: f.update(change), None) for change in (
            {"view": "banana"},
            {"methods": None},
            {"feature_shape": 7},
            {"feature_shape": [-4, -4]},
            {"feature_shape": [10**30, 3]},
            {"checks": [{"level": "bad"}]},
        )),
        (lambda f: f["ranking"][-1].pop(), None),
        (None, lambda t: t.pop("gains")),
        (None, lambda t: t.update(order=np.zeros_like(t["order"]))),
        (None, lambda t: t.update(order=t["order"] + 1)),
        (None, lambda t: t.update(images=t["images"][:1])),
        (None, lambda t: t.update(maps=t["maps"] + np.float16(2))),
    ],
)  # fmt: skip
def test_damaged_parts_are_refused(tmp_path, facts, tensors):
    path = explain_images().save(tmp_path / "x.safetensors")
    rewrite(path, facts, tensors)
    with pytest.raises(InputError, match="damaged"):
        Explanation.load(path)


@pytest.mark.parametrize("text", ["{not json", "[1, 2]", "3", "[" * 100_000])
def test_headers_that_are_no_facts_are_refused(tmp_path, text):
    path = tmp_path / "x.safetensors"
    path.write_bytes(serialize({"x": np.zeros(1)}, {"sea_nn.explanation": text}))
    with pytest.raises(InputError, match="damaged"):
        Explanation.load(path)


@pytest.mark.parametrize("write", [Explanation.save, write_report])
def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch, write):
    path = write(explain_images(), tmp_path / "x.safetensors")
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write(explain_table(), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]

"""Runs: layout, exactly once, what a rerun refuses, what failing inputs become, equal maps."""

from __future__ import annotations

import errno
import os

import pytest
import torch
from torch import nn

from sea_nn import read_dataset
from sea_nn.datasets.run import Outcome, explain_dataset
from sea_nn.datasets.storage import BusyError, list_committed, lock
from sea_nn.errors import InputError, KindError, MemberError
from sea_nn.function import SetFunction
from sea_nn.sea import SEA
from tests.datasets import small
from tests.datasets.small import METHODS, Net, hash_results, make_inputs, make_sea


def run(source, out, sea=None, **options) -> Outcome:
    return small.run(out, source, sea, **{"shard_size": 4, **options})


def test_every_input_gets_a_row_and_a_map(tmp_path):
    x = make_inputs(10)
    outcome = run(x, tmp_path / "out", labels=("a", "b", "c"))
    assert (outcome.n_done, outcome.n_fresh, outcome.n_failed) == (10, 10, 0)
    assert list_committed(tmp_path / "out") == [0, 1, 2]
    data = read_dataset(tmp_path / "out")
    wanted = make_sea().explain(x)
    for i in range(10):
        one = data[str(i)]
        assert one.row["target"] == int(wanted.target[i])
        assert one.row["target_name"] == "abc"[one.row["target"]]
        assert one.row["score"] == pytest.approx(float(wanted.score[i]), abs=1e-6)
        assert len(one.row["keep"]) == len(one.row["remove"]) == 6
        largest = float(wanted.attribution[i].max())
        assert torch.allclose(one.map, wanted.attribution[i, 0], atol=3e-4 * largest)
        assert one.top.tolist() == wanted.order[i].tolist()


def test_other_settings_and_sources_are_refused_and_the_difference_named(tmp_path):
    x = make_inputs(6)
    run(x, tmp_path)
    changed = x.clone()
    changed[3, 0, 0, 0] += 1
    seeded, fewer = SEA(Net().eval(), METHODS, seed=1), SEA(Net().eval(), METHODS[:1])
    for words, (source, sea, options) in {
        "setting seed": (x, seeded, {}),
        "setting members": (x, fewer, {}),
        "setting precision": (x, None, {"precision": "uint8"}),
        "setting shard_size": (x, None, {"shard_size": 8}),
        "setting target": (x, None, {"target": 1}),
        "setting label_column": (x, None, {"label_column": "fine"}),
        r"source: 1 changed \(3\)": (changed, None, {}),
        "setting count: was 6 and is 4": (x[:4], None, {}),
    }.items():
        with pytest.raises(InputError, match=words):
            run(source, tmp_path, sea, **options)


def test_two_runs_at_once_on_one_folder_are_refused(tmp_path):
    with lock(tmp_path), pytest.raises(BusyError, match="another run"):
        run(make_inputs(4), tmp_path)


def test_failing_inputs_become_rows_and_spare_the_others(tmp_path):
    x = make_inputs(8)
    rows = [(one, 1) for one in x]
    rows[1] = (torch.full_like(x[0], torch.nan), 1)
    rows[2] = (torch.zeros(1, 7, 8), 1)
    rows[5] = (x[5], 99)
    rows[6] = (x[6].int(), 1)
    outcome = run(rows, tmp_path, target="label", batch_size=4)
    assert outcome.n_failed == 4
    data = read_dataset(tmp_path)
    kinds = {one.id: one.row["error_kind"] for one in data if one.row["error"]}
    assert kinds == {"1": "not_finite", "2": "shape", "5": "class", "6": "load"}
    with pytest.raises(InputError, match="has no map"):
        _ = data["1"].map
    alone = make_sea().explain(x[7:8], 1)
    largest = float(alone.attribution.max())
    assert torch.allclose(data["7"].map, alone.attribution[0, 0], atol=3e-4 * largest)


def test_a_dead_input_is_an_error(tmp_path):
    class Dead(nn.Module):
        def forward(self, x):
            alive = (x.flatten(1).sum(1) > 0).float().unsqueeze(1)
            return torch.cat([x.flatten(1)[:, :1] * alive, x.flatten(1)[:, 1:2] * alive], 1)

    x = make_inputs(4).abs()
    x[2] = -x[2]
    run(x, tmp_path, SEA(Dead(), METHODS))
    row = read_dataset(tmp_path)["2"].row
    assert row["error_kind"] == "dead"
    assert read_dataset(tmp_path)["1"].row["error"] is None


def test_a_map_of_zeros_and_a_function_that_says_little_are_failed_checks(tmp_path, monkeypatch):
    monkeypatch.setattr(SetFunction, "find_doubt", lambda self: torch.tensor([0.0, 1.0]))
    sea = SEA(Net().eval(), METHODS, budget=40)
    explain = sea.explain

    def explain_first_alone(*args, **options):
        e = explain(*args, **options)
        e.attribution[1:] = 0
        return e

    sea.explain = explain_first_alone
    run(make_inputs(2), tmp_path, sea)
    checks = [one.row["checks"] for one in read_dataset(tmp_path)]
    assert checks == [[], ["SEA: flat", "SEA: says little"]]


def test_memory_that_does_not_suffice_halves_the_batch(tmp_path):
    class Small(Net):
        def forward(self, x):
            if len(x) > 2:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    sea = SEA(Small().eval(), METHODS, config=None)
    outcome = run(make_inputs(6), tmp_path, sea, batch_size=4, internal_batch_size=1, curve=False)
    assert outcome.n_failed == 0


def test_a_model_that_explains_nothing_ends_the_run(tmp_path):
    class Broken(nn.Module):
        def forward(self, x):
            if torch.is_grad_enabled():
                raise ValueError("no gradients today")
            return x.flatten(1)

    with pytest.raises(MemberError, match="carries no gradient"):
        run(make_inputs(4), tmp_path, SEA(Broken(), METHODS))
    assert list_committed(tmp_path) == []


def test_retrying_errors_redoes_only_those(tmp_path):
    x = make_inputs(8)
    good = list(x)
    bad = list(x)
    bad[5] = torch.full_like(x[5], torch.inf)
    run(bad, tmp_path)
    before = {one.id: one.map for one in read_dataset(tmp_path) if one.id != "5"}
    with pytest.raises(InputError, match=r"1 changed \(5\)"):
        run(good, tmp_path)
    outcome = run(good, tmp_path, retry_errors=True)
    assert (outcome.n_fresh, outcome.n_failed) == (1, 0)
    data = read_dataset(tmp_path)
    assert all(torch.equal(data[id_].map, kept) for id_, kept in before.items())
    assert data["5"].map.sum() > 0
    assert data.verify() == []
    assert run(good, tmp_path).n_fresh == 0


def test_maps_do_not_depend_on_shards_or_limits(tmp_path):
    x = make_inputs(16)
    run(x, tmp_path / "a", shard_size=2, precision="float32")
    run(x, tmp_path / "b", shard_size=8, precision="float32")
    run(x, tmp_path / "c", batch_size=8, shard_size=8, precision="float32")
    a, b, c = (read_dataset(tmp_path / name) for name in "abc")
    for i in map(str, range(16)):
        assert torch.equal(a[i].map, b[i].map)  # batches are aligned to the data set
        # Other batches: the model's own sums may differ in the last bits.
        assert torch.allclose(a[i].map, c[i].map, atol=1e-5 * float(a[i].map.max()))


def test_a_full_disk_leaves_whole_shards_and_the_run_can_go_on(tmp_path, monkeypatch):
    undisturbed = tmp_path / "undisturbed"
    run(make_inputs(), undisturbed)
    calls = 0
    real = os.fsync

    def fsync(place):
        nonlocal calls
        calls += 1
        if calls == 14:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(place)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        run(make_inputs(), tmp_path / "out")
    monkeypatch.undo()
    kept = len(list_committed(tmp_path / "out"))
    assert 0 < kept < 6
    run(make_inputs(), tmp_path / "out")
    assert hash_results(tmp_path / "out") == hash_results(undisturbed)


def test_stored_maps_are_as_near_as_stated(tmp_path):
    x = make_inputs(4)
    wanted = make_sea().explain(x).attribution[:, 0]
    for precision, error in (("float16", 0.00025), ("uint8", 0.002), ("float32", 1e-6)):
        run(x, tmp_path / precision, precision=precision)
        data = read_dataset(tmp_path / precision)
        for i in range(4):
            assert (data[str(i)].map - wanted[i]).abs().max() <= error * wanted[i].max()


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(KindError, match="must be a SEA"):
        explain_dataset(make_inputs(2), Net(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="workers"):
        run(make_inputs(2), tmp_path, workers=0)
    with pytest.raises(InputError, match="precision"):
        run(make_inputs(2), tmp_path, precision="int4")
    with pytest.raises(InputError, match="none of the first"):
        run([torch.zeros(3, dtype=torch.int64)], tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        run(make_inputs(2), tmp_path / "file" / "out")
    run(make_inputs(2), tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(InputError, match="choose another folder"):
        run(make_inputs(4), tmp_path / "out")

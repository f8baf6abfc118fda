"""Nothing is silently wrong: bits, sources, results and reruns that change, and odd inputs."""

from __future__ import annotations

import os
import random
import re
import sys
from collections import deque
from decimal import Decimal
from operator import itemgetter
from random import Random
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from scripts import attack
from scripts.attack import Linear, explain, to_tensor, write_source
from sea_nn import SEA, read_dataset
from sea_nn.datasets.fingerprint import fingerprint, fingerprint_model
from sea_nn.datasets.items import Reader
from sea_nn.datasets.sources import open_source
from sea_nn.datasets.storage import rows_path
from sea_nn.errors import InputError
from tests.datasets.small import Net, make_inputs, run


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        (attack.flip_bits, 300),
        (attack.change_sources, 7),
        (attack.remove_results, 5),
        (attack.change_reruns, 3),
    ],
)
def test_attacks_are_noticed(kind, points, tmp_path):
    tried, noticed, _, silent = attack.count(kind(points, random.Random(3), tmp_path))
    assert tried == points
    assert silent == []
    assert noticed >= points // 3


@pytest.mark.parametrize("kind", ["npz", "safetensors", "csv"])
def test_a_replaced_file_is_read_anew_in_the_same_process(tmp_path, kind):
    first, second = (open_source(write_source(kind, tmp_path, seed)).read(3).x for seed in (0, 1))
    assert not torch.equal(first, second)


def test_every_name_of_a_rerun_is_compared(tmp_path):
    changes = attack.list_changes()
    source = write_source("npz", tmp_path, 0)
    explain(source, tmp_path / "out")
    words = {"forward": "model code", "constant": "model code", "buffer": "model buffers",
             "weight": "model weights", "hook": "model code", "preprocess": "preprocess",
             "members": "setting stored_members", "labels": "labels"}  # fmt: skip
    assert set(words) == set(changes)
    for name, (model, options) in changes.items():
        with pytest.raises(InputError, match=words[name]):
            explain(source, tmp_path / "out", model, **options)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_code_is_told_apart_and_what_it_refers_to():
    def make(factor, seen):
        def apply(x):
            seen.append(len(x))
            return x * factor

        return apply

    assert fingerprint(torch.compile(make(1.0, []))) == fingerprint(torch.compile(make(1.0, [])))
    assert fingerprint(torch.compile(make(1.0, []))) != fingerprint(torch.compile(make(2.0, [])))
    assert fingerprint(make(1.0, [])) != fingerprint(make(1.0, [3]))  # it may be a constant
    assert fingerprint(make(1.0, [])) != fingerprint(make(2.0, []))
    assert fingerprint(lambda x: x + 1) != fingerprint(lambda x: x + 2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_hooks_are_told_apart_and_what_forward_assigns_is_not():
    class Counting(Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model = Counting()
    before = fingerprint_model(model)
    model(torch.rand(2, attack.WIDTH))
    assert fingerprint_model(model) == before
    assert fingerprint_model(torch.compile(Linear())) == fingerprint_model(torch.compile(Linear()))
    model.layer.register_full_backward_hook(lambda module, given, made: (2 * given[0],))
    assert fingerprint_model(model) != before


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_code_of_scripts_and_of_modules_in_packages_is_told_apart(monkeypatch):
    package, part = ModuleType("package"), ModuleType("package.part")
    package.part, part.act = part, torch.relu
    x, found = torch.rand(1, 3), set()
    monkeypatch.setattr(sys.modules[__name__], "package", package, raising=False)

    def act(x):
        return package.part.act(x)  # as of a module that is imported

    for made, layer in ((torch.relu, torch.nn.ReLU()), (torch.tanh, torch.nn.Tanh())):
        part.act = made
        parts = (act, torch.jit.trace(made, x), torch.jit.trace(layer, x))
        found |= {fingerprint(one) for one in parts}
        assert fingerprint(torch.jit.trace(made, x)) in found
    assert len(found) == 6


def test_what_a_function_or_a_class_carries_is_told_apart():
    def make(sign, scale):
        class Net(torch.nn.Module):
            facts = {"sign": sign}  # noqa: RUF012

            def forward(self, x):
                return x if self.facts["sign"] == "+" else -x

        def act(x):
            return x * act.scale

        act.scale = scale
        return fingerprint(Net()), fingerprint(act)

    one, same, other = make("+", 1.0), make("+", 1.0), make("-", 2.0)
    assert one == same
    assert not set(one) & set(other)


@pytest.mark.parametrize(
    "make", [range, slice, Decimal, Random, itemgetter, np.random.default_rng, lambda n: deque([n]),
             lambda n: re.compile(str(n)), lambda n: np.array([n, ""], dtype=object),
             lambda n: {str, n}, lambda n: torch.device("cpu", n)],
)  # fmt: skip
def test_values_of_every_kind_are_told_apart(make):
    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(2))


def test_rows_name_the_members_that_explained_them(tmp_path):
    class Picky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(144, 3)

        def forward(self, x):
            if x.requires_grad and bool((x[:, 0, 0, 0] > 5).any()):
                raise RuntimeError("no gradient of these")
            return self.head(self.conv(x).relu().flatten(1))

    x = torch.rand(8, 1, 8, 8)
    x[4:6, 0, 0, 0] = 9
    model = Picky().eval()
    alone = SEA(model, output="logits", budget=50).explain(x[4:6])
    for _ in range(2):
        run(tmp_path, x, SEA(model, output="logits", budget=50), members=True, shard_size=8)
    data = read_dataset(tmp_path)
    assert data["4"].methods == alone.methods != data["0"].methods
    assert [len(data[i].members) for i in "04"] == [len(data[i].methods) for i in "04"]
    assert data.summary().n_done == 8


def test_what_is_damaged_is_refused_as_it_is_read_and_mended_by_a_rerun(tmp_path):
    source, out = write_source("npz", tmp_path, 0), tmp_path / "out"
    explain(source, out)
    wanted = attack.read_maps(out)
    (tensors,), rows = out.glob("tensors/0000/0000001.*"), rows_path(out, 2)
    tensors.write_bytes(bytes(tensors.stat().st_size))  # the right size
    rows.write_bytes(rows.read_bytes().replace(b"PAR1", b"PAR2"))
    data = read_dataset(out)
    assert data.verify() == [1, 2]
    for id_ in ("2", "4"):
        with pytest.raises(InputError, match="same run again"):
            _ = data[id_].map
    assert explain(source, out).n_fresh == 4
    assert attack.read_maps(out) == wanted
    (out / "manifest.json").write_bytes(b"{")
    with pytest.raises(InputError, match="cannot be read"):
        read_dataset(out)
    assert explain(source, out).n_fresh == 0
    assert read_dataset(out).verify() == []


def test_the_budget_holds_for_every_input(tmp_path):
    seen: list[int] = []

    class Counting(Net):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    x = make_inputs(4)
    run(tmp_path, x, SEA(Counting().eval(), budget=34))
    assert sum(seen) <= 34 * len(x)
    row = read_dataset(tmp_path)["0"].row
    assert row["evaluations"] <= 34
    assert len(row["keep"]) == len(row["remove"]) == 6  # as the learned function says


def test_results_do_not_lie_among_inputs(tmp_path):
    folder = write_source("pictures", tmp_path, 0)
    for source in (folder, folder / "*.png"):
        with pytest.raises(InputError, match="among the inputs"):
            explain(str(source), folder)
    assert explain(folder, folder / "out").n_done == attack.COUNT
    os.remove(folder / "out" / "manifest.json")
    assert explain(folder, folder / "out").n_fresh == 0


def test_pipes_devices_and_circles_end(tmp_path):
    Image.new("L", (6, 4), 3).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "f.png")
    table = tmp_path / "t.csv"
    table.write_text(f"path\nf.png\n/dev/zero\na\0b.png\n{'a' * 300}.png\na.png\n")
    outcome = explain(table, tmp_path / "out")
    assert (outcome.n_done, outcome.n_failed, outcome.errors["load"][0]) == (5, 4, 4)
    (tmp_path / "d").mkdir()
    Image.new("L", (6, 4)).save(tmp_path / "d" / "a.png")
    for name in ("l1", "l2"):
        (tmp_path / "d" / name).symlink_to(".")
    for source in (tmp_path / "d", f"{tmp_path}/d/**/a.png"):
        assert len(open_source(source, Reader(to_tensor))) == 1


HEAD = b"a,b,c,d,e,f"
ODD = {
    "label.csv": (HEAD + b",label\n1,2,3,4,5,6,3000000000\n", "label 3000000000 is none of"),
    "field.csv": (HEAD + b'\n1,2,3,4,5,"' + b"9" * 140_000 + b'"\n', "field limit"),
    "twice.csv": (b"a,a,b\n1,2,3\n", "more than one column 'a'"),
    "head.csv": (HEAD + b"\n", "no rows"),
    "x.safetensors": (b"\xff" * 64, "damaged or something else"),
    "x.npz": (b"PK\x03\x04" + bytes(64), "damaged or something else"),
    "x.parquet": (b"PAR1" + bytes(64), "damaged or something else"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_refused_in_words(tmp_path, name):
    (tmp_path / name).write_bytes(ODD[name][0])
    with pytest.raises(InputError, match=ODD[name][1]):
        explain(tmp_path / name, tmp_path / "out")


def test_odd_arrays_are_refused_in_words(tmp_path):
    x = np.random.rand(4, 6).astype("f4")
    np.savez(tmp_path / "short.npz", x=x, label=np.arange(2))
    np.savez(tmp_path / "scalar.npz", x=np.float32(3))
    save_file({"x": torch.tensor(3.0)}, tmp_path / "scalar.safetensors")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    columns = [pa.array([1.0]), pa.array([2.0])]
    pa.parquet.write_table(pa.Table.from_arrays(columns, ["a", "a"]), tmp_path / "twice.parquet")
    for path in tmp_path.iterdir():
        with pytest.raises(InputError, match=path.name):
            open_source(path)


def test_labels_outside_the_classes_are_unknown_or_errors(tmp_path):
    x = np.random.rand(4, 6).astype("f4")
    np.savez(tmp_path / "x.npz", x=x, label=np.array([0, -1, 99, 2]))
    explain(tmp_path / "x.npz", tmp_path / "plain")
    rows = [one.row for one in read_dataset(tmp_path / "plain")]
    assert [row["label"] for row in rows] == [0, None, None, 2]
    assert [row["correct"] is None for row in rows] == [False, True, True, False]
    explain(tmp_path / "x.npz", tmp_path / "named", labels=("a", "b", "c"))
    kinds = [one.row["error_kind"] for one in read_dataset(tmp_path / "named")]
    assert kinds == [None, None, "class", None]

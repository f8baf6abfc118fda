"""Attack runs over data sets, and count what was noticed and what would be silently wrong.

    python -m scripts.attack --points 40 --seed 0
    python -m scripts.attack --fuzz 2000        # explanations in place of runs: scripts/fuzz.py
    python -m scripts.attack --app 400          # events of an app: scripts/attack_app.py

Four attacks, each at random places or moments: bits flipped in files of every kind, sources of
every kind changed while a run is on, results removed while a run is on, and reruns with one thing
changed. Silently wrong is what nobody is told of: another value read, another input explained,
results mixed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from scripts.fuzz import fuzz, tabulate
from sea_nn import SEA, explain_dataset, read_dataset
from sea_nn.errors import SEAError

COUNT, WIDTH = 16, 6
CALLS = 17  # of the model in a run
KINDS = ("pictures", "paths.csv", "csv", "parquet", "npz", "safetensors", "tensor")
Attempts = Iterator[tuple[str, bool, bool]]
"""By attempt what was done, whether it was noticed, and whether every result is right after it."""


class Clock:
    """Acts once, at a chosen call of the model; a model's fingerprint does not see it."""

    left, act = 0, staticmethod(lambda: None)

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()

    def __getstate__(self) -> None:
        return None


CLOCK = Clock()


class Linear(nn.Module):
    """A layer over whatever comes, which calls the clock at each pass."""

    def __init__(self, at: int = 0, act: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(WIDTH, 3)
        CLOCK.left, CLOCK.act = at, act

    def forward(self, x: Tensor) -> Tensor:
        CLOCK.tick()
        return self.layer(x.flatten(1))


def explain(source: Any, out: Path, model: Any = None, **options: Any) -> Any:
    """A small run: 8 shards of two inputs."""
    sea = SEA(model or Linear().eval(), ("saliency", "input_x_gradient"), output="logits")
    options = {"batch_size": 2, "shard_size": 2, "preprocess": to_tensor, **options}
    return explain_dataset(source, sea, out, quiet=True, **options)


def is_refused(source: Any, out: Path, model: Any = None, **options: Any) -> bool:
    """Whether such a run ends with an error in words."""
    try:
        explain(source, out, model, **options)
    except SEAError:
        return True
    return False


def to_tensor(image: Any) -> Tensor:
    """A picture of one row as its grey values."""
    return torch.from_numpy(np.asarray(image)[0, :, 0].copy()).float() / 255


def write_source(kind: str, folder: Path, seed: int) -> Any:
    """Write a data set of a kind, or write another one into the same place."""
    x = np.random.default_rng(seed).integers(1, 255, (COUNT, WIDTH)).astype("u1")
    rows, path = x.astype("f4") / 255, folder / f"source.{kind}"
    if kind in ("pictures", "paths.csv"):
        (folder / "pictures").mkdir(exist_ok=True)
        for i, row in enumerate(x):
            Image.fromarray(np.tile(row, (4, 1))).save(folder / f"pictures/{i:02}.png")
        if kind == "pictures":
            return folder / "pictures"
        path.write_text("path\n" + "".join(f"pictures/{i:02}.png\n" for i in range(COUNT)))
    elif kind == "csv":
        np.savetxt(path, rows, "%.9g", ",", header=",".join("abcdef"), comments="")
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet

        pa.parquet.write_table(pa.table(dict(zip("abcdef", rows.T, strict=True))), path)
    elif kind == "npz":
        np.savez(path, x=rows)
    elif kind == "safetensors":
        save_file({"x": torch.from_numpy(rows)}, path)
    return path


def read_maps(out: Path) -> dict[str, Any]:
    """What a run says of each input; None of one that failed."""
    found = {}
    for one in read_dataset(out):
        said = one.row["target"], one.row["score"]
        found[one.id] = None if one.row["error"] else (*said, one.map.tolist())
    return found


def flip_bits(points: int, chance: random.Random, folder: Path) -> Attempts:
    """A bit flipped in a file of a run, of every kind of file."""
    out = folder / "flipped"
    explain(write_source("npz", folder, 0), out, members=True)
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.stat().st_size)
    kinds = sorted({path.suffix for path in files})
    for point in range(points):
        path = chance.choice([p for p in files if p.suffix == kinds[point % len(kinds)]])
        whole = path.read_bytes()
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        try:
            noticed = bool(read_dataset(out).verify())
        except SEAError:
            noticed = True
        yield f"{path.name}, byte {place}, bit {bit}", noticed, False
        path.write_bytes(whole)


def change_sources(points: int, chance: random.Random, folder: Path) -> Attempts:
    """A source replaced by another one of the same shape while the run is on."""

    def open_source(kind: str, place: Path) -> tuple[Any, Callable[[], Any]]:
        place.mkdir()
        if kind == "tensor":
            x = torch.rand(COUNT, WIDTH, generator=torch.Generator().manual_seed(0))
            return x, partial(x.mul_, 0.5)
        return write_source(kind, place, 0), partial(write_source, kind, place, 1)

    wanted = {}
    for kind in KINDS:
        place = folder / f"before-{kind}"
        explain(open_source(kind, place)[0], place / "out")
        wanted[kind] = read_maps(place / "out")
    for point in range(points):
        kind, place = KINDS[point % len(KINDS)], folder / f"changed-{point}"
        source, change = open_source(kind, place)
        model = Linear(chance.randrange(1, CALLS), change).eval()
        n_failed = explain(source, place / "out", model).n_failed
        found = read_maps(place / "out")
        right = all(found[i] in (None, wanted[kind][i]) for i in found)
        yield f"{kind} at point {point}", right and n_failed > 0, right
        shutil.rmtree(place)


def remove_results(points: int, chance: random.Random, folder: Path) -> Attempts:
    """Folder, manifest, rows or maps removed while the run is on, which then goes on."""
    source = write_source("npz", folder, 0)
    explain(source, folder / "undisturbed")
    for point in range(points):
        out = folder / f"removed-{point}"
        what = ("", "manifest.json", "rows", "tensors")[point % 4]

        def remove(path: Path = out / what) -> None:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

        noticed = is_refused(source, out, Linear(chance.randrange(8, CALLS), remove).eval())
        explain(source, out)
        same = read_maps(out) == read_maps(folder / "undisturbed")
        whole = same and not read_dataset(out).verify()
        yield f"{what or 'the folder'} at point {point}", noticed and whole, whole


def change_reruns(points: int, chance: random.Random, folder: Path) -> Attempts:
    """A half-done run started again with one thing changed."""
    for point in range(points):
        name, (model, options) = chance.choice(list(list_changes().items()))
        out = folder / f"rerun-{point}"
        source = write_source("npz", folder, 0)
        explain(source, out)
        for path in chance.sample(sorted(out.glob("rows/*/*.parquet")), 4):
            os.remove(path)
        yield name, is_refused(source, out, model, **options), False


def list_changes() -> dict[str, tuple[Any, dict[str, Any]]]:
    """What a rerun may have that the first run had not: a model, or options."""

    class Other(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return -self.layer(x.flip(1))

    constant, buffer, weight, hooked = (Linear().eval() for _ in range(4))
    constant.scale = 2.0
    buffer.register_buffer("shift", torch.ones(1), persistent=False)
    weight.layer.bias.data[0] += 1e-6
    hooked.register_forward_hook(lambda module, given, made: -made)
    models = {"forward": Other().eval(), "constant": constant, "buffer": buffer}
    return {
        **{name: (m, {}) for name, m in {**models, "weight": weight, "hook": hooked}.items()},
        "preprocess": (None, {"preprocess": lambda image: 1 - to_tensor(image)}),
        "members": (None, {"members": True}),
        "labels": (None, {"labels": ("a", "b", "c")}),
    }


ATTACKS = (flip_bits, change_sources, remove_results, change_reruns)


def count(attempts: Attempts) -> tuple[int, int, int, list[str]]:
    """How many there were, were noticed, were harmless; and those that were silently wrong."""
    tried = list(attempts)
    noticed = sum(seen for _, seen, _ in tried)
    silent = [what for what, seen, harmless in tried if not (seen or harmless)]
    return len(tried), noticed, len(tried) - noticed - len(silent), silent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=40, help="attempts of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fuzz", type=int, metavar="N", help="explain N random cases instead")
    parser.add_argument("--app", type=int, metavar="N", help="send N events to an app instead")
    given = parser.parse_args()
    if given.app:
        from scripts.attack_app import report  # it needs the app's packages

        return report(given.app)
    torch.set_num_threads(1)
    if given.fuzz:
        print(*tabulate(*fuzz(given.fuzz, given.seed)), sep="\n")
        return
    print("| attack | tried | noticed | nothing came of it | silently wrong |")
    print("|---|---:|---:|---:|---:|")
    for attack in ATTACKS:
        with tempfile.TemporaryDirectory() as place:
            points = 10 * given.points if attack is flip_bits else given.points
            *counts, silent = count(attack(points, random.Random(given.seed), Path(place)))
        print(f"| {attack.__doc__} | {' | '.join(map(str, counts))} | {len(silent)} |")
        print(*silent, sep="\n", end="\n" if silent else "")


if __name__ == "__main__":
    main()

"""Attack runs over data sets, and count what was noticed and what would be silently wrong.

    python -m scripts.attack --points 40 --seed 0

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from sea_nn import SEA, explain_dataset, read_dataset
from sea_nn.errors import SEAError

COUNT, WIDTH = 16, 6
CALLS = 17  # of the model in a run
KINDS = ("pictures", "paths.csv", "csv", "parquet", "npz", "safetensors", "tensor")


@dataclass
class Tally:
    """How often an attack was tried, and what came of it."""

    name: str
    tried: int = 0
    noticed: int = 0
    harmless: int = 0
    silent: tuple[str, ...] = ()

    def count(self, what: str, noticed: bool, harmless: bool = False) -> None:
        """One more attempt; harmless is one after which every result is right."""
        self.tried += 1
        self.noticed += noticed
        self.harmless += harmless and not noticed
        if not noticed and not harmless:
            self.silent += (what,)

    def row(self) -> str:
        """A row of a table."""
        parts = (self.name, self.tried, self.noticed, self.harmless, len(self.silent))
        return f"| {' | '.join(map(str, parts))} |"


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


def to_tensor(image: Any) -> Tensor:
    """A picture of one row as its grey values."""
    return torch.from_numpy(np.asarray(image)[0, :, 0].copy()).float() / 255


def write_source(kind: str, folder: Path, seed: int) -> Any:
    """Write a data set of a kind, or write another one into the same place."""
    x = np.random.default_rng(seed).integers(1, 255, (COUNT, WIDTH)).astype("u1")
    rows = x.astype("f4") / 255
    path = folder / f"source.{kind}"
    if kind in ("pictures", "paths.csv"):
        (folder / "pictures").mkdir(exist_ok=True)
        for i, row in enumerate(x):
            Image.fromarray(np.tile(row, (4, 1))).save(folder / f"pictures/{i:02}.png")
        if kind == "pictures":
            return folder / "pictures"
        path = folder / "paths.csv"
        path.write_text("path\n" + "".join(f"pictures/{i:02}.png\n" for i in range(COUNT)))
    elif kind == "csv":
        lines = [",".join("abcdef"), *(",".join(map(str, row)) for row in rows.tolist())]
        path.write_text("\n".join(lines))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet

        pa.parquet.write_table(pa.table(dict(zip("abcdef", rows.T, strict=True))), path)
    elif kind == "npz":
        np.savez(path, x=rows)
    elif kind == "safetensors":
        save_file({"x": torch.from_numpy(rows)}, path)
    return path


def read_maps(out: Path) -> dict[str, tuple[Any, ...]]:
    """What a run says of each input."""
    return {
        one.id: (
            one.row["target"],
            one.row["score"],
            None if one.row["error"] else one.map.tolist(),
        )
        for one in read_dataset(out)
    }


def flip_bits(points: int, chance: random.Random, folder: Path) -> Tally:
    """One bit of one file of a run, of every kind of file, at a random place."""
    tally, out = Tally("a bit flipped in a file of a run"), folder / "flipped"
    source = write_source("npz", folder, 0)
    explain(source, out, members=True)
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.stat().st_size)
    kinds = {path.suffix: [p for p in files if p.suffix == path.suffix] for path in files}
    for point in range(points):
        path = chance.choice(kinds[sorted(kinds)[point % len(kinds)]])
        whole = path.read_bytes()
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        try:
            noticed = bool(read_dataset(out).verify())
        except SEAError:
            noticed = True
        tally.count(f"{path.name}, byte {place}, bit {bit}", noticed)
        path.write_bytes(whole)
    return tally


def change_sources(points: int, chance: random.Random, folder: Path) -> Tally:
    """A source replaced by another one of the same shape while the run is on, at a random call."""
    tally, wanted = Tally("a source changed while the run is on"), {}
    for kind in KINDS:
        place = folder / f"before-{kind}"
        place.mkdir()
        explain(_open(kind, place)[0], place / "out")
        wanted[kind] = read_maps(place / "out")
    for point in range(points):
        kind = KINDS[point % len(KINDS)]
        place = folder / f"changed-{point}"
        place.mkdir()
        source, change = _open(kind, place)
        model = Linear(chance.randrange(1, CALLS), change).eval()
        outcome = explain(source, place / "out", model)
        found = read_maps(place / "out")
        right = all(found[i] == wanted[kind][i] for i in found if found[i][2] is not None)
        tally.count(f"{kind} at point {point}", right and outcome.n_failed > 0, right)
        shutil.rmtree(place)
    return tally


def _open(kind: str, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """A source, and what changes it."""
    if kind == "tensor":
        x = torch.rand(COUNT, WIDTH, generator=torch.Generator().manual_seed(0))
        return x, partial(x.mul_, 0.5)
    return write_source(kind, folder, 0), partial(write_source, kind, folder, 1)


def remove_results(points: int, chance: random.Random, folder: Path) -> Tally:
    """The folder, its manifest, a shard or a tensor file removed while the run is on."""
    tally = Tally("results removed while the run is on")
    source = write_source("npz", folder, 0)
    explain(source, folder / "undisturbed")
    wanted = read_maps(folder / "undisturbed")
    for point in range(points):
        out = folder / f"removed-{point}"
        what = ("", "manifest.json", "rows", "tensors", "inputs.parquet")[point % 5]

        def remove(path: Path = out / what) -> None:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

        try:
            explain(source, out, Linear(chance.randrange(8, CALLS), remove).eval())
            noticed = False
        except SEAError:
            noticed = True
        explain(source, out)  # a rerun goes on, whatever was removed
        whole = read_maps(out) == wanted and not read_dataset(out).verify()
        tally.count(f"{what or 'the folder'} at point {point}", noticed and whole, whole)
    return tally


def change_reruns(points: int, chance: random.Random, folder: Path) -> Tally:
    """A half-done run is started again with one thing changed."""
    tally = Tally("a rerun with one thing changed")
    for point in range(points):
        name, (model, options) = chance.choice(list(list_changes()))
        out = folder / f"rerun-{point}"
        source = write_source("npz", folder, 0)
        explain(source, out)
        for path in chance.sample(sorted(out.glob("rows/*/*.parquet")), 4):
            os.remove(path)
        try:
            explain(source, out, model, **options)
            noticed = False
        except SEAError:
            noticed = True
        tally.count(name, noticed)
    return tally


def list_changes() -> Iterator[tuple[str, tuple[Any, dict[str, Any]]]]:
    """What a rerun may have that the first run had not."""

    class Other(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return -self.layer(x.flip(1))

    constant, buffer, weight, hooked = (Linear().eval() for _ in range(4))
    constant.scale = 2.0
    buffer.register_buffer("shift", torch.ones(1), persistent=False)
    weight.layer.bias.data[0] += 1e-6
    hooked.register_forward_hook(lambda module, given, made: -made)
    models = {"forward": Other().eval(), "constant": constant, "buffer": buffer}
    for name, model in {**models, "weight": weight, "hook": hooked}.items():
        yield name, (model, {})
    yield "preprocess", (None, {"preprocess": lambda image: 1 - to_tensor(image)})
    yield "members", (None, {"members": True})
    yield "labels", (None, {"labels": ("a", "b", "c")})


ATTACKS = (flip_bits, change_sources, remove_results, change_reruns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=40, help="attempts of each attack")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| attack | tried | noticed | nothing came of it | silently wrong |")
    print("|---|---:|---:|---:|---:|")
    for attack in ATTACKS:
        with tempfile.TemporaryDirectory() as place:
            points = 10 * given.points if attack is flip_bits else given.points
            tally = attack(points, random.Random(given.seed), Path(place))
        print(tally.row(), *tally.silent, sep="\n")


if __name__ == "__main__":
    main()

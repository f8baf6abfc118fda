"""Results of single inputs on disk, under a name made of everything that determines them.

>>> import tempfile
>>> store = Store(tempfile.mkdtemp())
>>> key = make_key({"metric": "gini"}, 0)
>>> store.write(key, {"values": torch.ones(2)}, {"note": "none"})
>>> store.read(key)[0]["values"]
tensor([1., 1.])
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.provenance import hash_tensor

FORMAT = 1
SOURCE = Path(__file__).parents[2]
# Source that cannot change a number: what shows results, and what makes inputs and weights, whose
# content is part of every key. Of the experiments only the named modules compute something.
SHOWING = frozenset({"app", "cli", "datasets", "explanation", "show", "version.py", "vision"})
MEASURING = frozenset(
    f"{name}.py"
    for name in (
        *("copies", "experiment", "explainer", "half_answers", "magnitudes", "maps"),
        *("measurements", "predictions", "region_searches", "stability", "text_maps"),
    )
)
# Of these, what only maps with a budget use, and kinds that measure the function itself: a change
# here leaves the scores of other maps as they are.
LEARNED = frozenset(
    {
        *(f"sea_bench/experiments/{name}.py" for name in ("copies", "magnitudes")),
        *(f"sea_bench/experiments/{name}.py" for name in ("predictions", "stability")),
        *(f"sea_nn/questions/{name}.py" for name in ("asked", "budget", "curve", "finer")),
        *(f"sea_nn/questions/{name}.py" for name in ("learn", "painting", "search")),
        *(f"sea_nn/function/answers_{name}.py" for name in ("fit", "function", "order")),
    }
)


def make_key(settings: Mapping[str, Any], number: int, *tensors: Tensor) -> str:
    """Return the name of one input's result: settings, the input's number and its content."""
    told = json.dumps({"format": FORMAT, "input": number, **settings}, sort_keys=True, default=str)
    digest = hashlib.sha256(told.encode())
    for tensor in tensors:
        digest.update(hash_tensor(tensor).encode())
    return digest.hexdigest()[:32]


def hash_source(source: Path = SOURCE, learned: bool = True) -> str:
    """Return a checksum of the modules that can change a result, with or without ``LEARNED``."""
    package = source / "sea_nn"
    found = [p for p in package.rglob("*.py") if p.relative_to(package).parts[0] not in SHOWING]
    bench = source / "sea_bench" / "experiments"
    found += [p for p in bench.glob("*.py") if p.name in MEASURING]
    digest = hashlib.sha256()
    for path in sorted(found):
        content, name = path.read_bytes(), path.relative_to(source).as_posix()
        if learned or name not in LEARNED:
            digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


class Store:
    """A folder of results. A file is there whole or not at all."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    def read(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and the other facts of a result, or None if it is not there."""
        path = self._locate(key)
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads(file.metadata()["facts"])
                return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
        except FileNotFoundError:
            return None
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, OSError):
            return None  # damaged: compute it again

    def write(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Store a result; a kill leaves no half of a file."""
        path = self._locate(key)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with write_atomically(path) as file:
            file.write(serialize(whole, {"facts": json.dumps(dict(facts))}))

    def _locate(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"

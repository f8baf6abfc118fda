"""Results of single inputs on disk, under a name made of everything that determines them.

>>> import tempfile, torch
>>> store = Store(tempfile.mkdtemp())
>>> key = make_key({"experiment": "small", "version": 1}, 0)
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
from torch import Tensor, nn

from sea_nn.datasets.fingerprint import hash_tensor
from sea_nn.explanation.atomic import write_atomically

FORMAT = 2


def hash_weights(model: nn.Module) -> str:
    """Return a checksum of all of a model's weights and statistics."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):  # a module may keep other things there
            digest.update(f"{name} {hash_tensor(tensor)}".encode())
    return digest.hexdigest()[:16]


def make_key(settings: Mapping[str, Any], number: int, *tensors: Tensor) -> str:
    """Return the name of one input's result: settings, the input's number and its content."""
    told = json.dumps({"format": FORMAT, "input": number, **settings}, sort_keys=True, default=str)
    digest = hashlib.sha256(told.encode())
    for tensor in tensors:
        digest.update(hash_tensor(tensor).encode())
    return digest.hexdigest()[:32]


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
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, OSError):
            return None  # not there or damaged: compute it

    def write(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Store a result; a kill leaves no half of a file."""
        path = self._locate(key)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with write_atomically(path) as file:
            file.write(serialize(whole, {"facts": json.dumps(dict(facts))}))

    def _locate(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"

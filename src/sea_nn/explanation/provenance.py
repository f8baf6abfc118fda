"""Where an explanation comes from: settings, versions, seed, time and evaluations."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.version import find_version


@dataclass(frozen=True)
class Provenance:
    """Where an explanation comes from: enough to make it again.

    Values become plain JSON (tuples turn into lists, tensors into their shape, other objects into
    text), so that an explanation that was saved and loaded says the same as before.

    Attributes:
        config: the settings of SEA.
        members: by member, the options it ran with, its defaults among them.
        call: what else decides the maps: baselines, feature mask, precision.
        versions: of this package and those it stands on.
        seed: what random draws start from.
        seconds: by member, the time taken.
        evaluations: by member, the model evaluations made for all inputs; "sea" are the others.
        by_purpose: the evaluations an input: "members", "questions" and "checks".
        assumed: what was not said and how it was taken, in sentences.
        model: its name.
        device: where it ran.
        created: when.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    evaluations: Mapping[str, int] = field(default_factory=dict)
    by_purpose: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    model: str = ""
    device: str = ""
    created: str = ""

    def __post_init__(self) -> None:
        names = ("config", "members", "call", "versions", "seconds", "evaluations", "by_purpose")
        for name in names:
            plain = json.loads(json.dumps(dict(getattr(self, name)), default=_describe))
            object.__setattr__(self, name, plain)
        object.__setattr__(self, "assumed", tuple(map(to_text, self.assumed)))
        for name in ("model", "device", "created"):
            object.__setattr__(self, name, to_text(getattr(self, name)))


def hash_tensor(tensor: Tensor) -> str:
    """Return a checksum of a tensor's shape, kind and content."""
    plain = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{plain.dtype} {list(plain.shape)}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_weights(model: nn.Module) -> str:
    """Return a checksum of all of a model's weights and statistics."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):  # a module may keep other things there
            digest.update(f"{name} {hash_tensor(tensor)}".encode())
    return digest.hexdigest()[:16]


def to_text(name: Any) -> str:
    r"""Return a name as text that can be written anywhere: half of a character becomes "?".

    >>> to_text(7), to_text("\ud800x")
    ('7', '?x')
    """
    return str(name).encode("utf-8", "replace").decode()


def _describe(value: Any) -> Any:
    """What JSON does not know, in words."""
    if isinstance(value, Tensor):
        return value.item() if value.ndim == 0 else f"tensor {list(value.shape)}"
    if isinstance(value, Mapping):
        return dict(value)
    return getattr(value, "__name__", None) or str(value)


def find_versions() -> dict[str, str]:
    """Return the versions of this package, torch and Python."""
    return {
        "sea_nn": find_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }

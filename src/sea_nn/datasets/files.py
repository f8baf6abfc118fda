"""Data sets of files that hold one input each: folders, globs and lists of pictures or volumes."""

from __future__ import annotations

import glob
import io
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sea_nn.datasets.items import (
    Item,
    ItemError,
    Reader,
    Source,
    find_digest,
    hash_bytes,
    plain_name,
)
from sea_nn.datasets.storage import MANIFEST, OWN
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image
from sea_nn.vision.names import NIFTI
from sea_nn.vision.volumes import load_volume

MOST_HASHED = 20 << 30
"""Up to so many bytes of files are hashed; of more, only sizes and times are compared."""
MOST_READ = 2 << 30  # bytes of one file
THREADS = max(1, min(16, os.cpu_count() or 1))


def list_files(text: str, out: Path | None = None) -> list[Path]:
    """The files that a path or glob means, without hidden ones and without results of runs.

    Links to folders are not followed where a folder or ``**`` is gone through, so that links in a
    circle end. ``out`` is where results go: what a run writes there is no input.
    """
    path = Path(text).expanduser()
    try:
        if path.is_dir():
            found = sorted(path.rglob("*"))
        elif path.exists():
            found = [path]
        elif "**" in text:
            start = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
            # A Path's own glob does not follow links for **, but the glob module does, for ever.
            walk = Path(*path.parts[:start]).glob(os.path.join(*path.parts[start:]))
            found = sorted(walk)
        else:
            found = [Path(p) for p in sorted(glob.glob(str(path)))]
        found = [p for p in found if p.is_file() and (p == path or not p.name.startswith("."))]
    except OSError as error:
        raise InputError(f"{text[:200]} cannot be read ({error.strerror})") from error
    runs = {p.parent for p in found if p.name == MANIFEST and (p.parent / "rows").is_dir()}
    own = set() if out is None else {out / name for name in OWN}
    return [
        p
        for p in found
        if runs.isdisjoint(p.parents) and own.isdisjoint((p.resolve(), *p.resolve().parents))
    ]


def open_pictures(
    paths: Sequence[Path],
    name: str,
    reader: Reader,
    base: Path | None = None,
    labels: Sequence[Any] | None = None,
    ids: Sequence[str] | None = None,
) -> Source:
    """Files of one input each; without labels, a folder named like a class is the label.

    Pictures go through the reader's preprocess; NIfTI volumes are taken as they are.
    """
    volumes = all(path.name.lower().endswith(NIFTI) for path in paths)
    if reader.preprocess is None and not volumes:
        raise InputError(
            "pictures need a preprocess, from a Pillow image to the model's input: pass "
            "preprocess=load_model(...).preprocess, or your own function"
        )
    known = {plain_name(n) for n in reader.label_names or ()}
    by_content = sum(map(_measure, paths)) <= MOST_HASHED

    def fetch(index: int) -> tuple[Any, str]:
        content, stamp = read_file(paths[index])
        digest = hash_bytes(content) if by_content else stamp
        return (index, content, digest), digest

    def make(stored: Any) -> Item:
        index, content, digest = stored
        path = paths[index]
        if volumes:
            x = load_volume(path)
            if fetch(index)[1] != digest:
                raise ItemError("changed", f"{path} was changed while it was read")
        else:
            file = io.BytesIO(content)
            file.name = to_text(path)  # for messages
            x = reader.to_tensor(load_image(file))
        label = path.parent.name if plain_name(path.parent.name) in known else None
        return Item(x, reader.find_label(label if labels is None else labels[index]))

    with ThreadPoolExecutor(THREADS) as team:
        digests = list(team.map(partial(find_digest, fetch), range(len(paths))))
    if ids is None:
        ids = [to_text(p if base is None else p.relative_to(base)) for p in paths]
    return Source(name, ids, fetch, make, digests, [to_text(p) for p in paths], THREADS)


def read_file(path: Path) -> tuple[bytes, str]:
    """The content of a regular file, and its size and times; a pipe or a device would not end.

    Raises:
        ItemError: it is something else, or cannot be read.
    """
    try:
        place = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        told = getattr(error, "strerror", None) or str(error)
        raise ItemError("load", f"{to_text(path)[:200]} cannot be read ({told})") from error
    with open(place, "rb") as file:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise ItemError("load", f"{path} is no regular file, and nothing else is read")
        if found.st_size > MOST_READ:
            raise ItemError(
                "load", f"{path} has {found.st_size} bytes; at most {MOST_READ} are read"
            )
        return file.read(), f"{found.st_size}-{found.st_mtime_ns}"


def to_text(path: Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0

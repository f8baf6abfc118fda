"""Files and folders that appear whole or not at all.

Both are written under a hidden name beside their place (``.sea-RANDOM``) and renamed. A process
that is killed leaves its draft behind; ``remove_drafts`` clears these.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sea_nn.errors import InputError, KindError

_PREFIX = ".sea-"
DAY = 24 * 3600.0  # seconds: an older draft is nobody's


def check_path(path: Any) -> Path:
    """Return a path as a ``Path``, or say that it is none."""
    if not isinstance(path, str | os.PathLike):
        raise KindError(f"a file's path is a str or a Path; got {type(path).__name__}")
    return Path(path)


def find_target(path: Any) -> Path:
    """Return the place that ``path`` means, links followed, if a file may be written there.

    A folder, device or pipe that is there would be replaced, and is refused.
    """
    path = check_path(path)
    try:
        target: Path = path.resolve()
        if target.is_file() or not target.exists():
            return target
    except (RuntimeError, ValueError) as error:  # links in a circle; a NUL in the name
        raise InputError(f"{str(path)!r} is no place for a file ({error})") from error
    found = "a folder" if target.is_dir() else "a device or a pipe"
    raise InputError(f"{path} is {found}, and a file is to be written: choose another name")


@contextmanager
def write_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` only once it is complete."""
    target = find_target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _name_draft(target.parent)
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        if os.name != "nt":  # which opens no folders; a rename should outlast a power failure
            place = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(place)
            finally:
                os.close(place)
    except OSError as error:
        if error.filename == str(draft):
            error.filename = str(path)  # the name that the caller knows
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """Give a new empty folder in ``parent``; what has not been moved out of it is removed."""
    parent.mkdir(parents=True, exist_ok=True)
    draft = _name_draft(parent)
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def remove_drafts(folder: Path, seconds: float = 0.0) -> None:
    """Remove the drafts in ``folder`` that are as old as this: their processes were killed."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # another process was faster
            if time.time() - path.lstat().st_mtime < seconds:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _name_draft(parent: Path) -> Path:
    return parent / f"{_PREFIX}{secrets.token_hex(8)}"

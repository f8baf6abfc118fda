"""What ``sea explain`` is asked for: its options, and the inputs that its arguments mean."""

import glob
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sea_nn.cli.options import (
    TEXT_WAYS,
    Settings,
    check_device,
    check_folder,
    choose,
    find_class,
    option,
    parse_top,
)
from sea_nn.cli.terminal import complain, show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.extras import check_extras
from sea_nn.vision.names import ASSETS, NIFTI, PICTURES, is_file

EXPLANATION, REPORT = "explanation.safetensors", "report.html"
DICOM = (".dcm", ".ima")
# What does not go with each kind of input, and why.
STRANGERS = {
    "picture": (("labels",), "{} needs a --text: pictures' classes come with the model"),
    "volume": (
        ("demo", "labels", "top", "grid", "batch", "tile", "recursive"),
        "{} does not go with volumes: they are explained one by one, as they are",
    ),
    "text": (
        ("inputs", "demo", "top", "grid", "config", "batch", "seed", "tile", "recursive"),
        "{} does not go with --text: words are explained, nothing is drawn or at random",
    ),
}


@dataclass(frozen=True)
class Input:
    """An input to explain: what to call it, the folder for its results, its file or its text."""

    name: str
    folder: str
    source: Any


@dataclass(frozen=True, kw_only=True)
class Explain(Settings):
    """The options of ``sea explain``."""

    inputs: list[str] | None = option(
        None, "[PICTURES]...", "Pictures, folders or globs; or NIfTI files, folders of DICOM."
    )
    demo: bool = option(False, "", "Explain a shipped picture; needs no file.", "--demo")
    text: list[str] | None = option(
        None, "TEXT", "Explain texts instead, with --model hf:FOLDER; again for more.", "--text"
    )
    labels: str | None = option(
        None, "NAMES", "Of a text model without a head: its classes, with commas; the nearest "
        "counts.", "--labels",
    )  # fmt: skip
    rival: str | None = option(None, "CLASS", "Explain the target against this class.", "--not")
    output: Path = option(Path("out"), "FOLDER", "Folder to write to.", "--output", "-o")
    top: str | None = option(
        None, "COUNT", "Features to light up in top.png beside 1, 3, 10 and 25 %, and to list in "
        "JSON: a count (20) or a share (5%).", "--top",
    )  # fmt: skip
    batch: int | None = option(
        None, "NUMBER", "Pictures to explain at once; Ctrl-C loses those begun.", "--batch",
        shown="1 on a CPU, 8 on a GPU", min=1,
    )  # fmt: skip
    tile: bool = option(
        False, "", "Explain pictures at their own size, in overlapping tiles.", "--tile"
    )
    recursive: bool = option(False, "", "Look into folders' folders too.", "--recursive", "-r")
    as_json: bool = option(False, "", "Print one JSON document, and nothing else.", "--json")
    no_report: bool = option(False, "", f"Write no {REPORT}.", "--no-report")

    @cached_property
    def volumes(self) -> list[Path]:
        """Those of the arguments that are volumes: NIfTI files, and folders with DICOM files."""
        paths = [Path(name).expanduser() for name in self.inputs or ()]
        dicom = [p for p in paths if p.is_dir() and any(_is_of(f, DICOM) for f in p.iterdir())]
        return [path for path in paths if path in dicom or path.name.lower().endswith(NIFTI)]

    @property
    def kind(self) -> str:
        """What is explained: "picture", "volume" or "text"."""
        return "text" if self.text else "volume" if self.volumes else "picture"

    @cached_property
    def n_top(self) -> int | float | None:
        """What --top says."""
        return None if self.top is None else parse_top(self.top)

    def check(self) -> None:
        """Refuse what is wrong, as far as it can be told before a model is loaded."""
        self.refuse(*STRANGERS[self.kind])
        if self.tile:
            self.refuse(("rival",), "--tile explains one class; leave out {}")
            self.refuse(("batch",), "{} does not go with --tile: pictures are explained one by one")
        if self.rival is not None and self.target is None:
            raise InputError("--not needs a --target: the class that is explained against it")
        if self.kind == "text":
            self._check_text()
        else:
            if self.kind == "volume":
                self._check_volumes()
            super().check()
            _ = self.n_top
            if self.known.labels:
                self.find_aim(self.known.labels)
            if self.known.side and (self.method[1] is None or self.cells is not None):
                self.check_top(self.cells or (self.known.side,) * 2)
        check_folder(self.output)
        if not self.no_report:
            find_target(self.output / REPORT)

    def _check_text(self) -> None:
        prefix, _, folder = self.model.partition(":")
        if prefix != "hf":
            raise InputError(
                "--text needs --model hf:FOLDER, a folder on this machine that save_pretrained "
                f"wrote; got {self.model!r}"
            )
        if not Path(folder).expanduser().exists():
            raise InputError(f"there is no folder {show(folder)!r}: texts' models are not fetched")
        check_extras("a text model", "transformers")
        check_device(self.device)
        choose("--absent of texts", self.absent, TEXT_WAYS)
        _ = self.method, self.chosen

    def _check_volumes(self) -> None:
        if len(self.volumes) < len(self.inputs or ()):
            raise InputError("pictures do not go with volumes: explain these by themselves")
        for path in self.volumes:
            if not path.exists():
                raise InputError(f"there is no file {show(path)}; check its name")
        if not is_file(self.model):
            raise InputError(
                "volumes need --model FILE.py:FUNCTION, a model of [N, 1, D, H, W]; "
                f"{self.model} takes pictures"
            )
        needed = ("DICOM", "pydicom") if self.volumes[0].is_dir() else ("NIfTI", "nibabel")
        check_extras(*needed)

    def check_top(self, shape: Sequence[int]) -> None:
        """Refuse more features than there are now, not after the work is done."""
        rows, columns = shape
        if isinstance(self.n_top, int) and self.n_top > rows * columns:
            raise InputError(
                f"--top {self.top} asks for more than the {rows} x {columns} = {rows * columns} "
                f"features that {self.model} is explained by"
            )

    def find_aim(self, labels: tuple[str, ...]) -> int | tuple[int, int] | None:
        """What --target and --not mean: None, a class, or a class and not another."""
        if self.target is None:
            return None
        wanted = find_class(self.target, labels, self.model)
        if self.rival is None:
            return wanted
        return wanted, find_class(self.rival, labels, self.model)

    def gather(self) -> tuple[list[Input], dict[str, str]]:
        """The inputs that the arguments mean, and by argument why it means none."""
        if self.text:
            texts = enumerate(self.text, 1)
            return [Input(f"text {k}", f"text-{k}", text) for k, text in texts], {}
        if self.volumes:
            return name_inputs(self.volumes), {}
        if self.recursive and not any(Path(p).expanduser().is_dir() for p in self.inputs or ()):
            raise InputError("--recursive is for folders, and no argument is one")
        demo = self.model if self.demo else None
        return gather_pictures(self.inputs or (), self.recursive, demo, self.output)


def find_files(
    patterns: Iterable[str], suffixes: Collection[str], noun: str, recursive: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """The files that the arguments of a command mean, in their order, each once.

    A single file is returned unseen: a missing or broken one must not stop the others, and nor
    must a folder or a glob that has no file with one of the ``suffixes`` (lower case). Returns the
    files, and by argument why it means none; ``noun`` is what errors call such files.
    """
    found: dict[Path, Path] = {}
    empty: dict[str, str] = {}
    kinds = f"{noun} ({' '.join(sorted(suffixes))})"
    for pattern in patterns:
        path = Path(pattern).expanduser()
        try:
            if path.is_dir():
                paths = list(path.rglob("*") if recursive else path.iterdir())
                empty[pattern] = f"the folder {show(path)} holds no {kinds}"
                empty[pattern] += "" if recursive else "; --recursive looks into its folders too"
            elif glob.has_magic(pattern) and not path.exists():  # a name may have such letters
                paths = [Path(match) for match in glob.glob(str(path), recursive=True)]
                empty[pattern] = f"no {kinds} match {show(pattern)!r}"
            else:
                found.setdefault(path.resolve(), path)
                continue
            for path in sorted(p for p in paths if _is_of(p, suffixes) and p.is_file()):
                found.setdefault(path.resolve(), path)
                empty.pop(pattern, None)
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            empty[pattern] = str(error)
    return list(found.values()), empty


def _is_of(path: Path, suffixes: Collection[str]) -> bool:
    return path.suffix.lower() in suffixes


def name_inputs(paths: Iterable[Path]) -> list[Input]:
    """Each file with a folder for its results, called by its stem; equal ones are numbered.

    >>> [one.folder for one in name_inputs([Path("cat.jpg"), Path("b/Cat.png"), Path("cat-2.gif")])]
    ['cat', 'Cat-2', 'cat-2-2']
    """
    used = {REPORT}
    found = []
    for path in paths:
        # Windows cannot open names that end in a dot or a space.
        stem = path.stem.removesuffix(".nii").rstrip(". ") or "picture"
        name, again = stem, 2
        while name.casefold() in used:  # some file systems do not tell Cat from cat
            name, again = f"{stem}-{again}", again + 1
        used.add(name.casefold())
        found.append(Input(show(path), name, path))
    return found


def gather_pictures(
    patterns: Sequence[str],
    recursive: bool = False,
    demo_for: str | None = None,
    output: Path | None = None,
) -> tuple[list[Input], dict[str, str]]:
    """The pictures that arguments mean, and by argument why it means none; one must be readable.

    Results that an earlier run left in ``output`` are passed over, and ``demo_for`` names a model
    to add a shipped picture for.
    """
    from sea_nn.vision.images import load_image

    paths, empty = find_files(patterns, PICTURES, "pictures", recursive)
    # What lies beside an explanation in a folder of the output was drawn, and is no input.
    drawn = [path for path in paths if (path.parent / EXPLANATION).exists()]
    own = [p for p in drawn if output and p.resolve().parents[1] == output.resolve()]
    if own:
        complain(f"Passed over in {output}: {len(own)} results of an earlier run", "")
        paths = [path for path in paths if path not in own]
    if demo_for is not None:  # the network for clothes knows no cups
        paths = [ASSETS / ("boot.png" if demo_for == "fashion-cnn" else "coffee.jpg"), *paths]
    if not paths and not empty:
        raise InputError(
            "there is nothing to explain: name pictures, folders or globs, or try --demo"
        )
    reasons = list(empty.values())
    for path in paths:
        try:
            load_image(path)
            return name_inputs(paths), empty
        except InputError as error:
            reasons.append(str(error))
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    raise InputError("; ".join(reasons[:5]) + more)

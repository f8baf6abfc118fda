"""What ``sea explain`` is asked for: its options, and what does not go together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sea_nn.cli.inputs import (
    REPORT,
    Input,
    find_volumes,
    gather_pictures,
    gather_texts,
    gather_volumes,
)
from sea_nn.cli.options import (
    TEXT_WAYS,
    Settings,
    argument,
    check_device,
    check_folder,
    choose,
    find_class,
    option,
    parse_top,
)
from sea_nn.cli.terminal import show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.extras import check_extras
from sea_nn.vision.names import is_file

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


@dataclass(frozen=True, kw_only=True)
class Explain(Settings):
    """The options of ``sea explain``."""

    inputs: list[str] | None = argument(
        None, "[PICTURES]...",
        "Pictures, folders of them, or globs; or volumes: NIfTI files, folders of DICOM.",
    )  # fmt: skip
    demo: bool = option(False, "", "Explain a shipped picture; needs no file.", "--demo")
    text: list[str] | None = option(
        None,
        "TEXT",
        "Explain a text instead, with --model hf:FOLDER; may be given again.",
        "--text",
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
        False, "", "Explain pictures at their own size, in overlapping tiles of the model's.",
        "--tile",
    )  # fmt: skip
    recursive: bool = option(False, "", "Look into folders' folders too.", "--recursive", "-r")
    as_json: bool = option(False, "", "Print one JSON document, and nothing else.", "--json")
    no_report: bool = option(False, "", f"Write no {REPORT}.", "--no-report")

    @cached_property
    def kind(self) -> str:
        """What is explained: "picture", "volume" or "text"."""
        if self.text:
            return "text"
        return "volume" if find_volumes(self.inputs or ()) else "picture"

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
        paths = find_volumes(self.inputs or ())
        if len(paths) < len(self.inputs or ()):
            raise InputError("pictures do not go with volumes: explain these by themselves")
        if not is_file(self.model):
            raise InputError(
                "volumes need --model FILE.py:FUNCTION, a model of [N, 1, D, H, W]; "
                f"{self.model} takes pictures"
            )
        check_extras("DICOM" if paths[0].is_dir() else "NIfTI", _find_reader(paths[0]))

    def check_top(self, shape: Sequence[int]) -> None:
        """Refuse more features than there are now, not after the work is done."""
        rows, columns = shape
        if isinstance(self.n_top, int) and self.n_top > rows * columns:
            raise InputError(
                f"--top {self.top} asks for more than the {rows} x {columns} = {rows * columns} "
                f"features that {self.model} is explained by"
            )

    def find_aim(
        self, labels: tuple[str, ...], count: Callable[[], int] | None = None
    ) -> int | tuple[int, int] | None:
        """What --target and --not mean: None, a class, or a class and not another.

        Without ``labels`` and ``count`` nothing is known yet, and None is returned.
        """
        if self.target is None or not (labels or count):
            return None
        wanted = find_class(self.target, labels, self.model, count)
        if self.rival is None:
            return wanted
        return wanted, find_class(self.rival, labels, self.model, count)

    def gather(self) -> list[Input]:
        """The inputs that the arguments mean."""
        if self.kind == "text":
            return gather_texts(self.text or ())
        if self.kind == "volume":
            return gather_volumes(find_volumes(self.inputs or ()))
        folders = [p for p in self.inputs or () if Path(p).expanduser().is_dir()]
        if self.recursive and not folders:
            raise InputError("--recursive is for folders, and no argument is one")
        demo = self.model if self.demo else None
        return gather_pictures(self.inputs or (), self.recursive, demo, self.output)


def _find_reader(path: Path) -> str:
    return "pydicom" if path.is_dir() else "nibabel"

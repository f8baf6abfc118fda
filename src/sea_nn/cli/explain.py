"""``sea explain``: pictures, volumes or texts in; maps, figures, files and a report out."""

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import typer

from sea_nn.cli.inputs import REPORT, Input, find_volumes, gather_pictures, name_inputs
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
from sea_nn.cli.terminal import (
    FAILED,
    INTERRUPTED,
    Bar,
    err,
    say,
    show,
    translate,
    wait,
)
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target, remove_stale
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

    inputs: list[str] | None = option(
        None, "[PICTURES]...",
        "Pictures, folders of them, or globs; or volumes: NIfTI files, folders of DICOM.",
    )  # fmt: skip
    demo: bool = option(False, "", "Explain a shipped picture; needs no file.", "--demo")
    text: list[str] | None = option(
        None, "TEXT", "Explain a text instead, with --model hf:FOLDER; may be given again.",
        "--text",
    )  # fmt: skip
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
    def volumes(self) -> list[Path]:
        """Those of the arguments that are volumes."""
        return find_volumes(self.inputs or ())

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
        if self.volumes[0].is_dir():
            check_extras("DICOM", "pydicom")
        else:
            check_extras("NIfTI", "nibabel")

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


def explain(o: Explain) -> None:
    """Explain what a classifier looks at in pictures, or which words of a text it reads.

    Each input gets a folder with explanation.safetensors and pictures: map.png (the SEA map over
    the picture), strip.png (SEA beside its members) and top.png (the features that matter most) of
    a picture, strip.png (slices) of a volume, words.png of a text. One report.html shows them all.
    Models of volumes take [1, 1, D, H, W] in the file's units.

    Exit code 0: all explained; 1: something failed; 2: wrong use; 130: interrupted.

    Examples:
      sea explain --demo
      sea explain cat.jpg 'photos/*.png' folder/ -o out --methods paper
      sea explain cat.jpg --target tabby --grid 16x16 --top 20
      sea explain cat.jpg --methods saliency,rise --set rise.n_masks=500
      sea explain cat.jpg --target tabby --not 'Egyptian cat'
      sea explain cat.jpg --budget 128 --absent mean
      sea explain boot.png --model fashion-cnn --json > boot.json
      sea explain x.png --model my_model.py:make_model
      sea explain slide.tif --tile --target 3
      sea explain scan.nii.gz dicom_folder/ --model my_model.py:make_model
      sea explain --text 'Not bad at all.' --model hf:FOLDER --target positive
    """
    stdout = sys.stdout
    # A user's own model file may print; with --json that must not end up in the document.
    quiet = contextlib.redirect_stdout(sys.stderr) if o.as_json else contextlib.nullcontext()
    with quiet:
        o.check()
        inputs, empty = o.gather()
        with wait(f"Loading PyTorch and {o.model} ..."):
            from sea_nn.cli import results, work

            kinds = {"picture": work.Pictures, "volume": work.Subject, "text": work.Texts}
            subject = kinds[o.kind](o)
        remove_stale(o.output)
        total = len(inputs) + len(empty)
        with Bar(total) as bar:
            outcome = results.explain_inputs(subject, inputs, empty, bar)
        report = results.write_page(outcome, subject)
        if outcome.finished and not o.as_json:
            results.print_outcome(outcome, subject, report)
    if o.as_json:
        document = results.describe(outcome, subject, report)
        print(json.dumps(document, indent=2, allow_nan=False), file=stdout)
    for name, reason in outcome.failed:
        where = "" if name in reason else f"{name}: "
        say(f"Failed: {where}{translate(reason)}", "red", err)
    done = len(outcome.finished)
    if outcome.interrupted:
        kept = f"{done} of {total} inputs were finished and are in {show(o.output)}"
        say(f"Interrupted: {kept}", "yellow", err)
        raise typer.Exit(INTERRUPTED)
    if done < total:
        say(f"{total - done} of {total} inputs could not be explained", "red", err)
    if outcome.failed:
        raise typer.Exit(FAILED)

"""Options: what each is called, what it means and what it may be.

A command's parameters are options, or one table of them, whose fields Typer is shown. Nothing here
imports PyTorch: what is wrong with a command is said within a second, before a model is loaded.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from sea_nn.cli.terminal import show
from sea_nn.config import ABSENT, BUDGETS, DEFAULT_BUDGET, SEAConfig
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.extras import check_extras
from sea_nn.members.registry import Entry, choose_budget, expand_methods
from sea_nn.vision.names import NIFTI, Known, check_model, is_file

DEFAULT_MODEL = "efficientnet-lite0"
WAYS = tuple(way for way in ABSENT if not way.startswith("background"))
TEXT_WAYS = ("mask", "delete", "pad")
OUTPUTS = ("logits", "probabilities", "sigmoid", "labels", "value")
EXPLANATION, REPORT = "explanation.safetensors", "report.html"
DICOM = (".dcm", ".ima")
# What does not go with each kind of input, and why.
STRANGERS = {
    "picture": (("labels",), "{} needs a --text: pictures' classes come with the model"),
    "volume": (
        ("demo", "labels", "top", "grid", "tile"),
        "{} does not go with volumes: they are explained as they are",
    ),
    "text": (
        ("inputs", "demo", "top", "grid", "config", "seed", "tile"),
        "{} does not go with --text: words are explained, nothing is drawn or at random",
    ),
}
Shape = tuple[int, int]


def option(
    default: Any, metavar: str, text: str, *names: str, shown: bool | str = True, **more: Any
) -> Any:
    """A parameter that is an option, or without names an argument: default, metavar, help, names.

    ``metavar`` stands for its value in help ("" for a flag), ``shown`` for a default of None;
    ``min`` and ``max`` are limits. ``...`` is the default of what must be given.
    """
    kind: Any = typer.Option if names else typer.Argument
    return kind(default, *names, help=text, metavar=metavar, show_default=shown, **more)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, which members, and where."""

    model: str = option(
        DEFAULT_MODEL, "NAME", "A name from 'sea models', or FILE.py:FUNCTION.", "--model", "-m"
    )
    methods: str | None = option(
        None, "NAMES", "paper, or names from 'sea methods' with commas; fast and thorough are "
        "budgets.", "--methods", shown="cheap ones",
    )  # fmt: skip
    assignments: list[str] | None = option(
        None, "MEMBER.OPTION=VALUE", "Such as rise.n_masks=500; again for more.", "--set"
    )
    model_output: str | None = option(
        None, "KIND", f"What the model's outputs are: {', '.join(OUTPUTS)}.", "--model-output",
        shown="found out",
    )  # fmt: skip
    device: str = option("auto", "DEVICE", "auto, cpu, cuda or cuda:1.", "--device")

    @cached_property
    def known(self) -> Known:
        """What the model's name stands for; what is missing for it is an error."""
        return check_model(self.model)

    @cached_property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """Options by member."""
        return parse_assignments(self.assignments or ())

    def check_model(self) -> None:
        """Refuse a model, a device or a kind of output that there is not."""
        _ = self.known
        check_device(self.device)
        choose("--model-output", self.model_output, OUTPUTS)


@dataclass(frozen=True, kw_only=True)
class Settings(ModelOptions):
    """How inputs are explained: the options that ``sea explain`` and ``sea run`` share."""

    budget: int | None = option(
        None, "NUMBER", "Model evaluations an input, such as 128: learn from its answers about "
        "parts.", "--budget", min=1,
        shown=f"{DEFAULT_BUDGET}, of texts 128; none with --methods or --config",
    )  # fmt: skip
    absent: str | None = option(
        None, "WAY", f"What takes the place of what is left out: {', '.join(WAYS)}; of texts "
        f"{', '.join(TEXT_WAYS)}.", "--absent", shown="blur; of texts mask",
    )  # fmt: skip
    grid: str | None = option(
        None, "ROWSxCOLUMNS", "Cells to explain by, such as 28x28.", "--grid",
        shown="8x8, or a model's patches; every pixel without a budget",
    )  # fmt: skip
    config: Path | None = option(
        None, "FILE", "Settings of the paper's function: a TOML or JSON file.", "--config"
    )
    target: str | None = option(
        None, "CLASS", "Class to explain, a number or a name.", "--target", shown="predicted"
    )
    seed: int = option(0, "NUMBER", "Starts every random draw.", "--seed", min=0)

    @cached_property
    def method(self) -> tuple[str | None, int | None]:
        """The members (None: cheap ones) and the budget (None: the paper's function)."""
        if self.config is None:
            methods, budget = choose_budget(self.methods, None, self.budget)
            return methods, budget
        if self.budget is not None or self.methods in BUDGETS:
            raise InputError(
                "--config has settings of the paper's function, which is learned without a budget: "
                "leave out --config or the budget"
            )
        return self.methods or "paper", None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The members that --methods names, with their options; none where it does not."""
        methods, budget = self.method
        if methods is None and self.chosen:
            raise InputError(
                f"--set {(self.assignments or [''])[0]} needs the member's name in --methods: the "
                "cheap ones are chosen for the model"
            )
        entries = () if methods is None else expand_methods(methods, self.chosen)
        price = sum(entry.member.cost(entry.options) for entry in entries)
        if budget is not None and price >= budget:
            raise InputError(
                f"the members alone cost {price} evaluations of a photograph, and --budget "
                f"{budget} leaves no questions: give more, or cheaper --methods"
            )
        return entries

    @cached_property
    def settings(self) -> SEAConfig:
        """What --config, a TOML or JSON file, says of the paper's function."""
        if self.config is None:
            return SEAConfig()
        parse = json.loads if self.config.suffix == ".json" else tomllib.loads
        try:
            return SEAConfig(**parse(self.config.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:  # of the file, its letters, or settings
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"--config {show(self.config)}: {reason}") from error

    @cached_property
    def cells(self) -> Shape | None:
        """What --grid says, or else --config."""
        if self.grid is not None:
            return parse_grid(self.grid)
        return None if self.config is None else self.settings.grid

    def check(self) -> None:
        """Refuse what is wrong, as far as it can be told before a model is loaded."""
        self.check_model()
        _ = self.entries
        choose("--absent", self.absent, WAYS)
        if self.absent is not None and self.method[1] is None:
            raise InputError(
                "--absent says how the model is asked, and without a budget it is not: add --budget"
            )
        if self.cells is not None and self.known.side:
            self.check_grid((self.known.side, self.known.side))

    def check_grid(self, shape: Shape) -> None:
        """Refuse a grid finer than the pixels."""
        if self.cells is not None and any(c > s for c, s in zip(self.cells, shape, strict=True)):
            raise InputError(
                f"--grid {self.grid} is finer than the {shape[0]} x {shape[1]} pixels that "
                f"{self.model} sees"
            )


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
    top: int | None = option(
        None, "NUMBER", "Features to light up in top.png beside 1, 3, 10 and 25 %, and to list in "
        "JSON.", "--top", min=1,
    )  # fmt: skip
    tile: bool = option(
        False, "", "Explain pictures at their own size, in overlapping tiles.", "--tile"
    )
    as_json: bool = option(False, "", "Print one JSON document, and nothing else.", "--json")
    no_report: bool = option(False, "", f"Write no {REPORT}.", "--no-report")

    @cached_property
    def volumes(self) -> list[Path]:
        """Those of the arguments that are volumes: NIfTI files, and folders with DICOM files."""
        found = []
        for path in (Path(name).expanduser() for name in self.inputs or ()):
            inside = path.iterdir() if path.is_dir() else ()
            if path.name.lower().endswith(NIFTI) or any(p.suffix.lower() in DICOM for p in inside):
                found.append(path)
        return found

    @property
    def kind(self) -> str:
        """What is explained: "picture", "volume" or "text"."""
        return "text" if self.text else "volume" if self.volumes else "picture"

    def check(self) -> None:
        """Refuse what is wrong, as far as it can be told before a model is loaded."""
        self.refuse(*STRANGERS[self.kind])
        if self.tile:
            self.refuse(("rival",), "--tile explains one class; leave out {}")
        if self.rival is not None and self.target is None:
            raise InputError("--not needs a --target: the class that is explained against it")
        if self.kind == "text":
            self._check_text()
        else:
            if self.kind == "volume":
                self._check_volumes()
            super().check()
            if self.known.labels:
                self.find_aim(self.known.labels)
        check_folder(self.output)
        if not self.no_report:
            find_target(self.output / REPORT)

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Refuse the first of these options that was given; ``reason`` has its place as {}."""
        for one in fields(self):
            info: Any = one.default
            if one.name in names and getattr(self, one.name) not in (info.default, []):
                raise InputError(reason.format([*(info.param_decls or ()), info.metavar][0]))

    def _check_text(self) -> None:
        prefix, _, folder = self.model.partition(":")
        if prefix != "hf" or not Path(folder).expanduser().exists():
            raise InputError(
                "--text needs --model hf:FOLDER, and there is no folder of this name that "
                f"save_pretrained wrote: {show(self.model)!r}; texts' models are not fetched"
            )
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

    def find_aim(self, labels: tuple[str, ...]) -> int | tuple[int, int] | None:
        """What --target and --not mean: None, a class, or a class and not another."""
        if self.target is None:
            return None
        wanted = find_class(self.target, labels, self.model)
        if self.rival is None:
            return wanted
        return wanted, find_class(self.rival, labels, self.model)


def check_device(device: str) -> None:
    """Refuse what is no device of PyTorch's."""
    if not re.fullmatch(r"auto|(cpu|cuda|mps|xpu)(:\d+)?", device):
        raise InputError(f"--device must be auto, cpu, cuda or cuda:1; got {device!r}")


def parse_grid(text: str) -> Shape:
    """Rows and columns from "28x28".

    >>> parse_grid("28x20")
    (28, 20)
    """
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise InputError(f"--grid must be ROWSxCOLUMNS, such as 28x28; got {text!r}")
    return int(rows), int(columns)


def parse_assignments(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Options by member from "MEMBER.OPTION=VALUE"; values are JSON, or else text.

    >>> parse_assignments(["rise.n_masks=500", "rise.keep=0.3", "grad_cam.layer=conv3"])
    {'rise': {'n_masks': 500, 'keep': 0.3}, 'grad_cam': {'layer': 'conv3'}}
    """
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        found = re.fullmatch(r"([^.=]+)\.([^=]+)=(.*)", text)
        if found is None:
            raise InputError(
                f"--set must be MEMBER.OPTION=VALUE, such as rise.n_masks=500; got {text!r}"
            )
        member, option, value = found.groups()
        with suppress(json.JSONDecodeError):  # or else it is a text
            value = json.loads(value)
        options.setdefault(member, {})[option] = value
    return options


def find_class(text: str, labels: tuple[str, ...], model: str) -> int:
    """The number of the class that a number or a name means; an error has the nearest names.

    Where the names are not known, a number is taken as it is: the model will say if it is one.
    """
    if text.removeprefix("-").isdecimal():
        if labels and not 0 <= int(text) < len(labels):
            raise InputError(
                f"--target {text} is out of range: {model} has {len(labels)} classes, 0 to "
                f"{len(labels) - 1}"
            )
        return int(text)
    if not labels:
        raise InputError(
            f"the names of {model}'s classes are not known, so --target must be a number; got "
            f"{text!r}"
        )
    wanted, names = text.strip().casefold(), [label.casefold() for label in labels]
    found = [str(index) for index, name in enumerate(names) if name == wanted]
    if len(found) == 1:
        return int(found[0])
    near = [labels[names.index(k)] for k in difflib.get_close_matches(wanted, names, 5, 0.4)]
    guess = f"; near: {', '.join(found or near)}" if found or near else ""
    raise InputError(f"{model} has {len(found) or 'no'} classes named {text!r}{guess}")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to; nothing is written."""
    folder = folder.absolute()
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            f"{show(there)} is no folder that can be written to; choose another one with -o"
        )


def choose(name: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of a few; None is no value."""
    if value not in (None, *choices):
        raise InputError(f"{name} must be {', '.join(choices)}; got {value!r}")

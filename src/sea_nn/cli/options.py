"""What the options' texts mean: devices, settings, grids, counts and classes."""

import contextlib
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from sea_nn.cli.terminal import err, say, show
from sea_nn.config import SEAConfig
from sea_nn.errors import InputError, SEAError
from sea_nn.features import clip_grid
from sea_nn.features.patches import find_patches
from sea_nn.members.registry import expand_methods
from sea_nn.model.wrapped import predict
from sea_nn.sea import SEA
from sea_nn.vision.models import LoadedModel, load_model


def load(name: str, device: str) -> LoadedModel:
    """The model by name, on "auto" (a GPU if there is one) or a device of PyTorch's."""
    loaded = load_model(name, find_place(device))
    if loaded.notice:
        say(loaded.notice, "yellow", err)
    return loaded


def find_place(device: str) -> str:
    """The device that --device means."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(device)
    except RuntimeError as error:
        raise InputError(f"--device must be auto, cpu, cuda or cuda:1; got {device!r}") from error
    return device


def find_device(loaded: LoadedModel) -> torch.device:
    """Where the model is; one without parameters can be anywhere."""
    return next((p.device for p in loaded.model.parameters()), torch.device("cpu"))


def choose_batch(device: torch.device) -> int:
    """How many pictures to explain at once, as far as it pays: on a CPU it does not."""
    return 1 if device.type == "cpu" else 8


def read_settings(path: Path | None, grid: str | None) -> SEAConfig:
    """The ensemble's settings from a file, with the grid of the command line over them."""
    settings = SEAConfig()
    if path is not None:
        if path.is_dir():
            raise InputError(f"--config must be a TOML or JSON file; {show(path)} is a folder")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{show(path)} is not a text file ({error})") from error
        try:
            parse = SEAConfig.from_json if path.suffix == ".json" else SEAConfig.from_toml
            settings = parse(text)
        except InputError as error:
            raise InputError(f"{show(path)}: {error}") from error
    return settings if grid is None else settings.replace(grid=parse_grid(grid))


def make_sea(
    model: Any,
    methods: str | None,
    settings: SEAConfig,
    budget: int | None,
    chosen: Mapping[str, Mapping[str, Any]],
    **means: Any,
) -> SEA:
    """The explainer that the options of a command ask for."""
    named: Any = methods
    if chosen:
        if methods is None:
            raise InputError("--set is for members that are named: say --methods as well")
        named = [(e.member, e.options) for e in expand_methods(methods, chosen)]
    if budget is None:
        return SEA(model, named, settings, **means)
    if settings != SEAConfig(grid=settings.grid):
        raise InputError("--config is the paper's form, and has no effect beside a budget")
    return SEA(model, named, budget=budget, grid=settings.grid, **means)


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns from "28x28".

    >>> parse_grid("28x20")
    (28, 20)
    """
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise InputError(f"--grid must be ROWSxCOLUMNS, such as 28x28; got {text!r}")
    return int(rows), int(columns)


def parse_top(text: str) -> int | float:
    """A count from "20", a share from "5%".

    >>> parse_top("20"), parse_top("5%")
    (20, 0.05)
    """
    with contextlib.suppress(ValueError):
        if text.endswith("%") and 0 < float(text[:-1]) <= 100:
            return float(text[:-1]) / 100
        if not text.endswith("%") and int(text) > 0:
            return int(text)
    raise InputError(f"--top must be a count such as 20 or a share such as 5%; got {text!r}")


def parse_assignments(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Options by member from "MEMBER.OPTION=VALUE"; values are JSON, or else text.

    >>> parse_assignments(["rise.n_masks=500", "rise.keep=0.3", "grad_cam.layer=conv3"])
    {'rise': {'n_masks': 500, 'keep': 0.3}, 'grad_cam': {'layer': 'conv3'}}
    """
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        member, dot, option = place.partition(".")
        if not (equals and dot and member and option):
            raise InputError(
                f"--set must be MEMBER.OPTION=VALUE, such as rise.n_masks=500; got {text!r}"
            )
        own = options.setdefault(member, {})
        try:
            own[option] = json.loads(value)
        except json.JSONDecodeError:
            own[option] = value
    return options


def check_grid(grid: str | None, loaded: LoadedModel) -> None:
    """Refuse a grid finer than the pixels."""
    _, height, width = loaded.preprocess.shape
    rows, columns = (1, 1) if grid is None else parse_grid(grid)
    if rows > height or columns > width:
        raise InputError(
            f"--grid {grid} is finer than the {height} x {width} pixels that {loaded.name} sees"
        )


def check_top(
    top: int | float | None, settings: SEAConfig, loaded: LoadedModel, asked: bool = False
) -> None:
    """Refuse more features than there are now, not after the work is done."""
    _, height, width = loaded.preprocess.shape
    grid: tuple[int, ...] | None = settings.grid
    if grid is None and asked:
        grid = find_patches(loaded.model, (height, width)) or (8, 8)
    rows, columns = (height, width) if grid is None else clip_grid(grid, (height, width))
    if isinstance(top, int) and top > rows * columns:
        raise InputError(
            f"--top {top} asks for more than the {rows} x {columns} = {rows * columns} features "
            f"that {loaded.name} is explained by"
        )


def find_target(
    target: str | None, rival: str | None, loaded: LoadedModel
) -> int | tuple[int, int] | None:
    """What --target and --not mean: None, a class, or a class and not another."""
    if target is None:
        if rival is not None:
            raise InputError("--not needs a --target: the class that is explained against it")
        return None
    wanted = find_class(target, loaded)
    return wanted if rival is None else (wanted, find_class(rival, loaded))


def find_class(text: str, loaded: LoadedModel) -> int:
    """The number of the class that a number or a name means; an error has the nearest names."""
    if text.removeprefix("-").isdecimal():
        index, count = int(text), _count_classes(loaded)
        if 0 <= index < count:
            return index
        raise InputError(
            f"--target {index} is out of range: {loaded.name} has {count} classes, 0 to {count - 1}"
        )
    wanted = text.strip().casefold()
    names = [label.casefold() for label in loaded.labels]
    places = [index for index, name in enumerate(names) if name == wanted]
    if len(places) == 1:
        return places[0]
    if places:
        raise InputError(
            f"{len(places)} classes of {loaded.name} are called {text!r}: give one's number, "
            f"{', '.join(map(str, places))}"
        )
    if not names:
        raise InputError(
            f"the names of {loaded.name}'s classes are not known, so --target must be a number "
            f"from 0 to {_count_classes(loaded) - 1}; got {text!r}"
        )
    inside = [label for label, name in zip(loaded.labels, names, strict=True) if wanted in name]
    inside.sort(key=lambda label: wanted not in re.split(r"\W+", label.casefold()))
    alike = difflib.get_close_matches(wanted, names, 4, 0.5)
    near = dict.fromkeys([*inside[:6], *(loaded.labels[names.index(name)] for name in alike)])
    guess = f"; near: {', '.join(near)}" if near else ""
    raise InputError(f"{loaded.name} has no class named {text!r}{guess}")


def ask(loaded: LoadedModel, x: torch.Tensor) -> torch.Tensor:
    """The model's answers about prepared pictures [N, C, H, W], or why there are none."""
    try:
        return predict(loaded.model, x, batch_size=8)
    except (SEAError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{loaded.name} could not run on pictures of {list(x.shape[1:])}: {error}. If it "
            "expects others, let its function return (module, Preprocess)"
        ) from error


def _count_classes(loaded: LoadedModel) -> int:
    if loaded.labels:
        return len(loaded.labels)
    nothing = torch.zeros(1, *loaded.preprocess.shape, device=find_device(loaded))
    return ask(loaded, nothing).shape[1]

"""Subjects: a model together with the inputs it takes, so that the page need not know its kind.

``load_subject`` finds one by a name of ``sea models``, or runs FILE.py:FUNCTION. That function may
return whatever ``load_model`` takes or, for a model of tables or series, (module, ``Columns``):

    def make_model():
        return model, Columns(("age", "height"), labels=("ill", "well"), examples=rows)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

import torch
from PIL import Image
from torch import Tensor, nn

from sea_nn.app.uploads import read_picture, read_table
from sea_nn.errors import InputError
from sea_nn.vision.loaded import LoadedModel
from sea_nn.vision.models import is_file, load_model, run_factory, to_loaded
from sea_nn.vision.shipped import load_sample

PHOTOGRAPHS = ("cat.jpg", "coffee.jpg")
CLOTHES = (180, 100, 20, 0, 60, 160, 140, 40)  # one of each of eight classes


@dataclass(frozen=True)
class Given:
    """One input: its name, the tensor [1, ...], and for pictures what to draw, uint8 [H, W, 3].

    ``code`` are lines of Python that make ``x`` (and ``picture``) after the subject's own; an
    upload is known by its name alone.
    """

    name: str
    x: Tensor
    image: Tensor | None = None
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """What a model of numbers takes: rows of a table, or series.

    Attributes:
        names: of a table's columns or a series' channels.
        labels: names of the classes, or () if they are not known.
        steps: of a series, the number of time steps; None for a table.
        examples: inputs to begin with, [N, F] or [N, C, T].
        output: what the model's outputs are, as for ``SEA``; None to find out.
    """

    names: Sequence[str]
    labels: Sequence[str] = ()
    steps: int | None = None
    examples: Tensor | None = None
    output: str | None = None


@dataclass(frozen=True)
class Subject:
    """A model with its inputs.

    Attributes:
        name: what the model was asked for by.
        kind: of its inputs.
        model: in evaluation mode.
        labels: class names; may be empty.
        read: turns an upload into inputs, or raises ``InputError``.
        examples: inputs to begin with.
        feature_names: of columns or channels.
        output: what the model's outputs are; None to find out.
        code: lines of Python that make ``model``, ``labels`` and, of columns, ``names``.
    """

    name: str
    kind: Literal["image", "table", "series", "text"]
    model: nn.Module
    labels: tuple[str, ...]
    read: Callable[[str, bytes], list[Given]]
    examples: tuple[Given, ...] = ()
    feature_names: tuple[str, ...] | None = None
    output: str | None = None
    code: tuple[str, ...] = ()

    def label(self, target: int) -> str:
        """The name of a class, or "class 7"."""
        return self.labels[target] if target < len(self.labels) else f"class {target}"


def load_subject(name: str, device: str | torch.device = "cpu") -> Subject:
    """Load a model by name, with a reader of uploads and examples that suit it."""
    if not is_file(name):
        return of_pictures(load_model(name, device), device)
    made = run_factory(name)
    match made:
        case (nn.Module() as model, Columns() as columns):
            return of_columns(name, model.to(device).eval(), columns, device)
    loaded = to_loaded(made, name)
    loaded = replace(loaded, model=loaded.model.to(device).eval(), name=name)
    return of_pictures(loaded, device)


def of_pictures(loaded: LoadedModel, device: str | torch.device = "cpu") -> Subject:
    """A classifier of pictures; clothes are its examples if it knows clothes, else photographs."""

    def give(name: str, picture: Image.Image, *code: str) -> Given:
        x = loaded.preprocess(picture).unsqueeze(0).to(device)
        shown = torch.from_numpy(loaded.preprocess.display(picture))
        return Given(name, x, shown, (*code, "x = loaded.preprocess(picture)[None]"))

    def read(name: str, content: bytes) -> list[Given]:
        return [give(name, read_picture(content), f"picture = load_image({name!r})")]

    examples: list[Given] = []
    code: tuple[str, ...]
    if loaded.name == "fashion-cnn":
        sample = load_sample()
        for k in CLOTHES:
            label = sample.names[int(sample.labels[k])]
            pixels = sample.images[k, 0].mul(255).round().byte().numpy()
            code = (
                "from PIL import Image",
                "from sea_nn.vision.shipped import load_sample",
                f"pixels = load_sample().images[{k}, 0].mul(255).round().byte()",
                "picture = Image.fromarray(pixels.numpy())",
            )
            examples.append(give(label, Image.fromarray(pixels), *code))
    else:
        for name in PHOTOGRAPHS:
            content = (files("sea_nn.vision") / "assets" / name).read_bytes()
            code = (
                "from importlib.resources import files",
                f'file = files("sea_nn.vision") / "assets" / "{name}"',
                "picture = load_image(file)",
            )
            examples.append(give(name.partition(".")[0], read_picture(content), *code))
    return Subject(
        loaded.name,
        "image",
        loaded.model,
        loaded.labels,
        read,
        tuple(examples),
        code=(
            "from sea_nn.vision import load_image, load_model",
            f"loaded = load_model({loaded.name!r})",
            "model, labels = loaded.model, loaded.labels",
        ),
    )


def of_columns(
    name: str, model: nn.Module, columns: Columns, device: str | torch.device = "cpu"
) -> Subject:
    """A model of tables (each row of a CSV file is an input) or series (each file is one)."""
    names = tuple(map(str, columns.names))

    def read(file: str, content: bytes) -> list[Given]:
        rows, values = read_table(content, len(names))
        values = values.to(device)
        line = f"x = subject.read({file!r}, Path({file!r}).read_bytes())"
        if columns.steps is None:
            return [
                Given(row, values[i : i + 1], None, ("from pathlib import Path", f"{line}[{i}].x"))
                for i, row in enumerate(rows)
            ]
        if len(values) != columns.steps:
            raise InputError(
                f"the series has {len(values)} time steps (rows); the model takes {columns.steps}"
            )
        code = ("from pathlib import Path", f"{line}[0].x")
        return [Given(file, values.T.unsqueeze(0), None, code)]

    examples = () if columns.examples is None else columns.examples.to(device).split(1)
    return Subject(
        name,
        "table" if columns.steps is None else "series",
        model,
        tuple(map(str, columns.labels)),
        read,
        tuple(
            Given(f"example {i + 1}", x, None, (f"x = subject.examples[{i}].x",))
            for i, x in enumerate(examples)
        ),
        names,
        columns.output,
        (
            "from sea_nn.app import load_subject",
            f"subject = load_subject({name!r})",
            "model, labels, names = subject.model, subject.labels, subject.feature_names",
        ),
    )

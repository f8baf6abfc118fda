"""``load_subject``: a subject by a name of ``sea models``, or by running FILE.py:FUNCTION.

That function may return whatever ``load_model`` takes; for a model of tables or series, (module,
``Columns``); for a classifier of texts, what ``SEA.for_text`` gives:

    def make_model():
        return model, Columns(("age", "height"), labels=("ill", "well"), examples=rows)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from textwrap import shorten
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from sea_nn.app.subjects import Given, Subject
from sea_nn.app.uploads import read_picture, read_table, read_words
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.model.borrowing import borrow
from sea_nn.model.outputs import Output
from sea_nn.model.wrapped import Progress
from sea_nn.text.explainer import TextSEA
from sea_nn.text.model import TextModel
from sea_nn.text.reading import Reading, read_text
from sea_nn.vision.loaded import LoadedModel
from sea_nn.vision.models import is_file, load_model, run_factory, to_loaded
from sea_nn.vision.shipped import load_sample

PHOTOGRAPHS = ("cat.jpg", "coffee.jpg")
CLOTHES = (180, 100, 20, 0, 60, 160, 140, 40)  # one of each of eight classes
EXAMPLES = (
    "The striker scored twice in the final, and the minister applauded.",
    "Stir the onions in butter until they are soft, then add the stock.",
    "I expected little, and it was even worse: two hours I will never get back.",
)
NO_TENSOR = torch.zeros(1, 0)


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


def load_subject(name: str, device: str | torch.device = "cpu") -> Subject:
    """Load a model by name, with a reader of uploads and examples that suit it."""
    if not is_file(name):
        return of_pictures(load_model(name, device), device)
    made = run_factory(name)
    match made:
        case (nn.Module() as model, Columns() as columns):
            return of_columns(name, model.to(device).eval(), columns, device)
        case TextSEA():
            return of_texts(name, made)
    loaded = to_loaded(made, name)
    loaded = replace(loaded, model=loaded.model.to(device).eval(), name=name)
    return of_pictures(loaded, device)


def of_pictures(loaded: LoadedModel, device: str | torch.device = "cpu") -> Subject:
    """A classifier of pictures; clothes are its examples if it knows clothes, else photographs."""

    def give(name: str, picture: Image.Image, *code: str) -> Given:
        x = loaded.preprocess(picture).unsqueeze(0).to(device)
        shown = torch.from_numpy(loaded.preprocess.display(picture))
        return Given(name, x, shown, code=(*code, "x = loaded.preprocess(picture)[None]"))

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
                Given(
                    row,
                    values[i : i + 1],
                    code=("from pathlib import Path", f"{line}[{i}].x"),
                )
                for i, row in enumerate(rows)
            ]
        if len(values) != columns.steps:
            raise InputError(
                f"the series has {len(values)} time steps (rows); the model takes {columns.steps}"
            )
        code = ("from pathlib import Path", f"{line}[0].x")
        return [Given(file, values.T.unsqueeze(0), code=code)]

    examples = () if columns.examples is None else columns.examples.to(device).split(1)
    return Subject(
        name,
        "table" if columns.steps is None else "series",
        model,
        tuple(map(str, columns.labels)),
        read,
        tuple(
            Given(f"example {i + 1}", x, code=(f"x = subject.examples[{i}].x",))
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


@dataclass(frozen=True)
class TextSubject(Subject):
    """A classifier of texts; words are its features."""

    sea: TextSEA | None = None

    def run(self, given: Given) -> tuple[Tensor, Output]:
        """The model's outputs of the whole text, and what they are."""
        sea, reading = self._read(given)
        return self._ask(reading, torch.ones(1, len(reading), dtype=torch.bool))[0], sea.output

    def explain(
        self,
        given: Given,
        target: int | tuple[int, int],
        budget: int,
        progress: Progress,
        on_round: Callable[[Explanation], bool],
        previous: Explanation | None = None,
    ) -> Explanation:
        """The text's explanation with this many evaluations."""
        sea = self._read(given)[0]
        how: dict[str, Any] = {"features": sea.features, "absent": sea.absent}
        how |= {"methods": sea.methods, "options": sea.options, "output": sea.output.kind}
        return TextSEA(sea.model, sea.tokenizer, budget=budget, **how).explain(
            [given.text],
            target,
            labels=self.labels or None,
            model_name=self.name,
            progress=progress,
            on_round=on_round,
            previous=previous,
        )

    def ask(self, given: Given, e: Explanation, sets: Tensor) -> Tensor:
        """The model's outputs with only these words left: bool [R, n] -> [R, K]."""
        return self._ask(self._read(given)[1], sets)

    def _read(self, given: Given) -> tuple[TextSEA, Reading]:
        assert self.sea is not None
        sea = self.sea
        return sea, read_text(sea.tokenizer, given.text, sea.features, limit=sea.limit)

    def _ask(self, reading: Reading, sets: Tensor) -> Tensor:
        assert self.sea is not None
        with borrow(self.sea.model) as twin:
            model = TextModel(twin, self.sea.tokenizer, absent=self.sea.absent)
            return model.ask(reading, sets).float().cpu()


def of_texts(name: str, sea: TextSEA, examples: Sequence[str] = EXAMPLES) -> Subject:
    """A classifier of texts: a .txt file, or what is typed, is an input."""
    if sea.language:
        raise InputError("the page explains classifiers of texts, and this is a language model")

    def give(title: str, text: str, code: str) -> Given:
        return Given(title, NO_TENSOR, text=text, code=(code,))

    def read(file: str, content: bytes) -> list[Given]:
        text = read_words(content)
        return [give(shorten(text, 60, placeholder=" …"), text, f"text = {text!r}")]

    labels = sea._name_labels(None) or ()
    return TextSubject(
        name,
        "text",
        sea.model,
        tuple(map(str, labels)),
        read,
        tuple(
            give(shorten(text, 60, placeholder=" …"), text, f"text = {text!r}") for text in examples
        ),
        code=(
            "from sea_nn.vision.models import run_factory",
            f"sea = run_factory({name!r})",
        ),
        sea=sea,
    )

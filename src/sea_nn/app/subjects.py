"""Subjects: a model together with the inputs it takes, so that the page need not know its kind.

``load_subject`` loads one by a name of ``sea models``, or by running FILE.py:FUNCTION. That
function may return whatever ``load_model`` takes; for a model of tables or series, (module,
``Columns``); for a classifier of texts, what ``SEA.for_text`` gives:

    def make_model():
        return model, Columns(("age", "height"), labels=("ill", "well"), examples=rows)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from sea_nn.app.uploads import read_picture, read_table, read_words
from sea_nn.call import About, Running
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.members import registry
from sea_nn.model.opening import borrow
from sea_nn.model.outputs import Output, find_output, predict
from sea_nn.questions.absent import prepare
from sea_nn.sea import SEA
from sea_nn.text.explainer import TextSEA
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text
from sea_nn.vision.images import load_image
from sea_nn.vision.models import LoadedModel, load_model, run_factory, to_loaded
from sea_nn.vision.names import ASSETS, is_file
from sea_nn.vision.shipped import load_sample

PHOTOGRAPHS = ("cat.jpg", "coffee.jpg")
CLOTHES = (180, 100, 20, 0, 60, 160, 140, 40)  # one of each of eight classes
EXAMPLES = (
    "The striker scored twice in the final, and the minister applauded.",
    "Stir the onions in butter until they are soft, then add the stock.",
    "I expected little, and it was even worse: two hours I will never get back.",
)
Target = int | tuple[int, int]


@dataclass(frozen=True)
class Given:
    """One input: its name, its tensor [1, ...] or text, and of pictures what to draw, [H, W, 3]."""

    name: str
    x: Tensor | None = None
    image: Tensor | None = None
    text: str = ""


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
        model: in evaluation mode; of texts, what explains it.
        labels: class names; may be empty.
        read: turns an upload into inputs, or raises ``InputError``.
        examples: inputs to begin with.
        feature_names: of columns or channels.
        output: what the model's outputs are; None to find out.
        members: attribution methods to choose from, instead of SEA's own choice; may be empty.
    """

    name: str
    kind: Literal["image", "table", "series", "text"]
    model: nn.Module | TextSEA
    labels: tuple[str, ...]
    read: Callable[[str, bytes], Sequence[Given]]
    examples: tuple[Given, ...] = ()
    feature_names: tuple[str, ...] | None = None
    output: str | None = None
    members: tuple[str, ...] = ()

    def label(self, target: int) -> str:
        """The name of a class, or "class 7"."""
        return self.labels[target] if 0 <= target < len(self.labels) else f"class {target}"

    def run(self, given: Given) -> tuple[Tensor, Output]:
        """The model's outputs of an input, [K], and what they are."""
        outputs = self.ask(given)
        return outputs[0], find_output(outputs, self.output)

    def explain(
        self,
        given: Given,
        target: Target,
        budget: int,
        methods: Sequence[str] | None = None,
        previous: Explanation | None = None,
        running: Running | None = None,
    ) -> Explanation:
        """The input's explanation with this many evaluations, as ``SEA.explain`` has it."""
        told: dict[str, Any] = {"labels": self.labels or None, "previous": previous}
        told["running"] = running or Running()
        if isinstance(self.model, TextSEA):
            own = copy(self.model)
            own.budget = budget
            return own.explain([given.text], target, model_name=self.name, **told)
        images = None if given.image is None else given.image.unsqueeze(0)
        told["about"] = About(images, self.feature_names, self.name)
        sea = SEA(self.model, methods, budget=budget, output=self.output)
        assert given.x is not None
        return sea.explain(given.x, target, **told)

    def ask(self, given: Given, e: Explanation | None = None, sets: Tensor | None = None) -> Tensor:
        """The model's outputs [R, K] with only these features left, bool [R, n]; or of the whole.

        ``e`` is an explanation of the input, which knows what its features are.
        """
        if isinstance(self.model, TextSEA):
            sea = self.model
            reading = read_text(sea.tokenizer, given.text, sea.features, limit=sea.limit)
            sets = torch.ones(1, len(reading), dtype=torch.bool) if sets is None else sets
            with borrow(sea.model) as twin:
                asked = AskedText(twin, sea.tokenizer, reading, absent=sea.absent)
                return asked(sets).float().cpu()
        x = given.x
        assert x is not None
        if e is not None and sets is not None:
            left = torch.cat([e.spread(row.unsqueeze(0)) for row in sets.to(x.device)])
            kind = Features.of(x).kind
            hiding = prepare(x, kind.absent)  # as SEA hides them by default
            first = torch.zeros(len(left), dtype=torch.long, device=x.device)
            x = hiding.hide(~kind.over_input(left), first)
        return predict(self.model, x).cpu()


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

    def give(name: str, picture: Image.Image) -> Given:
        x = loaded.preprocess(picture).unsqueeze(0).to(device)
        return Given(name, x, torch.from_numpy(loaded.preprocess.display(picture)))

    def read(name: str, content: bytes) -> Sequence[Given]:
        return [give(name, read_picture(content))]

    if loaded.name == "fashion-cnn":
        sample = load_sample()
        pixels = {k: sample.images[k, 0].mul(255).round().byte().numpy() for k in CLOTHES}
        shown = {sample.names[int(sample.labels[k])]: Image.fromarray(pixels[k]) for k in CLOTHES}
    else:
        shown = {name.partition(".")[0]: load_image(ASSETS / name) for name in PHOTOGRAPHS}
    return Subject(
        loaded.name,
        "image",
        loaded.model,
        loaded.labels,
        read,
        tuple(map(give, shown, shown.values())),
        members=_list_members("superpixels", "attention"),
    )


def of_columns(
    name: str, model: nn.Module, columns: Columns, device: str | torch.device = "cpu"
) -> Subject:
    """A model of tables (each row of a CSV file is an input) or series (each file is one)."""
    names, series = tuple(map(str, columns.names)), columns.steps is not None

    def read(file: str, content: bytes) -> Sequence[Given]:
        rows, values = read_table(content, len(names))
        values = values.to(device)
        if not series:
            return list(map(Given, rows, values.split(1)))
        if len(values) != columns.steps:
            raise InputError(
                f"the series has {len(values)} time steps (rows); the model takes {columns.steps}"
            )
        return [Given(file, values.T.unsqueeze(0))]

    rows = () if columns.examples is None else columns.examples.to(device).split(1)
    return Subject(
        name,
        "series" if series else "table",
        model,
        tuple(map(str, columns.labels)),
        read,
        tuple(Given(f"example {i}", x) for i, x in enumerate(rows, 1)),
        feature_names=names,
        output=columns.output,
        members=_list_members("superpixels", "attention", "image", "convolution"),
    )


def of_texts(name: str, sea: TextSEA) -> Subject:
    """A classifier of texts, whose features are words: a .txt file, or what is typed, is an input.

    Its members are those of ``SEA.for_text``.
    """
    if sea.language:
        raise InputError("the page explains classifiers of texts, and this is a language model")

    def give(text: str) -> Given:
        return Given(shorten(text, 60, placeholder=" …"), text=text)

    def read(_: str, content: bytes) -> Sequence[Given]:
        return [give(read_words(content))]

    labels = sea.labels or ()
    return Subject(
        name, "text", sea, labels, read, tuple(map(give, EXAMPLES)), output=sea.output.kind
    )


def _list_members(*without: str) -> tuple[str, ...]:
    """The methods that need none of these."""
    return tuple(n for n in registry.names() if not registry.get(n).needs & set(without))

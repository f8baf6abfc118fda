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
from sea_nn.members import registry
from sea_nn.model.borrowing import borrow
from sea_nn.model.outputs import Output, Progress
from sea_nn.text.explainer import TextSEA
from sea_nn.text.model import TextModel
from sea_nn.text.reading import Reading, read_text
from sea_nn.vision.models import LoadedModel, is_file, load_model, run_factory, to_loaded
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

    def give(name: str, picture: Image.Image) -> Given:
        x = loaded.preprocess(picture).unsqueeze(0).to(device)
        return Given(name, x, torch.from_numpy(loaded.preprocess.display(picture)))

    def read(name: str, content: bytes) -> Sequence[Given]:
        return _number([give(name, read_picture(content))], name)

    if loaded.name == "fashion-cnn":
        sample = load_sample()
        examples = [
            give(
                sample.names[int(sample.labels[k])],
                Image.fromarray(sample.images[k, 0].mul(255).round().byte().numpy()),
            )
            for k in CLOTHES
        ]
    else:
        folder = files("sea_nn.vision") / "assets"
        examples = [
            give(name.partition(".")[0], read_picture((folder / name).read_bytes()))
            for name in PHOTOGRAPHS
        ]
    return Subject(
        loaded.name,
        "image",
        loaded.model,
        loaded.labels,
        read,
        _number(examples),
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
            pairs = zip(rows, values.split(1), strict=True)
            return _number([Given(row, x) for row, x in pairs], file)
        if len(values) != columns.steps:
            raise InputError(
                f"the series has {len(values)} time steps (rows); the model takes {columns.steps}"
            )
        return _number([Given(file, values.T.unsqueeze(0))], file)

    rows = () if columns.examples is None else columns.examples.to(device).split(1)
    examples = _number([Given(f"example {i + 1}", x) for i, x in enumerate(rows)])
    return Subject(
        name,
        "series" if series else "table",
        model,
        tuple(map(str, columns.labels)),
        read,
        examples,
        feature_names=names,
        output=columns.output,
        members=_list_members("superpixels", "attention", "image", "convolution"),
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
        methods: Sequence[str] | None = None,
        progress: Progress | None = None,
        on_round: Callable[[Explanation], bool] | None = None,
        previous: Explanation | None = None,
    ) -> Explanation:
        """The text's explanation with this many evaluations."""
        sea = self._read(given)[0]
        how: dict[str, Any] = {"features": sea.features, "absent": sea.absent}
        how |= {"methods": sea.methods, "output": sea.output.kind}
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

    def give(text: str) -> Given:
        return Given(shorten(text, 60, placeholder=" …"), NO_TENSOR, text=text)

    def read(file: str, content: bytes) -> Sequence[Given]:
        text = read_words(content)
        return [replace(give(text), code=f"subject.read({file!r}, {text!r}.encode())[0]")]

    labels = tuple(map(str, sea.name_labels(None) or ()))
    given = _number([give(text) for text in examples])
    return TextSubject(name, "text", sea.model, labels, read, given, sea=sea)


def _number(given: Sequence[Given], file: str | None = None) -> tuple[Given, ...]:
    """Inputs with the Python that gives each: the subject's examples, or those of a file."""
    made = (
        "subject.examples"
        if file is None
        else f"subject.read({file!r}, Path({file!r}).read_bytes())"
    )
    return tuple(replace(one, code=f"{made}[{i}]") for i, one in enumerate(given))


def _list_members(*without: str) -> tuple[str, ...]:
    """The methods that need none of these."""
    return tuple(n for n in registry.names() if not registry.get(n).needs & set(without))

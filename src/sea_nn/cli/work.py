"""What comes of ``sea explain``: a folder for each input, words for people, JSON for machines.

A ``Subject`` is pictures, volumes or texts, and the model that takes them.
"""

import errno
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sea_nn.call import About, Running
from sea_nn.cli.options import EXPLANATION, REPORT, Explain, Input, ModelOptions, Settings
from sea_nn.cli.terminal import complain, describe_error, say, show, translate
from sea_nn.config import BUDGETS
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.assemble import name_class
from sea_nn.explanation.atomic import draft_folder, find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Provenance
from sea_nn.members.run import Check
from sea_nn.model.outputs import predict
from sea_nn.sea import SEA
from sea_nn.show.panels import blend, heat, to_array
from sea_nn.show.viewer import write_report
from sea_nn.vision.images import load_image
from sea_nn.vision.models import LoadedModel, load_model
from sea_nn.vision.tiles import explain_tiles
from sea_nn.vision.volumes import load_volume

FULL = (errno.ENOSPC, errno.EDQUOT)
N_GUESSES = 3
N_LISTED = 20  # features that the JSON document lists
N_SAID = 3  # inputs of which it is said what was found
MAP_SIDE = 672  # pixels that the longer side of a small map is enlarged to, about
LITTLE, MUCH = 0.4, 4  # share of a picture, times of enlarging, from which on to say so
Progress = Callable[[str, int, int], None]


class Subject:
    """What inputs are explained for: here volumes, as their files have them."""

    files: tuple[str, ...] = ("strip.png",)

    def __init__(self, o: Explain) -> None:
        self.o, self.loaded = o, load(o)
        self.name, self.labels = self.loaded.name, self.loaded.labels
        self.place = find_place(o.device)
        self.sea: Any = build(o, self.loaded)
        self.aim: Any = o.find_aim(self.labels)

    def read(self, source: Any) -> Any:
        """Open an input."""
        return load_volume(source)

    def explain(self, opened: Any, progress: Progress) -> Explanation:
        """Explain an input."""
        x = opened.unsqueeze(0).to(self.place)
        found: Explanation = self.sea.explain(x, self.aim, **self.tell(progress))
        return found

    def tell(self, progress: Progress, images: Tensor | None = None) -> dict[str, Any]:
        """What explanations are told beside the input."""
        return {
            "labels": self.labels or None,
            "about": About(images=images, model_name=self.name),
            "running": Running(progress=progress, on_error="skip"),
        }

    def draw(self, e: Explanation, folder: Path) -> None:
        """Draw the pictures of an explanation."""
        e.plot("strip", folder / self.files[0])

    def check(self, opened: Any) -> tuple[Check, ...]:
        """What there is to say of how the model sees an input."""
        return ()


class Pictures(Subject):
    """Pictures, as the classifier's preprocessing gives them to it."""

    files = ("map.png", "strip.png", "top.png")

    def __init__(self, o: Explain) -> None:
        super().__init__(o)
        _, height, width = self.loaded.preprocess.shape
        if o.tile and height != width:
            raise InputError(f"--tile needs a model of square pictures; {self.name}'s are not")
        o.check_grid((height, width))

    def read(self, source: Any) -> Any:
        """Open a picture."""
        return load_image(source)

    def explain(self, opened: Any, progress: Progress) -> Explanation:
        """Explain a picture; with --tile at its own size."""
        recipe, target = self.loaded.preprocess, self.aim
        x, side = recipe(opened).unsqueeze(0).to(self.place), recipe.shape[1]
        if self.o.tile:
            if target is None:  # the class of the picture as the model usually sees it
                target = int(predict(self.loaded.model, x).argmax(1))
            size = (opened.height, opened.width)
            recipe = replace(recipe, resize=size, crop=size)
            x = recipe(opened).unsqueeze(0).to(self.place)
        images = torch.from_numpy(recipe.display(opened)).unsqueeze(0)
        if self.o.tile:
            return explain_tiles(self.sea, x, target, side, images=images, **self.tell(progress))
        found: Explanation = self.sea.explain(x, target, **self.tell(progress, images))
        return found

    def draw(self, e: Explanation, folder: Path) -> None:
        """Draw the pictures of an explanation; small maps enlarged by a whole factor."""
        assert e.images is not None
        painted = blend(to_array(e.images[0]), heat(e.attribution[0, 0], 0))
        picture = Image.fromarray((painted * 255).round().astype("uint8"))
        factor = max(1, round(MAP_SIDE / max(picture.size)))
        large = (picture.width * factor, picture.height * factor)
        picture.resize(large, Image.Resampling.BOX).save(folder / "map.png")
        e.plot("strip", folder / "strip.png")
        more = [min(self.o.top, e.order.shape[1])] if self.o.top else []
        e.plot("top", folder / "top.png", p=sorted({*e.default_sizes(), *more}))

    def check(self, opened: Any) -> tuple[Check, ...]:
        """Say so if the model sees little of a picture, or one much enlarged."""
        recipe, (width, height) = self.loaded.preprocess, opened.size
        left, top, right, bottom = recipe.window(width, height)
        seen = (right - left) * (bottom - top) / (width * height)
        larger = recipe.shape[2] / (right - left)
        if self.o.tile or (seen >= LITTLE and larger <= MUCH):
            return ()
        if seen < LITTLE:
            said, advice = f"the model sees the central {seen:.0%} of it", "crop it to choose what"
        else:
            said, advice = f"enlarged {larger:.0f} times: a blur to the model", ""
        return (Check("warn", "input 0", said, advice),)


class Texts(Subject):
    """Texts, and the Hugging Face model that reads them."""

    files = ("words.png",)

    def __init__(self, o: Explain) -> None:
        from sea_nn.text.load import load_text_model

        self.o, folder = o, o.model.partition(":")[2]
        names = None if o.labels is None else [part.strip() for part in o.labels.split(",")]
        model, tokenizer = load_text_model(folder, names)
        model.to(find_place(o.device))
        how: dict[str, Any] = {"output": o.model_output, "absent": o.absent}
        if budget := o.budget or BUDGETS.get(o.methods or ""):
            how["budget"] = budget
        named = [name.strip() for name in (o.method[0] or "").split(",") if name.strip()]
        if named:
            how["methods"] = [(name, o.chosen.get(name, {})) for name in named]
        if strange := o.chosen.keys() - named:
            raise InputError(f"options name {min(strange)!r}, which is not among the --methods")
        self.sea = SEA.for_text(model, tokenizer, **how)
        self.name = Path(folder).name
        self.labels = self.sea.labels or ()
        if self.sea.language:  # continuations, as they are written
            self.aim = o.target if o.rival is None else (o.target, o.rival)
        else:
            self.aim = o.find_aim(self.labels)

    def read(self, source: Any) -> Any:
        """A text is what was given."""
        return source

    def explain(self, opened: Any, progress: Progress) -> Explanation:
        """Explain a text."""
        told = {"model_name": self.name, "running": Running(progress=progress)}
        found: Explanation = self.sea.explain([opened], self.aim, **told)
        return found


def load(o: ModelOptions) -> LoadedModel:
    """The model by name, on "auto" (a GPU if there is one) or a device of PyTorch's."""
    loaded = load_model(o.model, find_place(o.device))
    if loaded.notice:
        complain(loaded.notice, "yellow")
    return loaded


def find_place(device: str) -> str:
    """The device that --device means."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def build(o: Settings, loaded: LoadedModel) -> SEA:
    """The explainer that the options describe."""
    methods, budget = o.method
    named = [(entry.member, entry.options) for entry in o.entries] if o.chosen else methods
    how: dict[str, Any] = {"output": o.model_output, "seed": o.seed}
    if budget is None:
        return SEA(loaded.model, named, o.settings.replace(grid=o.cells), **how)
    return SEA(loaded.model, named, budget=budget, absent=o.absent, grid=o.cells, **how)


@dataclass
class Outcome:
    """What came of all inputs: explanations, names of failed ones with the reason, Ctrl-C.

    ``seconds`` and ``evaluations`` are what members and questions took, by name; ``report`` is the
    page, where one was written.
    """

    subject: Subject
    failed: list[tuple[str, str]]
    finished: list[tuple[Input, Explanation]] = field(default_factory=list)
    interrupted: bool = False
    seconds: Counter[str] = field(default_factory=Counter)
    evaluations: Counter[str] = field(default_factory=Counter)
    report: Path | None = None

    def explain(self, inputs: Sequence[Input], tell: Callable[..., None]) -> None:
        """Explain inputs one by one, and write each one's results as soon as it is done.

        An input that cannot be read or explained is set aside, and so is one whose results cannot
        be written. Ctrl-C or a full disk ends the work and keeps what is finished; an input that
        the model has answered questions about is finished by what it has said.
        """
        left = list(inputs)
        try:
            while left:
                self._explain_one(left[0], tell)
                left.pop(0)
        except KeyboardInterrupt:
            self.interrupted = True
        except OSError as error:  # the disk is full: more would be worked for in vain
            self.failed += [(one.name, describe_error(error)) for one in left]

    def _explain_one(self, one: Input, tell: Callable[..., None]) -> None:
        """Explain an input and write its results, or say why there are none."""
        before = len(self.finished) + len(self.failed)

        def tick(member: str, done: int, total: int) -> None:
            tell(f"{one.name}: {member}", before + min(1, done / max(total, 1)))

        try:
            opened = self.subject.read(one.source)
            e = self.subject.explain(opened, tick)
            self.seconds.update(e.provenance.seconds)
            self.evaluations.update(e.provenance.evaluations)
            tell(f"{one.name}: writing")
            e = replace(e, checks=(*e.checks, *self.subject.check(opened)))
            self._write_results(e, self.subject.o.output / one.folder)
        except (SEAError, OSError, RuntimeError) as error:  # of a full memory, or of the model
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            self.failed.append((one.name, describe_error(error)))
        else:
            self.finished.append((one, e))
            if any(check.message.endswith("interrupted") for check in e.checks):
                raise KeyboardInterrupt

    def _write_results(self, e: Explanation, folder: Path) -> None:
        """Write the pictures and the file of one explained input: all of them, or none."""
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{show(folder)} is a file, and results need a folder of this name")
        with draft_folder(folder.parent) as fresh:
            self.subject.draw(e, fresh)
            e.save(fresh / EXPLANATION)
            if folder.is_dir():  # of an earlier run, and perhaps with files of one's own
                for name in (EXPLANATION, *self.subject.files):
                    (fresh / name).replace(find_target(folder / name))
            else:
                fresh.rename(folder)

    def write_page(self) -> None:
        """Write the report, with the inputs' folders beside the classes: it has no other place."""
        o = self.subject.o
        if o.no_report or not self.finished:
            return
        named = [replace(e, labels=(f"{e.name(0)} ({one.folder})",)) for one, e in self.finished]
        title = f"What {self.subject.name} {'reads' if o.kind == 'text' else 'looks at'}"
        try:
            self.report = write_report(named, o.output / REPORT, title)
        except OSError as error:
            self.failed.append((REPORT, describe_error(error)))

    def print(self) -> None:
        """Print what the model says, what was found, what it cost, and where to look."""
        for k, (one, e) in enumerate(self.finished):
            said = ", ".join(f"{name} {score:.4g}" for _, name, score in _guess(e))
            say(f"{one.folder}: the model says {said}", "bold")
            if e.texts is not None:
                from sea_nn.show.words import print_words

                against = None if e.against is None else e.against[0]
                say(print_words(e.texts[0], e.attribution[0], against))
            if k < N_SAID:
                say(f"{translate(e.summary())}\n")
        spent, seconds = self.evaluations, self.seconds
        parts = ", ".join(f"{'questions' if k == 'sea' else k} {n:,}" for k, n in spent.items())
        took = seconds.get("total", sum(seconds.values()))
        say(f"Evaluations: {sum(spent.values()):,} ({parts}), {took:.1f} seconds")
        output, (first, *others) = self.subject.o.output, self.subject.files
        beside = f", {' and '.join(others)} there" if others else ""
        say(f"Look at {show(output / self.finished[0][0].folder / first)}{beside}")
        if self.report is not None:
            say(f"Open {show(self.report)} in a browser to look closer")
        elif (output / REPORT).exists():
            say(f"{show(output / REPORT)} is of an earlier run", "yellow")

    def describe(self) -> dict[str, Any]:
        """The outcome as plain values for JSON; what is not a number is null."""
        explanations = [e for _, e in self.finished]
        made = explanations[0].provenance if explanations else Provenance()
        return {
            "model": self.subject.name,
            "methods": list(dict.fromkeys(name for e in explanations for name in e.methods)),
            "config": made.config,
            "report": None if self.report is None else show(self.report),
            "inputs": [self._describe_input(one, e) for one, e in self.finished],
            "seconds": self.seconds,
            "evaluations": self.evaluations,
            "checks": [
                {name: translate(text) for name, text in asdict(check).items()}
                for one, e in self.finished
                for check in name_checks(e.checks, [one.folder])
            ],
            "failed": [{"input": name, "error": translate(why)} for name, why in self.failed],
            "interrupted": self.interrupted,
        }

    def _describe_input(self, one: Input, e: Explanation) -> dict[str, Any]:
        o, folder = self.subject.o, self.subject.o.output / one.folder
        agreement = float(e.mean_agreement()[0])
        first = e.order[0, : o.top or N_LISTED].tolist()
        between = [None] * len(first) if e.gain_intervals is None else e.gain_intervals[0].tolist()
        listed = zip(first, e.gains[0].tolist(), between, strict=False)
        above, below = (float(side[0]) for side in e.sum_gains())

        def place(k: int) -> dict[str, Any]:
            if len(e.feature_shape) != 2 or e.view == "lines":
                return {"feature": e.name_feature(k)}
            return dict(zip(("row", "column"), divmod(k, e.feature_shape[1]), strict=True))

        wanted, names, unit = int(e.target[0]), self.subject.labels or None, e.output.unit
        target = {"class": wanted, "label": e.name(0), unit: float(e.score[0])}
        if e.rival is not None:
            rival = int(e.rival[0])
            target["label"] = name_class(names, wanted)
            target["not"] = {"class": rival, "label": name_class(names, rival)}
        files = (*self.subject.files, EXPLANATION)
        return {
            "input": one.name,
            **({} if e.texts is None else {"text": "".join(e.texts[0])}),
            "files": {Path(name).stem: show(folder / name) for name in files},
            "predicted": [{"class": k, "label": name, unit: p} for k, name, p in _guess(e)],
            "target": target,
            "output": e.output.kind,
            "feature_shape": list(e.feature_shape),
            "agreement": None if math.isnan(agreement) else agreement,
            "gains": {"unit": e.unit, "for": above, "against": below},
            "top": [{**place(k), "gain": gain, "interval": ends} for k, gain, ends in listed],
            "trust": {name: float(share[0]) for name, share in e.trust.items()},
        }


def _guess(e: Explanation) -> list[tuple[int, str, float]]:
    """The model's first classes, their names and probabilities, or its value."""
    ranking = e.ranking
    if ranking is None:
        return [(int(e.target[0]), e.name(0), float(e.score[0]))]
    numbers, scores = ranking.classes[0].tolist(), ranking.scores[0].tolist()
    return list(zip(numbers, ranking.names[0], scores, strict=True))[:N_GUESSES]


def name_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Checks with the inputs' names for "input 0" and so on."""
    return [
        check if check.input is None else replace(check, subject=names[check.input])
        for check in checks
    ]

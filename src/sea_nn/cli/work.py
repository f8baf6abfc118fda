"""The work behind ``sea explain``: inputs in, a folder of results for each, what came of it."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sea_nn.call import About, Running
from sea_nn.cli.explain import Explain
from sea_nn.cli.inputs import EXPLANATION, Input
from sea_nn.cli.options import ModelOptions, Settings
from sea_nn.cli.terminal import Bar, describe_error, err, say, show
from sea_nn.config import BUDGETS
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import draft_folder, find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import find_patches
from sea_nn.model.outputs import predict
from sea_nn.sea import SEA
from sea_nn.show.panels import blend, heat, to_array
from sea_nn.vision.models import LoadedModel, load_model

MAP_SIDE = 672  # pixels that the longer side of a small map is enlarged to, about
N_GUESSES = 3
FULL = (errno.ENOSPC, errno.EDQUOT)
LITTLE, MUCH = 0.4, 4  # share of a picture, times of enlarging, from which on to say so
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finished:
    """An input whose results are written; ``note`` says what the model hardly sees of it."""

    input: Input
    folder: Path
    explanation: Explanation
    note: str = ""

    @property
    def guesses(self) -> list[tuple[int, float]]:
        """The model's first classes and their probabilities, or its value."""
        e = self.explanation
        if e.ranking is None:
            return [(int(e.target[0]), float(e.score[0]))]
        both = zip(e.ranking.classes[0].tolist(), e.ranking.scores[0].tolist(), strict=True)
        return list(both)[:N_GUESSES]


@dataclass
class Outcome:
    """What came of all inputs: finished ones, names of failed ones with the reason, Ctrl-C."""

    finished: list[Finished] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False


class Subject:
    """What inputs are explained for: here volumes, one at a time, as their files have them."""

    files: tuple[str, ...] = ("strip.png",)
    size = 1

    def __init__(self, o: Explain) -> None:
        self.o, self.loaded = o, load(o)
        self.name, self.labels = self.loaded.name, self.loaded.labels
        self.device = find_device(self.loaded)
        self.sea: Any = build(o, self.loaded)
        self.aim: Any = o.find_aim(self.labels, partial(count_classes, self.loaded))

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain some inputs at once."""
        x = opened[0].unsqueeze(0).to(self.device)
        found: Explanation = self.sea.explain(x, self.aim, **self.tell(progress))
        return found

    def tell(self, progress: Progress, images: Tensor | None = None) -> dict[str, Any]:
        """What explanations are told beside the inputs."""
        return {
            "labels": self.labels or None,
            "about": About(images=images, model_name=self.name),
            "running": Running(progress=progress, on_error="skip"),
        }

    def blame(self, opened: Any, error: Exception) -> str:
        """Why one input could not be explained."""
        if not isinstance(error, SEAError):
            return f"the memory of {self.device} does not suffice; try --device cpu"
        return str(error)

    def draw(self, e: Explanation, folder: Path) -> None:
        """Draw the pictures of one explanation."""
        e.plot("strip", folder / self.files[0])

    def note(self, opened: Any) -> str:
        """What the model hardly sees of an input."""
        return ""


class Pictures(Subject):
    """Pictures, as the classifier's preprocessing gives them to it."""

    files = ("map.png", "strip.png", "top.png")

    def __init__(self, o: Explain) -> None:
        super().__init__(o)
        self.size = 1 if o.tile else o.batch or (1 if self.device.type == "cpu" else 8)
        _, *shape = self.loaded.preprocess.shape
        o.check_grid((shape[0], shape[1]))
        usual = find_patches(self.loaded.model, (shape[0], shape[1])) or (8, 8)
        o.check_top(o.cells or (shape if o.method[1] is None else usual))

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain some pictures at once."""
        preprocess = self.loaded.preprocess
        x = torch.stack([preprocess(image) for image in opened]).to(self.device)
        if self.o.tile:
            return self._explain_tiles(opened[0], x, progress)
        shown = torch.stack([torch.from_numpy(preprocess.display(image)) for image in opened])
        found: Explanation = self.sea.explain(x, self.aim, **self.tell(progress, shown))
        return found

    def _explain_tiles(self, image: Image.Image, x: Tensor, progress: Progress) -> Explanation:
        """Explain one picture at its own size; the class is that of the picture as usual, x."""
        from sea_nn.vision.tiles import explain_tiles

        preprocess = self.loaded.preprocess
        _, height, width = preprocess.shape
        size = (image.height, image.width)
        if height != width or min(size) < height:
            raise InputError(
                f"--tile needs a model of square pictures and a picture as large; {self.name} "
                f"takes {height} x {width} pixels, and this picture has {size[0]} x {size[1]}"
            )
        target = int(ask(self.loaded, x).argmax(1)) if self.aim is None else self.aim
        whole = replace(preprocess, resize=size, crop=size)
        shown = torch.from_numpy(whole.display(image)).unsqueeze(0)
        large = whole(image).unsqueeze(0).to(x.device)
        told = self.tell(progress)
        return explain_tiles(self.sea, large, target, height, images=shown, **told)

    def blame(self, opened: Any, error: Exception) -> str:
        """Why one picture could not be explained: perhaps the model takes no such pictures."""
        try:
            ask(self.loaded, self.loaded.preprocess(opened).unsqueeze(0).to(self.device))
        except SEAError as cause:
            return str(cause)
        except torch.cuda.OutOfMemoryError:
            pass
        return super().blame(opened, error)

    def draw(self, e: Explanation, folder: Path) -> None:
        """Draw the pictures of one explanation; small maps enlarged by a whole factor."""
        assert e.images is not None
        painted = blend(to_array(e.images[0]), heat(e.attribution[0, 0], 0))
        picture = Image.fromarray((painted * 255).round().astype("uint8"))
        factor = max(1, round(MAP_SIDE / max(picture.size)))
        large = (picture.width * factor, picture.height * factor)
        picture.resize(large, Image.Resampling.BOX).save(folder / "map.png")
        e.plot("strip", folder / "strip.png")
        sizes = {*e.default_sizes(), *([e.count(self.o.n_top)] if self.o.n_top else [])}
        e.plot("top", folder / "top.png", p=sorted(sizes))

    def note(self, opened: Any) -> str:
        """Say so if the model sees little of a picture, or one much enlarged."""
        if self.o.tile:
            return ""
        preprocess, size = self.loaded.preprocess, opened.size
        left, top, right, bottom = preprocess.window(*size)
        seen = (right - left) * (bottom - top) / (size[0] * size[1])
        larger = preprocess.shape[2] / (right - left)
        if seen < LITTLE:
            return f"the model sees the central {seen:.0%} of it; crop it yourself to choose what"
        return f"enlarged {larger:.0f} times: a blur to the model" if larger > MUCH else ""


class Texts(Subject):
    """Texts, one at a time, and the Hugging Face model that reads them."""

    files = ("words.png",)

    def __init__(self, o: Explain) -> None:
        from sea_nn.text.load import load_text_model

        self.o, folder = o, o.model.partition(":")[2]
        names = None if o.labels is None else [part.strip() for part in o.labels.split(",")]
        model, tokenizer = load_text_model(folder, names)
        self.device = torch.device(find_place(o.device))
        model.to(self.device)
        methods, budget = o.method
        said = o.budget is not None or o.methods in BUDGETS
        members = None if methods is None else [name.strip() for name in methods.split(",")]
        for name in o.chosen:
            if name not in (members or ()):
                raise InputError(f"options name {name!r}, which is not among the --methods")
        self.sea = SEA.for_text(
            model,
            tokenizer,
            methods=members and [(name, o.chosen.get(name, {})) for name in members],
            output=o.model_output,
            absent=o.absent,
            **({"budget": budget} if said else {}),
        )
        self.name = Path(folder).name
        self.labels = tuple(map(str, self.sea.name_labels(None) or ()))
        if self.sea.language:  # continuations, as they are written
            self.aim = o.target if o.rival is None else (o.target, o.rival)
        else:
            self.aim = o.find_aim(self.labels, lambda: len(self.labels))

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain one text."""
        told = {"model_name": self.name, "progress": progress}
        found: Explanation = self.sea.explain(list(opened), self.aim, **told)
        return found


def load_subject(o: Explain) -> Subject:
    """Load what the inputs are explained for."""
    return {"picture": Pictures, "volume": Subject, "text": Texts}[o.kind](o)


def explain_inputs(subject: Subject, inputs: Sequence[Input], bar: Bar) -> Outcome:
    """Explain inputs, some at a time, and write each one's results as soon as it is done.

    An input that cannot be read or explained is set aside, and so is one whose results cannot be
    written. Ctrl-C or a full disk ends the work and keeps what is finished.
    """
    outcome = Outcome()
    try:
        for start in range(0, len(inputs), subject.size):
            opened: list[tuple[Input, Any]] = []
            for one in inputs[start : start + subject.size]:
                try:
                    opened.append((one, one.read()))
                except SEAError as error:
                    outcome.failed.append((one.name, str(error)))
            if opened:
                _explain_batch(subject, opened, outcome, bar)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except OSError as error:  # the disk is full: more would be worked for in vain
        seen = {*(done.input.name for done in outcome.finished), *dict(outcome.failed)}
        reason = describe_error(error)
        outcome.failed += [(one.name, reason) for one in inputs if one.name not in seen]
    return outcome


def _explain_batch(
    subject: Subject, opened: Sequence[tuple[Input, Any]], outcome: Outcome, bar: Bar
) -> None:
    before = len(outcome.finished) + len(outcome.failed)
    title = opened[0][0].name if len(opened) == 1 else f"{len(opened)} inputs"

    def tick(member: str, done: int, total: int) -> None:
        bar.show(f"{title}: {member}", before + len(opened) * min(1, done / max(total, 1)))

    try:
        explanation = subject.explain([content for _, content in opened], tick)
    except (SEAError, torch.cuda.OutOfMemoryError) as error:
        if len(opened) > 1:  # find the one to blame; the others must not suffer
            for suspect in opened:
                _explain_batch(subject, [suspect], outcome, bar)
        else:
            ((one, content),) = opened
            outcome.failed.append((one.name, subject.blame(content, error)))
        return
    for i, (one, content) in enumerate(opened):
        bar.show(f"{one.name}: writing")
        e, folder = _divide_costs(explanation[i], len(opened)), subject.o.output / one.folder
        try:
            _write_results(subject, e, folder)
        except (SEAError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            outcome.failed.append((one.name, describe_error(error)))
        else:
            outcome.finished.append(Finished(one, folder, e, subject.note(content)))


def _write_results(subject: Subject, e: Explanation, folder: Path) -> None:
    """Write the pictures and the file of one explained input: all of them, or none."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{show(folder)} is a file, and results need a folder of this name")
    with draft_folder(folder.parent) as fresh:
        subject.draw(e, fresh)
        e.save(fresh / EXPLANATION)
        if folder.is_dir():  # of an earlier run, and perhaps with files of one's own
            for name in (EXPLANATION, *subject.files):
                (fresh / name).replace(find_target(folder / name))
        else:
            fresh.rename(folder)


def _divide_costs(e: Explanation, n_inputs: int) -> Explanation:
    """One input's share of the seconds and evaluations that its batch took."""
    provenance = replace(
        e.provenance,
        seconds={name: t / n_inputs for name, t in e.provenance.seconds.items()},
        evaluations={name: n // n_inputs for name, n in e.provenance.evaluations.items()},
    )
    return replace(e, provenance=provenance)


def load(o: ModelOptions) -> LoadedModel:
    """The model by name, on "auto" (a GPU if there is one) or a device of PyTorch's."""
    loaded = load_model(o.model, find_place(o.device))
    if loaded.notice:
        say(loaded.notice, "yellow", err)
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
    if budget is not None:
        return SEA(loaded.model, named, budget=budget, absent=o.absent, grid=o.cells, **how)
    return SEA(loaded.model, named, o.settings.replace(grid=o.cells), **how)


def find_device(loaded: LoadedModel) -> torch.device:
    """Where the model is; one without parameters can be anywhere."""
    return next((p.device for p in loaded.model.parameters()), torch.device("cpu"))


def ask(loaded: LoadedModel, x: Tensor) -> Tensor:
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


def count_classes(loaded: LoadedModel) -> int:
    """The number of classes of a model whose classes have no names."""
    nothing = torch.zeros(1, *loaded.preprocess.shape, device=find_device(loaded))
    return ask(loaded, nothing).shape[1]

"""What ``sea explain`` explains: pictures, volumes or texts, and the model that takes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sea_nn.call import About, Running
from sea_nn.cli.options import ModelOptions, Settings
from sea_nn.cli.request import Explain, read_picture
from sea_nn.cli.terminal import err, say
from sea_nn.config import BUDGETS
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import find_patches
from sea_nn.members.run import Check
from sea_nn.model.outputs import predict
from sea_nn.sea import SEA
from sea_nn.show.panels import blend, heat, to_array
from sea_nn.vision.models import LoadedModel, load_model
from sea_nn.vision.tiles import explain_tiles
from sea_nn.vision.volumes import load_volume

MAP_SIDE = 672  # pixels that the longer side of a small map is enlarged to, about
LITTLE, MUCH = 0.4, 4  # share of a picture, times of enlarging, from which on to say so
Progress = Callable[[str, int, int], None]


class Subject:
    """What inputs are explained for: here volumes, one at a time, as their files have them."""

    files: tuple[str, ...] = ("strip.png",)
    size = 1

    def __init__(self, o: Explain) -> None:
        self.o, self.loaded = o, load(o)
        self.name, self.labels = self.loaded.name, self.loaded.labels
        self.place = find_place(o.device)
        self.sea: Any = build(o, self.loaded)
        self.aim: Any = o.find_aim(self.labels)

    def read(self, source: Any) -> Any:
        """Open an input."""
        return load_volume(source)

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain some inputs at once."""
        x = opened[0].unsqueeze(0).to(self.place)
        found: Explanation = self.sea.explain(x, self.aim, **self.tell(progress))
        return found

    def tell(self, progress: Progress, images: Tensor | None = None) -> dict[str, Any]:
        """What explanations are told beside the inputs."""
        return {
            "labels": self.labels or None,
            "about": About(images=images, model_name=self.name),
            "running": Running(progress=progress, on_error="skip"),
        }

    def draw(self, e: Explanation, folder: Path) -> None:
        """Draw the pictures of one explanation."""
        e.plot("strip", folder / self.files[0])

    def check(self, opened: Any) -> tuple[Check, ...]:
        """What there is to say of how the model sees an input."""
        return ()


class Pictures(Subject):
    """Pictures, as the classifier's preprocessing gives them to it."""

    files = ("map.png", "strip.png", "top.png")

    def __init__(self, o: Explain) -> None:
        super().__init__(o)
        self.size = 1 if o.tile else o.batch or (1 if self.place == "cpu" else 8)
        _, height, width = self.loaded.preprocess.shape
        if o.tile and height != width:
            raise InputError(f"--tile needs a model of square pictures; {self.name}'s are not")
        o.check_grid((height, width))
        usual = find_patches(self.loaded.model, (height, width)) or (8, 8)
        o.check_top(o.cells or ((height, width) if o.method[1] is None else usual))

    def read(self, source: Any) -> Any:
        """Open a picture."""
        return read_picture(source)

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain some pictures at once; with --tile one, at its own size."""
        recipe, told = self.loaded.preprocess, self.tell(progress)
        x = torch.stack([recipe(image) for image in opened]).to(self.place)
        target, side = self.aim, recipe.shape[1]
        if self.o.tile:
            if target is None:  # the class of the picture as the model usually sees it
                target = int(predict(self.loaded.model, x).argmax(1))
            size = (opened[0].height, opened[0].width)
            recipe = replace(recipe, resize=size, crop=size)
            x = recipe(opened[0]).unsqueeze(0).to(self.place)
        images = torch.stack([torch.from_numpy(recipe.display(image)) for image in opened])
        if self.o.tile:
            return explain_tiles(self.sea, x, target, side, images=images, **told)
        found: Explanation = self.sea.explain(x, target, **self.tell(progress, images))
        return found

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
    """Texts, one at a time, and the Hugging Face model that reads them."""

    files = ("words.png",)

    def __init__(self, o: Explain) -> None:
        from sea_nn.text.load import load_text_model

        self.o, folder = o, o.model.partition(":")[2]
        names = None if o.labels is None else [part.strip() for part in o.labels.split(",")]
        model, tokenizer = load_text_model(folder, names)
        model.to(find_place(o.device))
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
            self.aim = o.find_aim(self.labels)

    def read(self, source: Any) -> Any:
        """A text is what was given."""
        return source

    def explain(self, opened: Sequence[Any], progress: Progress) -> Explanation:
        """Explain one text."""
        told = {"model_name": self.name, "progress": progress}
        found: Explanation = self.sea.explain(list(opened), self.aim, **told)
        return found


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

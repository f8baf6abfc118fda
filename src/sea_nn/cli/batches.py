"""The work behind ``sea explain``: pictures in, a folder of results for each, what came of it."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sea_nn.call import About, Running
from sea_nn.cli.options import ask, find_device
from sea_nn.cli.pictures import EXPLANATION, MAP, STRIP, TOP, Picture
from sea_nn.cli.terminal import Bar, describe_error, show
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import draft_folder, find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.sea import SEA
from sea_nn.show.panels import blend, heat, to_array
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel
from sea_nn.vision.tiles import explain_tiles

MAP_SIDE = 672  # pixels that the longer side of a small map is enlarged to, about
N_GUESSES = 3
FULL = (errno.ENOSPC, errno.EDQUOT)
LITTLE, MUCH = 0.4, 4  # share of a picture, times of enlarging, from which on to say so


@dataclass(frozen=True)
class Job:
    """What to do with every picture; their folders go into ``out``.

    A target of None is the predicted class, a pair one class and not another; ``top`` is a number
    (int) or share (float) of features for ``top.png`` beside the usual ones. With ``tile``,
    pictures keep their size and are explained by tiles of the model's.
    """

    loaded: LoadedModel
    sea: SEA
    out: Path
    target: int | tuple[int, int] | None = None
    top: int | float | None = None
    tile: bool = False


@dataclass(frozen=True)
class Finished:
    """A picture whose results are written; ``note`` says what the model hardly sees of it."""

    picture: Picture
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
    """What came of all pictures: finished ones, failed ones with the reason, Ctrl-C."""

    finished: list[Finished] = field(default_factory=list)
    failed: list[tuple[Picture, str]] = field(default_factory=list)
    interrupted: bool = False


def explain_pictures(job: Job, pictures: Sequence[Picture], size: int, bar: Bar) -> Outcome:
    """Explain pictures, ``size`` at a time, and write each one's results as soon as it is done.

    A picture that cannot be read or explained is set aside, and so is one whose results cannot be
    written. Ctrl-C or a full disk ends the work and keeps what is finished.
    """
    outcome = Outcome()
    try:
        for start in range(0, len(pictures), size):
            opened: list[tuple[Picture, Image.Image]] = []
            for picture in pictures[start : start + size]:
                try:
                    opened.append((picture, picture.open()))
                except SEAError as error:
                    outcome.failed.append((picture, str(error)))
            if opened:
                _explain_batch(job, opened, outcome, bar)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except OSError as error:  # the disk is full: more would be worked for in vain
        seen = {done.picture for done in outcome.finished} | {p for p, _ in outcome.failed}
        outcome.failed += [(p, describe_error(error)) for p in pictures if p not in seen]
    return outcome


def _explain_batch(
    job: Job, opened: Sequence[tuple[Picture, Image.Image]], outcome: Outcome, bar: Bar
) -> None:
    before = len(outcome.finished) + len(outcome.failed)
    title = opened[0][0].name if len(opened) == 1 else f"{len(opened)} pictures"

    def tick(member: str, done: int, total: int) -> None:
        bar.show(f"{title}: {member}", before + len(opened) * min(1, done / max(total, 1)))

    preprocess, device = job.loaded.preprocess, find_device(job.loaded)
    x = torch.stack([preprocess(image) for _, image in opened]).to(device)
    told: dict[str, Any] = {"labels": job.loaded.labels or None}
    told |= {"running": Running(progress=tick, on_error="skip")}
    try:
        if job.tile:
            told |= {"about": About(model_name=job.loaded.name)}
            explanation = _explain_tiles(job, opened[0][1], x, told)
        else:
            shown = [torch.from_numpy(preprocess.display(image)) for _, image in opened]
            about = About(images=torch.stack(shown), model_name=job.loaded.name)
            explanation = job.sea.explain(x, job.target, about=about, **told)
    except (SEAError, torch.cuda.OutOfMemoryError) as error:
        if len(opened) > 1:  # find the one to blame; the others must not suffer
            for suspect in opened:
                _explain_batch(job, [suspect], outcome, bar)
            return
        reason = str(error)
        if isinstance(error, SEAError):
            try:
                ask(job.loaded, x)
            except SEAError as cause:  # the model does not take such pictures at all
                reason = str(cause)
        else:
            reason = f"the memory of {device} does not suffice; try --device cpu"
        outcome.failed.append((opened[0][0], reason))
        return
    for i, (picture, _) in enumerate(opened):
        bar.show(f"{picture.name}: writing")
        one = _divide_costs(explanation[i], len(opened))
        folder = job.out / picture.folder
        try:
            write_results(one, folder, job.top)
        except (SEAError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            outcome.failed.append((picture, describe_error(error)))
            continue
        note = "" if job.tile else _describe_view(preprocess, opened[i][1])
        outcome.finished.append(Finished(picture, folder, one, note))


def _explain_tiles(job: Job, image: Image.Image, x: Tensor, told: Mapping[str, Any]) -> Explanation:
    """Explain one picture at its own size; the class is that of the picture as usually seen, x."""
    if isinstance(job.target, tuple):
        raise InputError("--tile explains one class; leave out --not")
    _, height, width = job.loaded.preprocess.shape
    size = (image.height, image.width)
    if height != width or min(size) < height:
        raise InputError(
            f"--tile needs a model of square pictures and a picture as large; {job.loaded.name} "
            f"takes {height} x {width} pixels, and this picture has {size[0]} x {size[1]}"
        )
    target = int(ask(job.loaded, x).argmax(1)) if job.target is None else job.target
    whole = replace(job.loaded.preprocess, resize=size, crop=size)
    shown = torch.from_numpy(whole.display(image)).unsqueeze(0)
    large = whole(image).unsqueeze(0).to(x.device)
    return explain_tiles(job.sea, large, target, height, images=shown, **told)


def _describe_view(preprocess: Preprocess, image: Image.Image) -> str:
    """Say so if the model sees little of a picture, or one much enlarged."""
    left, top, right, bottom = preprocess.window(*image.size)
    seen = (right - left) * (bottom - top) / (image.width * image.height)
    larger = preprocess.shape[2] / (right - left)
    if seen < LITTLE:
        return f"the model sees the central {seen:.0%} of it; crop it yourself to choose what"
    return f"enlarged {larger:.0f} times: a blur to the model" if larger > MUCH else ""


def write_results(e: Explanation, folder: Path, top: int | float | None = None) -> None:
    """Write the pictures and the file of one explained input: all of them, or none."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{show(folder)} is a file, and results need a folder of this name")
    with draft_folder(folder.parent) as fresh:
        draw_map(e).save(fresh / MAP)
        e.plot("strip", fresh / STRIP)
        sizes = {*e.default_sizes(), *([] if top is None else [e.count(top)])}
        e.plot("top", fresh / TOP, p=sorted(sizes))
        e.save(fresh / EXPLANATION)
        if folder.is_dir():  # of an earlier run, and perhaps with files of one's own
            for name in (EXPLANATION, MAP, STRIP, TOP):
                (fresh / name).replace(find_target(folder / name))
        else:
            fresh.rename(folder)


def draw_map(e: Explanation) -> Image.Image:
    """The SEA map laid over a grey copy of its picture; small ones enlarged by a whole factor."""
    if e.images is None:
        raise ValueError("an explanation without its picture cannot be drawn over it")
    painted = blend(to_array(e.images[0]), heat(e.attribution[0, 0], 0))
    picture = Image.fromarray((painted * 255).round().astype("uint8"))
    factor = max(1, round(MAP_SIDE / max(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.BOX)


def _divide_costs(e: Explanation, n_inputs: int) -> Explanation:
    """One input's share of the seconds and evaluations that its batch took."""
    provenance = replace(
        e.provenance,
        seconds={name: t / n_inputs for name, t in e.provenance.seconds.items()},
        evaluations={name: n // n_inputs for name, n in e.provenance.evaluations.items()},
    )
    return replace(e, provenance=provenance)

"""Explanation: what SEA found for a batch of inputs, and everything needed to judge it.

An explanation of images holds maps over pixels [H, W], of a table over columns [F], of series
over channels and steps [C, T]; ``shape`` is that shape. Greedy worked on n features: each is a
position of the map, a grid cell or a group; ``features`` says to which each position belongs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.fields import FIELDS, show_input
from sea_nn.explanation.files import read_file, write_file
from sea_nn.explanation.sets import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PlotKind = Literal["strip", "overlay", "top", "gains", "curve", "agreement"]
WISHES = ("attribution", "keep_map", "remove_map", "against")
MOST_WARNINGS = 3
"""Warnings said, for each input; the others are counted."""
LEVELS = ("fail", "warn", "ok")
LITTLE = 0.1  # of the answers: a member that explains less is hardly trusted


class NoSuchInputError(InputError, IndexError):
    """An index beyond the inputs of an explanation."""


class Explanation(Findings):
    """Attribution maps of N inputs, how they came about, and how far their members agree.

    Attributes:
        attribution: the SEA map, >= 0: [N, 1, H, W] of images, [N, F] of tables, [N, C, T] of
            series, [N, 1, D, H, W] of volumes.
        maps: the members' heatmaps in [0, 1], [N, m, *shape].
        methods: m names.
        target: the explained class of each input, int64 [N].
        score: what the model says of it, [N]: its probability, or of a regression the value; see
            ``output``. With a ``rival``, the probability if it can only be one of the two.
        order: features as greedy took them, int64 [N, n], each a permutation of 0 … n-1.
        gains: what each added: feature ``order[i, k]`` has attribution ``gains[i, k]``, [N, n].
            With a budget they sum to what the whole input has more than an empty one. Those below 0
            speak against the target: their features have attribution 0, see ``against``.
        feature_shape: the shape of the feature space, such as (28, 28) on a grid; its product is n.
        features: the feature of each position of the map, int [N or 1, *shape]; None: one each.
        images: the inputs as the model sees them, uint8 [N, H, W, 3].
        labels: the name of each input's target class.
        checks: what was checked.
        provenance: where it all comes from.
        values: a table's or series' own numbers, [N, F] or [N, C, T].
        feature_names: names of a table's columns or a series' channels.
        function: with a budget, the functions learned from the model's answers: ``predict`` asks
            them, and gains are in their ``unit``; a feature's gain is then the sum of the
            attribution of its positions. Of cells of images that is so for the first ones
            together: the k largest pixels sum to what the first cells of their area gain.
        predict_error: root mean square error of ``predict``, from answers left out of its fit, [N].
        kind: of the inputs: "image", "table", "series", "volume" or another; left out, found from
            the attribution's axes.
        view: how it is shown: "picture", "bars", "lines", "slices", …; left out, its kind's.
        curve: with a budget, what the model itself said along ``order``: with only the first p
            features left, and with these removed.
        ranking: the classes that the model finds likeliest.
        asked: with a budget, what the model was asked and what it said: ``top`` and ``smallest``
            read it, and ``SEA.explain(previous=)`` goes on from it.
        keep_map: with a budget, what suffices, a map like ``attribution``; see ``map``.
        remove_map: with a budget, what is needed.
        trusted: with a budget, the share of the answers that each member explains, [N, m]; see
            ``trust``.
        against: with a budget, evidence against the class: a map like ``attribution`` of how much
            more the class would have without a feature; zero where nothing is against it.
        rival: of a contrast, the class that the target is explained against, int64 [N].
        texts: of texts, the words of each with the white space after them, one a position of the
            map. Positions behind a shorter text have no gain; ``e[i]`` leaves them out.
        parts: of several inputs, what each is; their values lie side by side in the maps, [V], and
            ``part`` has the explanation of one.
        members: with a budget, the members' raw maps, and those of the explanations before it, for
            ``SEA.explain(previous=)``; no file holds them, nor has ``e[i]`` any.
    """

    def part(self, which: int | str) -> Explanation:
        """Of several inputs, the explanation of one, by its number or name; one scale for all."""
        return replace(self, **_cut_part(self, which))

    def save(self, path: str | Path) -> Path:
        """Write a ``.safetensors`` file; see ``sea_nn.explanation.files`` for what it holds."""
        return write_file(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read a file that ``save`` wrote."""
        return read_file(path, cls)

    def plot(
        self,
        kind: PlotKind = "strip",
        path: str | Path | None = None,
        p: Sequence[int | float] | None = None,
    ) -> Figure:
        """Draw it: "strip", "overlay", "top", "gains", "curve" or "agreement": ``show.plots``."""
        # The one import from above, and only when it is called: an explanation that can draw
        # itself is what people expect, and matplotlib is slow to load.
        from sea_nn.show.plots import plot_explanation

        return plot_explanation(self, kind, path, p)

    def summary(self) -> str:
        """What was found, in a few lines of text."""
        return write_summary(self)

    def __getitem__(self, which: int | slice) -> Explanation:
        """One input (an explanation of length 1) or a slice of them."""
        try:
            found = range(len(self))[which]
        except TypeError as error:
            raise KindError(f"index an explanation by an integer or a slice; {error}") from error
        except IndexError as error:
            raise NoSuchInputError(f"there are {len(self)} inputs; got index {which}") from error
        picked = [found] if isinstance(found, int) else found
        if not picked:
            raise InputError(f"the slice {which} holds none of the {len(self)} inputs")
        return replace(self, **_cut_inputs(self, picked))

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        space = "x".join(map(str, self.feature_shape))
        return (
            f"Explanation({len(self)} of kind {self.kind}, shape {self.shape}, "
            f"features {space}, methods {', '.join(self.methods)})"
        )

    def _repr_html_(self) -> str:
        from sea_nn.show.viewer import write_card

        return write_card(self)


def _cut_inputs(e: Any, picked: Sequence[int]) -> dict[str, Any]:
    """The attributes in which the explanation of the picked inputs differs from that of all."""
    rows, checks = torch.tensor(picked), []
    for check in e.checks:
        if check.input is None:
            checks.append(check)
        elif check.input in picked:
            checks.append(replace(check, subject=f"input {picked.index(check.input)}"))
    cut: dict[str, Any] = {"checks": tuple(checks), "members": ()}
    for name, field in FIELDS.items():
        value = None if "." in name else getattr(e, name)
        if value is not None and (field.shape.startswith("N") or len(value) > 1):
            cut[name] = value[rows.to(value.device)]
    for name in ("function", "asked", "curve", "ranking"):
        if getattr(e, name) is not None:
            cut[name] = getattr(e, name).rows(rows)
    for name in ("labels", "texts"):
        if getattr(e, name) is not None:
            cut[name] = tuple(getattr(e, name)[i] for i in picked)
    return cut if e.texts is None else _trim_texts(cut)


def _trim_texts(cut: dict[str, Any]) -> dict[str, Any]:
    """Parts of an explanation of texts without what only other texts have.

    These are positions behind all the picked texts, and answers that fill up their rows.
    """
    width, count = max(map(len, cut["texts"])), len(cut["texts"])
    there = cut["order"] < width

    def keep(order: Tensor) -> Tensor:
        return order[order < width].view(count, width)

    for name in ("maps", *WISHES):
        if cut.get(name) is not None:
            cut[name] = cut[name][..., :width]
    cut |= {"order": keep(cut["order"]), "gains": cut["gains"][there].view(count, width)}
    if cut.get("asked") is not None:
        asked = cut["asked"].cut(cut["function"].n_answers)
        orders = {"keep": keep(asked.keep), "remove": keep(asked.remove)}
        cut["asked"] = replace(asked, sets=asked.sets[..., :width], **orders)
        cut["function"] = cut["function"].cut(width)
    return cut | {"feature_shape": (width,)}


def _cut_part(e: Any, which: int | str) -> dict[str, Any]:
    """The attributes in which the explanation of one of several inputs differs from that of all."""
    names = [part.name for part in e.parts]
    number = names.index(str(which)) if which in names else which
    if not isinstance(number, int) or not 0 <= number < len(names):
        known = ", ".join(names) or "none: this is one input"
        raise InputError(f"the parts are {known}; got {which!r}")
    part, sizes = e.parts[number], [math.prod(part.shape) for part in e.parts]

    def cut(values: Tensor) -> Any:
        """The part of values [..., V], in its own shape."""
        return values.split(sizes, -1)[number].unflatten(-1, part.shape)

    every = torch.arange(e.shape[0])[None] if e.features is None else e.features.cpu()
    maps, groups, values = cut(e.maps), cut(every), cut(e.values)
    wishes = {name: cut(getattr(e, name)) for name in WISHES if getattr(e, name) is not None}
    if part.channels is not None:  # one channel stands for all
        axis = part.channels - 1 - len(part.shape)
        maps, groups = maps.mean(axis), groups.select(axis, 0)
        wishes = {name: one.sum(axis).unsqueeze(1) for name, one in wishes.items()}
    own, numbers = groups.unique(return_inverse=True)
    own = own.to(e.order.device)
    inside, single = torch.isin(e.order, own), len(own) == numbers.numel()
    empty = ("function", "predict_error", "curve", "asked", "feature_names")
    return {
        **wishes,
        **dict.fromkeys(empty),
        "maps": maps,
        "order": torch.searchsorted(own, e.order[inside]).view(len(e), -1),
        "gains": e.gains[inside].view(len(e), -1),
        "feature_shape": tuple(numbers.shape[1:]) if single else (len(own),),
        "features": None if single else numbers,
        "images": show_input(values) if part.view == "picture" else None,
        "values": None if part.channels is not None else values,
        "members": (),
        "kind": part.kind,
        "view": part.view,
        "parts": (),
    }


def write_summary(e: Explanation) -> str:
    """What an ``Explanation`` holds, in a few lines of text."""
    n, many = e.order.shape[1], "input" if len(e) == 1 else "inputs"
    model = f", model {e.provenance.model}" if e.provenance.model else ""
    agreed = e.mean_agreement()
    lines = [f"SEA explanation of {len(e)} {many}, {n} features{model}"]
    lines.append(f"members: {', '.join(e.methods)}")
    if not bool(agreed.isnan().all()):
        mean = float(agreed.nanmean())
        lines.append(f"agreement of the members (Spearman): {mean:.2f} on average")
    lines += _say_function(e)
    if e.rival is not None and e.output.kind != "value":
        lines.append("a probability is that of the target if it can only be one of the two")
    lines += [f"assumed: {sentence}" for sentence in e.assumed]
    for i in range(len(e)):
        lines += ["", _say_input(e, i), *(f"  {line}" for line in say_found(e, i))]
    if e.checks:
        # What is about an input comes before what is about the model or a member.
        notes = sorted(e.checks, key=lambda check: (LEVELS.index(check.level), check.input is None))
        notes = [check for check in notes if check.level != "ok"]
        most = MOST_WARNINGS * len(e)
        lines += ["", f"checks: {len(e.checks) - len(notes)} of {len(e.checks)} fine"]
        for c in notes[:most]:
            advice = f"; {c.advice}" if c.advice else ""
            lines.append(f"  {c.level} {c.subject}: {c.message}{advice}")
        lines += [f"  and {len(notes) - most} more, in e.checks"] if len(notes) > most else []
    return "\n".join(lines)


def say_found(e: Explanation, i: int) -> list[str]:
    """What was found of input i: the first features, by either wish too, and whom to trust."""
    lines = [f"first: {_say_first(e, i)}"]
    if e.sum_gains()[1][i] > 0 and (worst := e.rank_against(i, 3)):
        lines[0] += f"; against: {_name(e, i, worst)}"
    if e.asked is not None:
        few = min(3, e.order.shape[1])
        kept, removed = (_name(e, i, e.top(few, keep)[i].tolist()) for keep in (True, False))
        lines.append(f"suffices: {kept}; needed: {removed}")
    return [*lines, _say_trust(e, i)] if e.trust else lines


def _say_input(e: Explanation, i: int) -> str:
    """What the model says of an input, and with some of it left; how far the members agree."""
    said = [f"input {i}: {e.name(i)}, {e.output.unit} {e.write_score(i)}"]
    if e.unit:
        said.append(f"sum of gains {float(e.gains[i].double().sum()):.3g} {e.unit}")
    curve: Any = e.curve
    place = None if curve is None else curve.find(e.order.shape[1] / 8)
    if place is not None:
        left, removed = (f"{float(side[i, place]):.3g}" for side in (curve.left, curve.removed))
        best = int(curve.counts[place])
        said.append(f"only best {best} left {left}, these removed {removed}")
    agreed = float(e.mean_agreement()[i])
    return "; ".join(said if math.isnan(agreed) else [*said, f"agreement {agreed:.2f}"])


def _name(e: Explanation, i: int, features: Sequence[int]) -> str:
    return ", ".join(e.name_feature(k, i) for k in features)


def _say_first(e: Explanation, i: int) -> str:
    """The first features of an input, with their gains and what these are believed to lie between.

    Without a budget gains have no unit, and say less than their order.
    """
    first, said = e.order[i, :3].tolist(), []
    if e.gain_intervals is None or e.rank_intervals is None:
        return _name(e, i, first)
    for place, k in enumerate(first):
        low, high = e.gain_intervals[i, place].tolist()
        gain = f"{float(e.gains[i, place]):.2g} ({low:.2g} to {high:.2g}"
        best, worst = e.rank_intervals[i, k].tolist()
        said.append(f"{e.name_feature(k, i)} {gain}, place {best} to {worst})")
    return ", ".join(said)


def _say_trust(e: Explanation, i: int) -> str:
    """Which members the model's answers about input i agree with, in words."""
    shares = sorted(((float(share[i]), name) for name, share in e.trust.items()), reverse=True)
    most, best = shares[0]
    if most < 0.005:
        return "the model agrees with no member: what it answered is in none of their maps"
    others = ", ".join(f"{name} {share:.0%}" for share, name in shares[1:])
    little = ", but little" if most < LITTLE else ""
    share = f"it explains {most:.0%} of the answers{others and f' ({others})'}"
    return f"the model agrees most with {best}{little}: {share}"


def _say_function(e: Explanation) -> list[str]:
    """What was asked, what gains mean, and how well the function predicts; nothing without one."""
    if e.function is None:
        return []
    above, below = e.sum_gains()
    error, r2 = "not known", float(e.find_r2().nanmedian())
    if e.predict_error is not None and not bool(e.predict_error.isnan().all()):
        known = "" if math.isnan(r2) else f", R² {r2:.2f}" + (" (median)" if len(e) > 1 else "")
        error = f"{float(e.predict_error.nanmean()):.3f}{known}, by answers left out of the fit"
    total = float((above - below).mean())
    lines = [
        f"the model answered {e.questions} questions about sets of features of each input",
        f"gains are in {e.unit}, {total:.2f} in all on average: the model's own "
        "difference between the whole input and an empty one",
    ]
    if count := int((below > 0).sum()):
        lines.append(
            f"gains end below 0 for {count} of {len(e)} {'input' if len(e) == 1 else 'inputs'}: on "
            f"average {float(above.mean()):.2f} speaks for the target, which the map sums to, and "
            f"{float(below.mean()):.2f} against it"
        )
    interval = "a gain lies in the interval behind it with .9"
    return [*lines, f"error of predicted scores: {error}; {interval}"]

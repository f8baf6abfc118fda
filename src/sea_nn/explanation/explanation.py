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
from sea_nn.explanation.summary import write_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PlotKind = Literal["strip", "overlay", "top", "gains", "curve", "agreement"]
WISHES = ("attribution", "keep_map", "remove_map", "against")


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

    def cut(values: Tensor) -> Tensor:
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

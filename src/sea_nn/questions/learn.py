"""Learn each input's function from a number of questions, and read its maps off it [M12].

>>> worth = torch.tensor([0.0, 3.0, 1.0, 0.0])
>>> def ask_only(sets):
...     return (sets @ worth - 2).sigmoid()
>>> whole = torch.tensor([2.0]).sigmoid()
>>> found = learn_from_answers(lambda s: ask_only(s.float()), whole, torch.ones(1, 0, 4), 14)
>>> found.order[0, :2].tolist(), round(float(found.gains.sum()), 3)
([1, 2], 4.0)

Maps say where inside its feature the evidence lies: a feature's gain is what its positions have
together. Of cells of images two things are known: their order, which was asked about, and the
members' heat, position by position, of which the answers believed a share. So much of what tells
positions apart is heat, and what a cell gains beyond it; the others are told apart by the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.features import Features, Kind, smooth
from sea_nn.function.function import (
    CLIP,
    Link,
    SetFunction,
    list_sets,
    to_answers,
    to_score,
    warp,
)
from sea_nn.function.order import WISHES
from sea_nn.function.process import SetProcess
from sea_nn.questions.asked import Asked, Curve
from sea_nn.questions.design import design

BY_PLACE = 0.01
"""The part of a map of cells that falls with the place alone."""
SHARES = (1 / 4, 1 / 8, 1 / 2, 1 / 16, 1 / 32, 1 / 64)
"""Shares of the features to ask about, the most telling first."""
SPARE = 29  # questions an input for each of these shares, of which it costs two


@dataclass(frozen=True)
class AnswersMap:
    """What was learned about N inputs of n features from the model's answers.

    Attributes:
        function: the learned functions.
        order: features, the best first, [N, n].
        gains: what each adds after those before it, in log-odds (or values), [N, n]; below 0 where
            sets without the last features have more of the class than the whole input.
        attribution: gains above 0 over the positions of the map, [N, *shape]; it sums to these.
        keep: the same of what suffices: gains with only the first features left, in the order that
            keeps the score best.
        remove: the same of what is needed: gains with the first features removed, in the order
            that breaks the score first.
        trust: the share of what the answers vary by that each member's heat explains, [N, m].
        feature_shape: the shape of the feature space; its product is n.
        features: the feature of each position, int64 [1, *shape]; None: one each.
        clipped: where the model is surer of the whole input than log-odds are taken for, bool [N].
        curve: what the model itself said along the order.
        asked: the questions, what the model said, and the orders of the two wishes.
        against: evidence against the class over the positions, >= 0, [N, *shape].
        stopped: why not everything was asked; "" if it was.
    """

    function: SetFunction
    order: Tensor
    gains: Tensor
    attribution: Tensor
    keep: Tensor
    remove: Tensor
    trust: Tensor
    feature_shape: tuple[int, ...]
    features: Tensor | None
    clipped: Tensor
    curve: Curve
    asked: Asked
    against: Tensor
    stopped: str = ""

    @property
    def error(self) -> Tensor:
        """Root mean square error of the score of answers predicted from all the others, [N]."""
        return self.function.error


OnRound = Callable[[AnswersMap], bool | None]


def learn_from_answers(
    ask_only: Callable[[Tensor], Tensor],
    whole: Tensor,
    heat: Tensor,
    questions: int,
    *,
    link: Link = "log-odds",
    features: Features | None = None,
    known: tuple[Tensor, Tensor] | None = None,
    on_round: OnRound | None = None,
    seconds: float | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> AnswersMap:
    """Ask at most so many questions about each input, and learn its function from the answers.

    Args:
        ask_only: the score with only a set left, bool [N, R, *shape] -> [N, R]; see ``Probe.ask``.
        whole: the score of the whole inputs, [N].
        heat: where each member sees evidence, above 0 for the class and below 0 against it,
            [N, m, *shape]; m may be 0.
        questions: at most so many sets an input, the empty one among them.
        link: "log-odds" for scores that are probabilities, "value" for others.
        features: what is asked about; None for ``Features.to_ask_about``.
        known: sets that were asked before, bool [N, R, n], the empty one first, and their scores,
            [N, R]: they count as questions.
        on_round: is given what the answers say after each round, and may return False to stop.
        seconds: ask no more after this time.
        tolerance: ask no more once the error of every input is at most this.
        seed: starts the draws, which are the same for each input.

    An interrupt (Ctrl-C) ends the questions: what was learned until then is returned.
    """
    if features is None:
        plain = Kind("heat", heat.ndim - 1)
        features = Features.of(heat[:, 0], kind=plain).to_ask_about()
    started, count, n = time.perf_counter(), len(heat), features.n
    reader = _Reader(ask_only, whole, heat.detach().double().cpu(), link, features)
    counts = choose_counts(questions, n)
    left = questions - 2 * len(counts)
    if known is None:
        nothing = torch.zeros(count, 1, n, dtype=torch.bool)
        known = nothing, to_score(reader.ask(nothing), link)
    reader.keep(known[0].cpu(), to_answers(known[1].cpu(), link))
    sets, answers = reader.known()
    rounds = design(
        sets,
        warp(answers, link),
        left - known[0].shape[1],
        link=link,
        layout=features.layout,
        shares=reader.shares,
        near=reader.near,
        seed=seed,
    )
    stopped = ""
    try:
        sets = next(rounds)
        while not stopped:
            answers = reader.ask(sets)
            reader.keep(sets, answers)
            stopped = reader.find_stop(started, on_round, seconds, tolerance)
            sets = rounds.send(warp(answers, link))
    except StopIteration as done:
        reader.start = done.value
    except KeyboardInterrupt:
        stopped = "interrupted"
    rounds.close()
    return replace(reader.read(() if stopped else counts), stopped=stopped)


class _Reader:
    """What was asked about N inputs so far, and what it says."""

    def __init__(
        self,
        ask_only: Callable[[Tensor], Tensor],
        whole: Tensor,
        heat: Tensor,
        link: Link,
        features: Features,
    ) -> None:
        self.ask_only, self.whole, self.heat = ask_only, whole.detach().cpu(), heat
        self.link, self.device = link, whole.device
        self.features = features  # all is learned on the CPU, wherever the model is
        flat = features.sum(heat.flatten(0, 1)).view(*heat.shape[:2], features.n)
        size = flat.abs().sum(2, keepdim=True)
        self.shares = torch.where(size > 0, flat / size.clamp(min=1e-300), 0.0)
        self.near = None if features.layout is None else smooth_cells(features.layout)
        self.sets: list[Tensor] = []
        self.answers: list[Tensor] = []
        self.start: SetProcess | None = None
        self.process: SetProcess | None = None

    def ask(self, sets: Tensor) -> Tensor:
        """The model's log-odds (or values) of sets of features, [N, R]."""
        asked = self.features.expand(sets).to(self.device)
        return to_answers(self.ask_only(asked).cpu(), self.link)

    def recall(self, sets: Tensor) -> Tensor:
        """The same, but if all of these sets were asked about before, of what was said then."""
        asked, said = self.known()
        same = (asked[:, None].bool() == sets[:, :, None]).all(3)
        if not bool(same.any(2).all()):
            return self.ask(sets)
        return said.gather(1, same.double().argmax(2))

    def keep(self, sets: Tensor, answers: Tensor) -> None:
        """Remember what was asked and said."""
        self.sets.append(sets)
        self.answers.append(answers)
        self.process = None

    def known(self) -> tuple[Tensor, Tensor]:
        """All sets and answers with those of the whole input, which comes last."""
        every = torch.ones(len(self.heat), 1, self.features.n, dtype=torch.bool)
        said = to_answers(self.whole, self.link)[:, None]
        return torch.cat([*self.sets, every], 1), torch.cat([*self.answers, said], 1)

    def function(self) -> SetFunction:
        """The function of all answers so far."""
        sets, answers = self.known()
        if self.process is None:
            known: dict[str, Any] = {"shares": self.shares, "near": self.near, "start": self.start}
            self.process = SetProcess.fit(sets, warp(answers, self.link), **known)
        return SetFunction(self.process, answers[:, :1], answers[:, -1:], self.link)

    def find_stop(
        self,
        started: float,
        on_round: OnRound | None,
        seconds: float | None,
        tolerance: float | None,
    ) -> str:
        """Why the questions should end after a round; "" if they should go on."""
        if on_round is not None and on_round(self.read(())) is False:
            return "on_round asked for no more"
        if tolerance is not None and bool((self.function().error <= tolerance).all()):
            return "the error is below the tolerance"
        if seconds is not None and time.perf_counter() - started > seconds:
            return "the time is up"
        return ""

    def read(self, counts: tuple[int, ...]) -> AnswersMap:
        """What the answers say so far; ``counts`` of the first features are asked about last."""
        f, features = self.function(), self.features
        order, keep, remove = f.find_orders(tuple(WISHES)).unbind(1)
        trust, warm = f.process.trust(), believe(f, self.heat)
        gains, *others = (
            f.find_gains(one, wish) for one, wish in zip((order, keep, remove), WISHES, strict=True)
        )
        said = self.recall(list_sets(order, counts)) if counts else f.none[:, :0]
        sure = self.whole > 1 - CLIP if self.link == "log-odds" else self.whole.isnan()
        asked = Asked(torch.cat(self.sets, 1), torch.cat(self.answers, 1), keep, remove)
        maps = [
            paint(one, own, warm, trust, features)
            for one, own in zip((order, keep, remove), (gains, *others), strict=True)
        ]
        maps.append(features.expand(f.find_against() / features.count()))
        device = self.device
        attribution, kept, removed, against = (one.to(device) for one in maps)
        return AnswersMap(
            function=f,
            order=order.to(device),
            gains=gains.to(device),
            attribution=attribution,
            keep=kept,
            remove=removed,
            trust=trust,
            feature_shape=features.layout or (features.n,),
            features=None if features.groups is None else features.groups.to(device),
            clipped=sure,
            curve=make_curve(f, said, counts),
            asked=asked,
            against=against,
        )


def paint(order: Tensor, gains: Tensor, warm: Tensor, trust: Tensor, features: Features) -> Tensor:
    """Gains above 0 along an order, over the positions of the map: [N, n] -> [N, *shape].

    Args:
        order: of the features, [N, n].
        gains: along it.
        warm: what heat adds, see ``believe``.
        trust: the share of what the answers vary by that each member's heat explains, [N, m].
        features: of the inputs; only a grid's cells have heat inside.
    """
    own = features.count().to(gains)
    gains = torch.zeros_like(gains).scatter(1, order, gains.clamp(min=0))
    even = features.expand(gains / own)
    if features.groups is None or features.layout is None:
        return even
    by_cell = features.sum(warm)
    scale = (gains.sum(1) / warm.flatten(1).sum(1).clamp(min=1e-300)).clamp(max=1.0)
    beyond = features.expand((gains - by_cell * scale[:, None]) / own)
    for axis, (size, cells) in enumerate(zip(features.shape, features.layout, strict=True), 1):
        beyond = smooth(beyond, axis, size / cells / 2)
    warm = warm * scale.view(-1, *[1] * (warm.ndim - 1)) + beyond
    places = features.expand((features.n - order.argsort(1)) / own)
    trust = trust.sum(1).clamp(0, 1).view(-1, *[1] * (warm.ndim - 1))
    return share_out(torch.lerp(_to_shares(places), _to_shares(warm), trust), gains, own)


def _to_shares(values: Tensor) -> Tensor:
    """Values [N, *shape] as shares of their sum; all 0 where that is 0."""
    total = values.flatten(1).sum(1).view(-1, *[1] * (values.ndim - 1))
    return torch.where(total > 0, values / total.clamp(min=1e-300), 0.0)


def believe(f: SetFunction, heat: Tensor) -> Tensor:
    """What the answers say that members' heat adds, position by position, >= 0: [N, *shape].

    A member's heat above 0 counts by the slope of its own part of the function, from none of it
    left to all; one whose heat adds nothing has no say.
    """
    if heat.shape[1] == 0:
        return heat.new_zeros(len(heat), *heat.shape[2:])
    tables = f.process.mean().tables[:, 0, 1:]
    slope = (tables[..., -1] - tables[..., 0]).clamp(min=0) * f.process.spread
    flat = heat.flatten(2)
    share = flat.clamp(min=0) / flat.abs().sum(2, keepdim=True).clamp(min=1e-300)
    return (slope[:, :, None] * share).sum(1).view(len(heat), *heat.shape[2:])


def share_out(density: Tensor, gains: Tensor, sizes: Tensor) -> Tensor:
    """Give positions, in the order of their density, the gains by position, the largest first.

    So the k largest positions have what the features of the same area gain that gain most, and the
    map sums to all gains. A small part of them falls with the place alone: whoever hides positions
    from the largest on needs an order, also of those that gain nothing.
    """
    flat, positions = density.flatten(1), density[0].numel()
    values = (gains / sizes).repeat_interleave(sizes.long(), 1, output_size=positions)
    values = values.sort(dim=1, descending=True).values
    fall = torch.arange(positions, 0, -1, dtype=values.dtype)
    fall = fall / fall.sum() * values.sum(1, keepdim=True)
    order = flat.argsort(dim=1, descending=True, stable=True)
    values = torch.lerp(values, fall, BY_PLACE)
    return torch.zeros_like(values).scatter(1, order, values).view(density.shape)


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    axes = (torch.arange(float(side)) for side in layout)
    cells = torch.cartesian_prod(*axes).view(-1, len(layout)).double()
    near = torch.exp(-torch.cdist(cells, cells).square() / 2)
    return near / near.sum(1, keepdim=True)


def choose_counts(questions: int, n: int) -> tuple[int, ...]:
    """The numbers of features to ask about, two questions each, and at most a fifteenth of all.

    >>> choose_counts(28, 64), choose_counts(124, 64), choose_counts(508, 64)
    ((), (4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    """
    counts = {round(share * n) for share in SHARES[: questions // SPARE]}
    return tuple(sorted(p for p in counts if 0 < p < n))


def make_curve(f: SetFunction, answers: Tensor, counts: Sequence[int]) -> Curve:
    """The curve of answers about ``list_sets``, log-odds or values [N, R].

    Of no feature and of all, the answers are known: they are the ends of both curves.
    """
    left, removed = answers.chunk(2, 1) if counts else (answers, answers)
    return Curve(
        torch.tensor([0, *counts, f.process.sets.shape[2]]),
        to_score(torch.cat([f.none, left, f.all], 1), f.link).float(),
        to_score(torch.cat([f.all, removed, f.none], 1), f.link).float(),
    )

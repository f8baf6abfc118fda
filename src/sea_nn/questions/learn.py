"""Learn each input's function from a number of questions, and read its maps off it [M12].

>>> worth = torch.tensor([0.0, 3.0, 1.0, 0.0])
>>> def ask_only(sets):
...     return (sets @ worth - 2).sigmoid()
>>> whole = torch.tensor([2.0]).sigmoid()
>>> from sea_nn.features import TABLE
>>> ask, columns = lambda s: ask_only(s.float()), Features(TABLE, (4,))
>>> found = learn_from_answers(ask, whole, torch.ones(1, 0, 4), 14, features=columns)
>>> found.order[0, :2].tolist(), round(float(found.gains.sum()), 3)
([1, 2], 4.0)

Maps say where inside its feature the evidence lies: a feature's gain is what its positions have
together. Of cells of images two things are known: their order, which was asked about, and the
members' heat, position by position, of which the answers believed a share. So much of what tells
positions apart is heat, and what a cell gains beyond it; the others are told apart by the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.features import Features, smooth
from sea_nn.function.function import (
    CLIP,
    Link,
    SetFunction,
    list_sets,
    to_answers,
    to_score,
    warp,
)
from sea_nn.function.kernel import SAME
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


def learn_from_answers(
    ask_only: Callable[[Tensor], Tensor],
    whole: Tensor,
    heat: Tensor,
    questions: int,
    *,
    features: Features,
    link: Link = "log-odds",
    known: tuple[Tensor, Tensor] | None = None,
    on_round: Callable[[AnswersMap], bool | None] | None = None,
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
        features: what is asked about.
        link: "log-odds" for scores that are probabilities, "value" for others.
        known: sets that were asked before, bool [N, R, n], the empty one first, and their scores,
            [N, R]: they count as questions.
        on_round: is given what the answers say after each round, and may return False to stop.
        seconds: ask no more after this time.
        tolerance: ask no more once the error of every input is at most this.
        seed: starts the draws, which are the same for each input.

    An interrupt (Ctrl-C) ends the questions: what was learned until then is returned.
    """
    started, n = time.perf_counter(), features.n
    reader = _Reader(ask_only, whole, heat.detach().double().cpu(), link, features)
    counts = choose_counts(questions, n)
    if known is None:
        nothing = torch.zeros(len(heat), 1, n, dtype=torch.bool)
        known = nothing, to_score(reader.ask(nothing), link)
    reader.keep(known[0].cpu(), to_answers(known[1].cpu(), link))
    sets, answers = reader.known()
    rounds = design(
        sets,
        warp(answers, link),
        questions - 2 * len(counts) - known[0].shape[1],
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
            if on_round is not None and on_round(reader.read(())) is False:
                stopped = "on_round asked for no more"
            elif tolerance is not None and bool((reader.function().error <= tolerance).all()):
                stopped = "the error is below the tolerance"
            elif seconds is not None and time.perf_counter() - started > seconds:
                stopped = "the time is up"
            sets = rounds.send(warp(answers, link))
    except StopIteration as done:
        # Learned from that process on, whoever has looked before.
        reader.start, reader.process = done.value, None
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
        shares = flat / flat.abs().sum(2, keepdim=True).clamp(min=1e-300)
        self.shares = (shares / SAME).round() * SAME
        self.near = None if features.layout is None else smooth_cells(features.layout)
        self.sets: list[Tensor] = []
        self.answers: list[Tensor] = []
        self.start: SetProcess | None = None
        self.process: SetProcess | None = None

    def ask(self, sets: Tensor) -> Tensor:
        """The model's log-odds (or values) of sets of features, [N, R]."""
        asked = self.features.expand(sets).to(self.device)
        return to_answers(self.ask_only(asked).cpu(), self.link)

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

    def read(self, counts: tuple[int, ...]) -> AnswersMap:
        """What the answers say so far; ``counts`` of the first features are asked about last."""
        f, features, device = self.function(), self.features, self.device
        orders = f.find_orders(tuple(WISHES)).unbind(1)
        gains = [f.find_gains(order, wish) for order, wish in zip(orders, WISHES, strict=True)]
        trust, warm = f.process.trust(), believe(f, self.heat)
        ways = zip(orders, gains, strict=True)
        attribution, kept, removed = (paint(*way, warm, trust, features) for way in ways)
        against = features.expand(f.find_against() / features.count())
        sure = self.whole > 1 - CLIP if self.link == "log-odds" else self.whole.isnan()
        asked = Asked(torch.cat(self.sets, 1), torch.cat(self.answers, 1), *orders[1:])
        return AnswersMap(
            function=f,
            order=orders[0].to(device),
            gains=gains[0].to(device),
            attribution=attribution.to(device),
            keep=kept.to(device),
            remove=removed.to(device),
            trust=trust,
            feature_shape=features.layout or (features.n,),
            features=None if features.groups is None else features.groups.to(device),
            clipped=sure,
            curve=self.follow(f, orders[0], counts),
            asked=asked,
            against=against.to(device),
        )

    def follow(self, f: SetFunction, order: Tensor, counts: tuple[int, ...]) -> Curve:
        """What the model says along an order; it is not asked where all was asked before.

        Of no feature and of all, the answers are known: they are the ends of both curves.
        """
        sets, (asked, told) = list_sets(order, counts), self.known()
        same = (asked[:, None].bool() == sets[:, :, None]).all(3)
        if bool(same.any(2).all()):
            said = told.gather(1, same.double().argmax(2))
        else:
            said = self.ask(sets)
        left, removed = said.chunk(2, 1) if counts else (said, said)
        return Curve(
            torch.tensor([0, *counts, order.shape[1]]),
            to_score(torch.cat([f.none, left, f.all], 1), f.link).float(),
            to_score(torch.cat([f.all, removed, f.none], 1), f.link).float(),
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
    if features.groups is None or features.layout is None:
        return features.expand(gains / own)
    by_cell, positions = features.sum(warm), warm[0].numel()
    scale = (gains.sum(1) / warm.flatten(1).sum(1).clamp(min=1e-300)).clamp(max=1.0)[:, None]
    beyond = features.expand((gains - by_cell * scale) / own)
    for axis, (size, cells) in enumerate(zip(features.shape, features.layout, strict=True), 1):
        beyond = smooth(beyond, axis, size / cells / 2)
    places = features.expand((features.n - order.argsort(1)) / own).flatten(1)
    places = places / places.sum(1, keepdim=True)
    told = warm.flatten(1) * scale + beyond.flatten(1)
    whole = told.sum(1, keepdim=True)
    told = torch.where(whole > 0, told / whole.clamp(min=1e-300), 0.0)
    density = torch.lerp(places, told, trust.sum(1, keepdim=True).clamp(0, 1))
    # The positions have, in the order of their density, the gains by position, the largest first:
    # the k largest have what the features of the same area gain that gain most.
    values = (gains / own).repeat_interleave(own.long(), 1, output_size=positions)
    values = values.sort(dim=1, descending=True).values
    # A small part falls with the place alone: whoever hides positions from the largest on needs an
    # order, also of those that gain nothing.
    fall = torch.arange(positions, 0, -1, dtype=values.dtype)
    values = torch.lerp(values, fall / fall.sum() * values.sum(1, keepdim=True), BY_PLACE)
    found = density.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(values).scatter(1, found, values).view(warm.shape)


def believe(f: SetFunction, heat: Tensor) -> Tensor:
    """What the answers say that members' heat adds, position by position, >= 0: [N, *shape].

    A member's heat above 0 counts by the slope of its own part of the function, from none of it
    left to all; one whose heat adds nothing has no say.
    """
    tables = f.process.mean().tables[:, 0, 1:]
    slope = (tables[..., -1] - tables[..., 0]).clamp(min=0) * f.process.spread
    flat = heat.flatten(2)
    share = flat.clamp(min=0) / flat.abs().sum(2, keepdim=True).clamp(min=1e-300)
    return (slope[:, :, None] * share).sum(1).view(len(heat), *heat.shape[2:])


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    cells = torch.cartesian_prod(*map(torch.arange, layout)).view(-1, len(layout)).double()
    near = torch.exp(-torch.cdist(cells, cells).square() / 2)
    return near / near.sum(1, keepdim=True)


def choose_counts(questions: int, n: int) -> tuple[int, ...]:
    """The numbers of features to ask about, two questions each, and at most a fifteenth of all.

    >>> choose_counts(28, 64), choose_counts(124, 64), choose_counts(508, 64)
    ((), (4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    """
    counts = {round(share * n) for share in SHARES[: questions // SPARE]}
    return tuple(sorted(p for p in counts if 0 < p < n))

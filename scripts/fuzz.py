"""Explain random inputs of random models, and count which laws of an explanation are broken.

``python -m scripts.attack --fuzz 2000`` runs it. Case number k is the same in every run: what is
found is found again by ``--fuzz 1 --seed k``.
"""

from __future__ import annotations

import copy
import math
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn import SEA, Explanation
from sea_nn.errors import SEAError

BUDGETS, BATCHES = (6, 200), (2, 5)  # small budgets as often as large ones
MIXED = 0.25  # of the cases are explained in another order, too
APART = 0.01  # of its largest value: maps that differ by more are not the same
ROUNDING = 1e-3  # of a log-odds, a probability or a value, in single precision
SUREST = 1e-6  # probabilities count as at most so near to 0 or 1
KINDS: dict[str, tuple[tuple[int, ...], ...]] = {
    "table": ((1, 2, 7, 12, 30),),
    "series": ((1, 2, 3), (5, 9, 16)),
    "image": ((1, 3), (3, 5, 8), (4, 9)),
    "volume": ((1, 2), (2, 4), (3, 5), (3, 4)),
}
"""Sizes by axis of the kinds of input."""
LAWS = {
    "budget": "the model sees no more rows than the budget",
    "sum": "gains sum to what the model says more of the whole input than of an empty one",
    "size": "no gain is more than twice what the model's answers differ by",
    "ends": "score and curve begin and end with what the model says",
    "order": "an order has every feature once, and gains never grow",
    "map": "a map is finite, not below 0, and sums to the gains above 0",
    "untouched": "model, inputs and random state are as they were",
    "file": "the map that is saved is read back",
    "places": "inputs in another order have the same maps",
    "alone": "one of the inputs has the same map alone",
}


class Network(nn.Module):
    """A small network; all of them and their copies count together the rows that they see."""

    seen = 0

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """What its layers say."""
        Network.seen += len(x)
        said: Tensor = self.body(x)
        return said


@dataclass
class Case:
    """A model, inputs, and how they are explained.

    Attributes:
        targets: a class or a pair of classes for each input; None for the predicted ones.
        settings: of ``SEA``.
        given: of ``SEA.explain``.
        alone: the input that is explained alone, too.
        mixed: whether all are explained in another order, too.
    """

    model: nn.Module
    x: Tensor
    targets: list[Any] | None
    settings: dict[str, Any]
    given: dict[str, Any]
    alone: int
    mixed: bool

    def explain(self, which: list[int]) -> Explanation:
        """Explain some of the inputs, in this order."""
        targets = None if self.targets is None else [self.targets[i] for i in which]
        return SEA(self.model, **self.settings).explain(self.x[which], targets, **self.given)

    def ask(self, x: Tensor, e: Explanation) -> Tensor:
        """What the model itself says for the targets of an explanation: log-odds or values, [N]."""
        with torch.no_grad():
            out = self.model(x).double()
        rows = torch.arange(len(out))
        own = out[rows, e.target]
        if e.rival is not None:
            own = own - out[rows, e.rival]
        elif self.settings["output"] == "logits":
            own = own - out.scatter(1, e.target[:, None], -torch.inf).logsumexp(1)
        return own if e.unit == "value" else own.sigmoid().clamp(SUREST, 1 - SUREST).logit()


def draw_case(number: int) -> Case:
    """A model with random layers and weights, random inputs of any kind, and random settings."""
    chance, generator = random.Random(number), torch.Generator().manual_seed(number)
    kind = chance.choice(list(KINDS))
    shape = [chance.choice(sizes) for sizes in KINDS[kind]]
    count, classes = chance.randint(*BATCHES), chance.randint(1, 5)
    dtype = chance.choice((torch.float32, torch.float32, torch.float64))
    activation = chance.choice((nn.Tanh, nn.ReLU, nn.GELU))()
    if kind == "table":
        model = Network(nn.Linear(shape[0], 8), activation, nn.Linear(8, classes))
    else:
        axes = len(shape) - 1
        first = getattr(nn, f"Conv{axes}d")(shape[0], 4, 3, padding=1)
        norm = getattr(nn, f"BatchNorm{axes}d")(4)
        head = nn.Linear(4 * math.prod(shape[1:]), classes)
        model = Network(first, norm, activation, nn.Flatten(), head)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)

    scale = chance.choice((0.5, 1.0, 3.0))
    with torch.no_grad():
        for weight in model.to(dtype).eval().parameters():
            weight.copy_(scale * draw(*weight.shape) / weight[0].numel() ** 0.5)
    ways: list[Any] = [[chance.randrange(classes) for _ in range(count)]]
    output = chance.choice(("value", "sigmoid", "logits")[: 2 + (classes > 1)])
    if classes == 1 or output != "value":
        ways.append(None)
    if classes > 1 and output != "sigmoid":
        ways.append([tuple(chance.sample(range(classes), 2)) for _ in range(count)])
    budget = round(math.exp(chance.uniform(*map(math.log, BUDGETS))))
    absent = chance.choice((None, "baseline") + ("blur", "mean") * (kind != "table"))
    settings = {"budget": budget, "output": output, "absent": absent}
    if chance.random() < 0.2:
        settings["methods"] = ["saliency", "input_x_gradient"]
    given: dict[str, Any] = {}
    if chance.random() < 0.2:
        places = shape[kind in ("image", "volume") :]
        given["feature_mask"] = torch.randint(6, places, generator=generator)
    if absent == "baseline":
        given["baselines"] = chance.choice((0.0, 0.7))
    elif absent is None and chance.random() < 0.4:
        given["background"] = draw(12, *shape)
    x, targets = draw(count, *shape), chance.choice(ways)
    return Case(
        model, x, targets, settings, given, chance.randrange(count), chance.random() < MIXED
    )


def is_apart(a: Tensor, b: Tensor, more: Tensor | float = 0.0) -> bool:
    """Whether numbers differ by more than rounding, and than ``more``."""
    return bool(((a.double() - b).abs() > ROUNDING * b.abs().clamp(min=1) + more).any())


def look(case: Case) -> Iterator[tuple[str, bool]]:
    """Explain a case in every way: each law, and whether it is broken."""
    every = list(range(len(case.x)))
    before, state, Network.seen = copy.deepcopy(case), torch.get_rng_state(), 0
    e: Any = case.explain(every)
    yield "budget", Network.seen > case.settings["budget"] * len(every)
    now = case.model.state_dict()
    same = [torch.equal(value, now[name]) for name, value in before.model.state_dict().items()]
    same += [torch.equal(before.x, case.x), torch.equal(state, torch.get_rng_state())]
    same += [p.requires_grad and p.grad is None for p in case.model.parameters()]
    for module, old in zip(case.model.modules(), before.model.modules(), strict=True):
        same += [module.training == old.training, vars(module).keys() == vars(old).keys()]
        same += [not module._forward_hooks, not module._backward_hooks]
    yield "untouched", not all(same)
    whole, none = case.ask(case.x, e), e.function.none[:, 0]
    if case.settings["absent"] == "baseline":
        none = case.ask(torch.full_like(case.x, case.given["baselines"]), e)
    # Near 1, a probability in single precision leaves log-odds few digits.
    few = 2.0**-22 * torch.stack([whole, none]).amax(0).exp() if e.unit == "log-odds" else 0.0
    yield "sum", is_apart(e.gains.sum(1), whole - none, few)
    answers = torch.cat([e.asked.answers, whole[:, None]], 1)
    apart = answers.amax(1) - answers.amin(1) + ROUNDING * answers.abs().amax(1)
    yield "size", bool((e.gains.abs().amax(1) > 2 * apart).any())
    ends = torch.stack([none, whole, whole, none, whole], 1)
    told = [e.curve.left[:, [0, -1]], e.curve.removed[:, [0, -1]], e.score[:, None]]
    yield "ends", is_apart(torch.cat(told, 1), ends if e.unit == "value" else ends.sigmoid())
    features = torch.arange(e.order.shape[1]).expand_as(e.order)
    grown = (e.gains.diff(dim=1) > ROUNDING * e.gains.abs().amax(1, keepdim=True)).any()
    yield "order", bool(grown) or not torch.equal(e.order.sort(1).values, features)
    flat = e.attribution.double().flatten(1)
    odd = bool((~flat.isfinite() | (flat < 0)).any())
    yield "map", odd or is_apart(flat.sum(1), e.gains.double().clamp(min=0).sum(1))
    with tempfile.TemporaryDirectory() as folder:
        found = Explanation.load(e.save(Path(folder) / "e.safetensors"))
    yield "file", not torch.equal(found.attribution, e.attribution.float())
    rounding = ROUNDING * torch.stack([whole, none]).abs().amax(0).clamp(min=1)
    enough = (APART * flat.amax(1)).maximum(rounding / flat.shape[1])

    def differs(which: list[int]) -> bool:
        away = (case.explain(which).attribution.double().flatten(1) - flat[which]).abs().amax(1)
        return bool((away > enough[which]).any())

    yield "alone", differs([case.alone])
    if case.mixed:
        yield "places", differs(every[::-1])


def fuzz(count: int, seed: int = 0) -> tuple[Counter[str], dict[str, list[int]]]:
    """How often each law was looked at, and by law the cases that break it."""
    looked, broken = Counter[str](), {law: list[int]() for law in LAWS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(seed, seed + count):
            try:
                for law, wrong in look(draw_case(number)):
                    looked[law] += 1
                    broken[law] += [number] * wrong
            except SEAError:
                looked["refused"] += 1
    return looked, broken


def tabulate(looked: Counter[str], broken: dict[str, list[int]]) -> Iterator[str]:
    """A table of the laws; of those that are broken the first cases are named."""
    yield from ("| law | looked at | broken |", "|---|---:|---:|")
    for law, cases in broken.items():
        such = f" (cases {', '.join(map(str, cases[:5]))})" if cases else ""
        yield f"| {LAWS[law]} | {looked[law]:,} | {len(cases)}{such} |"
    yield f"{looked['refused']} cases were refused in words, such as too small a budget."

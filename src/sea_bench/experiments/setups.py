"""``sea bench checks``: are fine set-ups left in peace, and broken ones found out?"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from sea_bench.data.rows import load_rows
from sea_bench.experiments.asking import explain
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.experiments.kinds import train
from sea_nn.errors import SEAError
from sea_nn.model.adapters import NumpyModel
from sea_nn.vision.shipped import load_cnn, load_sample

INPUTS, BUDGET, ROUNDS = 8, 64, 12
HALF = 0.5  # of the inputs: a line about so many is about the set-up


@dataclass(frozen=True)
class Setup:
    """A model and inputs, and how they are explained.

    Attributes:
        name: of the model.
        model: the model; ``hidden`` and ``head`` are its last two linear layers.
        x: inputs, [8, ...], whose true classes are ``labels``.
        rows: inputs that the model was trained on, with ``classes``.
        foreign: the inputs without the preprocessing that the model wants.
        target: what is explained.
        settings: of ``SEA``.
        given: of ``SEA.explain``.
    """

    name: str
    model: Any
    x: Tensor
    labels: Tensor
    rows: Tensor
    classes: Tensor
    foreign: Tensor
    target: Any = None
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {"budget": BUDGET, "output": "logits"}
    )
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, model: nn.Module, x: Tensor, y: Tensor, raw: Tensor) -> Setup:
        """The first inputs are explained, the model was trained on the others."""
        return cls(name, model, x[:INPUTS], y[:INPUTS], x[INPUTS:], y[INPUTS:], raw[:INPUTS])

    def set(self, **settings: Any) -> Setup:
        """The same with other settings of ``SEA``."""
        return replace(self, settings={**self.settings, **settings})


class Patches(nn.Module):
    """A small transformer over the 2 x 2 patches of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, 24, 2, 2)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, 24))
        self.block = nn.TransformerEncoderLayer(24, 4, 48, 0.0, batch_first=True)

    def forward(self, input: Tensor) -> Tensor:
        """The mean of the patches, [N, 24]."""
        seen: Tensor = self.block(self.embed(input).flatten(2).mT + self.place)
        return seen.mean(1)


def stack(body: nn.Module, hidden: nn.Module, head: nn.Module) -> nn.Module:
    """A body, a hidden layer and a head."""
    return nn.Sequential(
        OrderedDict({"body": body, "hidden": hidden, "act": nn.ReLU(), "head": head})
    )


def make_network(body: nn.Module, width: int, classes: int) -> nn.Module:
    """A body with a hidden layer and a head that are new."""
    return stack(body, nn.Linear(width, 32), nn.Linear(32, classes))


def make_cnn() -> nn.Module:
    """A small network for coloured digits, with batch normalisation."""
    body = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    return make_network(nn.Sequential(*body, nn.Flatten()), 256, 6)


def colour(grey: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Digits 0 to 2 in red or in blue: [N, 3, 8, 8] in [0, 1], and six classes."""
    some = y < 3
    grey, y = grey[some], y[some]
    blue = torch.arange(len(y)) % 2
    x = torch.zeros(len(y), 3, 8, 8)
    x[torch.arange(len(y)), 2 * blue] = grey[:, 0]
    return x, 2 * y + blue


def list_setups(seed: int) -> list[Setup]:
    """The five models, each with eight inputs that it was not trained on."""

    def mix(count: int) -> Tensor:
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    sample, shipped = load_sample(), list(load_cnn().children())
    cnn = stack(nn.Sequential(*shipped[:10]), shipped[10], shipped[13]).eval()
    x, y = sample.images[mix(200)], sample.labels[mix(200)]
    # Other Fashion-MNIST models want numbers around 0; this one takes 0 to 1.
    made = [Setup.of("Fashion-MNIST, CNN", cnn, x, y, (x - 0.286) / 0.353)]
    pixels, digits = load_rows("digits")
    grey = pixels.view(-1, 1, 8, 8) / 16
    wine, kinds = load_rows("wine")
    scale = wine.mean(0), wine.std(0)
    problems: list[tuple[str, Callable[[], nn.Module], Tensor, Tensor, Any, Any]] = [
        ("digits, MLP", lambda: make_network(nn.Flatten(), 64, 10), grey, digits, 0.5, 0.5),
        ("digits, transformer", lambda: make_network(Patches(), 24, 10), grey, digits, 0.5, 0.5),
        ("coloured digits, CNN", make_cnn, *colour(grey, digits), 0.1, 0.25),
        ("wine, MLP", lambda: make_network(nn.Flatten(), 13, 3), wine, kinds, *scale),
    ]
    for name, build, raw, y, mean, spread in problems:
        raw, y = raw[mix(len(raw))], y[mix(len(raw))]
        x = (raw - mean) / spread
        model = train(build, {"input": x[INPUTS:]}, y[INPUTS:], seed, ROUNDS)
        one = Setup.of(name, model, x, y, raw)
        if x.ndim == 4:  # of eight pixels a side, blur leaves what matters: absent is no ink
            one = replace(one.set(absent="baseline"), given={"baselines": float(x.min())})
        made.append(one)
    return made


def list_fine(s: Setup) -> dict[str, Setup]:
    """Twelve set-ups with nothing wrong."""
    with torch.no_grad():
        pairs = [(a, b) for a, b in s.model(s.x).topk(2).indices.tolist()]
    double, last = copy.deepcopy(s.model).double(), slice(-INPUTS, None)
    plain = {name: value for name, value in s.settings.items() if name != "absent"}
    chances = replace(s, model=nn.Sequential(s.model, nn.Softmax(1)))
    arrays = NumpyModel(lambda a: s.model(torch.as_tensor(a)).detach().numpy())
    return {
        "predicted classes": s,
        "labels as targets": replace(s, target=s.labels.tolist()),
        "a budget of 34": s.set(budget=34),
        "a budget of 128": s.set(budget=128),
        "why one class and not the next": replace(s, target=pairs),
        "a function in place of a module": replace(s, model=lambda x: s.model(x)),
        "probabilities": chances.set(output="probabilities"),
        "a background": replace(s, settings=plain, given={"background": s.rows[:40]}),
        "one input": replace(s, x=s.x[:1], labels=s.labels[:1]),
        "double precision": replace(s, model=double, x=s.x.double()),
        "inputs of the training": replace(s, x=s.rows[last], target=s.classes[last].tolist()),
        "a model of arrays": replace(s, model=arrays),
    }


class Changed(nn.Module):
    """A model with its input or output changed."""

    def __init__(
        self,
        model: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor, Tensor], Tensor] = lambda x, out: out,
    ) -> None:
        super().__init__()
        self.model, self.before, self.after = model, before, after

    def forward(self, x: Tensor) -> Tensor:
        """The changed answer."""
        return self.after(x, self.model(self.before(x)))


def list_broken(s: Setup, seed: int) -> dict[str, Setup]:
    """Twelve set-ups with one thing wrong; labels are the targets, as one does who has them."""
    s = replace(s, target=s.labels.tolist())
    generator = torch.Generator().manual_seed(seed)
    level, table = s.x.flatten(1).std(1).amin(), s.x.ndim == 2

    def changed(act: Callable[[Any], object]) -> Setup:
        model = copy.deepcopy(s.model)
        with torch.no_grad():
            act(model)
        return replace(s, model=model)

    def each(make: Callable[[Tensor], Tensor]) -> Setup:
        return changed(lambda m: [weight.copy_(make(weight)) for weight in m.parameters()])

    def forget(weight: Tensor) -> Tensor:
        return torch.randn(weight.shape, generator=generator) * weight.std()

    def between(after: Callable[[Tensor, Tensor], Tensor]) -> Setup:
        return changed(lambda m: setattr(m, "hidden", Changed(m.hidden, after=after)))

    def normalise(_: Tensor, out: Tensor) -> Tensor:
        return 3 * (out - out.mean(0)) / (out.var(0, unbiased=False) + 1e-5).sqrt()

    def spoil(x: Tensor, out: Tensor) -> Tensor:
        return out.masked_fill((x.flatten(1).std(1) < 0.8 * level)[:, None], torch.nan)

    mixed = s.classes[torch.randperm(len(s.classes), generator=generator)]
    shuffled = train(lambda: copy.deepcopy(s.model), {"input": s.rows}, mixed, seed, ROUNDS)
    other = (s.labels + 1) % (int(s.classes.max()) + 1)
    spoilt = {
        "a dead layer": changed(lambda m: m.hidden.bias.sub_(1e4)),
        "trained on shuffled labels": replace(s, model=shuffled),
        "values in other units": replace(s, x=s.foreign if table else s.foreign.abs() * 255),
        "classes in another order": replace(s, target=other.tolist()),
        "saturated": changed(lambda m: m.head.weight.mul_(1000)),
        "one bit a weight": each(lambda weight: weight.sign() * weight.abs().mean()),
        "dropout left on": between(lambda _, out: dropout(out, 0.5)),
        "a detached input": replace(s, model=Changed(s.model, lambda x: x.detach())),
        "weights of noise": each(forget),
        "statistics of the batch": between(normalise),
        "NaN of some inputs": replace(s, model=Changed(s.model, after=spoil)),
    }
    if table:
        spoilt["columns in another order"] = replace(s, x=s.x.flip(1))
    elif s.x.shape[1] == 3:
        spoilt["blue, green, red"] = replace(s, x=s.x.flip(1))
    else:
        spoilt["another normalisation"] = replace(s, x=s.foreign)
    return spoilt


def list_told(s: Setup) -> list[str]:
    """What is told of a set-up: an error, or the lines that are about more than a few inputs."""
    try:
        e = explain(s.model, s.x, s.target, given=s.given, **s.settings)
    except SEAError as error:
        return [str(error)]
    lines = [c for c in e.checks if c.level != "ok"]
    about = {c.subject for c in lines if c.subject.startswith("input ")}
    told = [f"{c.subject}: {c.message}" for c in lines if not c.subject.startswith("input ")]
    if len(about) >= HALF * len(e):
        told += [c.message for c in lines if c.subject in about]
    return told


@experiment(
    "checks", "Do checks tell broken set-ups from fine ones?", "made here", n_inputs=60, quick=10
)
def checks(run: Run) -> Findings:
    """Sixty set-ups with nothing wrong, and sixty with one thing wrong: how many are told?"""
    made = list_setups(run.seed)
    fine = [pair for s in made for pair in list_fine(s).items()]
    broken = [pair for s in made for pair in list_broken(s, run.seed).items()]
    tables = []
    note = (
        "Told: by an error, by a line about model or member, or by lines about half of its inputs "
        "or more. Of each the first that was told."
    )
    for title, some in (("Fine, and accused", fine), ("Broken, and caught", broken)):
        chosen = [some[int(k)] for k in torch.linspace(0, len(some) - 1, run.count).round()]
        told: dict[str, list[list[str]]] = {}
        for k, (way, one) in enumerate(chosen):
            run.tell(title, k, len(chosen))
            told.setdefault(way, []).append(list_told(one))
        rows = []
        for way, each in told.items():
            first = [lines[0] for lines in each if lines]
            rows.append([way, str(len(each)), str(len(first)), first[0][:90] if first else ""])
        total = sum(int(row[2]) for row in rows)
        rows.append(["together", str(len(chosen)), str(total), ""])
        tables.append(Table(title, note, ["set-up", "tried", "told", "such as"], rows))
    names = ", ".join(s.name for s in made)
    note = f"{INPUTS} inputs each, and a budget of {BUDGET} where nothing else is said. "
    return Findings(tables, [f"{note}Models, trained in seconds: {names}."], run.count)

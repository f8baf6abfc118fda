"""Find members that silently fail on a model, and say what to do about it.

>>> import captum, torch
>>> from torch import nn
>>> from sea_nn.members.run import from_captum
>>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(144, 2))
>>> x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> captums = from_captum(captum.attr.GuidedBackprop)  # knows nn.ReLU alone, says nothing here
>>> checks = examine(model, x, methods=("saliency", captums))
>>> [check.message for check in checks if check.level == "warn"]
["its map equals saliency's"]
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.members.registry import Methods, expand_methods
from sea_nn.members.run import MemberMaps, run_members
from sea_nn.model.borrowing import copy_twin, is_private
from sea_nn.model.outputs import Meter, Progress, Target, TensorModel, take
from sea_nn.model.probe import Probe, ask_points, open_model
from sea_nn.paper.agreement import mean_agreement
from sea_nn.paper.heatmaps import is_flat, reduce_channels

MOST_CHANCE = 0.5
"""Where chance reaches more than this rank correlation, agreement cannot be judged."""
COMPLETENESS = 0.05
"""Integrated gradients and DeepLIFT should sum to the change of the output within this share."""
MUCH = 0.25
"""A map whose sum misses more than this share of the change does not count."""


Level = Literal["ok", "warn", "fail"]
LEVELS = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what was seen, and what to do about it.

    >>> Check("warn", "deeplift", "deeplift needs layers").message
    'needs layers'
    """

    level: Level
    subject: str
    message: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InputError(f"a check's level is one of {', '.join(LEVELS)}; got {self.level!r}")
        # Errors name their member, which every reader of checks has before the message.
        object.__setattr__(self, "message", self.message.removeprefix(f"{self.subject} "))

    @property
    def input(self) -> int | None:
        """The number of the input that it is about; None if it is about all of them."""
        number = self.subject.removeprefix("input ")
        return int(number) if number != self.subject and number.isdecimal() else None


def examine(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods = "paper",
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    output: str | None = None,
    baselines: float | Tensor | None = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    progress: Progress | None = None,
) -> tuple[Check, ...]:
    """Run the members on a few inputs and report what a person should know before ensembling.

    Args:
        model: as for ``SEA``.
        x: a few inputs [N, ...].
        target: the class, or None for the predicted one.
        methods: the members in question.
        options: of members, by name.
        output: what the model's outputs are.
        baselines: as for ``SEA.explain``.
        additional_forward_args: as for ``SEA.explain``.
        internal_batch_size: as for ``SEA.explain``.
        progress: called with (member, evaluations done, evaluations in all).
    """
    entries = expand_methods(methods, options)
    price = len(x) * sum(e.member.cost(e.options, tuple(x.shape[1:])) for e in entries)
    with open_model(
        model,
        x,
        target,
        output=output,
        baselines=baselines,
        args=additional_forward_args,
        limit=internal_batch_size,
        meter=Meter(progress=progress, total=price),
    ) as probe:
        probe.begin(ask_empty=False)
        found = run_members(probe, [entries], "skip")
        checks = (*check_model(probe), *check_probe(probe), *check_members(found))
        return (*checks, *check_maps(found), *check_completeness(probe, found))


def check_model(probe: Probe) -> list[Check]:
    """Modules that break methods which hook them: used twice in a pass, or writing in place."""
    module, x = probe.evaluator.module, probe.evaluator.x
    if module is None:
        return [Check("ok", "model", "a plain function: members that look inside it are left out")]
    if not is_private(module):
        return [Check("ok", "model", "it cannot be copied, so it runs as it is")]
    calls: Counter[str] = Counter()
    copy = copy_twin(module)  # which goes, and the hooks with it
    names = {m: name for name, m in copy.named_modules() if not list(m.children())}
    for layer in names:
        layer.register_forward_hook(lambda m, *_: calls.update([names[m]]))
    model = TensorModel(copy, check=False, meter=probe.meter)
    with torch.no_grad():
        one = torch.zeros(1, dtype=torch.long, device=x.device)
        replace(probe.evaluator, model=model).forward(x[:1].clone(), one)
    twice = [name for name, count in calls.items() if count > 1]
    writing = [name for layer, name in names.items() if getattr(layer, "inplace", False)]

    def warn(found: list[str], do: tuple[str, str], how: str, advice: str) -> Check:
        what = f"{len(found)} {do[len(found) > 1]} {how}, such as {found[0]!r}"
        return Check("warn", "model", what, f"the members here allow for it; others {advice}")

    checks = []
    if twice:
        how, advice = "more than once in a pass", "that hook modules (Captum's DeepLift) do not: "
        advice += "give each use its own module for them"
        checks.append(warn(twice, ("module runs", "modules run"), how, advice))
    if writing:
        advice = "that hook modules need inplace=False"
        checks.append(warn(writing, ("module writes", "modules write"), "in place", advice))
    return checks or [Check("ok", "model", "every module runs once in a pass, none in place")]


def check_probe(probe: Probe) -> list[Check]:
    """What the first answers told: what was assumed of them, and whether they hold a second time.

    Members put points of many inputs into one batch, so that their maps of a model whose answers
    depend on the batch mix inputs.
    """
    checks = []
    for notice in probe.notices:
        what, _, advice = notice.partition(". ")
        checks.append(Check("warn", "model", what, advice))
    if probe.unsteady is not None and bool(probe.unsteady.any()):
        what = "its answer about an input changes with the rest of the batch, or by chance"
        advice = (
            "maps mix inputs: a normalisation by batch statistics, or dropout, runs in eval mode "
            "too; switch it off, or explain inputs with internal_batch_size=1"
        )
        checks.append(Check("warn", "model", what, advice))
    return checks


def check_members(found: MemberMaps, optional: Collection[str] = ()) -> list[Check]:
    """What members' maps tell of them: failures, empty maps, duplicates, sums that are missed.

    Args:
        found: the maps.
        optional: members that nobody asked for: it is no fault if they do not fit a model.
    """
    checks = [Check("fail", name, why, "it is left out") for name, why in found.failed.items()]
    if not found.maps:
        what = "no member explains this model: the map rests on its answers alone"
        return [*checks, Check("ok", "members", what)]
    copies = {b: a for a, b, same in found.duplicates() if bool(same.all())}
    for name, maps in found.maps.items():
        seen = reduce_channels(maps, found.kind.channels)
        flat = is_flat(seen)
        if bool(flat.any()):
            which = "for every input" if bool(flat.all()) else f"for {int(flat.sum())} inputs"
            what = "the same everywhere" if bool(seen[flat].any()) else "zero"
            checks.append(
                Check("fail", name, f"its map is {what} {which}", "it does not count there")
            )
        elif name in copies:
            advice = (
                "they share one vote; leave one out to save its time. A method that hooks modules "
                "it does not know (Captum's GuidedBackprop and ReLU6) falls back to the gradient"
            )
            checks.append(Check("warn", name, f"its map equals {copies[name]}'s", advice))
        else:
            checks.append(Check("ok", name, "its map is finite, not empty, and its own"))
    checks += [c for name, missed in found.missed.items() for c in _check_missed(name, missed)]
    return [replace(c, level="ok") if c.subject in optional else c for c in checks]


def check_maps(found: MemberMaps) -> list[Check]:
    """Inputs about which members say nothing, or nothing together: their map rests on these."""
    if not found.maps:
        return []
    own = [reduce_channels(maps, found.kind.channels) for maps in found.maps.values()]
    dead = torch.stack([is_flat(maps) for maps in own]).all(0)
    checks = [
        Check(
            "fail",
            f"input {i}",
            "every member's map is zero or the same everywhere: the model does not react to it",
            "its map is zero; check the preprocessing, or explain another target",
        )
        for i in dead.nonzero().flatten().tolist()
    ]
    copies = {b for _, b, same in found.duplicates() if bool(same.all())}
    names = zip(found.maps, own, strict=True)
    return checks + _check_agreement([maps for name, maps in names if name not in copies])


def _check_missed(name: str, missed: Tensor) -> list[Check]:
    """Report maps that should add up to f(x) - f(baseline) by the rules of their method."""
    what = f"its sum misses the change of the output by {float(missed.median()):.1%} (median)"
    most = float(missed.max())
    if most <= COMPLETENESS:
        return [Check("ok", name, what)]
    advice = "its rules do not cover attention, layer norms or products of activations"
    if most > MUCH:
        advice += "; where more than a quarter is missed it does not count beside other members"
    return [Check("warn", name, what, f"{advice}. Use integrated_gradients")]


def _check_agreement(maps: list[Tensor]) -> list[Check]:
    """Warn of inputs whose maps agree no more than chance; smooth or tiny maps cannot tell."""
    if len(maps) < 2:
        return []
    mean, chance = mean_agreement(torch.stack(maps, 1))
    low = (mean <= chance) & (chance <= MOST_CHANCE)
    advice = "the map shows little that members share; a budget asks the model itself"
    return [
        Check(
            "warn",
            f"input {i}",
            f"members hardly agree: their mean rank correlation is {mean[i]:.2f}, and maps shifted "
            f"at random reach {chance[i]:.2f}",
            advice,
        )
        for i in low.nonzero().flatten().tolist()
    ]


def check_completeness(probe: Probe, found: MemberMaps) -> list[Check]:
    """Integrated gradients must add up to F(x) - F(baseline): the method's own axiom.

    The model is asked about the baselines.
    """
    if "integrated_gradients" not in found.maps:
        return []
    evaluator = probe.evaluator
    own = found.options["integrated_gradients"].get("baselines", evaluator.baselines)
    points = replace(evaluator, baselines=own).baseline()
    rows = torch.arange(len(points), device=points.device)
    said = ask_points(evaluator, rows, lambda part: points[part])
    wanted = take(found.outputs - said, found.target)
    given = found.maps["integrated_gradients"].flatten(1).sum(1)
    error = float(((given - wanted).abs() / wanted.abs().clamp_min(1e-6)).median())
    message = f"its sum misses the change of the logit by {error:.1%} (median)"
    if error <= COMPLETENESS:
        return [Check("ok", "integrated_gradients", message)]
    advice = 'ask for more steps: methods=[("integrated_gradients", {"n_steps": 100})]'
    return [Check("warn", "integrated_gradients", message, advice)]


def vote(found: MemberMaps) -> Tensor:
    """How much each member counts for each input, [N, m].

    Equal maps share one vote, and a map that misses much of what it should add up to has none
    unless it is the only one.
    """
    names = list(found.maps)
    group = torch.arange(len(names)).repeat(len(found.target), 1)  # the first that it equals
    for a, b, same in found.duplicates():
        first, second = names.index(a), names.index(b)
        group[:, second] = torch.where(same.cpu(), group[:, first], group[:, second])
    fits = torch.ones(group.shape, dtype=torch.bool)
    for name, missed in found.missed.items():
        fits[:, names.index(name)] = missed.cpu() <= MUCH
    fits |= ~fits.any(1, keepdim=True)
    same = (group[:, :, None] == group[:, None, :]) & fits[:, None, :]
    return (fits / same.sum(2).clamp_min(1)).double().to(found.target.device)

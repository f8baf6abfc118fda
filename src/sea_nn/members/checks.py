"""Find members that silently fail on a model, and say what to do about it.

>>> import captum, torch
>>> from torch import nn
>>> from sea_nn.members.compute import from_captum
>>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(144, 2))
>>> x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> captums = from_captum(captum.attr.GuidedBackprop)  # knows nn.ReLU alone, says nothing here
>>> checks = examine(model, x, methods=("saliency", captums))
>>> [check.message for check in checks if check.level == "warn"]
["its map equals saliency's"]
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError
from sea_nn.members.compute import compute_maps
from sea_nn.members.member_maps import MemberMaps
from sea_nn.members.registry import Methods
from sea_nn.model.borrowing import borrow, copy_twin, is_private
from sea_nn.model.outputs import Target, TensorModel, as_args, predict, select_args, take
from sea_nn.paper.agreement import mean_agreement
from sea_nn.paper.heatmaps import is_flat, reduce_channels

CHUNK = 32  # inputs asked about at a time
MOST_CHANCE = 0.5
"""Where chance reaches more than this rank correlation, agreement cannot be judged."""
COMPLETENESS = 0.05
"""Integrated gradients and DeepLIFT should sum to the change of the output within this share."""
SAME = 0.02
"""Two answers about an input are the same within this share; half precision needs some."""
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


def examine(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods = "paper",
    **options: Any,
) -> tuple[Check, ...]:
    """Run the members on a few inputs and report what a person should know before ensembling.

    Args:
        model: as for ``SEA``.
        x: a few inputs [N, ...].
        target: the class, or None for the predicted one.
        methods: the members in question.
        **options: as for ``sea_nn.members.compute.compute_maps``.
    """
    found = compute_maps(model, x, target, methods, on_error="skip", **options)
    return (
        *check_model(model, x, options.get("additional_forward_args")),
        *check_rows(found, model, x, options.get("additional_forward_args")),
        *check_members(found, model, x, **options),
    )


def check_model(model: Callable[..., Any], x: Tensor, args: Any = None) -> list[Check]:
    """Modules that break methods which hook them: used twice in a pass, or writing in place."""
    if not isinstance(model, nn.Module):
        return [Check("ok", "model", "a plain function: members that look inside it are left out")]
    calls: Counter[str] = Counter()
    one = torch.zeros(1, dtype=torch.long, device=x.device)
    with borrow(model, x, as_args(args)) as twin, torch.no_grad():
        if not is_private(twin):
            return [Check("ok", "model", "it cannot be copied, so it runs as it is")]
        copy = copy_twin(twin)  # which goes, and the hooks with it
        names = {m: name for name, m in copy.named_modules() if not list(m.children())}
        for module in names:
            module.register_forward_hook(lambda m, *_: calls.update([names[m]]))
        TensorModel(copy, check=False)(
            x[:1].detach().clone(), *select_args(as_args(args), one, len(x))
        )
    twice = [name for name, count in calls.items() if count > 1]
    writing = [name for module, name in names.items() if getattr(module, "inplace", False)]

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


def check_members(
    found: MemberMaps, model: Callable[..., Any], x: Tensor, **options: Any
) -> list[Check]:
    """What the members' own maps tell: failures, empty maps, duplicates, incomplete integrals."""
    checks = [Check("fail", name, why, "it is left out") for name, why in found.failed.items()]
    if found.output.notice:
        what, _, advice = found.output.notice.partition(". ")
        checks.insert(0, Check("warn", "model", what, advice))
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
    checks += [
        Check(
            "fail",
            f"input {i}",
            "every member's map is zero or the same everywhere: the model does not react to it",
            "its map is zero; check the preprocessing, or explain another target",
        )
        for i in find_dead(found)
    ]
    own = [maps for name, maps in found.maps.items() if name not in copies]
    checks += _check_agreement([reduce_channels(maps, found.kind.channels) for maps in own])
    if "integrated_gradients" in found.maps:
        checks.append(_check_completeness(found, model, x, **options))
    checks += [c for name, missed in found.missed.items() for c in _check_missed(name, missed)]
    return checks


@torch.no_grad()
def check_rows(
    found: MemberMaps, model: Callable[..., Any], x: Tensor, args: Any = None
) -> list[Check]:
    """Warn of a model whose answer about an input depends on the rest of the batch, or on chance.

    Members put points of many inputs into one batch, so that their maps of such a model mix inputs.
    """
    first = torch.zeros(2, dtype=torch.long, device=x.device)
    pair = torch.cat([x[:1], x[:1] / 2]).detach()
    with borrow(model, x, as_args(args)) as twin:
        now = predict(twin, pair, select_args(as_args(args), first, len(x)))[0]
    before = found.outputs[0].to(now)
    if float((now - before).abs().max()) <= SAME * float(before.abs().max().clamp_min(1)):
        return []
    what = "its answer about an input changes with the rest of the batch, or by chance"
    advice = (
        "maps mix inputs: a normalisation by batch statistics, or dropout, runs in eval mode too; "
        "switch it off, or explain inputs with internal_batch_size=1"
    )
    return [Check("warn", "model", what, advice)]


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
    advice = "the map shows little that members share: it rests on the model's answers, if any"
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


def find_dead(found: MemberMaps) -> list[int]:
    """Return the inputs about which every member's map says nothing."""
    flat = [is_flat(reduce_channels(m, found.kind.channels)) for m in found.maps.values()]
    return [int(i) for i in torch.stack(flat).all(0).nonzero().flatten()]


@torch.no_grad()
def _check_completeness(
    found: MemberMaps,
    model: Callable[..., Any],
    x: Tensor,
    baselines: float | Tensor | None = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    **_: Any,
) -> Check:
    """Integrated gradients must add up to F(x) - F(baseline): the method's own axiom."""
    own = found.options["integrated_gradients"].get("baselines", baselines)
    start = torch.as_tensor(0.0 if own is None else own, dtype=x.dtype, device=x.device)
    with borrow(model, x, as_args(additional_forward_args)) as twin:
        size = internal_batch_size or CHUNK
        outputs = predict(twin, start.expand_as(x), additional_forward_args, batch_size=size)
    wanted = take(found.outputs, found.target) - take(outputs, found.target)
    given = found.maps["integrated_gradients"].flatten(1).sum(1)
    error = float(((given - wanted).abs() / wanted.abs().clamp_min(1e-6)).median())
    message = f"its sum misses the change of the logit by {error:.1%} (median)"
    if error <= COMPLETENESS:
        return Check("ok", "integrated_gradients", message)
    advice = "ask for more steps: options={'integrated_gradients': {'n_steps': 100}}"
    return Check("warn", "integrated_gradients", message, advice)


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

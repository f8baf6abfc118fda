"""Find members that silently fail on a model, and say what to do about it.

>>> import captum, torch
>>> from torch import nn
>>> from sea_nn.members.callables import from_captum
>>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(144, 2))
>>> x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> captums = from_captum(captum.attr.GuidedBackprop)  # knows nn.ReLU alone, says nothing here
>>> checks = examine(model, x, methods=("saliency", captums))
>>> [check.message for check in checks if check.level == "warn"]
["its map equals saliency's"]
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.features import Features
from sea_nn.members.registry import Methods, expand_methods
from sea_nn.members.run import (
    COMPLETENESS,
    MUCH,
    Check,
    MemberMaps,
    check_members,
    check_probe,
    choose_entries,
    run_members,
)
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import Meter, Progress, Target, take
from sea_nn.model.probe import Probe
from sea_nn.paper.agreement import mean_agreement

MOST_CHANCE = 0.5
"""Where chance reaches more than this rank correlation, agreement cannot be judged."""


def examine(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
    **opening: Any,
) -> tuple[Check, ...]:
    """Run the members on a few inputs and report what a person should know before ensembling.

    Args:
        model: as for ``SEA``.
        x: a few inputs [N, ...].
        target: the class, or None for the predicted one.
        methods: the members in question; None for those that a budget chooses for the model.
        options: of the members that are named.
        progress: called with (member, evaluations done, evaluations in all).
        opening: further arguments of ``open_model``.
    """
    entries = choose_entries(model, kind=Features.of(x).kind)[0]
    if methods is not None:
        entries = expand_methods(methods, options)
    price = len(x) * sum(e.member.cost(e.options, tuple(x.shape[1:])) for e in entries)
    meter = Meter(progress=progress, total=price)
    with open_model(model, x, target, meter=meter, **opening) as probe:
        probe.begin(ask_empty=False)
        found = run_members(probe, [entries], "skip")
        optional = {entry.label for entry in entries if entry.optional}
        checks = (*check_probe(probe), *check_members(found, optional), *check_maps(found))
        return (*checks, *check_completeness(probe, found))


def check_maps(found: MemberMaps) -> Iterator[Check]:
    """Inputs about which members say nothing, or no more together than chance.

    Their map rests on these. Smooth or tiny maps cannot tell whether members agree.
    """
    maps = found.to_heatmaps()
    for i in (~maps.flatten(1).any(1)).nonzero().flatten().tolist():
        what = "every member's map is zero or the same everywhere: the model does not react to it"
        advice = "its map is zero; check the preprocessing, or explain another target"
        yield Check("fail", f"input {i}", what, advice)
    copies = {b for _, b, same in found.find_duplicates() if bool(same.all())}
    apart = [k for k, name in enumerate(found.maps) if name not in copies]
    if len(apart) < 2:
        return
    mean, chance = mean_agreement(maps[:, apart])
    for i in ((mean <= chance) & (chance <= MOST_CHANCE)).nonzero().flatten().tolist():
        what = f"members hardly agree: their mean rank correlation is {mean[i]:.2f}, and maps "
        what += f"shifted at random reach {chance[i]:.2f}"
        advice = "the map shows little that members share; a budget asks the model itself"
        yield Check("warn", f"input {i}", what, advice)


def check_completeness(probe: Probe, found: MemberMaps) -> Iterator[Check]:
    """Integrated gradients must add up to F(x) - F(baseline): the method's own axiom.

    The model is asked about the baselines.
    """
    if "integrated_gradients" not in found.maps:
        return
    own = found.options["integrated_gradients"].get("baselines", probe.baselines)
    points = replace(probe, baselines=own).baseline()
    rows = torch.arange(len(points), device=points.device)
    said = probe.ask_points(rows, lambda part: points[part])
    wanted = take(found.outputs - said, found.target)
    given = found.maps["integrated_gradients"].flatten(1).sum(1)
    error = float(((given - wanted).abs() / wanted.abs().clamp_min(1e-6)).median())
    message = f"its sum misses the change of the logit by {error:.1%} (median)"
    if error <= COMPLETENESS:
        yield Check("ok", "integrated_gradients", message)
    else:
        advice = 'ask for more steps: methods=[("integrated_gradients", {"n_steps": 100})]'
        yield Check("warn", "integrated_gradients", message, advice)


def vote(found: MemberMaps) -> Tensor:
    """How much each member counts for each input, [N, m].

    Equal maps share one vote, and a map that misses much of what it should add up to has none
    unless it is the only one.
    """
    names = list(found.maps)
    group = torch.arange(len(names)).repeat(len(found.target), 1)  # the first that it equals
    for a, b, same in found.find_duplicates():
        first, second = names.index(a), names.index(b)
        group[:, second] = torch.where(same.cpu(), group[:, first], group[:, second])
    fits = torch.ones(group.shape, dtype=torch.bool)
    for name, missed in found.missed.items():
        fits[:, names.index(name)] = missed.cpu() <= MUCH
    fits |= ~fits.any(1, keepdim=True)
    same = (group[:, :, None] == group[:, None, :]) & fits[:, None, :]
    return (fits / same.sum(2).clamp_min(1)).double().to(found.target.device)

"""What members' maps tell of each other, and how much each counts for an input."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from sea_nn.members.run import COMPLETENESS, MUCH, Check, MemberMaps
from sea_nn.model.outputs import take
from sea_nn.model.probe import Probe
from sea_nn.paper.agreement import mean_agreement

MOST_CHANCE = 0.5
"""Where chance reaches more than this rank correlation, agreement cannot be judged."""


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

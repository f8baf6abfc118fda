"""The fit to answers in its obvious form: PyTorch's Adam on the loss, slopes by autograd."""

import math

import torch

from sea_nn.function import answers_fit as fit
from sea_nn.function.answers_function import AnswersFunction, place_units, to_score


def fit_by_autograd(sets, answers, none, all, *, heat, counted, link, against, steps=50):
    """Arguments as for ``fit_answers``; returns its function."""
    answers, x = answers.double(), sets.double()
    none, all = none.double().view(-1, 1), all.double().view(-1, 1)
    count, _, n = x.shape
    relative = heat.double() / heat.double().mean(1, keepdim=True) + fit.FLOOR
    base = place_units(n) + relative.log()[:, :, None]
    base = base - base.logsumexp(1, keepdim=True)
    units = base.shape[2]
    shapes = [(n, 1), (n, units), (1, units), (units,), (1,), (n,)]
    free = [torch.zeros(count, *s, dtype=torch.float64, requires_grad=True) for s in shapes]
    shared, own, size, mix, toe, contra = free
    scale = torch.ones_like(all)
    if link == "value":
        spread = (answers - none).square().mean(1, keepdim=True).sqrt()
        scale = torch.maximum((all - none).abs(), spread)

    first_g = 0.04 * scale * (against != fit.MONOTONE)
    first_toe = torch.full_like(none, -3.0)
    if against == fit.FREE:
        first_g = torch.maximum(first_g, 2 * (none - all) / n)
        low = torch.stack([a[c].quantile(0.15) for a, c in zip(answers, counted, strict=True)])
        stay = (low[:, None] - none).exp().clamp(max=1 - math.exp(-3))
        first_toe = (1 - stay).log().clamp(max=-0.7)

    def build():
        weight = (base + shared + own + size).exp()
        k = (toe + first_toe).clamp(max=-0.01)
        return AnswersFunction(
            weight, mix.softmax(1), first_g * contra.exp(), k, none, all, link, x.shape[1]
        )

    held = min(against, fit.HELD)
    adam = torch.optim.Adam(free, betas=(0.9, 0.95))
    for step in range(steps):
        adam.param_groups[0]["lr"] = fit.RATE * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        error = (build().score(x) - to_score(answers, link)) / scale * counted
        loss = error.square().sum() / fit.NOISE**2
        loss = loss + fit.SHARED * shared.square().sum() + fit.OWN * own.square().sum()
        loss = loss + fit.SIZE * (size.square().sum() + mix.square().sum())
        loss = loss + fit.TOE * toe.square().sum() + held * contra.square().sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return build()

"""The process over sets, compared with its definition, and the laws of what it says."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from sea_nn.function.function import SetFunction, concave_slopes, read, to_answers, warp
from sea_nn.function.order import WISHES, find_orders
from sea_nn.function.process import SetProcess

N, R, SIZE, M = 2, 24, 7, 2


def make(seed: int = 0, near: bool = True, members: int = M, count: int = N) -> SetProcess:
    generator = torch.Generator().manual_seed(seed)
    sets = (torch.rand(count, R, SIZE, generator=generator) < 0.5).double()
    answers = torch.randn(count, R, generator=generator).double() * 2 + sets[..., 0] * 3
    shares = torch.randn(count, members, SIZE, generator=generator).double()
    shares = shares / shares.abs().sum(2, keepdim=True)
    mixed = torch.rand(SIZE, SIZE, generator=generator).double() + torch.eye(SIZE)
    mixed = mixed / mixed.sum(1, keepdim=True) if near else None
    return SetProcess.fit(sets, answers, shares=shares, near=mixed, steps=20)


def other_sets(count: int = 9, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(N, count, SIZE, generator=generator) < 0.5).double()


def kernel_by_hand(p: SetProcess, i: int, s: Tensor, t: Tensor) -> float:
    """The kernel of two sets, as docs/math.md writes it."""
    h = {name: value[i].exp() for name, value in p.kernel.hyper.items()}
    scale = h["scale"] * h["own"]
    metric = torch.diag(scale)
    if p.kernel.near is not None:
        mix = p.kernel.hyper["mix"][i].sigmoid()
        blur = (1 - mix) * torch.eye(SIZE).double() + mix * p.kernel.near
        root = torch.diag(scale.sqrt())
        metric = root @ blur.T @ blur @ root
    total = h["together"] * torch.exp(-(s - t) @ metric @ (s - t))
    worth = h["linear"] * 4 / SIZE * scale / scale.mean()
    total = total + ((s - 0.5) * worth * (t - 0.5)).sum()
    total = total + h["size"] * torch.exp(-(((s.mean() - t.mean()) / h["size_scale"]) ** 2) / 2)
    for j in range(p.kernel.shares.shape[1]):
        apart = (p.kernel.shares[i, j] * (s - t)).sum() / h["share_scale"]
        total = total + h["members"][j] * torch.exp(-(apart**2) / 2)
    return float(total)


@pytest.mark.parametrize("near", [True, False])
def test_predictions_are_those_of_the_textbook(near: bool) -> None:
    p, x = make(near=near), other_sets(4)
    found = p.predict(x)
    for i in range(N):

        def k(a: Tensor, b: Tensor, i: int = i) -> Tensor:
            rows = [[kernel_by_hand(p, i, s, t) for t in b] for s in a]
            return torch.tensor(rows).double()

        noise = float(p.kernel.noise[i])
        known = k(p.sets[i], p.sets[i]) + noise * torch.eye(R).double()
        y = (p.answers[i] - p.answers[i].mean()) / p.answers[i].std()
        cross = k(x[i], p.sets[i])
        mean = cross @ known.inverse() @ y * p.answers[i].std() + p.answers[i].mean()
        own = k(x[i], x[i]) - cross @ known.inverse() @ cross.T
        deviation = (own.diagonal() + noise).sqrt() * p.answers[i].std()
        assert torch.allclose(found.mean[i], mean, atol=1e-6)
        assert torch.allclose(found.deviation[i], deviation, atol=1e-6)
        assert torch.allclose(p.covariance(x)[i], own, atol=1e-6)


def test_answers_left_out_are_predicted_as_by_a_fit_without_them() -> None:
    p = make()
    value, error = p.leave_out()
    for r in (0, 7, R - 1):
        rest = [k for k in range(R) if k != r]
        # The same spread and middle: the shortcut is of the standardised answers.
        y = (p.answers - p.middle) / p.spread
        kernel = p.kernel.add_noise(p.kernel.compare(p.sets, p.sets))
        part = kernel[:, rest][:, :, rest]
        solved = torch.linalg.solve(part, y[:, rest, None])
        mean = (kernel[:, [r]][:, :, rest] @ solved)[:, 0, 0]
        assert torch.allclose(value[:, r], mean * p.spread[:, 0] + p.middle[:, 0], atol=1e-6)
        inverse = torch.linalg.solve(part, kernel[:, rest][:, :, [r]])
        own = kernel[:, r, r] - (kernel[:, [r]][:, :, rest] @ inverse)[:, 0, 0]
        assert torch.allclose(error[:, r], (y[:, r] - mean) / own.sqrt(), atol=1e-6)


def test_draws_have_the_mean_and_the_spread_that_are_predicted() -> None:
    p, x = make(), other_sets()
    drawn = p.evaluate(p.draw(3000, seed=1), x)
    expected = p.predict(x).mean
    own = p.covariance(x).diagonal(dim1=1, dim2=2).sqrt() * p.spread
    assert ((drawn.mean(1) - expected).abs() < 0.15 * own + 0.02).all()
    assert ((drawn.std(1) / own - 1).abs() < 0.25).all()


def test_the_mean_function_is_what_is_predicted() -> None:
    p, x = make(), other_sets()
    assert torch.allclose(p.evaluate(p.mean(), x)[:, 0], p.predict(x).mean, atol=3e-3)


def order_by_hand(p: SetProcess, i: int, wish: str, greedy: bool) -> list[int]:
    """The best chain of the mean function: greedily, or of all there are."""
    keep, remove = WISHES[wish]

    def gain(taken: frozenset[int]) -> float:
        s = torch.zeros(SIZE).double()
        s[list(taken)] = 1
        both = torch.stack([s, 1 - s]).expand(N, -1, -1)
        left, gone = p.evaluate(p.mean(), both)[i, 0].sigmoid().tolist()
        return keep * left - remove * gone

    if greedy:
        order: list[int] = []
        while len(order) < SIZE:
            rest = [k for k in range(SIZE) if k not in order]
            order.append(max(rest, key=lambda k: gain(frozenset([*order, k]))))
        return order
    known = {s: gain(frozenset(s)) for r in range(1, SIZE + 1)
             for s in itertools.combinations(range(SIZE), r)}  # fmt: skip
    best: dict[tuple[int, ...], tuple[float, list[int]]] = {(): (0.0, [])}
    for r in range(1, SIZE + 1):
        for s in itertools.combinations(range(SIZE), r):
            before = max((best[tuple(k for k in s if k != j)][0], j) for j in s)
            rest = best[tuple(k for k in s if k != before[1])]
            best[s] = rest[0] + known[s], [*rest[1], before[1]]
    return best[tuple(range(SIZE))][1]


@pytest.mark.parametrize("wish", list(WISHES))
def test_a_wide_beam_finds_the_best_of_all_chains_and_a_narrow_one_is_greedy(wish: str) -> None:
    p = make()
    wide = find_orders(p, p.mean(), torch.sigmoid, [wish], width=200)[:, 0]
    narrow = find_orders(p, p.mean(), torch.sigmoid, [wish])[:, 0]
    for i in range(N):
        assert wide[i].tolist() == order_by_hand(p, i, wish, greedy=False)
        assert narrow[i].tolist() == order_by_hand(p, i, wish, greedy=True)


def test_an_input_is_learned_as_if_it_were_alone() -> None:
    p, x = make(), other_sets()
    one = SetProcess.fit(
        p.sets[1:], p.answers[1:], shares=p.kernel.shares[1:], near=p.kernel.near, steps=20
    )
    assert torch.allclose(one.predict(x[1:]).mean, p.predict(x).mean[1:], atol=1e-9)
    assert torch.equal(find_orders(one, one.mean(), torch.sigmoid, width=8),
                       find_orders(p, p.mean(), torch.sigmoid, width=8)[1:])  # fmt: skip


def test_the_member_that_is_right_is_trusted_and_no_other() -> None:
    generator = torch.Generator().manual_seed(3)
    sets = (torch.rand(1, 60, 16, generator=generator) < 0.5).double()
    shares = torch.rand(1, 2, 16, generator=generator).double()
    shares = shares / shares.sum(2, keepdim=True)
    answers = 8 * torch.sigmoid(20 * ((sets @ shares[:, 1, :, None])[..., 0] - 0.5))
    trust = SetProcess.fit(sets, answers, shares=shares, steps=60).trust()[0]
    assert float(trust[1]) > 0.6 > 0.1 > float(trust[0])


def test_intervals_hold_what_they_say() -> None:
    """Functions of pairs, which the process does not know, at sets it was not asked."""
    generator = torch.Generator().manual_seed(0)
    n, count = 12, 8
    weight = torch.randn(count, n, generator=generator).double()
    pair = torch.randn(count, n, n, generator=generator).double() / 3

    def answer(x: Tensor) -> Tensor:
        return (x * weight[:, None]).sum(2) + torch.einsum("nra,nab,nrb->nr", x, pair, x) - 1

    def pick(rows: int) -> Tensor:
        return (torch.rand(count, rows, n, generator=generator) < 0.5).double()

    ends = torch.stack([torch.zeros(count, n), torch.ones(count, n)], 1).double()
    sets, unseen = torch.cat([ends[:, :1], pick(50), ends[:, 1:]], 1), pick(300)
    said = answer(sets)
    process = SetProcess.fit(sets, warp(said, "log-odds"), steps=40)
    f = SetFunction(process, said[:, :1], said[:, -1:])
    score, low, high = f.bound(unseen, 0.9)
    truth = answer(unseen).sigmoid()
    held = ((low <= truth) & (truth <= high)).double().mean()
    assert 0.82 < float(held) < 0.98
    assert bool(((low <= score) & (score <= high)).all())
    narrow = f.bound(unseen, 0.5)
    assert bool(((narrow[2] - narrow[1]) <= (high - low) + 1e-12).all())


def make_function(link: str = "log-odds") -> SetFunction:
    p = make(members=1)
    ends = torch.stack([torch.zeros(N, SIZE), torch.ones(N, SIZE)], 1).double()
    sets = torch.cat([ends[:, :1], p.sets, ends[:, 1:]], 1)
    said = torch.cat([torch.full((N, 1), -3.0), p.answers, torch.full((N, 1), 2.5)], 1).double()
    warped = warp(said, link)  # type: ignore[arg-type]
    process = SetProcess.fit(sets, warped, shares=p.kernel.shares, near=p.kernel.near, steps=10)
    return SetFunction(process, said[:, :1], said[:, -1:], link)  # type: ignore[arg-type]


@pytest.mark.parametrize("link", ["log-odds", "value"])
@pytest.mark.parametrize("wish", list(WISHES))
def test_gains_sum_to_the_models_own_difference_and_never_grow(link: str, wish: str) -> None:
    f = make_function(link)
    order = f.find_orders([wish])[:, 0]
    gains = f.find_gains(order, wish)
    assert torch.allclose(gains.sum(1), (f.all - f.none)[:, 0])
    assert bool((gains.diff(dim=1) <= 1e-9).all())
    assert torch.equal(order.sort(1).values, torch.arange(SIZE).expand(N, -1))
    low, high = f.bound_gains(order).unbind(2)
    gains = f.find_gains(order)
    assert bool((low <= high).all())
    assert bool(((low <= gains) & (gains <= high)).double().mean() > 0.9)
    first, last = f.bound_ranks().unbind(2)
    assert bool(((first >= 1) & (first <= last) & (last <= SIZE)).all())


def test_places_are_surer_the_more_is_known() -> None:
    worth = torch.linspace(2, -1, 6).double()
    every = (torch.arange(64)[:, None] >> torch.arange(6) & 1).double()[None]
    apart = []
    for sets in (every[:, [0, 7, 21, 63]], every):
        said = sets @ worth
        process = SetProcess.fit(sets, warp(said, "log-odds"))
        f = SetFunction(process, said[:, :1], said[:, -1:])
        first, last = f.bound_ranks().unbind(2)
        apart.append(float((last - first).double().mean()))
    assert apart[1] < 1 < apart[0]


def test_concave_slopes_are_those_of_the_least_concave_curve_above() -> None:
    curve = torch.randn(5, 9, generator=torch.Generator().manual_seed(0)).double().cumsum(1)
    slopes = concave_slopes(curve)
    above = torch.cat([curve[:, :1], curve[:, :1] + slopes.cumsum(1)], 1)
    assert bool((above >= curve - 1e-9).all())
    assert torch.allclose(above[:, -1], curve[:, -1])
    touches = (above - curve).abs() < 1e-9
    bends = slopes.diff(dim=1) < -1e-9
    assert bool((touches[:, 1:-1] | ~bends).all())  # it bends only where it touches the curve


def test_scores_come_back_from_answers() -> None:
    p = torch.tensor([0.0, 1e-9, 0.2, 0.999, 1.0])
    answers = to_answers(p, "log-odds")
    assert torch.allclose(read(warp(answers, "log-odds"), "log-odds"), p.double(), atol=1e-5)
    assert math.isfinite(float(answers.abs().max()))


def test_no_gain_is_larger_than_the_answers_where_both_ends_lie_beyond_the_floor() -> None:
    f = make_function()
    far = SetFunction(f.process, torch.full((N, 1), -13.8), torch.full((N, 1), -12.2), "log-odds")
    gains = far.find_gains(far.find_orders()[:, 0])
    assert torch.allclose(gains.sum(1), torch.full((N,), 1.6, dtype=gains.dtype), atol=1e-5)
    assert float(gains.abs().max()) < 15

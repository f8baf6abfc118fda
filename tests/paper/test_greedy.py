import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sea_nn import DSF, maximize
from sea_nn.errors import InputError, KindError
from sea_nn.paper import dsf
from sea_nn.paper.dsf import attribute
from tests.helpers.functions import ACTIVATIONS, collapse, functions, subset
from tests.reference import paper


@given(f=functions(), budget=st.integers(1, 6))
def test_lazy_and_naive_give_the_slow_references_answer(f, budget):
    order, gains = paper.greedy(f, f.n, budget)
    for method in ("naive", "lazy", "auto"):
        found = maximize(f, budget, method=method)
        torch.testing.assert_close(
            found.gains, torch.tensor(gains, dtype=torch.float64), rtol=1e-7, atol=1e-9
        )
        assert _same_choice(f, found.order.tolist(), order)


def _same_choice(f, ours, theirs):
    """Equal orders, or equally good ones: differences of f below its rounding are no choice."""
    if ours == theirs:
        return True
    scale = 1e-13 * (1 + float(f(torch.ones(f.n))))
    return all(
        abs(float(f(subset(f.n, ours[:k])) - f(subset(f.n, theirs[:k])))) <= scale
        for k in range(1, len(ours) + 1)
    )


@given(f=functions(n=8), budget=st.integers(1, 5))
def test_greedy_reaches_its_share_of_the_optimum(f, budget):
    base = float(f(torch.zeros(f.n)))
    best = max(float(f(subset(f.n, s))) for s in itertools.combinations(range(f.n), budget)) - base
    found = float(f(subset(f.n, maximize(f, budget).order.tolist()))) - base
    assert found >= (1 - 1 / math.e) * best - 1e-9


@given(f=functions())
def test_gains_never_grow_and_add_up(f):
    found = maximize(f, f.n)
    assert (found.gains.diff() <= 1e-9 * (1 + found.gains[0])).all()
    total = float(f(torch.ones(f.n)) - f(torch.zeros(f.n)))
    assert float(found.gains.sum()) == pytest.approx(total, rel=1e-9, abs=1e-9)


def compare_searches(f, budget, **options):
    slow, fast = (f.select(budget, bounded=bounded, **options) for bounded in (False, True))
    assert torch.equal(slow.order, fast.order)
    torch.testing.assert_close(slow.gains, fast.gains, rtol=1e-11, atol=1e-14)


@settings(max_examples=8)
@given(seed=st.integers(0, 999), remove_ties=st.booleans(), activation=ACTIVATIONS)
@pytest.mark.parametrize("block", [1, 8, 1000])
def test_long_searches_of_a_batch_are_those_of_the_naive_form(block, seed, remove_ties, activation):
    """Searches that end at different steps, columns of very different sizes, ties, zeros."""
    f = DSF(70, widths=(9, 5), activation=activation, init=(0.0, 1.0), batch=3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    weight = f.weights[0].data
    weight.mul_(torch.exp(2 * torch.randn(3, 1, 70, generator=generator, dtype=torch.float64)))
    weight[0, :, ::2] = weight[0, :, :1]  # one search is over much sooner
    weight[1, :, [7, 20]] = weight[1, :, 3:4]
    weight[1, :, 11] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dsf, "BLOCK", block)
        compare_searches(f, 70, remove_ties=remove_ties)


@pytest.mark.parametrize("scale", [1e-200, 1e12, 1e200])
def test_numbers_beyond_single_precision_change_nothing(scale):
    f = DSF(40, widths=(16, 8), activation="power:0.5", init=(0.0, 1.0), seed=4)
    f.weights[0].data.mul_(scale)
    compare_searches(f, 40)


def test_gains_that_are_not_numbers_are_refused():
    f = DSF(6, widths=(4, 3), init=(0.1, 1.0))
    f.weights[1].data[0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        maximize(f, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_searches_are_those_of_the_cpu():
    f = DSF(300, widths=(64, 32), init=(0.0, 1.0), batch=5, seed=8)
    here, there = f.select(300, remove_ties=True), f.cuda().select(300, remove_ties=True)
    assert torch.equal(here[0], there[0].cpu())
    torch.testing.assert_close(here[1], there[1].cpu(), rtol=1e-11, atol=1e-14)


def test_bounds_spare_almost_all_evaluations(monkeypatch):
    """Beyond the first step, a handful of three hundred features reach the best gain."""
    contenders, evaluate = [], dsf._evaluate_contenders
    monkeypatch.setattr(dsf, "BLOCK", 1)

    def watched(*args):
        gains = evaluate(*args)
        contenders.append(int(gains.isfinite().sum()))
        return gains

    monkeypatch.setattr(dsf, "_evaluate_contenders", watched)
    maximize(DSF(300, widths=(64, 32), init=(0.0, 1.0), seed=1), 30)
    assert sum(contenders) < 0.05 * 30 * 300
    assert max(contenders[1:]) < 30


def test_collapsed_and_full_network_agree_with_ties():
    weight = torch.tensor([3.0, 1.0, 3.0, 0.0, 2.0, 2.0 + 1e-12, 0.0], dtype=torch.float64)
    small, full = collapse(weight, (4, 3))
    for method in ("naive", "lazy"):
        a, b = maximize(small, 7), maximize(full, 7, method=method)
        assert a.order.tolist() == b.order.tolist() == [0, 2, 4, 5, 1, 3, 6]
        torch.testing.assert_close(a.gains, b.gains, rtol=1e-12, atol=0)
    ours, theirs = attribute(small), attribute(full)
    torch.testing.assert_close(ours[2], theirs[2], rtol=1e-12, atol=0)
    torch.testing.assert_close(ours[2][0], paper.algorithm1(full, 7), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("activation", ["sqrt", "log1p", "power:-1"])
@given(seed=st.integers(0, 10**6), exponent=st.floats(-11, -7))
def test_near_ties_go_the_same_way_in_both_forms(activation, seed, exponent):
    """Weights that differ by about the width of a tie: rounded weights and gains once disagreed."""
    noise = torch.rand(12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    small, full = collapse(1 + noise * 10**exponent, (6, 4), activation, bias=False)
    for method in ("naive", "lazy"):
        assert maximize(full, 12, method).order.tolist() == maximize(small, 12).order.tolist()
    torch.testing.assert_close(attribute(small)[2], attribute(full)[2], rtol=1e-6, atol=0)


@given(f=functions())
def test_algorithm_1_is_the_papers(f):
    order, gains, values = attribute(f)
    expected = paper.algorithm1(f, f.n)
    torch.testing.assert_close(values[0], expected, rtol=1e-6, atol=1e-8)
    assert torch.equal(values[0][order[0]], gains[0])
    assert sorted(order[0].tolist()) == list(range(f.n))


@pytest.mark.parametrize(("activation", "name"), [("sqrt", "sqrt"), ("log1p", "log")])
def test_one_layer_equals_apricot(activation, name):
    """A one-layer DSF with unit top weights is apricot's feature-based function."""
    numba = pytest.importorskip("numba", reason="apricot-select is an extra of the tests")
    numba.config.DISABLE_JIT = True  # compiling takes ten seconds, the search a tenth of one
    apricot = pytest.importorskip("apricot", reason="apricot-select is an extra of the tests")
    data = np.random.default_rng(0).random((200, 30)) ** 2
    theirs = apricot.FeatureBasedSelection(40, concave_func=name, optimizer="naive").fit(data)
    f = DSF(200, widths=(30,), activation=activation, bias=False)
    with torch.no_grad():
        f.weights[0].copy_(torch.from_numpy(data.T))
    ours = maximize(f, 40)
    assert ours.order.tolist() == theirs.ranking.tolist()
    np.testing.assert_allclose(ours.gains.numpy(), theirs.gains, rtol=1e-8)


def test_bad_calls_say_what_is_wrong():
    f = DSF(5, widths=(3,))
    with pytest.raises(InputError, match="'auto', 'naive', 'lazy'"):
        maximize(f, 3, method="fast")
    with pytest.raises(InputError, match="budget"):
        maximize(f, -1)
    with pytest.raises(KindError, match="DSF"):
        maximize(torch.nn.Linear(5, 1), 3)
    with pytest.warns(UserWarning, match="clipped to the 5"):
        assert len(maximize(f, 9).order) == 5
    assert maximize(f, 0).order.shape == (0,)
    assert f.top(2).tolist() == f.top(np.int64(2)).tolist() == [0, 1]


def test_where_f_saturates_the_larger_weight_goes_first():
    """All first gains agree to 2^-30, and the weights differ threefold: that is no tie."""
    f = DSF(3, (2,), "power:-2", bias=False)
    with torch.no_grad():
        f.weights[0].copy_(torch.tensor([1e6, 2e6, 3e6], dtype=torch.float64).expand(2, 3))
        first = paper.gains_of(f, torch.zeros(3, dtype=torch.float64), [0, 1, 2])
    assert float(1 - first.min() / first.max()) < 2.0**-30
    assert maximize(f, 3).order.tolist() == [2, 1, 0]
    small, _ = collapse(f.weights[0][0].detach(), (2,), "power:-2", bias=False)
    assert maximize(small, 3).order.tolist() == [2, 1, 0]

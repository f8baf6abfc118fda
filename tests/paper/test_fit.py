import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sea_nn import DSF, SEAConfig, ensemble, maximize
from sea_nn.errors import InputError, KindError
from sea_nn.paper import dsf
from sea_nn.paper.dsf import attribute
from sea_nn.paper.fit import Trainer, make_training_data, take_step
from tests.helpers.functions import ACTIVATIONS, collapse, functions, maps, subset
from tests.reference import paper

NETWORK = SEAConfig.paper("cub").replace(
    init=(0.1, 1.0), widths=(8, 5, 3), thresholds=(3, 6, 9, 20), floor_weight=50.0
)


@pytest.mark.parametrize("activation", ["sqrt", "log1p", "power:-1"])
@pytest.mark.parametrize("collapsed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"grid": None},  # nested sets
        {"grid": (3, 4), "thresholds": (20,)},  # sets of many sizes after pooling
        {"grid": None, "bias": False},
        {"grid": None, "train": "features"},
        {"grid": None, "margin_weight": 0.0},
        {"grid": None, "thresholds": (97, 108)},  # sets of nearly all features
        {"grid": None, "widths": ()},
    ],
)
def test_the_gradient_is_autograds_of_whole_rows(change, collapsed, activation):
    config = NETWORK.replace(activation=activation, **change)
    given = make_training_data(
        maps(3, shape=(9, 12)), config, torch.tensor([1.0, 2.0, 0.5]).expand(3, 3)
    )
    trainer = Trainer(given, config, collapsed)
    if collapsed:  # a constant start ties all features; the largest sets are then a convention
        seeded = torch.Generator().manual_seed(0)
        trainer.parameters[0].uniform_(0.1, 1, generator=seeded)
    loss, gradients = trainer.evaluate()

    f = trainer.scorer
    rows = [torch.ones_like(given.heatmaps[:, :1]), given.heatmaps, given.sets.double()]
    if config.margin_weight:
        n = rows[0].shape[2]
        order = f.select(n).order
        rank = torch.zeros_like(order).scatter_(1, order, torch.arange(n).expand_as(order))
        rows.append((rank.unsqueeze(1) < given.budgets.unsqueeze(2)).double())
    expected = trainer.weigh(f(torch.cat(rows, 1)))
    trained = [f.weights[0], *trainer.above]
    totals = torch.autograd.grad(expected.sum(), trained, materialize_grads=True)
    for ours, total, copies in zip(gradients, totals, trainer.copies, strict=False):
        torch.testing.assert_close(ours, total / copies, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-11, atol=1e-12)


def test_adagrad_is_torchs_followed_by_a_clamp():
    config = SEAConfig.paper("btd").replace(learning_rate=0.3)
    generator = torch.Generator().manual_seed(0)
    start = torch.rand(2, 7, 5, dtype=torch.float64, generator=generator)
    ours, theirs = [start.clone()], start.clone().requires_grad_()
    squares = [torch.zeros_like(start)]
    adagrad = torch.optim.Adagrad([theirs], lr=0.3, lr_decay=0.1, weight_decay=1e-3)
    for epoch in range(6):
        theirs.grad = torch.randn(2, 7, 5, dtype=torch.float64, generator=generator)
        take_step(config, epoch, ours, [theirs.grad.clone()], squares)
        adagrad.step()
        with torch.no_grad():
            theirs.clamp_(min=0)
        torch.testing.assert_close(ours[0], theirs.detach(), rtol=1e-12, atol=1e-15)
    assert (ours[0] == 0).any()


@pytest.mark.parametrize("solver", ["mirror", "gradient"])
@pytest.mark.parametrize("init", ["ones", (0.0, 1.0)])
def test_rounding_is_no_reason_to_move(solver, init):
    # Both solvers divide by the largest entry, so the weights' scale cannot matter; where the
    # margin's terms cancel, all that is left of the gradient is rounding.
    config = SEAConfig(
        solver=solver,
        init=init,
        heatmap_weight=0.0,
        margin_weight=1.0,
        thresholds=(2, 4, 6),
        learning_rate=0.05,
        widths=(8, 4),
    )
    heatmaps = torch.rand(20, 1, 12, generator=torch.Generator().manual_seed(0)).double()
    one, *others = (
        ensemble(heatmaps, config, weights=torch.full((1,), s).double()).attribution
        for s in (1.0, 3.0, 0.1)
    )
    for other in others:
        assert torch.allclose(other, one, rtol=1e-9)


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

import pytest
import torch

from sea_nn import SEAConfig, ensemble
from sea_nn.paper.set_sums import SetChains, SetRows
from sea_nn.paper.solvers import Solver, is_fused
from sea_nn.paper.trainers import NetworkTrainer
from sea_nn.paper.training_data import make_training_data
from tests.helpers.functions import maps

NETWORK = SEAConfig.paper("cub").replace(
    init=(0.1, 1.0), widths=(8, 5, 3), thresholds=(3, 6, 9, 20), floor_weight=50.0
)


@pytest.mark.parametrize("activation", ["sqrt", "log1p", "power:-1"])
@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({"grid": None}, True),  # few sizes of sets: best sets are shared
        ({"grid": (3, 4), "thresholds": (20,)}, False),  # sets of many sizes after pooling
        ({"grid": None, "bias": False}, True),
        ({"grid": None, "train": "features"}, True),
        ({"grid": None, "margin_weight": 0.0}, False),
        ({"grid": None, "thresholds": (0.9, 1.0)}, True),  # sets of nearly all features
        ({"grid": None, "widths": ()}, True),
    ],
)
def test_the_written_gradient_is_autograds(change, shared, activation):
    config = NETWORK.replace(activation=activation, **change)
    given = make_training_data(
        maps(3, shape=(9, 12)), config, torch.tensor([1.0, 2.0, 0.5]).expand(3, 3)
    )
    trainer = NetworkTrainer(given, config)
    assert (trainer.which is not None) == shared
    terms, gradients = trainer.evaluate()

    rows = [torch.ones_like(given.heatmaps[:, :1]), given.heatmaps, given.sets.double()]
    order = trainer._best_order()
    if order is not None:
        n = rows[0].shape[2]
        rank = torch.full((3, n), n).scatter_(
            1, order, torch.arange(trainer.largest).expand_as(order)
        )
        rows.append((rank.unsqueeze(1) < given.budgets.unsqueeze(2)).double())
    f = trainer.f.requires_grad_()
    expected, loss = trainer.terms(f(torch.cat(rows, 1)))
    leaves = [f.weights[0], *list(f.weights)[1:], *f.biases][: len(gradients)]
    autograd = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(gradients[0].mT, autograd[0], rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(gradients[1:], autograd[1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(vars(terms).values(), vars(expected).values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.skipif(not is_fused(torch.zeros(1).double()), reason="torch has no fused Adagrad here")
def test_one_sweep_of_adagrad_is_the_written_one():
    config = SEAConfig.paper("btd").replace(learning_rate=0.3)
    generator = torch.Generator().manual_seed(0)
    start = torch.rand(2, 7, 5, dtype=torch.float64, generator=generator)
    fast, slow = [start.clone()], [start.clone()]
    one, other = Solver(config, [True]), Solver(config, [True])
    for epoch in range(6):
        gradient = torch.randn(2, 5, 7, dtype=torch.float64, generator=generator).mT
        one.step(epoch, fast, [gradient.clone()])
        other.step(torch.tensor(epoch, dtype=torch.float64), slow, [gradient.clone()])
        torch.testing.assert_close(fast[0], slow[0], rtol=1e-12, atol=1e-15)
    assert (fast[0] == 0).any()


def test_nested_sets_are_prefixes_of_an_order():
    """Sets that grow within each of three runs, of sizes that differ between inputs."""
    generator = torch.Generator().manual_seed(1)
    rank = torch.rand(4, 3, 1, 20, generator=generator).argsort(-1).argsort(-1)
    counts = torch.randint(0, 21, (4, 3, 6, 1), generator=generator).sort(2).values
    sets = (rank < counts).flatten(1, 2)
    chains, rows = SetChains.find(sets), SetRows(sets)
    assert len(chains.orders) == 3
    weight = torch.rand(4, 20, dtype=torch.float64, generator=generator)
    slopes = torch.rand(4, 18, dtype=torch.float64, generator=generator)
    expected = sets.double() @ weight.unsqueeze(2)
    torch.testing.assert_close(chains.sums(weight), expected.squeeze(2))
    torch.testing.assert_close(rows.sums(weight), expected.squeeze(2))
    ours, theirs = weight.clone(), weight.clone()
    chains.add_back(ours, slopes)
    rows.add_back(theirs, slopes)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours - weight, (slopes.unsqueeze(1) @ sets.double()).squeeze(1))
    assert SetChains.find(sets.flip(1)) is None
    assert SetChains.find(sets[:, :0]) is None


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

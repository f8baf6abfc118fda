import pytest
import torch

from sea_nn import SEAConfig, ensemble
from sea_nn.paper.fit import Trainer, find_chains, make_training_data, take_step
from tests.helpers.functions import maps

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


@pytest.mark.parametrize("nested", [True, False])
def test_sums_over_chains_are_sums_over_sets(nested):
    """Sets that grow within each of three runs, of sizes that differ between inputs, or do not."""
    generator = torch.Generator().manual_seed(1)
    rank = torch.rand(4, 3, 1, 20, generator=generator).argsort(-1).argsort(-1)
    counts = torch.randint(0, 21, (4, 3, 6, 1), generator=generator).sort(2).values
    sets = (rank < counts).flatten(1, 2)
    sets = sets if nested else sets.flip(1)
    budgets = torch.randint(0, 15, (4, 18), generator=generator)
    chains = find_chains(sets, budgets)
    assert (chains.features.shape[1] == 3 * chains.length) == nested
    weight = torch.rand(4, 2, 20, dtype=torch.float64, generator=generator)
    order = torch.rand(4, 20, generator=generator).argsort(1)
    best = order.argsort(1)[:, None] < budgets[:, :, None]
    expected = weight @ torch.cat([sets, best], 1).double().mT
    torch.testing.assert_close(chains.add_up(weight, order[:, : chains.length]), expected)


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

import itertools

import pytest
import torch

from sea_nn import SEAConfig, ensemble
from sea_nn.errors import InputError
from tests.helpers.functions import maps

CONFIGS = {
    "mirror": SEAConfig(),
    "adagrad": SEAConfig.paper("fmnist").replace(thresholds=(2, 5), epochs=20),
    "gradient": SEAConfig(solver="gradient", learning_rate=0.02, train="all", epochs=20),
    "network": SEAConfig(init=(0.1, 1.0), widths=(6, 4), epochs=6),
    "log": SEAConfig(activation="log1p", epochs=20),
}


def mask(n, *members):
    return torch.tensor([v in members for v in range(n)])


@pytest.mark.parametrize("name", CONFIGS)
def test_required_features_gain_epsilon_in_every_context(name):
    """Brute force over all 2^(n-1) contexts, for the two worst features at twice their gain."""
    n, config = 7, CONFIGS[name]
    given = maps(2, shape=(n,), seed=4)
    free = ensemble(given, config)
    worst = free.order[:, -2:]
    required = torch.zeros(2, n, dtype=torch.bool).scatter_(1, worst, True)
    epsilon = 2 * float(free.gains[:, -1].max())
    bound = ensemble(given, config, required=required, epsilon=epsilon)
    contexts = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).expand(2, -1, n)
    values = bound.scorer(contexts)
    for i in range(2):
        for v in worst[i].tolist():
            with_v = contexts[0, :, v] == 1
            gains = values[i, with_v] - values[i, ~with_v]
            assert float(gains.min()) >= epsilon * (1 - 1e-9)
            assert float(bound.attribution[i, v]) >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("name", CONFIGS)
def test_forbidden_features_are_exactly_zero(name):
    given = maps(2, shape=(9,), seed=1)
    best = int(ensemble(given, CONFIGS[name]).order[0, 0])
    result = ensemble(given, CONFIGS[name], forbidden=mask(9, best))
    assert (result.attribution[:, best] == 0).all()
    alone = torch.zeros(2, 9)
    alone[:, best] = 1
    assert torch.equal(result.scorer(alone), result.scorer(torch.zeros(2, 9)))
    assert (result.attribution.amax(1) > 0).all()


def test_constraints_that_already_hold_change_nothing():
    given = maps(1, shape=(9,))
    free = ensemble(given)
    bound = ensemble(given, required=mask(9, int(free.order[0, 0])), epsilon=1e-9)
    assert torch.equal(free.attribution, bound.attribution)


def test_on_a_grid_a_cell_is_bound_by_any_of_its_pixels():
    config = SEAConfig(grid=(3, 3), epochs=10)
    pixels = torch.zeros(6, 6, dtype=torch.bool)
    pixels[0, 0] = True
    result = ensemble(maps(1, shape=(6, 6)), config, forbidden=pixels)
    assert (result.attribution[0, :2, :2] == 0).all()
    assert (result.attribution[0, 2:, 2:] > 0).all()
    other = torch.zeros(6, 6, dtype=torch.bool)
    other[1, 1] = True
    with pytest.raises(InputError, match="share a cell"):
        ensemble(maps(1, shape=(6, 6)), config, forbidden=pixels, required=other)


def test_impossible_or_malformed_constraints_are_refused():
    given = maps(1, shape=(5,))
    with pytest.raises(InputError, match="saturates"):
        ensemble(given, SEAConfig(activation="power:-1"), required=mask(5, 0), epsilon=1e6)
    with pytest.raises(InputError, match="both required and forbidden"):
        ensemble(given, required=mask(5, 0), forbidden=mask(5, 0, 1))
    with pytest.raises(InputError, match="bool mask of shape"):
        ensemble(given, required=torch.tensor([0]))
    with pytest.raises(InputError, match="above 0"):
        ensemble(given, required=mask(5, 0), epsilon=0.0)

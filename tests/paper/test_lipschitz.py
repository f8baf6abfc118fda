import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_nn import DSF, ensemble
from sea_nn.errors import InputError
from sea_nn.paper.dsf import estimate_lipschitz, lipschitz
from tests.helpers.functions import functions, maps


@given(f=functions(), seed=st.integers(0, 99))
def test_no_pair_exceeds_the_constant(f, seed):
    assert estimate_lipschitz(f, pairs=200, seed=seed) <= lipschitz(f) * (1 + 1e-9) + 1e-9


def test_the_constant_is_attained_at_the_origin():
    f = DSF(5, widths=(4, 3), init=(0.1, 1.0)).requires_grad_(False)
    direction = f.slope(torch.zeros(5))
    step = 1e-7 * direction / direction.norm()
    ratio = (f(step) - f(torch.zeros(5))) / step.norm()
    assert float(ratio) == pytest.approx(float(lipschitz(f)), rel=1e-5)


def test_the_papers_constant_is_no_bound_near_the_origin():
    """Product of layer sums to the powers 1/16, 1/8, 1/4, 1/2, over 7 (supplement of the paper)."""
    f = DSF(784).requires_grad_(False)
    sums = [w.sum() for w in f.weights]
    constant = torch.stack([s ** (1 / 2 ** (4 - i)) for i, s in enumerate(sums)]).prod() / 7
    assert estimate_lipschitz(f, pairs=500) < constant < lipschitz(f)
    x = torch.full((784,), 1e-6)
    assert (f(x) - f(torch.zeros(784))) / x.double().norm() > constant


def test_a_batch_has_one_constant_for_each_function():
    scorer = ensemble(maps(3, shape=(12,))).scorer
    whole = estimate_lipschitz(scorer, pairs=64, seed=2)
    assert whole.shape == (3,)
    assert (whole <= lipschitz(scorer)).all()
    with pytest.raises(InputError, match="pairs must be"):
        estimate_lipschitz(scorer, pairs=0)

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_nn import DSF
from sea_nn.errors import InputError
from sea_nn.paper.dsf import estimate_lipschitz, lipschitz
from sea_nn.paper.exact import SQRT_FLOOR, parse_activation
from tests.helpers.functions import functions, subset
from tests.reference import paper


@given(f=functions(), data=st.data())
def test_monotone_and_submodular_on_chains_of_sets(f, data):
    order = data.draw(st.permutations(range(f.n)))
    small, large = sorted(data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))
    v = order[-1]
    a, b = order[:small], order[:large]
    gain = [float(f(subset(f.n, [*s, v])) - f(subset(f.n, s))) for s in (a, b)]
    scale = float(f(torch.ones(f.n))) + 1
    assert gain[0] >= gain[1] - 1e-10 * scale
    assert gain[1] >= -1e-10 * scale


def test_same_values_as_a_plain_network():
    torch.manual_seed(0)
    net = paper.Network(20, (7, 5, 3), start=(0.0, 1.0))
    f = DSF(20, widths=(7, 5, 3))
    for layer, linear in enumerate(net.layers):
        f.weights[layer].data, f.biases[layer].data = linear.weight.data, linear.bias.data
    x = torch.rand(4, 5, 20, dtype=torch.float64)
    torch.testing.assert_close(f(x), net(x), rtol=1e-14, atol=0)


def test_a_batch_is_its_functions_side_by_side():
    f = DSF(9, widths=(4, 3), init=(0.0, 1.0), batch=3, seed=5)
    x = torch.rand(3, 2, 9, dtype=torch.float64)
    for i in range(3):
        one = DSF(9, widths=(4, 3))
        one.load_state_dict({k: v[i] for k, v in f.state_dict().items()})
        torch.testing.assert_close(f(x)[i], one(x[i]), rtol=1e-14, atol=0)
    assert f(x[:, 0]).shape == (3,)


@pytest.mark.parametrize("widths", [(), (4,), (5, 3, 2)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [None, 2])
def test_equal_units_are_a_scalar_function_of_one_sum(widths, bias, batch):
    small, full = (DSF(6, widths, bias=bias, batch=batch, collapsed=c) for c in (True, False))
    for own, shared in zip(full.parameters(), small.parameters(), strict=True):
        torch.nn.init.uniform_(shared)
        own.data.copy_(shared.data.expand_as(own))
    x = torch.rand(*([batch] if batch else []), 4, 6, dtype=torch.float64)
    torch.testing.assert_close(small(x), full(x), rtol=1e-13, atol=0)
    torch.testing.assert_close(small.slope(x), full.slope(x), rtol=1e-12, atol=0)


def test_wrong_shapes_and_starts_are_refused():
    f = DSF(4, widths=(3,), batch=2)
    with pytest.raises(InputError, match="4 features"):
        f(torch.zeros(2, 5))
    with pytest.raises(InputError, match="2 functions"):
        f(torch.zeros(3, 4))
    for init in ((-1.0, 1.0), (2.0, 1.0), "zeros"):
        with pytest.raises(InputError, match="low, high"):
            DSF(4, widths=(3,), init=init)


@given(f=functions(), seed=st.integers(0, 99))
def test_no_pair_exceeds_the_lipschitz_constant(f, seed):
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


NAMES = ("sqrt", "log1p", "power:0.5", "power:-1", "power:-3")
numbers = st.floats(0, 1e6, allow_nan=False)


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
@given(a=numbers, b=numbers, t=st.floats(0, 1))
def test_value_is_concave_and_never_falls(name, a, b, t):
    phi = parse_activation(name)
    low, high = sorted((a, b))
    assert phi.value(double(high)) >= phi.value(double(low))
    middle = phi.value(double(t * a + (1 - t) * b))
    chord = t * phi.value(double(a)) + (1 - t) * phi.value(double(b))
    assert middle >= chord - 1e-9 * (1 + chord)


@pytest.mark.parametrize("name", NAMES)
def test_zero_stays_zero_with_a_finite_slope(name):
    phi = parse_activation(name)
    z = double(0.0).requires_grad_()
    value = phi.value(z)
    value.backward()
    assert value == 0
    assert torch.isfinite(z.grad)
    assert z.grad == phi.slope(z.detach())


@pytest.mark.parametrize("name", NAMES)
@given(z=st.floats(1e-10, 1e6), d=st.floats(1e-3, 1e3))
def test_slope_is_the_derivative_of_value(name, z, d):
    phi = parse_activation(name)
    point = double(z).requires_grad_()
    (autograd,) = torch.autograd.grad(phi.value(point), point)
    torch.testing.assert_close(phi.slope(double(z)), autograd, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(
        phi.rise(double(z), double(d)),
        phi.value(double(z + d)) - phi.value(double(z)),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", NAMES)
def test_rise_keeps_its_digits_where_a_difference_loses_them(name):
    phi = parse_activation(name)
    z, d = double(1e8), double(1e-6)
    exact = phi.slope(z) * d  # the next term of the series is 1e-14 times smaller
    assert abs(phi.rise(z, d) / exact - 1) < 1e-12


def test_sqrt_is_its_chord_below_the_floor_and_negative_powers_saturate():
    phi = parse_activation("sqrt")
    assert phi.value(double(SQRT_FLOOR / 2)) == SQRT_FLOOR**0.5 / 2
    assert phi.rise(double(0.0), double(4.0)) == 2
    half = double(SQRT_FLOOR / 2)
    torch.testing.assert_close(phi.rise(half, half / 2), phi.value(1.5 * half) - phi.value(half))
    assert parse_activation("power:-2").value(double(1e9)) == pytest.approx(0.5)  # saturates

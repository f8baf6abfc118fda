import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_nn.paper.exact import SQRT_FLOOR, parse_activation

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

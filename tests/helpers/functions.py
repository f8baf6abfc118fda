"""Seeded heatmaps, and submodular functions of every kind."""

import torch
from hypothesis import strategies as st

from sea_nn import DSF
from sea_nn.features import scale

ACTIVATIONS = st.sampled_from(["sqrt", "log1p", "power:-1", "power:0.5"])


def maps(count=2, m=3, shape=(30,), seed=0):
    raw = torch.rand(count, m, *shape, generator=torch.Generator().manual_seed(seed)).double() ** 3
    return scale(raw, batch_axes=2)


@st.composite
def functions(draw, n=6):
    """A random DSF on n features; some weights are exactly zero."""
    f = DSF(
        n,
        widths=draw(st.sampled_from([(), (3,), (5, 4), (4, 3, 2)])),
        activation=draw(ACTIVATIONS),
        bias=draw(st.booleans()),
        init=(0.0, 2.0),
        seed=draw(st.integers(0, 10**6)),
    )
    with torch.no_grad():
        for p in f.parameters():
            p[p < draw(st.sampled_from([0.0, 0.5]))] = 0
    return f.requires_grad_(False)


def collapse(weight, widths, activation="sqrt", bias=True):
    """A function of equal units with these first weights [n], in both forms."""
    forms = [DSF(len(weight), widths, activation, bias, collapsed=c) for c in (True, False)]
    for f in forms:
        f.weights[0].data.copy_(weight.expand_as(f.weights[0]))
    return forms


def subset(n, members):
    x = torch.zeros(n, dtype=torch.float64)
    x[list(members)] = 1
    return x

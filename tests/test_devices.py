"""Explanations are made where the inputs are, on a GPU as on the CPU."""

import pytest
import torch
from torch import nn

from sea_nn import SEA
from tests.helpers.pretended import OnGpu, PretendedGpu, move, to_cpu, to_gpu


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    parts = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3)
    return nn.Sequential(*parts).eval()


@pytest.mark.parametrize(
    "how", [{"budget": 34, "grid": (4, 4)}, {"budget": 30, "absent": "mean", "grid": (3, 3)}]
)
def test_an_explanation_on_a_gpu_is_that_of_the_cpu(how, model):
    x = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    how = {"methods": ["presence_gradient"], "output": "logits", **how}
    e = SEA(model, **how).explain(x)
    with PretendedGpu():
        other = SEA(move(model), **how).explain(to_gpu(x))
        assert all(isinstance(one, OnGpu) for one in (other.attribution, other.map("keep")))
        assert other.summary() == e.summary()
        sets = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(2)) > 0.5
        values = other.predict(to_gpu(sets), interval=0.9)
        more = SEA(move(model), **{**how, "budget": 40})
        assert more.explain(to_gpu(x), previous=other).questions > other.questions
    assert all(isinstance(one, OnGpu) for one in values)
    for one, expected in zip(values, e.predict(sets, interval=0.9), strict=True):
        torch.testing.assert_close(to_cpu(one), expected)
    torch.testing.assert_close(to_cpu(other.attribution), e.attribution)


def test_a_tensor_on_the_wrong_device_is_found():
    with PretendedGpu():
        there, here = to_gpu(torch.ones(3)), torch.ones(3)
        for wrong in (lambda: there + here, lambda: here[to_gpu(torch.tensor([0]))]):
            with pytest.raises(RuntimeError):
                wrong()
        assert isinstance(there + 1, OnGpu)
        assert not isinstance(there.cpu(), OnGpu)
        assert there.device.type == "cuda"

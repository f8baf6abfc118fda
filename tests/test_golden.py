"""Explanations that must not change: the paper's form, members' maps, constraints, old files."""

import pytest
import torch
from safetensors.torch import load_file

from sea_nn import Explanation
from tests.golden import FILE, SAME, find

MEMBERS = 1e-5  # their sums run in another order where passes are batched otherwise
EXACT = 1e-6


@pytest.fixture(scope="module")
def recorded():
    return load_file(FILE)


@pytest.mark.parametrize("name", SAME)
def test_an_explanation_is_the_recorded_one(name, recorded):
    if name == "text":
        pytest.importorskip("transformers", reason="texts need transformers")
    if name == "data_set":
        pytest.importorskip("pyarrow", reason="whole data sets need pyarrow")
    tolerance = MEMBERS if name in ("members", "attention", "columns", "text") else EXACT
    for key, found in find(name).items():
        expected = recorded[key]
        assert found.shape == expected.shape, key
        atol = tolerance * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=atol, msg=key)


@pytest.mark.parametrize("name", ["paper", "learned"])
def test_a_file_of_release_0_1_opens(name, recorded, tmp_path):
    path = tmp_path / "old.safetensors"
    path.write_bytes(recorded[f"file.{name}"].numpy().tobytes())
    e = Explanation.load(path)
    assert torch.equal(e.order, recorded[f"file.{name}.order"])
    torch.testing.assert_close(e.attribution, recorded[f"file.{name}.attribution"])
    assert e.name(0) in e.summary()
    assert torch.equal(e.top(5)[0].sort().values, e.order[0, :5].sort().values)

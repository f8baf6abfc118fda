"""Several inputs of one call: an image and a table, one scale, one function."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.errors import InputError, KindError
from sea_nn.questions.absent import blur
from sea_nn.show.viewer import write_report


class Both(nn.Module):
    """Log-odds: the mean of an image's lower right quarter, and two of a row's columns."""

    def __init__(self):
        super().__init__()
        self.flatten, self.last = nn.Flatten(), nn.Linear(2 * 64 + 3, 2)
        weight = torch.zeros(2, 2, 8, 8)
        weight[1, :, 4:, 4:] = 4 / 32
        self.last.weight.data = torch.cat(
            [weight.flatten(1), torch.tensor([[0, 0, 0], [0.0, 1, 2]])], 1
        )
        self.last.bias.data = torch.tensor([0.0, -3.5])

    def forward(self, image, row):
        return self.last(torch.cat([self.flatten(image), row], 1))


@pytest.fixture
def inputs():
    return torch.ones(2, 2, 8, 8), torch.ones(2, 3)


@pytest.fixture(scope="module")
def learned():
    sea = SEA(Both(), absent="baseline", budget=128)
    return sea.explain((torch.ones(2, 2, 8, 8), torch.ones(2, 3)), target=1)


def test_a_tuple_or_dict_in_is_a_tuple_or_dict_out_on_one_scale(inputs, learned):
    image, row = inputs
    maps = SEA(Both(), "saliency").attribute(inputs, target=1)
    assert [tuple(m.shape) for m in maps] == [(2, 1, 8, 8), (2, 3)]
    sea = SEA(Both(), absent="baseline", budget=128)
    named = sea.attribute({"row": row, "image": image}, target=1)
    assert list(named) == ["row", "image"]
    for maps in ((named["image"], named["row"]), [learned.part(k).attribution for k in (0, 1)]):
        total = maps[0].flatten(1).sum(1) + maps[1].sum(1)
        torch.testing.assert_close(total, learned.gains.clamp(min=0).sum(1), rtol=0.01, atol=0)
        assert (maps[0][:, 0, 4:, 4:].sum((1, 2)) > 0.7 * maps[0].flatten(1).sum(1)).all()
        assert (maps[1][:, 2] > maps[1][:, 1]).all()
        assert (maps[1][:, 0] < 0.05 * maps[1][:, 2]).all()


def test_the_function_is_learned_over_all_features_together(learned):
    e = learned
    assert e.kind == "several"
    assert e.order.shape == (2, 64 + 3)
    left = torch.zeros(2, 1, *e.shape, dtype=torch.bool)
    left[..., -3:] = True  # the row alone
    with torch.no_grad():
        truth = Both()(torch.zeros(2, 2, 8, 8), torch.ones(2, 3)).softmax(1)[:, 1:]
    torch.testing.assert_close(e.predict(left), truth, atol=0.15, rtol=0)


def test_parts_are_explanations_of_their_kind_and_survive_a_file(tmp_path, inputs):
    generator = torch.Generator().manual_seed(0)
    given = {"image": torch.rand(2, 2, 8, 8, generator=generator), "row": inputs[1]}
    e = SEA(Both(), ("saliency", "input_x_gradient")).explain(given, target=1)
    again = Explanation.load(e.save(tmp_path / "both.safetensors"))
    for one in (e, again):
        image, row = one.part("image"), one.part(1)
        assert (image.kind, image.shape, row.kind, row.shape) == ("image", (8, 8), "table", (3,))
        assert image.order.shape == (2, 64)
        assert row.order.tolist() == [[2, 1, 0]] * 2
    assert torch.equal(again.part("row").attribution, e.part("row").attribution)
    e.part("row").plot("strip", tmp_path / "row.png")
    assert write_report(e, tmp_path / "both.html").stat().st_size > 10_000
    with pytest.raises(InputError, match=r"part\(...\)"):
        e.plot("strip")
    with pytest.raises(InputError, match="image, row"):
        e.part("sound")


def test_baselines_masks_and_background_go_by_input(inputs):
    image, row = inputs
    sea = SEA(Both(), budget=40)
    mask = {"image": torch.arange(8) // 4, "row": torch.tensor([0, 0, 1])}
    given = {"image": image, "row": row}
    e = sea.explain(given, target=1, feature_mask=mask)
    assert e.order.shape == (2, 4)
    assert e.part("row").order.shape == (2, 2)
    others = (torch.zeros(20, 2, 8, 8), torch.rand(20, 3))
    blurred = SEA(Both(), absent="blur", budget=40)
    e = blurred.explain(inputs, target=1, background=others)  # rows cannot be blurred: their mean
    with torch.no_grad():
        out = Both()(blur(image), others[1].mean(0).expand(2, -1))
    empty = (out[:, 1] - out[:, 0]).double()
    torch.testing.assert_close(e.asked.answers[:, 0].double(), empty, atol=1e-4, rtol=0)
    e = sea.explain(inputs, target=1, baselines=(0.5, torch.zeros(3)))
    assert e.order.shape == (2, 67)
    with pytest.raises(InputError, match="tuple like the inputs"):
        sea.explain(inputs, target=1, baselines=torch.zeros(3))
    with pytest.raises(InputError, match="dict like the inputs"):
        sea.explain(given, target=1, feature_mask={"sound": mask["row"]})


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ((torch.ones(2, 2, 8, 8), torch.ones(3, 3)), InputError, "input 0 2 .*, input 1 3 "),
        ((torch.ones(2, 2, 8, 8), torch.ones(2, 3).double()), InputError, "one type"),
        ((torch.ones(2, 2, 8, 8), torch.ones(2, 3).long()), KindError, "input 1: .*floating"),
        ((torch.ones(2, 2, 8, 8), torch.full((2, 3), torch.nan)), InputError, "input 1: .*NaN"),
        ((), InputError, "no input"),
        ([[1.0, 2.0], [1.0]], KindError, "tuple or dict"),
    ],
)
def test_inputs_that_do_not_go_together_are_refused(wrong, error, match):
    with pytest.raises(error, match=match):
        SEA(Both(), budget=64).explain(wrong, target=1)


def test_the_model_comes_back_and_a_tuple_of_one_is_that_one(inputs):
    model = Both()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    SEA(model, budget=64).attribute(inputs, target=1)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    linear, x = nn.Linear(4, 2), torch.rand(2, 4)
    sea = SEA(linear, "integrated_gradients")
    (one,) = sea.attribute((x,), baselines=(0.5,))
    assert torch.equal(one, sea.attribute(x, baselines=0.5))

"""A model's answers become a tensor [N, K]; targets are checked."""

from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sea_nn.errors import InputError, KindError
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import TensorModel, predict, resolve_target

SCORES = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 4.0]])
Pair = namedtuple("Pair", "scores hidden")


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        {"logits": SCORES, "hidden": torch.zeros(2)},
        OrderedDict(logits=SCORES),
        SimpleNamespace(logits=SCORES, loss=None),
        (SCORES, torch.zeros(1)),
        Pair(SCORES, None),
        [SCORES],
    ],
    ids=["tensor", "dict", "ordered dict", "object", "tuple", "named tuple", "list of one"],
)
def test_every_common_output_becomes_logits(output):
    assert torch.equal(TensorModel(lambda x: output)(torch.zeros(2, 4)), SCORES)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_score_an_input_becomes_one_column(shape):
    assert TensorModel(lambda x: torch.ones(shape))(torch.zeros(2, 4)).shape == (2, 1)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ([SCORES, SCORES], KindError, "returned list"),
        ({"scores": SCORES}, KindError, "returned dict.*logits"),
        (None, KindError, "returned NoneType"),
        ((None, SCORES), KindError, "returned tuple"),
        (torch.zeros(3), InputError, r"shape \[3\] for 2 inputs"),
        (torch.zeros(2, 3, 7, 7), InputError, r"shape \[2, 3, 7, 7\]"),
        (torch.tensor(1.0), InputError, r"shape \[\]"),
        (torch.ones(2, 3, dtype=torch.long), KindError, "int64"),
    ],
)
def test_other_outputs_are_refused_by_name(output, error, message):
    with pytest.raises(error, match=message):
        TensorModel(lambda x: output)(torch.zeros(2, 4))
    with pytest.raises(InputError, match="NaN for 2 of 2 inputs"):
        predict(lambda x: x / 0 * 0, torch.ones(2, 3))


def test_outputs_in_pieces_equal_one_pass_and_extra_arguments_follow_the_inputs():
    model, x, shift = nn.Linear(4, 3), torch.randn(7, 4), torch.arange(7.0).unsqueeze(1)

    def shifted(inputs, offset, factor):
        return model(inputs.sub_(1)) + offset * factor  # works in place on what it is given

    kept = x.clone()
    for limit in (None, 3):
        with open_model(shifted, x, args=(shift, 2.0), limit=limit) as probe:
            assert torch.allclose(probe.whole, model(kept - 1) + 2 * shift)
            assert not probe.whole.requires_grad
    assert torch.equal(x, kept)
    assert torch.allclose(predict(model, x, batch_size=3), model(x))


@pytest.mark.parametrize("target", [2, [2, 2], torch.tensor(2), torch.tensor([2, 2])])
def test_targets_of_every_kind(target):
    assert resolve_target(SCORES, target).tolist() == [2, 2]


def test_no_target_means_the_predicted_class():
    assert resolve_target(SCORES, None).tolist() == [1, 2]
    assert resolve_target(torch.zeros(2, 1), None).tolist() == [0, 0]
    with pytest.raises(InputError, match="1 output, so valid targets are 0 alone"):
        resolve_target(torch.zeros(2, 1), 1)


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (3, InputError, "target 3 is out of range.*3 outputs.*0 to 2"),
        ([0, -1], InputError, "target -1 is out of range"),
        ([0, 1, 2], InputError, r"each of the 2 inputs; got shape \(3,\)"),
        (1.0, KindError, "class number"),
        (True, KindError, "class number"),
        ("cat", KindError, "class number"),
        (torch.tensor([0.5, 1.0]), KindError, "float32"),
        (object(), KindError, "object"),
    ],
)
def test_wrong_targets_are_explained(target, error, message):
    with pytest.raises(error, match=message):
        resolve_target(SCORES, target)

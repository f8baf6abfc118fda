"""score_maps takes maps of every kind, and says what to do when it is misused."""

import pytest
import torch
from torch import nn

from sea_nn.errors import InputError, KindError
from sea_nn.metrics import score_maps
from sea_nn.metrics.catalogue import deletion
from tests.helpers.scoring import Plain, case, draw

__all__ = ["case"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maps": {"a": draw(2, 6, 6)}}, r"they are \[2, 6, 6\], and x is \[2, 3, 12, 12\]"),
        ({"maps": {"a": draw(2, 3, 12, 12)}}, "reduce_channels"),
        ({"maps": {"a": torch.zeros(2, 12, 12)}}, "zero everywhere on 2 of 2 inputs"),
        ({"maps": {"a": torch.full((2, 12, 12), torch.nan)}}, "nan or infinite"),
        ({"maps": {}, "random": False}, "at least one"),
        ({"metrics": ["deletion:mean,steps=145"]}, "number of positions, 144"),
        ({"metrics": ["aupc_windows:mean,size=13"]}, "do not fit into 12 x 12"),
        ({"metrics": ["aupc_authors:mean,size=12"]}, "a size from 1 to 11"),
        ({"metrics": ["relevance_mass"]}, "pass masks="),
        ({"metrics": ["delution"]}, "did you mean 'deletion'"),
        ({"metrics": ["deletion:white"]}, "no perturbation 'white'"),
        ({"metrics": ["deletion:mean,stops=3"]}, "its options: perturbation, steps"),
        ({"metrics": ["deletion:blur,steps=abc"]}, "steps must be a whole number >= 1; got 'abc'"),
        ({"metrics": ["aupc_windows:black,size=2.5"]}, "size must be a whole number >= 1; got 2.5"),
        ({"metrics": []}, "at least one metric"),
        ({"metrics": ["gini"], "masks": torch.ones(2, 5, 5)}, r"masks must be \[2, 12, 12\]"),
        ({"target": 9}, "valid targets are 0 to 3"),
        ({"model": None}, "pass it as the first argument"),
        ({"model": nn.Linear(3, 2)}, "could not run on x"),
        ({"internal_batch_size": 0}, "whole number >= 1"),
        ({"x": draw(2, 3, 12, 12, 1, 1)}, "give their kind="),
        ({"x": torch.ones(2, 8).long()}, "float"),
        ({"maps": [draw(2, 8)]}, "must be a dict"),
        ({"maps": {"a": 3}}, "real tensor"),
        ({"metrics": [3]}, "a metric is a name"),
    ],
)
def test_wrong_calls_say_what_to_do(case, changes, message):
    model, x, _, maps = case
    call = {"model": model, "x": x, "target": None, "maps": maps, "metrics": ["deletion:mean"]}
    with pytest.raises((InputError, KindError), match=message):
        score_maps(**{**call, **changes})


def test_maps_of_zeros_can_be_ranked_at_random(case):
    model, x, _, _ = case
    maps = {"nothing": torch.zeros(2, 12, 12)}
    scores = score_maps(model, x, None, maps, ["deletion:mean", "gini"], allow_zero=True)
    assert scores.values["deletion:mean"].isfinite().all()
    assert scores.values["gini"][:, 0].isnan().all()
    assert "map of zeros" in scores.notes["gini"][0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_maps_of_every_type_are_scored_by_their_order(case, dtype):
    model, x, _, maps = case
    ranks = {k: one.flatten(1).argsort(1).argsort(1).view_as(one) for k, one in maps.items()}
    mixed = {"a": ranks["a"].to(dtype).unsqueeze(1), "b": ranks["b"]}  # with one channel, and none
    names = ["deletion:mean", "aupc_windows:mean,size=3", "gini"]
    found = score_maps(model, x, None, mixed, names, random=False).values
    same = {"a": ranks["a"].to(dtype).double(), "b": ranks["b"].double()}
    expected = score_maps(model, x, None, same, names, random=False).values
    for name in names:
        torch.testing.assert_close(found[name], expected[name])


def test_two_metrics_of_one_name_are_not_mistaken_for_each_other():
    x, maps = draw(2, 1, 6, 6), {"a": draw(2, 6, 6)}
    both = [deletion(torch.zeros(1, 1, 1)), deletion(torch.ones(1, 1, 1))]
    with pytest.raises(InputError, match="two metrics are called"):
        score_maps(Plain(torch.ones(36)), x, 0, maps, both)

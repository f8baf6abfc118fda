"""score_maps obeys laws, does not depend on batching and gives everything back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sea_nn import SEA
from sea_nn.errors import InputError, KindError
from sea_nn.metrics import (
    METRICS,
    PERTURBATIONS,
    Scores,
    describe_metrics,
    get_metric,
    query_sets,
    score_maps,
)
from tests.helpers.samples import build
from tests.helpers.scoring import Plain, case, draw

__all__ = ["case"]


def test_aupc_by_pixels_is_deletion_in_the_papers_unit(case):
    model, x, _, maps = case
    names = ["aupc_pixels:mean", "deletion:mean"]
    scores = score_maps(model, x, None, maps, names)
    torch.testing.assert_close(scores.values[names[0]], 28 * scores.values[names[1]])
    # Two maps and a random one; neither the intact input nor the same points are asked again.
    assert scores.evaluations == {"aupc_pixels:mean": len(x) * 3 * 28, "deletion:mean": 0}
    x, model = draw(3, 8), build(1, nn.Linear(8, 3))  # fewer positions than steps
    scores = score_maps(model, x, 0, {"a": draw(3, 8)}, names)
    torch.testing.assert_close(scores.values[names[0]], 8 * scores.values[names[1]])
    assert "8 positions" in scores.notes["aupc_pixels:mean"][0]
    assert scores.notes["deletion:mean"] == ()


def test_the_relative_score_is_undefined_where_the_intact_score_is_zero(monkeypatch):
    weight = torch.ones(16)
    x = draw(2, 1, 4, 4)
    x[0] = torch.tensor([1.0, -1.0]).repeat(8).view(1, 4, 4)
    name = "aupc_authors:black"
    monkeypatch.setattr("sea_nn.metrics.catalogue.SMALL_SIDE", 2)
    scores = score_maps(Plain(weight), x, 0, {"a": draw(2, 4, 4)}, [name], bounds=(-1, 1))
    assert scores.values[name][0].isnan().all()
    assert scores.values[name][1].isfinite().all()
    assert any("undefined" in note for note in scores.notes[name])
    assert scores.estimate(name).n_inputs == 1


# --- laws ------------------------------------------------------------------------------------


def test_scaling_a_map_changes_nothing_of_the_usual_metrics(case):
    model, x, _, maps = case
    table = (nn.Linear(8, 3), draw(3, 8), draw(3, 8))
    for asked, inputs, one in ((model, x, maps["a"]), table):
        scores = score_maps(asked, inputs, None, {"a": one, "scaled": one * 8}, random=False)
        assert scores.values
        for values in scores.values.values():
            torch.testing.assert_close(values[:, 0], values[:, 1])


def test_every_metric_stays_in_its_range_and_says_what_it_is(case):
    model, x, _, maps = case
    masks = draw(2, 12, 12, seed=4) > 0.7
    chosen = [factory() for factory in METRICS.values()]
    scores = score_maps(model, x, None, maps, chosen, masks=masks)
    assert scores.methods == ("a", "b", "random")
    for name, metric in scores.metrics.items():
        low, high = metric.range
        values = scores.values[name]
        assert values.shape == (2, 3)
        assert ((values >= low - 1e-6) & (values <= high + 1e-6)).all(), name
        assert metric.direction in ("higher", "lower")
        assert metric.measures.endswith(".")
        assert name in describe_metrics()
        assert get_metric(name).name == name


# --- batching, devices, and giving everything back ---------------------------------------------


ALL = [f"deletion:{kind}" for kind in PERTURBATIONS]
ALL += ["insertion:noise", "aupc_windows:noise", "gini"]


def test_a_set_scored_in_parts_chunks_or_blocks_equals_the_whole(case, monkeypatch):
    model, x, _, maps = case
    x, maps = torch.cat([x, x + 0.1]), {name: torch.cat([m, m]) for name, m in maps.items()}
    maps["even"] = torch.ones(4, 12, 12)
    monkeypatch.setattr("sea_nn.metrics.catalogue.SMALL_SIDE", 3)
    whole = score_maps(model, x, None, maps, ALL, seed=3)
    parts = [
        score_maps(
            model, x[part], None, {name: m[part] for name, m in maps.items()}, ALL, seed=3,
            first=part.start,
        )
        for part in (slice(0, 1), slice(1, 4))
    ]  # fmt: skip
    joined = Scores.join(parts)
    chunks = score_maps(model, x, None, maps, ALL, seed=3, internal_batch_size=7)
    monkeypatch.setattr("sea_nn.metrics.scoring.CPU_BLOCK", 600)
    blocks = score_maps(model, x, None, maps, ALL, seed=3)
    for name in whole.values:
        for other in (joined, chunks, blocks):
            torch.testing.assert_close(whole.values[name], other.values[name], rtol=1e-4, atol=1e-6)
        if name in whole.curves:
            assert joined.curves[name].shape == whole.curves[name].shape
    assert len(joined) == 4


def test_inputs_and_the_generator_come_back_and_arguments_follow_their_inputs():
    head, x, maps, name = (
        nn.Linear(16, 3),
        draw(3, 1, 4, 4),
        draw(3, 4, 4),
        "deletion:noise",
    )
    before, state, scale = x.clone(), torch.get_rng_state(), torch.tensor([1.0, 2.0, 3.0])

    def model(x, scale):
        return {"logits": head(x.mul_(2).flatten(1)) * scale.unsqueeze(1)}

    def ask(first: int) -> torch.Tensor:
        own = {"first": first, "additional_forward_args": scale[first:]}
        return score_maps(model, x[first:], None, {"a": maps[first:]}, [name], **own).values[name]

    whole = ask(0)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(ask(2), whole[2:])


def test_an_argument_for_all_inputs_is_not_one_of_a_block_s(monkeypatch):
    head, x, maps = nn.Linear(16, 3), draw(4, 1, 4, 4), {"a": draw(4, 4, 4)}
    weights = torch.tensor([1.0, 5.0])  # as many as there are inputs in a block

    def model(x, weights):
        return (head(x.flatten(1)) + weights.std()).square()

    def ask() -> torch.Tensor:
        name = "deletion:mean"
        return score_maps(model, x, 1, maps, [name], additional_forward_args=weights).values[name]

    whole = ask()
    monkeypatch.setattr("sea_nn.metrics.scoring.CPU_BLOCK", 2 * 2 * 16)  # maps: a, and a random one
    torch.testing.assert_close(ask(), whole)


def test_maps_of_every_kind_can_be_scored_by_the_positions_that_sea_gives_them():
    series = draw(3, 2, 10)
    for x, shape in ((draw(3, 6), [6]), (series, [2, 10]), (draw(3, 1, 4, 4, 2), [4, 4, 2])):
        model = build(1, nn.Flatten(), nn.Linear(x[0].numel(), 1))
        names = ["deletion:mean", "gini"]
        scores = score_maps(model, x, None, {"a": draw(3, *shape)}, names, output="value")
        curve = scores.curves["deletion:mean"]
        torch.testing.assert_close(curve[:, 0, 0], model(x).detach().squeeze(1))
        assert scores.metrics["deletion:mean"].direction == "lower"
        e = SEA(model, "saliency", output="value").explain(x)
        score_maps(model, x, None, {"sea": e.attribution}, names, output="value")
    model = build(1, nn.Flatten(), nn.Linear(20, 1))
    with pytest.raises(InputError, match="images"):
        score_maps(model, series, None, {"a": draw(3, 2, 10)}, ["aupc_windows:mean"])


# --- sets, scores ------------------------------------------------------------------


def test_keeping_and_removing_sets_by_hand():
    model = Plain([4.0, -1.0, -2.0])
    x = torch.tensor([[1.0, 1.0, 1.0]])
    sets = torch.tensor([[[True, False, False], [False, True, True], [False, False, True]]])
    kept, removed = query_sets(model, x, 0, sets, torch.tensor(0.0), output="logits")
    assert kept.logit.tolist() == [[4.0, -3.0, -2.0]]
    assert removed.logit.tolist() == [[-3.0, 4.0, 3.0]]
    assert kept.predicted.tolist() == [[True, False, False]]
    assert removed.predicted.tolist() == [[False, True, True]]
    with pytest.raises(KindError, match="bool"):
        query_sets(model, x, 0, sets.float())
    with pytest.raises(InputError, match=r"\[N, k, \*positions\]"):
        query_sets(model, x, 0, sets[..., :2])


def test_scores_can_be_read(case):
    model, x, _, maps = case
    scores = score_maps(model, x, None, maps, ["deletion:mean", "gini"])
    table = scores.table()
    assert "deletion:mean ↓" in table
    assert "gini ↑" in table
    assert table.count("**") == 4  # one best method in each of two columns
    assert scores.best("gini") == max(scores.mean("gini"), key=scores.mean("gini").get)
    with pytest.raises(InputError, match="no score"):
        scores.mean("nonsense")
    with pytest.raises(InputError, match="no method"):
        scores.difference("gini", "nobody")
    with pytest.raises(InputError, match="agree"):
        Scores.join([scores, score_maps(model, x, None, maps, ["gini"])])


# --- what is refused, and what is not --------------------------------------------------

SMALL = draw(2, 3, 4, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maps": {"a": draw(2, 6, 6)}}, r"they are \[2, 6, 6\], and x is \[2, 3, 12, 12\]"),
        ({"maps": {"a": draw(2, 3, 12, 12)}}, "reduce_channels"),
        ({"maps": {"a": torch.zeros(2, 12, 12)}}, "zero everywhere on 2 of 2 inputs"),
        ({"maps": {"a": torch.full((2, 12, 12), torch.nan)}}, "nan or infinite"),
        ({"maps": {}, "random": False}, "at least one"),
        ({"metrics": ["relevance_mass"]}, "pass masks="),
        ({"metrics": ["delution"]}, "did you mean 'deletion'"),
        ({"metrics": ["deletion:white"]}, "no perturbation 'white'"),
        ({"metrics": ["gini:blur"]}, "takes no perturbation"),
        (
            {"x": SMALL, "maps": {"a": SMALL[:, 0]}, "metrics": ["aupc_windows"]},
            "do not fit into 4",
        ),
        ({"metrics": []}, "at least one metric"),
        (
            {"metrics": [METRICS["deletion"](draw(1, 1, 1)) for _ in range(2)]},
            "two metrics are called",
        ),
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

"""What every kind of input has: maps for and against, answers as asked, a plot, a report, a file.

One model for all kinds: half of the values speak for the class, the other half against it, so the
truth is known. Texts walk the same way in tests/text.
"""

from __future__ import annotations

import pytest
import torch

from sea_nn import SEA, About, Explanation
from sea_nn.errors import InputError
from sea_nn.features import Kind
from sea_nn.show.viewer import write_report

NODES = Kind("nodes", axes=3, channels=2, view="bars")
SHAPES = {"table": (6,), "series": (2, 8), "image": (3, 4, 4), "volume": (1, 2, 4, 2)}
SHAPES |= {"several": (10,), "nodes": (6, 2)}


def halve(values):
    """One number an input: twice the mean of the first half of its values less the second's."""
    rows = values.flatten(1)
    first, second = rows.chunk(2, 1)
    return 2 * first.mean(1) - second.mean(1)


def make(name):
    """The inputs of a kind, a model of them and the arguments that say what they are."""
    generator = torch.Generator().manual_seed(0)
    x = 0.5 + torch.rand(2, *SHAPES[name], generator=generator)
    if name == "several":
        parts = {"row": x[:, :4], "series": x[:, None, 4:]}

        def model(row, series):
            odds = 3 * (2 * row.mean(1) - series.mean((1, 2)))
            return torch.stack([torch.zeros_like(odds), odds], 1)

        return parts, model, {}

    def whole(given):
        # The halves of an image are of pixels, not of channels.
        odds = 3 * halve(given.movedim(1, -1) if name == "image" else given)
        return torch.stack([torch.zeros_like(odds), odds], 1)

    return x, whole, {"about": About(kind=NODES)} if name == "nodes" else {}


def part_sums(maps, e):
    """The mass of a map on the half that speaks for the class, and on the other."""
    if e.parts:
        size = e.parts[0].shape[0]
        return maps[:, :size].sum(1), maps[:, size:].sum(1)
    first, second = maps.reshape(len(maps), -1).chunk(2, 1)
    return first.sum(1), second.sum(1)


@pytest.fixture(scope="module", params=SHAPES)
def walk(request):
    x, model, given = make(request.param)
    sea = SEA(model, absent="baseline", budget=120, output="logits")
    return request.param, x, model, sea.explain(x, target=1, **given)


def test_evidence_for_and_against_lie_where_they_are(walk):
    _, _, _, e = walk
    right, wrong = part_sums(e.attribution.flatten(1), e)
    assert (right > 5 * wrong).all()
    right, wrong = part_sums(e.against.flatten(1), e)
    assert (wrong > 5 * right).all()


def test_answers_are_those_of_a_plain_loop_over_sets(walk):
    """Slow form: each set's features one by one, what is not in it set to 0."""
    name, x, model, e = walk
    groups = e.features
    numbers = torch.arange(e.order.shape[1]).view(1, *e.shape) if groups is None else groups
    for i in range(2):
        for sets, said in list(zip(e.asked.sets[i], e.asked.answers[i], strict=True))[:12]:
            if sets.is_floating_point() and not bool(((sets == 0) | (sets == 1)).all()):
                continue  # half of a cell
            kept = sets.bool()[numbers[0]]
            if name == "several":
                row, series = kept[:4] * x["row"][i], kept[None, 4:] * x["series"][i]
                out = model(row[None], series[None])
            else:
                axis = {"image": 0, "volume": 0, "nodes": 1}.get(name)
                mask = kept if axis is None else kept.unsqueeze(axis)
                out = model((mask * x[i])[None])
            assert float(said) == pytest.approx(float(out[0, 1] - out[0, 0]), abs=1e-4)


def test_gains_add_up_and_the_whole_is_predicted(walk):
    name, x, model, e = walk
    with torch.no_grad():
        out = model(**x) if name == "several" else model(x)
    change = (out[:, 1] - out[:, 0]).double()
    torch.testing.assert_close(e.gains.double().sum(1), change, atol=1e-3, rtol=1e-3)
    everything = torch.ones(2, 1, *e.shape, dtype=torch.bool)
    torch.testing.assert_close(e.predict(everything)[:, 0].float(), e.score, atol=2e-3, rtol=0)


def test_it_is_drawn_reported_and_kept(walk, tmp_path):
    name, _, _, e = walk
    again = Explanation.load(e.save(tmp_path / "e.safetensors"))
    assert (again.kind, again.view) == (name, e.view)
    torch.testing.assert_close(again.against, e.against)
    for one in [e.part(part.name) for part in e.parts] or [e]:
        one.plot("strip", tmp_path / "strip.png")
        if one.view == "picture":
            one.plot("top", tmp_path / "top.png")
    page = write_report(e, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "against" in page


@pytest.mark.parametrize("name", ["table", "series", "image", "volume"])
def test_one_position_or_nothing_but_one_value_has_a_map_without_evidence(name):
    shape = tuple(1 for _ in SHAPES[name])
    alone = torch.ones(1, *shape)

    def model(x):
        odds = x.flatten(1).mean(1)
        return torch.stack([torch.zeros_like(odds), odds], 1)

    e = SEA(model, budget=20, output="logits").explain(alone, target=1)
    assert bool(e.attribution.isfinite().all())
    flat = torch.ones(1, *SHAPES[name])
    sea = SEA(model, absent="mean", budget=20, output="logits")
    if name == "table":  # columns have units of their own, and so no mean
        with pytest.raises(InputError, match="needs neighbours"):
            sea.explain(flat, target=1)
    else:
        assert bool(sea.explain(flat, target=1).attribution.isfinite().all())


@pytest.mark.parametrize("name", SHAPES)
def test_a_background_says_what_absent_means_unless_a_way_is_named(name):
    x, model, given = make(name)
    parts = dict(x) if name == "several" else {"": x}
    others = {k: torch.stack([part[0], 3 * part[1]]) for k, part in parts.items()}
    background = others if name == "several" else others[""]

    def said_of_nothing(absent):
        sea = SEA(model, absent=absent, budget=8, output="logits")
        start = {} if absent is None else {"baselines": 0}
        e = sea.explain(x, 1, **start, background=background, **given)
        assert not bool(e.asked.sets[:, 0].any())
        return e.asked.answers[:, 0].float()

    def say(empty):
        out = model(**empty) if name == "several" else model(empty[""])
        return (out[:, 1] - out[:, 0]).expand(2)

    mean = say({k: part.mean(0, keepdim=True) for k, part in others.items()})
    zero = say({k: 0 * part for k, part in others.items()})
    assert (mean - zero).abs().min() > 1
    torch.testing.assert_close(said_of_nothing(None), mean, atol=1e-3, rtol=0)
    torch.testing.assert_close(said_of_nothing("baseline"), zero, atol=1e-3, rtol=0)

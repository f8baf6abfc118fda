"""Members that hide parts of the input equal Captum, the formula, a plain loop or brute force."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from sea_nn import SEA
from sea_nn.errors import InputError, MemberError
from sea_nn.features import IMAGE, TABLE, Features, segment
from sea_nn.features.segments import superpixels
from sea_nn.members.registry import expand_methods
from sea_nn.members.run import choose_entries, compute_maps, run_members
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import blur, prepare
from tests.helpers.by_hand import build_table, ours, pick, same
from tests.helpers.networks import build_pooled, draw_bright


@pytest.fixture
def image() -> tuple[nn.Module, Tensor, Tensor]:
    return pick("image")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 17}, "stride <= window <= input"),
        ({"window": 4, "stride": 5}, "stride <= window <= input"),
        ({"window": 0}, "window must be a whole number >= 1"),
    ],
)
def test_occlusion_windows_that_cannot_be(image, options, message):
    with pytest.raises(InputError, match=message):
        ours(*image, "occlusion", **options)


def test_rise_does_not_depend_on_the_chunks_and_hides_with_the_baseline(image):
    whole = ours(*image, "rise", n_masks=50, baselines=0.5)
    assert same(ours(*image, "rise", n_masks=50, baselines=0.5, limit=2), whole, 1e-12)
    assert not torch.allclose(ours(*image, "rise", n_masks=50), whole)
    with pytest.raises(MemberError, match=r"images \[N, C, H, W\].*sea methods"):
        ours(build_table(), torch.randn(1, 6, dtype=torch.float64), 0, "rise")


def test_kernel_shap_of_few_features_is_exact():
    model, x = build_table(), torch.randn(2, 6).double()

    def value(i, chosen):
        kept = torch.zeros(1, 6, dtype=torch.float64)
        kept[0, list(chosen)] = x[i, list(chosen)]
        return model(kept)[0, 1].item()

    expected = torch.zeros(2, 6, dtype=torch.float64)
    for i, v in itertools.product(range(2), range(6)):
        others = [u for u in range(6) if u != v]
        for size in range(6):
            weight = math.factorial(size) * math.factorial(5 - size) / math.factorial(6)
            for chosen in itertools.combinations(others, size):
                expected[i, v] += weight * (value(i, (*chosen, v)) - value(i, chosen))
    assert same(ours(model, x, 1, "kernel_shap"), expected, 1e-4)


def test_superpixels_follow_the_picture():
    picture = torch.zeros(3, 32, 32)
    picture[0, :, 16:] = 200.0
    labels = superpixels(picture, n_segments=4)
    assert labels.shape == (32, 32)
    assert sorted(labels.unique().tolist()) == list(range(int(labels.max()) + 1))
    assert not set(labels[:, :15].unique().tolist()) & set(labels[:, 17:].unique().tolist())
    assert superpixels(torch.zeros(1, 8, 8)).shape == (8, 8)


def test_segments_of_each_kind_of_input():
    x, many = torch.zeros(2, 3), torch.zeros(1, 5000)
    assert torch.equal(segment(x, Features.of(x))[1], torch.arange(3))
    shared = segment(x, Features.of(x, feature_mask=torch.tensor([7, 7, 9])))
    assert [s.tolist() for s in shared] == [[0, 0, 1], [0, 0, 1]]
    with pytest.raises(MemberError, match="group features with feature_mask="):
        segment(many, Features.of(many))


def test_lime_and_kernel_shap_make_superpixels_by_themselves(image):
    for name in ("lime", "kernel_shap"):
        maps = ours(*image, name, n_samples=40, n_segments=9)
        assert torch.equal(maps[:, 0], maps[:, 2])  # a segment spans the channels
        assert 1 < len(maps[0].unique()) <= 16


NAME = "presence_gradient"


def loop(model, x, absent, target, cells=8, passes=6, seed=0):
    """The gradient by one share a pixel, pass by pass, of the probability itself."""
    count, _, height, width = x.shape
    random = torch.Generator().manual_seed(seed)
    half = torch.rand(passes // 2, cells * cells, generator=random).view(-1, cells, cells)
    rows, columns = torch.arange(height) * cells // height, torch.arange(width) * cells // width
    total = torch.zeros(count, height, width)
    for k in range(passes):
        grid = 1 - half[k // 2] if k % 2 else half[k // 2]
        m = grid[rows][:, columns].expand(count, 1, -1, -1).clone().requires_grad_(True)
        p = model(absent + m * (x - absent)).softmax(1).gather(1, target[:, None]).sum()
        total += torch.autograd.grad(p, m)[0][:, 0]
    return total / passes


def ask(model, x, target, hiding, features=None, **options):
    with open_model(
        model, x, target, hiding=hiding, features=features, output="logits", seed=0
    ) as probe:
        found = run_members(probe, expand_methods([(NAME, options)]))
        assert probe.meter.rows["members"] == len(x) * options.get("passes", 16)
    return found.maps[NAME]


@pytest.mark.parametrize("cells", [8, 5])
def test_it_is_the_gradient_by_presence_pass_by_pass(cells):
    model, x, target = build_pooled(), draw_bright(), torch.tensor([0, 1])
    found = ask(model, x, target, prepare(x, "blur"), passes=6, cells=cells).sum(1)
    expected = loop(model, x, blur(x), target, cells)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert bool((found < 0).any())
    assert bool((found > 0).any())


def test_of_a_sum_of_columns_each_has_its_own_weight():
    """Of a value that adds up, the gradient by presence is what each column changes, exactly."""
    line = nn.Linear(5, 1, bias=False)
    x = torch.tensor([[1.0, -2.0, 3.0, 0.0, 1.0]])
    found = compute_maps(line, x, 0, NAME, output="value", baselines=1.0).maps[NAME]
    torch.testing.assert_close(found, (line.weight * (x - 1)).detach())


@pytest.mark.parametrize(
    ("shape", "given"),
    [((3, 7), 7), ((2, 3, 40), 24), ((2, 1, 4, 9, 9), 4 * 8 * 8), ((2, 3, 20, 30), 64)],
)
def test_every_kind_of_input_has_its_cells(shape, given):
    x = torch.full(shape, 0.5)  # whose shares are exact
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 1), nn.Tanh())
    points = []
    watched = nn.Sequential(nn.Identity(), *model)
    watched[0].register_forward_hook(lambda m, i, o: points.append(o.detach()))
    found = compute_maps(watched, x, 0, NAME, output="value").maps[NAME]
    assert found.shape == x.shape
    share = (points[-1][-1] / x[-1]).flatten()  # absent is 0: points are shares of the input
    assert len(share.double().mul(1e6).round().unique()) == given


def test_what_members_say_keeps_its_sign():
    found = compute_maps(build_pooled(), draw_bright(), 0, (NAME, "saliency"), output="logits")
    signed = found.to_heatmaps(signed=True)
    assert signed.shape == (2, 2, 16, 16)
    assert torch.equal(signed.abs().flatten(2).amax(2), torch.ones(2, 2, dtype=torch.float64))
    raw = found.maps[NAME].sum(1)
    assert torch.equal(signed[:, 0].sign(), raw.sign())


def test_members_leave_at_least_half_of_a_budget_to_questions():
    for budget in (5, 12, 20, 34, 128, 1024):
        for kind in (IMAGE, TABLE):
            for model in (nn.Conv2d(3, 2, 3), torch.sin):
                entries = choose_entries(model, None, kind, budget)
                assert sum(entry.member.cost(entry.options) for entry in entries) <= budget / 2
    passes = [choose_entries(nn.Conv2d(3, 2, 3), budget=b)[0].options for b in (34, 128)]
    assert [own["passes"] for own in passes] == [8, 16]


def test_a_default_member_that_is_not_made_for_the_model_is_left_out_and_a_named_one_is_missed():
    class Detached(nn.Module):
        def forward(self, x):
            return x.detach().flatten(1)[:, :2]

    x = torch.rand(1, 1, 8, 8)
    e = SEA(Detached(), budget=40, output="logits").explain(x)
    assert e.methods == ()
    with pytest.raises(RuntimeError, match="no gradient"):
        SEA(Detached(), NAME, budget=40, output="logits").explain(x)

import copy
import json
import pickle
from inspect import signature

import pytest
import torch
from captum.attr import NoiseTunnel
from torch import nn

from sea_nn import SEA, About, Constraints, Explanation, SEAConfig, ensemble
from sea_nn.config import PAPER_SETTINGS
from sea_nn.errors import InputError, KindError
from sea_nn.features import scale
from sea_nn.members.run import compute_maps
from sea_nn.paper.heatmaps import reduce_channels
from sea_nn.vision.shipped import load_cnn, load_sample

FAST = ("saliency", "input_x_gradient")


@pytest.fixture(scope="module")
def cnn():
    return load_cnn()


@pytest.fixture(scope="module")
def x():
    return load_sample().images[[3, 50, 120]]


def test_a_linear_model_has_a_known_answer():
    """Gradient x input of a linear model is w * x: its largest entries must come first."""
    model = nn.Linear(6, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 5, -4, 3, -2, 1], [1.0, 1, 1, 1, 1, 1]]))
    x = torch.tensor([[1.0, 1, 1, 1, 1, 1]])
    e = SEA(model, ("saliency", "input_x_gradient", "integrated_gradients")).explain(x, target=0)
    assert e.order[0].tolist() == [1, 2, 3, 4, 5, 0]
    assert (e.attribution[0].sort(descending=True).indices == e.order[0]).all()


def test_the_map_is_the_ensemble_of_the_members_heatmaps(cnn, x):
    e = SEA(cnn, FAST).explain(x)
    raw = compute_maps(cnn, x, methods=FAST).maps.values()
    heatmaps = torch.stack([scale(reduce_channels(m)) for m in raw], 1)
    assert torch.equal(e.maps, heatmaps)
    assert torch.equal(e.attribution, ensemble(heatmaps).attribution.unsqueeze(1))
    assert e.methods == FAST
    assert e.target.tolist() == cnn(x).argmax(1).tolist()
    assert torch.allclose(e.score, cnn(x).softmax(1).amax(1), atol=1e-5)
    assert e.provenance.config["solver"] == "mirror"
    assert set(e.provenance.evaluations) == {*FAST, "sea"}
    assert e.provenance.evaluations["sea"] == 3 * 3  # the whole, and it again beside its half
    assert e.questions == 0  # without a budget nothing is asked
    assert e.provenance.seconds["sea"] > 0


def test_captums_conventions(cnn, x):
    sea = SEA(cnn, FAST)
    whole = sea.attribute(x)
    assert whole.shape == (3, 1, 28, 28)
    (packed,) = sea.attribute((x,))
    assert torch.equal(whole, packed)
    predicted = cnn(x).argmax(1)
    for target in (predicted, predicted.tolist()):
        assert torch.equal(sea.attribute(x, target=target), whole)
    torch.testing.assert_close(
        sea.attribute(x[:1], target=int(predicted[0])), whole[:1], rtol=0.02, atol=0.02
    )
    other = sea.attribute(x, target=(predicted + 1) % 10)
    assert not torch.equal(other, whole)
    based = SEA(cnn, ("saliency", "integrated_gradients"))
    assert not torch.equal(based.attribute(x, baselines=0.5), based.attribute(x))
    with pytest.raises(InputError, match="takes 2 positional arguments"):
        sea.attribute((x, x))


def test_inside_captums_noise_tunnel(cnn, x):
    noisy = NoiseTunnel(SEA(cnn, FAST)).attribute(x, nt_samples=2, stdevs=0.01, target=1)
    assert noisy.shape == (3, 1, 28, 28)
    assert torch.isfinite(noisy).all()


def test_additional_arguments_reach_the_model(cnn, x):
    bias = torch.zeros(3, 10)
    bias[:, 7] = 1e3
    model = lambda x, bias: {"logits": cnn(x) + bias}  # noqa: E731
    e = SEA(model, FAST).explain(x, additional_forward_args=(bias,))
    assert e.target.tolist() == [7, 7, 7]


def test_a_feature_mask_makes_groups_that_share_one_value(cnn, x):
    mask = torch.arange(28 * 28).reshape(28, 28) // (28 * 7)  # four bands
    e = SEA(cnn, FAST).explain(x, feature_mask=mask)
    assert e.feature_shape == (4,)
    assert e.order.shape == (3, 4)
    for band in range(4):
        assert len(e.attribution[0, 0][mask == band].unique()) == 1
    assert e.top_mask(1).sum((1, 2)).tolist() == [28 * 7] * 3
    methods = (name for name in FAST)  # they may come one by one
    wide = SEA(cnn, methods).attribute(x, feature_mask=mask.expand(len(x), 3, 28, 28))
    assert torch.equal(wide, e.attribution)
    for given in ({"feature_mask": mask}, {}):
        bounds = Constraints(forbidden=mask == 2)
        e = SEA(cnn, FAST).explain(x, constraints=bounds, **given)
        assert (e.attribution[:, 0][:, mask == 2] == 0).all()
    with pytest.raises(InputError, match="one by one"):
        SEA(cnn, FAST).attribute(x, feature_mask=torch.stack([mask, mask, mask + (mask > 1)]))
    with pytest.raises(KindError, match="whole numbers"):
        SEA(cnn, FAST).attribute(x, feature_mask=mask.float())
    with pytest.raises(InputError, match="broadcast"):
        SEA(cnn, FAST).attribute(x, feature_mask=torch.zeros(5, 5).long())


def test_a_model_that_does_not_react_says_so():
    class Constant(nn.Module):
        def forward(self, x):
            return (x.flatten(1)[:, :2] * 0) + torch.tensor([1.0, 0.0])

    e = SEA(Constant(), FAST, output="logits").explain(torch.rand(2, 1, 4, 4))
    assert not e.attribution.any()
    assert ("fail", "input 1") in {(c.level, c.subject) for c in e.checks}


def test_a_dead_input_costs_the_others_nothing(cnn, x):
    class Gate(nn.Module):
        def forward(self, x):
            return cnn(x) * (x.flatten(1).sum(1, keepdim=True) > 0)

    mixed = torch.cat([x[:1], torch.zeros_like(x[:1]), x[1:2]])
    e = SEA(Gate(), FAST).explain(mixed)
    alone = SEA(Gate(), FAST).explain(x[:1])
    assert not e.attribution[1].any()
    torch.testing.assert_close(e.attribution[:1], alone.attribution, rtol=1e-4, atol=1e-4)
    dead = [c for c in e.checks if c.subject == "input 1"]
    assert "does not react" in dead[0].message
    assert not any(c.subject == "input 0" and "react" in c.message for c in e.checks)


def test_inference_mode_is_left_for_the_time_of_an_explanation(cnn, x):
    expected = SEA(cnn, FAST).explain(x)
    with torch.inference_mode():
        found = SEA(cnn, FAST).explain(x.clone())
        assert torch.is_inference_mode_enabled()
        again = ensemble(found.maps.clone())
    assert torch.allclose(found.attribution, expected.attribution)
    assert torch.isfinite(again.attribution).all()


def test_inputs_are_their_own_pictures_where_none_were_given(cnn, x):
    given = SEA(cnn, FAST).explain(x).images
    assert given.shape == (len(x), *x.shape[2:], 3)
    assert given.dtype == torch.uint8
    assert given.flatten(1).amin(1).eq(0).all()
    assert given.flatten(1).amax(1).eq(255).all()
    drawn = torch.zeros(len(x), *x.shape[2:], 3, dtype=torch.uint8)
    assert torch.equal(SEA(cnn, FAST).explain(x, about=About(images=drawn)).images, drawn)
    table = nn.Linear(4, 2)
    assert SEA(table, FAST).explain(torch.rand(2, 4)).images is None


def test_an_explanation_says_how_its_members_ran(cnn, x, tmp_path):
    made = SEA(cnn, [("integrated_gradients", {"n_steps": 7}), "smooth_ig"]).explain(
        x, baselines=0.5
    )
    made.save(tmp_path / "e.safetensors")
    told = Explanation.load(tmp_path / "e.safetensors").provenance
    assert told == made.provenance
    assert told.members["integrated_gradients"] == {"n_steps": 7}
    assert told.members["smooth_ig"]["n_samples"] == 5
    assert told.call["baselines"] == 0.5
    learned = SEA(cnn, "deeplift").explain(x, baselines=torch.zeros_like(x)).provenance
    assert learned.call["baselines"] == f"tensor {list(x.shape)}"


@pytest.mark.parametrize("setting", PAPER_SETTINGS)
@pytest.mark.parametrize("reading", ["paper", "authors"])
def test_presets_survive_json(setting, reading):
    config = SEAConfig.paper(setting, reading)
    mixed = config.replace(thresholds=(5, 20), init=(0.1, 1.0), grid=(7, 9), widths=())
    for one in (config, mixed):
        assert SEAConfig(**json.loads(json.dumps(one.to_dict()))) == one == copy.deepcopy(one)
        assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("make", [SEAConfig, SEAConfig().replace])
def test_unknown_settings_are_named_beside_the_known_ones(make):
    with pytest.raises(InputError, match="unknown setting epoch: the settings are solver, "):
        make(epoch=3)
    with pytest.raises(InputError, match="SEA\\(model, absent='mean'\\)"):
        make(absent="mean")
    with pytest.raises(AttributeError):
        make().epochs = 3
    assert "epochs" in signature(SEAConfig).parameters


def test_presets_are_the_papers_numbers():
    btd = SEAConfig.paper("btd")
    assert (btd.heatmap_weight, btd.margin_weight, btd.weight_decay) == (1, 100, 1e-3)
    assert (btd.solver, btd.epochs, btd.lr_decay, btd.margin) == ("adagrad", 50, 0.1, 1e-5)
    assert btd.grid == (28, 28)
    assert btd.thresholds == tuple(range(5, 51, 5))
    swapped = SEAConfig.paper("btd", reading="authors")
    assert (swapped.heatmap_weight, swapped.margin_weight) == (100, 1)
    with pytest.raises(InputError, match="fmnist"):
        SEAConfig.paper("mnist")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"solver": "adam"}, "'mirror', 'gradient', 'adagrad'"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"epochs": 2.5}, "whole number"),
        ({"epochs": -1}, ">= 0"),
        *(({"thresholds": t}, "thresholds must") for t in ((), (0,), (1.5,), (True,), ("5",))),
        ({"grid": (28,)}, "each axis"),
        ({"grid": (0, 3)}, "whole number"),
        *(
            ({"activation": name}, "'sqrt', 'log1p' or 'power:p'")
            for name in ("relu", "power:1", "power:x", "power:0", "power:-inf", "", None)
        ),
        ({"init": (-1, 1)}, "low, high"),
        ({"train": "some"}, "features"),
        ({"reading": "mine"}, "authors"),
        ({"heatmap_weight": 0}, "nothing would be learned"),
        ({"margin": -1}, "number >= 0"),
        ({"widths": (0,)}, "widths"),
        ({"widths": 5}, "widths must be a list"),
        ({"bias": "false"}, "bias must be true or false"),
        ({"init": (0, float("inf"))}, "finite"),
        ({"init": ("a", "b")}, "finite"),
        ({"seed": 2**70}, "below"),
    ],
)
def test_bad_settings_say_what_to_do(fields, words):
    with pytest.raises(InputError, match=words):
        SEAConfig(**fields)

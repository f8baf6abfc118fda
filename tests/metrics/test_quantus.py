"""Quantus: equal where definitions agree, and every listed metric runs on our maps."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import torch

from sea_nn.errors import InputError, MissingExtraError
from sea_nn.metrics import gini, pointing_game, rank_accuracy, relevance_mass, score_maps
from sea_nn.metrics.quantus import QUANTUS, score_with_quantus
from sea_nn.vision.shipped import load_cnn, load_sample


@pytest.fixture(scope="module", autouse=True)
def quantus():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("quantus", reason="pip install 'sea-nn[eval]'")


def saliency(model, x, target):
    leaf = x.clone().requires_grad_()
    score = model(leaf).gather(1, target[:, None]).sum()
    return torch.autograd.grad(score, leaf)[0]


@pytest.fixture(scope="module")
def case():
    """The shipped CNN, ten images, two methods' maps without ties, and the garments' masks."""
    model, x = load_cnn(), load_sample().images[::20]
    target = model(x).argmax(1)
    generator = torch.Generator().manual_seed(0)
    maps = {
        "saliency": saliency(model, x, target).abs().squeeze(1),
        "pixels": x.squeeze(1) + 1e-3 * torch.rand(10, 28, 28, generator=generator),
    }
    return model, x, target, maps, x.squeeze(1) > 0.3


@pytest.mark.parametrize("features", [28, 56])
def test_deletion_equals_pixel_flipping(quantus, case, features):
    model, x, target, maps, _ = case
    steps = 784 // features
    name = f"deletion:black,steps={steps}"
    ours = score_maps(model, x, target, maps, [name], random=False).curves[name].values
    for column, one in enumerate(maps.values()):
        flipping = quantus.PixelFlipping(
            features_in_step=features, perturb_baseline="black", normalise=False,
            disable_warnings=True, display_progressbar=False,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = flipping(
                model=model, x_batch=x.numpy(), y_batch=target.numpy(),
                a_batch=one.unsqueeze(1).numpy(), softmax=True, device="cpu",
            )  # fmt: skip
        # Quantus leaves the intact input out of its curve.
        np.testing.assert_allclose(ours[:, column, 1:], np.array(theirs), atol=1e-5)


def test_localisation_and_sparseness_equal_quantus(case):
    model, x, target, maps, masks = case
    names = [
        "relevance_mass_accuracy", "relevance_rank_accuracy", "pointing_game", "sparseness",
    ]  # fmt: skip
    theirs = score_with_quantus(model, x, target, maps, names, masks=masks, random=False).values
    stacked = torch.stack(list(maps.values()), 1)
    ours = [
        relevance_mass(stacked, masks), rank_accuracy(stacked, masks),
        pointing_game(stacked, masks), gini(stacked),
    ]  # fmt: skip
    for name, mine in zip(names, ours, strict=True):
        # Quantus adds 1e-7 to every value before the Gini index.
        torch.testing.assert_close(mine.double(), theirs[f"quantus:{name}"], rtol=1e-3, atol=1e-4)
    assert theirs["quantus:pointing_game"].unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", QUANTUS)
def test_every_listed_metric_works(quantus, case, name):
    model, x, target, maps, masks = case
    x, target, masks = x[:3], target[:3], masks[:3]
    options = {name: {"nr_samples": 2}} if "sensitivity" in name else None
    numpy_state, state = np.random.get_state()[1].copy(), torch.get_rng_state()
    weights = [p.clone() for p in model.parameters()]
    model.train()
    scores = score_with_quantus(
        model, x, target, {"saliency": maps["saliency"][:3]}, [name], masks=masks,
        explain={"saliency": saliency}, options=options,
    )  # fmt: skip
    assert model.training
    model.eval()
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    assert torch.equal(torch.get_rng_state(), state)
    values, metric = scores.values[f"quantus:{name}"], scores.metrics[f"quantus:{name}"]
    assert scores.methods == ("saliency", "random")
    assert values.shape == (3, 2)
    assert ((values >= metric.range[0] - 1e-6) & (values <= metric.range[1] + 1e-6)).all()
    direction = getattr(quantus, QUANTUS[name].kind).score_direction.value
    assert metric.direction == direction


def test_randomised_layers_and_noise_move_a_gradient_map_less_than_a_random_one(case):
    model, x, target, maps, _ = case
    scores = score_with_quantus(
        model, x, target, {"saliency": maps["saliency"]}, ["avg_sensitivity", "mprt"],
        explain={"saliency": saliency}, options={"avg_sensitivity": {"lower_bound": 0.001}},
    )  # fmt: skip
    sensitivity = scores.mean("quantus:avg_sensitivity")
    assert sensitivity["saliency"] < sensitivity["random"]
    assert abs(scores.mean("quantus:mprt")["random"]) < 0.05


def test_wrong_calls_say_what_to_do(case, monkeypatch):
    model, x, target, maps, _ = case
    for names, given, message in (
        (["nonsense"], {}, "choose from relevance_mass_accuracy"),
        (["auc"], {}, "pass masks="),
        (["mprt"], {"explain": {"saliency": saliency}}, "for 'pixels'"),
        (["sparseness"], {"options": {"sparseness": {"abs": 3, "normalise_func": 3}}}, "refused"),
    ):
        with pytest.raises(InputError, match=message):
            score_with_quantus(model, x, target, maps, names, **given)
    with pytest.raises(InputError, match="images"):
        score_with_quantus(model, x.flatten(1), target, maps, ["sparseness"])
    monkeypatch.setitem(sys.modules, "quantus", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        score_with_quantus(model, x, target, maps, ["sparseness"])

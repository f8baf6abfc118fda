import copy
import json
import pickle
from inspect import signature

import pytest

from sea_nn import SEAConfig
from sea_nn.config import PAPER_SETTINGS
from sea_nn.errors import InputError


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

"""The golden set: some 30 small explanations, recorded once, that later versions are held to.

They are those that must not change: the paper's form, members' maps, class maps, constraints.

    python -m tests.golden            # record those of ``SAME`` anew, by the installed version
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import sea_nn
from sea_nn import SEA, SEAConfig

FILE = Path(__file__).with_suffix(".safetensors")
Found = dict[str, Tensor]


def draw(*shape: int, seed: int = 1) -> Tensor:
    """Numbers in [0, 1) that no version of this package draws."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def set_weights(model: nn.Module, scale: float = 0.3) -> nn.Module:
    """Weights drawn one after another, whatever PyTorch's own way to start them is."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(scale * torch.randn(weight.shape, generator=generator))
    return model.eval()


def make_cnn() -> nn.Module:
    return set_weights(
        nn.Sequential(
            *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4)),
        )
    )


class Attending(nn.Module):
    """A vision transformer of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, nn.GELU(), batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(
            self.block(torch.cat([self.token.expand(len(x), -1, -1), tokens], 1))[:, 0]
        )


class Both(nn.Module):
    """An image and a row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2 * 64 + 3, 3)

    def forward(self, image: Tensor, row: Tensor) -> Tensor:
        return self.last(torch.cat([image.flatten(1), row], 1)).tanh()


def make_series() -> nn.Module:
    layers = (nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    return set_weights(nn.Sequential(*layers))


def make_table() -> nn.Module:
    return set_weights(nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 3)), 0.6)


def make_volume() -> nn.Module:
    layers = (nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool3d(2), nn.Flatten())
    return set_weights(nn.Sequential(*layers, nn.Linear(256, 3)))


def take(e: Any) -> Found:
    """What is recorded of an explanation."""
    return {"attribution": e.attribution, "gains": e.gains, "score": e.score, "target": e.target}


def read_ensemble(setting: str, reading: str = "paper", **settings: Any) -> Found:
    grid = SEAConfig.paper(setting).grid
    side = 4 * (grid or (3, 3))[0]
    config = SEAConfig.paper(setting, reading).replace(epochs=5, **settings)
    result = sea_nn.ensemble(draw(1, 3, side, side), config)
    return {"gains": result.gains}


def run_members(model: nn.Module, x: Tensor, methods: Any) -> Found:
    e = SEA(model, methods).explain(x, target=0)
    return {name: e.maps[:, k] for k, name in enumerate(e.methods)} | {"sea": e.attribution}


def make_image_pair() -> Tensor:
    return draw(2, 3, 16, 16)


def ensemble_constrained() -> Found:
    required, forbidden = torch.zeros(2, 6, 6, dtype=torch.bool)
    required[0, 0], forbidden[3, 3] = True, True
    result = sea_nn.ensemble(draw(2, 3, 6, 6), required=required, forbidden=forbidden, epsilon=0.01)
    return {"attribution": result.attribution, "gains": result.gains}


def ensemble_of_a_class() -> Found:
    result = sea_nn.ensemble_class(draw(5, 3, 8, 8))
    return {"attribution": result.attribution, "gains": result.gains}


def ensemble_with_weights() -> Found:
    result = sea_nn.ensemble(draw(2, 3, 8, 8), weights=torch.tensor([1.0, 2.0, 0.5]))
    sets = draw(2, 4, 64, seed=2) < 0.5
    assert result.scorer is not None
    return {"attribution": result.attribution, "sets": result.scorer(sets.double())}


def aggregate_all() -> Found:
    return {
        name: sea_nn.aggregate(draw(2, 3, 6, 6), name).attribution
        for name in ("mean", "variance", "geometric", "borda")
    }


def maximize_a_function() -> Found:
    f = set_weights(sea_nn.DSF(12, widths=(8, 4), init=(0.1, 0.9))).double()
    with torch.no_grad():
        for weight in f.parameters():
            weight.abs_()
    found = sea_nn.maximize(f, budget=6)
    return {"order": found.order, "gains": found.gains}


def run_a_data_set() -> Found:
    sea = SEA(make_cnn(), ("saliency", "input_x_gradient"))
    with tempfile.TemporaryDirectory() as folder:
        sea_nn.explain_dataset(draw(5, 3, 16, 16), sea, Path(folder) / "run", quiet=True)
        rows = list(sea_nn.read_dataset(Path(folder) / "run"))
        return {"maps": torch.stack([row.map for row in rows])}


def sum_a_mask(output: Tensor) -> Tensor:
    """A target of one's own: a function of the model's output."""
    return output[:, 0] - 0.5 * output[:, 2]


def attribute_both() -> Found:
    inputs = (draw(2, 2, 8, 8), draw(2, 3))
    image, row = SEA(set_weights(Both()), "paper").attribute(inputs, target=1)
    return {"image": image, "row": row}


def explain_with_constraints() -> Found:
    required, forbidden = torch.zeros(2, 6, dtype=torch.bool)
    required[4], forbidden[1] = True, True
    bounds = sea_nn.Constraints(required, forbidden, epsilon=0.01)
    return take(SEA(make_table(), "paper").explain(draw(2, 6), constraints=bounds))


def run_text_members() -> Found:
    from tests.helpers.texts import SHORT, TEXT, make_classifier, make_tokenizer

    names = ("saliency", "input_x_gradient", "integrated_gradients", "attention_rollout")
    methods = (*names, "leave_one_out")
    sea = SEA.for_text(make_classifier(), make_tokenizer(), methods=methods, budget=120)
    e = sea.explain([TEXT, SHORT], target=0)
    return {name: e.maps[:, k] for k, name in enumerate(e.methods)}


RANDOM = (
    *("saliency", "input_x_gradient", "deeplift", "guided_backprop", "deconvolution"),
    *("grad_cam", "guided_grad_cam", ("occlusion", {"window": 4, "stride": 2})),
    *(("integrated_gradients", {"n_steps": 8}), ("smooth_ig", {"n_samples": 2, "n_steps": 4})),
    *(("smoothgrad", {"n_samples": 4}), ("rise", {"n_masks": 40}), ("lime", {"n_samples": 60})),
    *(("kernel_shap", {"n_samples": 120}), ("gradient_shap", {"n_samples": 8})),
)
ATTENTION = ("attention_rollout", "attention_gradient", "attention_lrp")

SAME: dict[str, Callable[[], Found]] = {
    "ensemble": lambda: {"attribution": sea_nn.ensemble(draw(2, 3, 8, 8)).attribution},
    "fmnist": lambda: read_ensemble("fmnist"),
    "btd": lambda: read_ensemble("btd"),
    "cub": lambda: read_ensemble("cub"),
    "tiny_imagenet": lambda: read_ensemble("tiny_imagenet"),
    "imagenet": lambda: read_ensemble("imagenet"),
    "authors": lambda: read_ensemble("fmnist", "authors"),
    "powers": lambda: read_ensemble("fmnist", activation="power:-1", solver="mirror"),
    "weights": ensemble_with_weights,
    "class": ensemble_of_a_class,
    "bound": ensemble_constrained,
    "aggregators": aggregate_all,
    "maximize": maximize_a_function,
    "image": lambda: take(SEA(make_cnn(), "paper").explain(make_image_pair())),
    "attribute": lambda: {"map": SEA(make_cnn(), "paper").attribute(make_image_pair(), target=2)},
    "contrast": lambda: take(SEA(make_cnn(), "paper").explain(make_image_pair(), target=(3, 1))),
    "function": lambda: take(SEA(make_cnn(), "paper").explain(make_image_pair(), sum_a_mask)),
    "table": lambda: take(SEA(make_table(), "paper").explain(draw(3, 6))),
    "baseline": lambda: take(
        SEA(make_table(), "paper").explain(draw(3, 6), baselines=draw(6, seed=4))
    ),
    "series": lambda: take(SEA(make_series(), "paper").explain(draw(2, 2, 20))),
    "volume": lambda: take(SEA(make_volume(), "paper").explain(draw(1, 1, 8, 8, 8))),
    "several": attribute_both,
    "constraints": explain_with_constraints,
    "members": lambda: run_members(make_cnn(), make_image_pair(), RANDOM),
    "attention": lambda: run_members(set_weights(Attending()), draw(2, 1, 16, 16), ATTENTION),
    "columns": lambda: run_members(
        make_table(), draw(2, 6), ("saliency", "deeplift", "occlusion", "lime", "kernel_shap")
    ),
    "text": run_text_members,
    "data_set": run_a_data_set,
}


def find(name: str) -> Found:
    """What this version says of one case, as it is recorded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = SAME[name]()
    for key, value in found.items():
        found[key] = value.float() if value.is_floating_point() else value
    return {f"{name}.{key}": value.detach().contiguous() for key, value in found.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    recorded = load_file(FILE)  # with what files of release 0.1 held, which no version writes
    for name in SAME:
        recorded |= find(name)
    save_file(recorded, FILE)

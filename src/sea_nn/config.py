"""SEAConfig: every choice of the paper's method in one frozen, self-checking place.

>>> SEAConfig(epochs=20).epochs
20
>>> SEAConfig.paper("fmnist").solver
'adagrad'
"""

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sea_nn.errors import InputError, KindError

PAPER_WIDTHS = (512, 256, 32)
Init = str | tuple[float, float]

DEFAULT_BUDGET = 512
"""Model evaluations an input where nobody says what to do: the function learned from answers."""
BUDGETS = {"fast": 34, "thorough": 1024}
"""Names of other budgets."""

ABSENT = ("blur", "mean", "baseline", "noise", "interpolate", "background", "background_mean")
CHOICES = {
    "solver": ("mirror", "gradient", "adagrad"),
    "train": ("features", "all"),
    "reading": ("paper", "authors"),
}
WEIGHTS = ("heatmap_weight", "margin_weight", "floor_weight", "weight_decay")
# (heatmap weight, margin weight, weight decay, grid) as the paper states them.
PAPER_SETTINGS: dict[str, tuple[float, float, float, tuple[int, int] | None]] = {
    "fmnist": (10.0, 10.0, 1e-6, None),
    "btd": (1.0, 100.0, 1e-3, (28, 28)),
    "cub": (0.1, 10.0, 1e-6, (28, 28)),
    "tiny_imagenet": (0.1, 10.0, 1e-6, (28, 28)),
    "imagenet": (0.1, 0.1, 1e-3, (28, 28)),
}


@dataclass(frozen=True)
class SEAConfig:
    """How the scoring function is learned and read.

    Attributes:
        solver: "mirror" (exponentiated gradient), "gradient" (projected), or "adagrad" [M5].
        learning_rate: first step; step t is learning_rate / (1 + lr_decay t).
        lr_decay: how fast steps shrink.
        epochs: how many steps.
        heatmap_weight: weight of sum_i [f(1) - f(H_i)] (the paper's lambda_1).
        margin_weight: weight of the margin term over binarised heatmaps (lambda_2); 0: left out.
        floor_weight: weight of (1 - f(1))+, which keeps f from vanishing [M2].
        weight_decay: lambda of lambda/2 |w|^2.
        margin: delta of the margin term.
        thresholds: sizes of the binarised heatmaps.
        train: "features" learns the first layer's weights alone, "all" every parameter.
        widths: hidden widths of the DSF.
        activation: "sqrt", "log1p" or "power:p".
        bias: whether layers have biases.
        init: "ones", or (low, high) for a random start.
        seed: seed of a random start.
        grid: pool heatmaps of images onto this grid first [M7]; None works at full resolution.
        reading: "paper", or "authors" for three habits of the authors' published code: budgets
            counted in pixels though sets are cells, cells equal to the mean kept, and tied
            features not removed.
    """

    solver: str = "mirror"
    learning_rate: float = 0.2
    lr_decay: float = 0.1
    epochs: int = 50
    heatmap_weight: float = 1.0
    margin_weight: float = 0.0
    floor_weight: float = 0.0
    weight_decay: float = 0.0
    margin: float = 1e-5
    thresholds: tuple[int, ...] = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    train: str = "features"
    widths: tuple[int, ...] = PAPER_WIDTHS
    activation: str = "sqrt"
    bias: bool = True
    init: Init = "ones"
    seed: int = 0
    grid: tuple[int, int] | None = None
    reading: str = "paper"

    def __new__(cls, *_: Any, **settings: Any) -> "SEAConfig":
        """Python's own error for an unknown keyword does not list the known ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := ", ".join(sorted(settings.keys() - known)):
            said = f"unknown setting {unknown}: the settings are {', '.join(known)}"
            raise InputError(f"{said}; absent is said by SEA(model, absent='mean')")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in ("thresholds", "widths", "grid", "init"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_number("learning_rate", self.learning_rate, above=0)
        for name in ("lr_decay", *WEIGHTS, "margin"):
            check_number(name, getattr(self, name))
        check_whole("epochs", self.epochs, 0)
        check_seed(self.seed)
        if not isinstance(self.bias, bool):
            raise InputError(f"bias must be true or false; got {self.bias!r}")
        check_sizes("widths", self.widths)
        check_sizes("thresholds", self.thresholds)
        if self.heatmap_weight + self.margin_weight <= 0:
            raise InputError("heatmap_weight and margin_weight are 0: nothing would be learned")
        if not self.thresholds:
            raise InputError("thresholds must be at least one size, such as [5, 10]")
        if self.grid is not None:
            check_grid(self.grid, axes=2)
        check_activation(self.activation)
        check_init(self.init)

    @property
    def constant_start(self) -> bool:
        """Whether all parameters start equal, so that the network collapses (docs/math.md)."""
        low, high = check_init(self.init)
        return low == high

    @classmethod
    def paper(cls, setting: str, reading: str = "paper") -> "SEAConfig":
        """The paper's settings: "fmnist", "btd", "cub", "tiny_imagenet" or "imagenet".

        Args:
            setting: the data set.
            reading: "paper" takes the paper at its word (lambda_1 weighs the heatmap term);
                "authors" follows their code, where the two weights are swapped, and its habits
                listed under ``SEAConfig.reading``.
        """
        check_choice("setting", setting, tuple(PAPER_SETTINGS))
        heatmap_weight, margin_weight, weight_decay, grid = PAPER_SETTINGS[setting]
        if reading == "authors":
            heatmap_weight, margin_weight = margin_weight, heatmap_weight
        return cls(
            solver="adagrad",
            learning_rate=0.01,
            heatmap_weight=heatmap_weight,
            margin_weight=margin_weight,
            weight_decay=weight_decay,
            train="all",
            grid=grid,
            reading=reading,
        )

    def replace(self, **changes: Any) -> "SEAConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values: ``SEAConfig(**fields)`` reads them, from a file too."""
        return dataclasses.asdict(self)


# help() and editors then show the settings, not what __new__ takes.
SEAConfig.__new__.__wrapped__ = SEAConfig.__init__  # type: ignore[attr-defined]


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_number(name: str, value: Any, least: float = 0, above: float = -math.inf) -> None:
    """Refuse what is not a finite number of at least ``least``, and above ``above``."""
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < least or value <= above:
        bound = f">= {least:g}" if above < least else f"above {above:g}"
        raise InputError(f"{name} must be a finite number {bound}; got {value!r}")


def check_config(config: SEAConfig | None) -> SEAConfig:
    """The settings given, or the default ones for None."""
    if config is None:
        return SEAConfig()
    if not isinstance(config, SEAConfig):
        said = f"config must be a SEAConfig; got {type(config).__name__}"
        raise KindError(f"{said}. Write SEAConfig(epochs=20)")
    return config


def check_seed(seed: int) -> int:
    """A seed, or an error where it is none."""
    check_whole("seed", seed, -(2**63))
    if seed >= 2**63:
        raise InputError(f"seed must be below 2^63; got {seed}")
    return seed


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}; got {value!r}")


def check_sizes(name: str, sizes: Any) -> None:
    """Refuse what is not a list of whole numbers above 0."""
    if not isinstance(sizes, tuple | list):
        raise InputError(f"{name} must be a list, such as [5, 10]; got {sizes!r}")
    for size in sizes:
        check_whole(f"each of {name}", size, 1)


def check_grid(grid: Any, axes: int | None = None) -> tuple[int, ...]:
    """The numbers of cells along each axis of a map; of as many axes, if that is known."""
    if not isinstance(grid, tuple | list) or (axes is not None and len(grid) != axes):
        raise InputError(f"grid is a number of cells for each axis, such as (8, 8); got {grid!r}")
    for side in grid:
        check_whole("each side of grid", side, 1)
    return tuple(grid)


def check_init(init: Init) -> tuple[float, float]:
    """Return (low, high) of a starting rule: "ones" or a pair of non-negative numbers."""
    if isinstance(init, str) and init == "ones":
        return 1.0, 1.0
    if not isinstance(init, tuple | list) or len(init) != 2:
        raise InputError(f"init must be 'ones' or (low, high); got {init!r}")
    low, high = init
    check_number("each of init (low, high)", low)
    check_number("each of init (low, high)", high, least=low)
    return float(low), float(high)


def check_activation(name: str) -> float | None:
    """Return p of the activation "power:p", None for "sqrt" and "log1p"; refuse all others."""
    if name in ("sqrt", "log1p"):
        return None
    kind, _, number = str(name).partition(":")
    with contextlib.suppress(ValueError):
        if kind == "power" and math.isfinite(p := float(number)) and p < 1 and p:
            return p
    raise InputError(
        "activation must be 'sqrt', 'log1p' or 'power:p' with a finite exponent below 1 (a "
        f"negative one saturates; the limit at 0 is 'log1p'); got {name!r}"
    )

"""Comparisons as data: maps of images beside each other, and the metrics that score them.

Maps have the paper's names: VG vanilla gradient, IG integrated gradients, SG smooth integrated
gradients, Agg-Mean their pixel-wise mean. "SEA" is the package's default, ``SEA(model)``; "SEA
(paper)" has the paper's solver and settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sea_bench.experiments.experiment import Experiment
from sea_nn.config import DEFAULT_BUDGET, SEAConfig

Kind = Literal["scores", "time", "lipschitz", "predictions", "copies", "robustness", "dependence"]
PAPER_MEMBERS = ("saliency", "integrated_gradients", "smooth_ig")


@dataclass(frozen=True)
class Map:
    """One of the maps that compete.

    Attributes:
        label: its name in tables and figures.
        how: "member" (its only member's heatmap), "sea", an aggregator of ``sea_nn.aggregate``,
            "sea_step" (the time of SEA without its members), "sea_random" (SEA on heatmaps of
            noise), or a map of the whole class, learned on training inputs: "class_sea",
            "class_mean", "other_class_sea" (SEA's of the next class); "budget", as users call
            ``SEA(model, budget=...)``; or "order", "keep" or "break", the order of its ``top(p)``,
            ``top(p, keep=True)`` or ``keep=False``.
        members: whose heatmaps it is made of.
        config: of SEA without a budget; None for other maps.
        budget: of the last three ways, evaluations an input; SEA chooses the members.
    """

    label: str
    how: str
    members: tuple[str, ...] = PAPER_MEMBERS
    config: SEAConfig | None = None
    budget: int = 0


@dataclass(frozen=True)
class Comparison(Experiment):
    """One table or figure about maps of images, complete enough to be run.

    Attributes:
        classifier: a name that ``load_classifier`` takes. The data are a set of ``sea_bench.data``,
            or "fashion_sample", the one shipped.
        maps: the maps compared.
        metrics: their metrics, the leading one first.
        kind: what is measured.
        against: the label that the others are compared with.
        ours: labels of which the page also says, metric by metric, how far they are from the first.
        aside: labels that stand in the tables and do not compete for the best.
        classes: only inputs of these classes, by name; empty for all.
        correct: only inputs that the classifier gets right.
        mask: the kind of mask that the metrics see, "box" for the inside of the boxes; None where
            they see none.
        mask_share: only inputs of which the mask covers more than the first share, and at most the
            second.
        blocks: inputs computed together.
        n_train: training inputs of a class, for maps of a class.
        pairs: random pairs for the Lipschitz estimate.
        paper: the paper's figures by metric and label.
        paper_data: what the paper measured on, where that is not the same.
        notes: what a reader should know.
    """

    classifier: str = "fashion"
    maps: tuple[Map, ...] = ()
    metrics: tuple[str, ...] = ()
    kind: Kind = "scores"
    against: str = "SEA"
    ours: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    correct: bool = True
    mask: str | None = None
    mask_share: tuple[float, float] = (0.0, 1.0)
    blocks: int = 8
    n_train: int = 0
    pairs: int = 0
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paper_data: str = ""
    notes: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Every member that any of the maps is made of, each once."""
        return tuple(dict.fromkeys(name for one in self.maps for name in one.members))


def member(label: str, name: str) -> Map:
    """The map of one member alone."""
    return Map(label, "member", (name,))


SEA = Map("SEA", "budget", (), budget=DEFAULT_BUDGET)
VG = member("VG", "saliency")
IG = member("IG", "integrated_gradients")
SG = member("SG", "smooth_ig")
MEAN = Map("Agg-Mean", "mean")
TABLE_1 = (VG, IG, SG, MEAN)
AGGREGATES = (
    MEAN,
    Map("Agg-Var", "variance"),
    Map("geometric mean", "geometric"),
    Map("Borda", "borda"),
)
OTHERS = (
    member("input×gradient", "input_x_gradient"),
    member("DeepLIFT", "deeplift"),
    member("LIME", "lime"),
)


def paper_sea(setting: str) -> Map:
    """SEA with the paper's solver and its settings for a data set."""
    return Map("SEA (paper)", "sea", config=SEAConfig.paper(setting))


def cite(*numbers: float) -> dict[str, float]:
    """The paper's figures in the order in which its tables have the methods."""
    labels = ("SEA (paper)", "IG", "VG", "SG", "Agg-Mean", *(one.label for one in OTHERS))
    return dict(zip(labels, numbers, strict=True))

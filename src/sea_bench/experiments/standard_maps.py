"""The maps that compete in most experiments, and what their results say alike.

Maps have the paper's names: VG vanilla gradient, IG integrated gradients, SG smooth integrated
gradients, Agg-Mean their pixel-wise mean. "SEA" is the package's default, ``SEA(model)``; "SEA
(paper)" has the paper's solver and settings.
"""

from sea_bench.experiments.comparison import Map
from sea_nn.config import DEFAULT_BUDGET, SEAConfig

SEA = Map("SEA", "budget", (), budget=DEFAULT_BUDGET)
VG = Map("VG", "member", ("saliency",))
IG = Map("IG", "member", ("integrated_gradients",))
SG = Map("SG", "member", ("smooth_ig",))
MEAN = Map("Agg-Mean", "mean")
TABLE_1 = (VG, IG, SG, MEAN)
AGGREGATES = (
    MEAN,
    Map("Agg-Var", "variance"),
    Map("geometric mean", "geometric"),
    Map("Borda", "borda"),
)
OTHERS = (
    Map("input×gradient", "member", ("input_x_gradient",)),
    Map("DeepLIFT", "member", ("deeplift",)),
    Map("LIME", "member", ("lime",)),
)


def paper_sea(setting: str) -> Map:
    """SEA with the paper's solver and its settings for a data set."""
    return Map("SEA (paper)", "sea", config=SEAConfig.paper(setting))


def cite(*numbers: float) -> dict[str, float]:
    """The paper's figures in the order in which its tables have the methods."""
    labels = ("SEA (paper)", "IG", "VG", "SG", "Agg-Mean", *(one.label for one in OTHERS))
    return dict(zip(labels, numbers, strict=True))

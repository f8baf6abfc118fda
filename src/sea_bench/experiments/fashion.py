"""The experiments on Fashion-MNIST."""

from collections.abc import Iterable
from typing import Any

from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.standard_maps import (
    AGGREGATES,
    ASKED_NOTE,
    AUPC_QUESTION,
    AUPC_TITLE,
    IG,
    MEAN,
    OPTIMAL_NOTE,
    OTHERS,
    SEA,
    SG,
    SILENT,
    SMOOTH_METRICS,
    TABLE_1,
    VG,
    cite,
    paper_sea,
)
from sea_nn.config import SEAConfig

FASHION_NOTES = (
    "SG here adds noise of 15 % of the pixel range and takes 5 samples; the authors took 3 samples "
    "and a standard deviation of 1 on pixels from 0 to 255.",
    "The paper's figures stand beside aupc_authors, the form of its published code. Its "
    "classifier is another one, so orders can be compared, not values.",
    "Black is the background's own value here: a window of black adds nothing to a dark place, and "
    "what is right under black is wrong under every other perturbation. SEA asks with blur; SEA, "
    "black asks with black, so the columns for black are no evidence for it.",
    ASKED_NOTE,
    OPTIMAL_NOTE,
)
FASHION_METRICS = (
    *("aupc_windows:black", "aupc_windows:noise", "aupc_windows:mean", "aupc_authors:black"),
    *("deletion:black", "deletion:blur", "insertion:black", "insertion:blur"),
)
SECONDS = {"SEA (paper)": 14.5, "LIME": 0.39, "SG": 0.025, "IG": 0.011, "VG": 0.002}
LOG = Map("SEA, log(1+x)", "sea", config=SEAConfig(activation="log1p"))
BLACK = Map("SEA, black", "sea", config=SEAConfig(absent="baseline"))


def _fashion(
    name: str, title: str, question: str, maps: Iterable[Map], metrics: Iterable[str], **more: Any
) -> Experiment:
    given = {"data": "fashion", "classifier": "fashion", "n_inputs": 500, "blocks": 20, **more}
    return Experiment(name, title, question, maps=tuple(maps), metrics=tuple(metrics), **given)


FASHION_EXPERIMENTS = (
    _fashion(
        "aupc_fmnist",
        f"{AUPC_TITLE}, Fashion-MNIST",
        AUPC_QUESTION,
        (SEA, BLACK, SILENT, paper_sea("fmnist"), VG, IG, SG, *AGGREGATES, *OTHERS),
        (*FASHION_METRICS, *SMOOTH_METRICS),
        figures=("dots", "curves"),
        paper={"aupc_authors:black": cite(3.46, 3.62, 3.68, 3.57, 3.51, 3.69, 4.39, 4.48)},
        notes=FASHION_NOTES,
    ),
    _fashion(
        "time",
        "Computation time, Fashion-MNIST",
        "What does each method cost, and what does SEA add to its members?",
        (
            SEA,
            Map("SEA, its step alone", "sea_step", config=SEAConfig(rounds=0)),
            Map("SEA, its step with questions", "sea_step", config=SEAConfig()),
            paper_sea("fmnist"),
            Map("SEA (paper), its step alone", "sea_step", config=SEAConfig.paper("fmnist")),
            VG,
            IG,
            SG,
            *AGGREGATES,
            *OTHERS,
        ),
        ("seconds_single", "seconds_batched"),
        n_inputs=20,
        kind="time",
        blocks=10,
        paper={"seconds_single": SECONDS},
        notes=(
            "The paper's times are the least of its four data sets, on a GTX 1080 Ti.",
            "Other work may have shared the processor; compare times with each other.",
            "Times of aggregates and of SEA include those of their members, unless it says "
            "'its step alone'.",
            OPTIMAL_NOTE,
        ),
    ),
    _fashion(
        "activation",
        "sqrt against log(1+x), Fashion-MNIST",
        "Does the concave activation of the submodular function matter?",
        (
            SEA,
            LOG,
            paper_sea("fmnist"),
            Map(
                "SEA (paper), log(1+x)",
                "sea",
                config=SEAConfig.paper("fmnist").replace(activation="log1p"),
            ),
            MEAN,
        ),
        (*FASHION_METRICS[:4], "insertion:black"),
    ),
    _fashion(
        "lipschitz",
        "How steep is the learned function? Fashion-MNIST",
        "Lemma 1 bounds how much the learned function can change. Its exact constant is its slope "
        "at the empty set; the paper estimates it from random pairs of points.",
        (SEA, LOG, paper_sea("fmnist"), Map("random", "sea_random", config=SEAConfig(rounds=0))),
        ("lipschitz", "lipschitz_sampled", "lipschitz_relative", "sampled_relative"),
        n_inputs=3,
        kind="lipschitz",
        pairs=10**6,
        blocks=1,
        paper={"lipschitz_sampled": {"SEA (paper)": 6.54}},
        paper_data="one ImageNet image on a 28 × 28 grid",
        notes=(
            "random: a function learned, as SEA's is, from heatmaps of noise.",
            "Pairs are drawn evenly from [0, 1]^784, as in the paper, 10^6 for each input; all of "
            "them lie near the middle of the cube, so they never see the steep corner at 0.",
        ),
    ),
    _fashion(
        "class_maps",
        "Class-level maps: Trouser, Coat, Sneaker",
        "One map is learned for a class from 200 training inputs. How well does it explain test "
        "inputs of the class that it never saw?",
        (
            SEA,
            Map("SEA of the class", "class_sea", config=SEAConfig()),
            Map("Agg-Mean of the class", "class_mean"),
            Map("SEA of another class", "other_class_sea", config=SEAConfig()),
            MEAN,
        ),
        ("aupc_windows:black", "deletion:black", "insertion:black", "insertion:blur"),
        classes=("Trouser", "Coat", "Sneaker"),
        n_train=200,
        figures=("class_maps", "dots"),
    ),
    _fashion(
        "top_k",
        "The top k pixels: Sandal and Bag",
        "How far apart do the first pixels of each map lie?",
        (SEA, paper_sea("fmnist"), *TABLE_1),
        ("spacing@5", "spacing@7", "spacing@10"),
        classes=("Sandal", "Bag"),
        blocks=50,
        figures=("top_k", "dots"),
        notes=("Distance alone is no merit: a random choice is the most spread of all.",),
    ),
)

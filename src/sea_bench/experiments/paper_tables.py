"""The paper's tables beyond AUPC."""

from typing import Any

from sea_bench.experiments import comparison as c
from sea_nn.config import SEAConfig

LAMBDAS = (1.0, 10.0, 100.0)
ABLATION = (11.91, 10.75, 11.47, 11.55, 11.43, 11.23, 11.46, 11.39, 11.15)
CELLS = {f"λ1={a:g}, λ2={b:g}": (a, b) for a in LAMBDAS for b in LAMBDAS}
BTD = SEAConfig.paper("btd")
SECONDS = {"SEA (paper)": 14.5, "LIME": 0.39, "SG": 0.025, "IG": 0.011, "VG": 0.002}
GRID_NOTE = (
    "SEA (paper) works on a grid of 28 × 28 cells, as in the paper. A map of cells is steadier "
    "than one of pixels, whatever made it."
)
FASHION: dict[str, Any] = {"data": "fashion", "classifier": "fashion"}
SAMPLE: dict[str, Any] = {"data": "fashion_sample", "classifier": "fashion"}

TIME = c.Comparison(
    "time",
    "Computation time, Fashion-MNIST",
    "What does each method cost, and what does SEA add to its members?",
    **SAMPLE,
    maps=(
        c.SEA,
        c.paper_sea("fmnist"),
        c.Map("SEA (paper), its step alone", "sea_step", config=SEAConfig.paper("fmnist")),
        *(c.VG, c.IG, c.SG, *c.AGGREGATES, *c.OTHERS),
    ),
    metrics=("seconds_single", "seconds_batched"),
    n_inputs=20,
    kind="time",
    blocks=10,
    paper={"seconds_single": SECONDS},
    notes=(
        "The paper's times are the least of its four data sets, on a GTX 1080 Ti.",
        "Times of aggregates and of SEA include those of their members, unless it says 'its step "
        "alone'.",
    ),
)
LIPSCHITZ = c.Comparison(
    "lipschitz",
    "How steep is the paper's function? Fashion-MNIST",
    "Lemma 1 bounds how much the learned function can change. Its exact constant is its slope at "
    "the empty set; the paper estimates it from random pairs of points.",
    **FASHION,
    maps=(
        c.paper_sea("fmnist"),
        c.Map("mirror descent", "sea", config=SEAConfig()),
        c.Map("mirror descent, log(1+x)", "sea", config=SEAConfig(activation="log1p")),
        c.Map("random", "sea_random", config=SEAConfig()),
    ),
    metrics=("lipschitz", "lipschitz_sampled", "lipschitz_relative", "sampled_relative"),
    against="SEA (paper)",
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
)
CLASS_MAPS = c.Comparison(
    "class_maps",
    "Class-level maps: Trouser, Coat, Sneaker",
    "One map is learned for a class from 200 training inputs. How well does it explain test "
    "inputs of the class that it never saw?",
    **FASHION,
    maps=(
        c.SEA,
        c.Map("SEA of the class", "class_sea", config=SEAConfig()),
        c.Map("Agg-Mean of the class", "class_mean"),
        c.Map("SEA of another class", "other_class_sea", config=SEAConfig()),
        c.MEAN,
    ),
    metrics=("aupc_windows:black", "deletion:black", "insertion:black", "insertion:blur"),
    n_inputs=500,
    blocks=20,
    classes=("Trouser", "Coat", "Sneaker"),
    n_train=200,
)
TOP_K = c.Comparison(
    "top_k",
    "The top k pixels: Sandal and Bag",
    "How far apart do the first pixels of each map lie?",
    **SAMPLE,
    maps=(c.SEA, c.paper_sea("fmnist"), *c.TABLE_1),
    metrics=("spacing@5", "spacing@7", "spacing@10"),
    n_inputs=40,
    classes=("Sandal", "Bag"),
    blocks=50,
    notes=("Distance alone is no merit: a random choice is the most spread of all.",),
)
WEIGHTS = c.Comparison(
    "ablation_btd",
    "The weights of the two terms, brain tumours",
    "How much do λ1 (heatmaps) and λ2 (binarised heatmaps) matter to the paper's solver?",
    data="btd",
    classifier="btd",
    correct=False,
    maps=(
        c.SEA,
        *(
            c.Map(label, "sea", config=BTD.replace(heatmap_weight=a, margin_weight=b))
            for label, (a, b) in CELLS.items()
        ),
        c.MEAN,
    ),
    metrics=("aupc_pixels:black", "aupc_pixels:mean"),
    paper={"aupc_pixels:black": dict(zip(CELLS, ABLATION, strict=True))},
)
ROBUSTNESS = c.Comparison(
    "robustness_cub",
    "Robustness to noise, birds",
    "How much of the top 5000 pixels stays when noise of ±0.02 of the pixel range is added?",
    data="cub20",
    classifier="cub20",
    maps=(c.SEA, c.paper_sea("cub"), *c.TABLE_1),
    metrics=("robustness",),
    kind="robustness",
    n_inputs=48,
    blocks=48,
    paper={"robustness": {"SEA (paper)": 0.294, "Agg-Mean": 0.269, "SG": 0.179}},
    paper_data="all 200 classes of CUB, ResNet-18",
    notes=(GRID_NOTE, "The noise of SG's own samples depends on the input, so it changes too."),
)
INPUT_DEPENDENCE = c.Comparison(
    "input_dependence",
    "Input dependence rate, objects pasted on scenes",
    "How often does an object that means nothing to a classifier of scenes get less attribution "
    "than the scene had there without it?",
    data="objects_on_scenes",
    classifier="scenes",
    maps=(c.SEA, c.paper_sea("imagenet"), *c.TABLE_1),
    metrics=("input_dependence",),
    kind="dependence",
    n_inputs=64,
    blocks=64,
    mask="object",
    paper={"input_dependence": {"SEA (paper)": 0.87, "Agg-Mean": 0.84, "IG": 0.84, "SG": 0.79}},
    paper_data="100 images of BAM",
    notes=("This is not BAM: other scenes, other objects, another classifier.",),
)
HUMAN = c.Comparison(
    "human",
    "Agreement with people",
    "Do the most relevant positions lie where people look?",
    data="human_attention",
    classifier="efficientnet-lite0",
    maps=(c.SEA, c.paper_sea("imagenet"), *c.TABLE_1),
    metrics=("jaccard",),
    n_inputs=25,
    blocks=25,
    correct=False,
    mask="humanPC",
    notes=(
        "25 photographs with maps of human attention (Langlois et al. 2021): not the 98 annotated "
        "images of Mohseni et al. that the paper used.",
        "They have no labels; the class explained is the one predicted.",
    ),
)
PAPER_EXPERIMENTS = (
    *(TIME, LIPSCHITZ, CLASS_MAPS, TOP_K, WEIGHTS, ROBUSTNESS, INPUT_DEPENDENCE, HUMAN),
)

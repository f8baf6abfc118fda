"""Every experiment, as data. ``sea bench`` runs them by name.

Maps have the paper's names: VG vanilla gradient, IG integrated gradients, SG smooth integrated
gradients, Agg-Mean their pixel-wise mean. "SEA" is the package's default, "SEA (paper)" the
paper's solver and settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.experiments.experiment import Experiment, Map

SEA = Map("SEA", "sea", config=SEAConfig())
VG = Map("VG", "member", ("saliency",))
IG = Map("IG", "member", ("integrated_gradients",))
SG = Map("SG", "member", ("smooth_ig",))
MEAN = Map("Agg-Mean", "mean")
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
GRID = SEAConfig(grid=(28, 28))
SEA_GRID = Map("SEA", "sea", config=GRID)
SEA_PIXELS = Map("SEA, every pixel", "sea", config=SEAConfig())


def _paper(setting: str) -> Map:
    return Map("SEA (paper)", "sea", config=SEAConfig.paper(setting))


def _reported(
    sea: float, ig: float, vg: float, sg: float, mean: float, ixg: float, dl: float, lime: float
) -> dict[str, float]:
    numbers = (sea, ig, vg, sg, mean, ixg, dl, lime)
    labels = ("SEA (paper)", "IG", "VG", "SG", "Agg-Mean", *(one.label for one in OTHERS))
    return dict(zip(labels, numbers, strict=True))


AUPC_QUESTION = (
    "Does hiding what a map calls relevant change the classifier's answer? Perturbation decides "
    "much, so there are several, and a random map."
)
FASHION_NOTES = (
    "SG here adds noise of 15 % of the pixel range and takes 5 samples; the authors took 3 samples "
    "and a standard deviation of 1 on pixels from 0 to 255.",
    "SG's noise is one draw for all inputs, so intervals do not cover what another seed would "
    "change in SG and in what is made of it.",
    "The paper's figures stand beside aupc_authors, the form of its published code. Its "
    "classifier is another one, so orders can be compared, not values.",
)
PHOTO_NOTES = (
    "SEA works on a grid of 28 × 28 cells here, as in the paper.",
    "EfficientNet-Lite uses ReLU6, on which DeepLIFT's rescale rule has known weaknesses.",
)
FASHION_METRICS = (
    "aupc_windows:black",
    "aupc_windows:noise",
    "aupc_windows:mean",
    "aupc_authors:black",
    "deletion:black",
    "deletion:blur",
    "insertion:black",
    "insertion:blur",
)
PHOTO_METRICS = (
    "aupc_windows:noise",
    "aupc_windows:black",
    "aupc_windows:mean",
    "aupc_authors:noise",
    "deletion:blur",
    "insertion:blur",
)
LAMBDAS = (1.0, 10.0, 100.0)
ABLATION = (11.91, 10.75, 11.47, 11.55, 11.43, 11.23, 11.46, 11.39, 11.15)
CELLS = tuple(f"λ1={a:g}, λ2={b:g}" for a in LAMBDAS for b in LAMBDAS)
BTD = SEAConfig.paper("btd")

_ALL = (
    Experiment(
        "aupc_fmnist",
        "Area under the perturbation curve, Fashion-MNIST",
        AUPC_QUESTION,
        data="fashion",
        classifier="fashion",
        maps=(
            SEA,
            _paper("fmnist"),
            VG,
            IG,
            SG,
            *AGGREGATES,
            *OTHERS,
        ),
        metrics=FASHION_METRICS,
        n_inputs=500,
        blocks=20,
        figures=("dots", "curves"),
        paper={
            "aupc_authors:black": _reported(3.46, 3.62, 3.68, 3.57, 3.51, 3.69, 4.39, 4.48),
        },
        notes=FASHION_NOTES,
    ),
    Experiment(
        "time",
        "Computation time, Fashion-MNIST",
        "What does each method cost, and what does SEA add to its members?",
        data="fashion",
        classifier="fashion",
        maps=(
            SEA,
            Map("SEA, its step alone", "sea_step", config=SEAConfig()),
            _paper("fmnist"),
            Map("SEA (paper), its step alone", "sea_step", config=SEAConfig.paper("fmnist")),
            VG,
            IG,
            SG,
            *AGGREGATES,
            *OTHERS,
        ),
        metrics=("seconds_single", "seconds_batched"),
        n_inputs=20,
        measure="time",
        blocks=10,
        paper={
            "seconds_single": {
                "SEA (paper)": 14.5,
                "LIME": 0.39,
                "SG": 0.025,
                "IG": 0.011,
                "VG": 0.002,
            }
        },
        notes=(
            "The paper's times are the least of its four data sets, on a GTX 1080 Ti.",
            "Other work may have shared the processor; compare times with each other.",
            "Times of aggregates and of SEA include those of their members, unless it says "
            "'its step alone'.",
        ),
    ),
    Experiment(
        "activation",
        "sqrt against log(1+x), Fashion-MNIST",
        "Does the concave activation of the submodular function matter?",
        data="fashion",
        classifier="fashion",
        maps=(
            SEA,
            Map("SEA, log(1+x)", "sea", config=SEAConfig(activation="log1p")),
            _paper("fmnist"),
            Map(
                "SEA (paper), log(1+x)",
                "sea",
                config=SEAConfig.paper("fmnist").replace(activation="log1p"),
            ),
            MEAN,
        ),
        metrics=(*FASHION_METRICS[:4], "insertion:black", "gini"),
        n_inputs=500,
        blocks=20,
    ),
    Experiment(
        "lipschitz",
        "How steep is the learned function? Fashion-MNIST",
        "Lemma 1 bounds how much the learned function can change. Its exact constant is its slope "
        "at the empty set; the paper estimates it from random pairs of points.",
        data="fashion",
        classifier="fashion",
        maps=(
            SEA,
            Map("SEA, log(1+x)", "sea", config=SEAConfig(activation="log1p")),
            _paper("fmnist"),
            Map("random", "sea_random", config=SEAConfig()),
        ),
        metrics=("lipschitz", "lipschitz_sampled", "lipschitz_relative", "sampled_relative"),
        n_inputs=3,
        measure="lipschitz",
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
    Experiment(
        "class_maps",
        "Class-level maps: Trouser, Coat, Sneaker",
        "One map is learned for a class from 200 training inputs. How well does it explain test "
        "inputs of the class that it never saw?",
        data="fashion",
        classifier="fashion",
        maps=(
            SEA,
            Map("SEA of the class", "class_sea", config=SEAConfig()),
            Map("Agg-Mean of the class", "class_mean"),
            Map("SEA of another class", "other_class_sea", config=SEAConfig()),
            MEAN,
        ),
        metrics=("aupc_windows:black", "deletion:black", "insertion:black", "insertion:blur"),
        n_inputs=500,
        classes=("Trouser", "Coat", "Sneaker"),
        blocks=20,
        n_train=200,
        figures=("class_maps", "dots"),
        notes=(
            "SG's noise is one draw for all inputs, so it does not average out over a class: "
            "specks beside the object are probably its trace (not tested with other draws).",
        ),
    ),
    Experiment(
        "top_k",
        "The top k pixels: Sandal and Bag",
        "Are SEA's first pixels less redundant, that is, further apart than those of the members?",
        data="fashion",
        classifier="fashion",
        maps=(SEA, _paper("fmnist"), VG, IG, SG, MEAN),
        metrics=("spacing@5", "spacing@7", "spacing@10"),
        n_inputs=500,
        classes=("Sandal", "Bag"),
        blocks=50,
        figures=("top_k", "dots"),
        notes=("Distance alone is no merit: a random choice is the most spread of all.",),
    ),
    Experiment(
        "strips",
        "Maps side by side, Fashion-MNIST",
        "What do the maps look like, and how far do they concentrate?",
        data="fashion",
        classifier="fashion",
        maps=(SEA, VG, IG, SG, MEAN),
        metrics=("gini",),
        n_inputs=500,
        blocks=50,
        figures=("strip",),
    ),
    Experiment(
        "aupc_btd",
        "Area under the perturbation curve, brain tumour detection",
        AUPC_QUESTION,
        data="btd",
        classifier="btd/vgg",
        maps=(SEA_GRID, _paper("btd"), VG, IG, SG, *AGGREGATES, *OTHERS),
        metrics=("aupc_pixels:black", "aupc_pixels:mean", "aupc_pixels:blur", "insertion:blur"),
        correct=False,
        figures=("dots", "overlay"),
        paper={
            "aupc_pixels:black": _reported(11.11, 16.78, 17.31, 17.51, 17.24, 16.67, 16.8, 18.24)
        },
        notes=(
            "28 steps, each of 1/28 of the pixels. All test pictures count, as in the paper.",
            "The paper does not say what replaces a pixel; its figures stand beside black.",
        ),
    ),
    Experiment(
        "ablation_btd",
        "The weights of the two terms, brain tumour detection",
        "How much do λ1 (heatmaps) and λ2 (binarised heatmaps) matter to the paper's solver?",
        data="btd",
        classifier="btd/vgg",
        maps=(
            SEA_GRID,
            *(
                Map(label, "sea", config=BTD.replace(heatmap_weight=a, margin_weight=b))
                for label, (a, b) in zip(
                    CELLS, ((a, b) for a in LAMBDAS for b in LAMBDAS), strict=True
                )
            ),
            MEAN,
        ),
        metrics=("aupc_pixels:black", "aupc_pixels:mean"),
        correct=False,
        figures=("dots", "cells"),
        paper={"aupc_pixels:black": dict(zip(CELLS, ABLATION, strict=True))},
    ),
    Experiment(
        "aupc_cub",
        "Area under the perturbation curve, birds",
        AUPC_QUESTION,
        data="cub20",
        classifier="cub20",
        maps=(SEA_GRID, _paper("cub"), VG, IG, SG, *AGGREGATES, *OTHERS),
        metrics=PHOTO_METRICS,
        figures=("dots", "overlay"),
        paper={
            "aupc_authors:noise": _reported(4.82, 4.90, 5.20, 5.21, 4.84, 6.21, 4.85, 5.17),
        },
        paper_data="all 200 classes of CUB, ResNet-18",
        notes=PHOTO_NOTES,
    ),
    Experiment(
        "aupc_tiny_imagenet",
        "Area under the perturbation curve, Tiny ImageNet",
        AUPC_QUESTION,
        data="tiny_imagenet",
        classifier="tiny_imagenet",
        maps=(SEA_GRID, _paper("tiny_imagenet"), VG, IG, SG, *AGGREGATES, *OTHERS),
        metrics=PHOTO_METRICS,
        figures=("dots", "overlay"),
        paper={
            "aupc_authors:noise": _reported(5.42, 5.49, 5.51, 5.79, 5.47, 5.79, 5.57, 5.73),
        },
        paper_data="Tiny ImageNet, ResNet-18",
        notes=PHOTO_NOTES,
    ),
    Experiment(
        "robustness_cub",
        "Robustness to noise, birds",
        "How much of the top 5000 pixels stays when noise of ±0.02 of the pixel range is added?",
        data="cub20",
        classifier="cub20",
        maps=(SEA_GRID, SEA_PIXELS, _paper("cub"), VG, IG, SG, MEAN),
        metrics=("robustness:k=5000",),
        paper={"robustness:k=5000": {"SEA (paper)": 0.294, "Agg-Mean": 0.269, "SG": 0.179}},
        paper_data="all 200 classes of CUB, ResNet-18",
        notes=(
            "SEA and SEA (paper) work on a grid of 28 × 28 cells, as in the paper. A map of cells "
            "is steadier than one of pixels whatever made it: compare members with SEA, every "
            "pixel.",
        ),
    ),
    Experiment(
        "input_dependence",
        "Input dependence rate, objects pasted on scenes",
        "How often does an object that means nothing to a classifier of scenes get less "
        "attribution than the scene had there without it?",
        data="objects_on_scenes",
        classifier="scenes",
        maps=(SEA_GRID, _paper("imagenet"), VG, IG, SG, MEAN),
        metrics=("input_dependence",),
        mask="object",
        paper={"input_dependence": {"SEA (paper)": 0.87, "Agg-Mean": 0.84, "IG": 0.84, "SG": 0.79}},
        paper_data="100 images of BAM",
        notes=("This is not BAM: other scenes, other objects, another classifier.",),
    ),
    Experiment(
        "human",
        "Agreement with people",
        "Do the most relevant positions lie where people look?",
        data="human_attention",
        classifier="efficientnet-lite0",
        maps=(SEA_GRID, _paper("imagenet"), VG, IG, SG, MEAN),
        metrics=("jaccard",),
        n_inputs=25,
        correct=False,
        mask="humanPC",
        figures=("curves", "overlay"),
        notes=(
            "25 photographs with maps of human attention (Langlois et al. 2021): not the 98 "
            "annotated images of Mohseni et al. that the paper used.",
            "They have no labels; the class explained is the one predicted.",
        ),
    ),
    *(
        Experiment(
            f"localisation_{name}",
            f"Localisation against true masks, {title}",
            "How much of each map lies on the object? Specificity, measured.",
            data=data,
            classifier=classifier,
            maps=(SEA_GRID, SEA_PIXELS, _paper("imagenet"), VG, IG, SG, *AGGREGATES),
            metrics=("relevance_mass", "rank_accuracy", "pointing_game"),
            classes=classes,
            mask=mask,
            figures=("dots", "overlay"),
        )
        for name, title, data, classifier, mask, classes in (
            ("pets", "pets", "pets", "efficientnet-lite0", "pet", ()),
            ("cub", "birds", "cub20", "cub20", "bird", ()),
            ("lgg", "brain tumours", "lgg", "lgg", "tumour", ()),
        )
    ),
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}


def find_experiments(name: str) -> list[Experiment]:
    """Return the experiment of this name, all of a group, or, for "all", every one.

    >>> [one.name for one in find_experiments("localisation")]
    ['localisation_pets', 'localisation_cub', 'localisation_lgg']
    """
    if name == "all":
        return list(_ALL)
    if name in EXPERIMENTS:
        return [EXPERIMENTS[name]]
    group = [one for one in _ALL if one.name.startswith(f"{name}_")]
    if group:
        return group
    raise InputError(
        f"there is no experiment {name!r}{_guess(name, EXPERIMENTS)}; "
        f"experiments: {', '.join(EXPERIMENTS)}"
    )


def _guess(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""

"""The experiments on photographs and medical pictures, 224 x 224 as the classifiers see them."""

from collections.abc import Iterable
from dataclasses import dataclass
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

PHOTO_NOTES = (
    ASKED_NOTE,
    "SEA (paper) works on a grid of 28 × 28 cells, as in the paper; all others on every pixel.",
    "EfficientNet-Lite uses ReLU6, on which DeepLIFT's rescale rule has known weaknesses.",
    OPTIMAL_NOTE,
)
PHOTO_METRICS = (
    *("aupc_windows:noise", "aupc_windows:black", "aupc_windows:mean", "aupc_authors:noise"),
    *("deletion:blur", "insertion:blur", *SMOOTH_METRICS),
)
LAMBDAS = (1.0, 10.0, 100.0)
ABLATION = (11.91, 10.75, 11.47, 11.55, 11.43, 11.23, 11.46, 11.39, 11.15)
CELLS = {f"λ1={a:g}, λ2={b:g}": (a, b) for a in LAMBDAS for b in LAMBDAS}
BTD = SEAConfig.paper("btd")


@dataclass(frozen=True)
class Pictures:
    """What the experiments on one data set share: see ``Experiment``.

    ``title`` says what the pictures show, ``setting`` is one of ``SEAConfig.paper``.
    """

    title: str
    data: str
    classifier: str
    setting: str = "imagenet"
    mask: str | None = None
    correct: bool = True
    paper_data: str = ""


PICTURES = {
    "btd": Pictures("brain tumour detection", "btd", "btd/vgg@5", "btd", correct=False),
    "cub": Pictures(
        "birds", "cub20", "cub20", "cub", "bird", paper_data="all 200 classes of CUB, ResNet-18"
    ),
    "tiny_imagenet": Pictures(
        "Tiny ImageNet",
        "tiny_imagenet",
        "tiny_imagenet",
        "tiny_imagenet",
        paper_data="Tiny ImageNet, ResNet-18",
    ),
    "imagenet": Pictures("ImageNet", "imagenet", "efficientnet-lite0", mask="box"),
    "pets": Pictures("pets", "pets", "efficientnet-lite0", mask="pet"),
    "lgg": Pictures("brain tumours", "lgg", "lgg@5", mask="tumour"),
}


def _pictures(
    kind: str,
    name: str,
    title: str,
    question: str,
    maps: Iterable[Map],
    metrics: Iterable[str],
    **more: Any,
) -> Experiment:
    one = PICTURES[name]
    given = {
        "data": one.data,
        "classifier": one.classifier,
        "correct": one.correct,
        "paper_data": one.paper_data if more.get("paper") else "",
        **more,
    }
    return Experiment(
        f"{kind}_{name}",
        f"{title}, {one.title}",
        question,
        maps=(SEA, SILENT, *maps),
        metrics=tuple(metrics),
        **given,
    )


def _aupc(name: str, metrics: Iterable[str], **more: Any) -> Experiment:
    maps = (paper_sea(PICTURES[name].setting), VG, IG, SG, *AGGREGATES, *OTHERS)
    figures = ("dots", "overlay")
    return _pictures(
        "aupc", name, AUPC_TITLE, AUPC_QUESTION, maps, metrics, figures=figures, **more
    )


def _localisation(name: str, **more: Any) -> Experiment:
    return _pictures(
        "localisation",
        name,
        "Localisation against true masks",
        "How much of each map lies on the object? A steeper map has more of its mass there in any "
        "order, so the mass stands beside the mass at equal sharpness.",
        (paper_sea(PICTURES[name].setting), VG, IG, SG, *AGGREGATES),
        ("relevance_mass", "mass_equal_sharpness", "rank_accuracy", "pointing_game"),
        mask=PICTURES[name].mask,
        figures=("dots", "overlay"),
        **more,
    )


PICTURE_EXPERIMENTS = (
    _aupc(
        "btd",
        (
            *("aupc_pixels:black", "aupc_pixels:mean", "aupc_pixels:blur", "aupc_pixels:inpaint"),
            *("insertion:blur", "insertion:mean", "insertion:inpaint"),
        ),
        paper={"aupc_pixels:black": cite(11.11, 16.78, 17.31, 17.51, 17.24, 16.67, 16.8, 18.24)},
        notes=(
            "28 steps, each of 1/28 of the pixels. All test pictures count, as in the paper.",
            "The paper does not say what replaces a pixel; its figures stand beside black.",
            ASKED_NOTE,
            OPTIMAL_NOTE,
        ),
    ),
    _pictures(
        "ablation",
        "btd",
        "The weights of the two terms",
        "How much do λ1 (heatmaps) and λ2 (binarised heatmaps) matter to the paper's solver?",
        (
            *(
                Map(label, "sea", config=BTD.replace(heatmap_weight=a, margin_weight=b))
                for label, (a, b) in CELLS.items()
            ),
            MEAN,
        ),
        ("aupc_pixels:black", "aupc_pixels:mean"),
        figures=("dots", "cells"),
        paper={"aupc_pixels:black": dict(zip(CELLS, ABLATION, strict=True))},
    ),
    _aupc(
        "cub",
        PHOTO_METRICS,
        paper={"aupc_authors:noise": cite(4.82, 4.90, 5.20, 5.21, 4.84, 6.21, 4.85, 5.17)},
        notes=PHOTO_NOTES,
    ),
    _aupc(
        "tiny_imagenet",
        PHOTO_METRICS,
        paper={"aupc_authors:noise": cite(5.42, 5.49, 5.51, 5.79, 5.47, 5.79, 5.57, 5.73)},
        notes=PHOTO_NOTES,
    ),
    _aupc("imagenet", PHOTO_METRICS, notes=PHOTO_NOTES),
    _pictures(
        "robustness",
        "cub",
        "Robustness to noise",
        "How much of the top 5000 pixels stays when noise of ±0.02 of the pixel range is added?",
        (paper_sea("cub"), *TABLE_1),
        ("robustness:k=5000",),
        paper={"robustness:k=5000": {"SEA (paper)": 0.294, "Agg-Mean": 0.269, "SG": 0.179}},
        notes=(
            "SEA (paper) works on a grid of 28 × 28 cells, as in the paper. A map of cells is "
            "steadier than one of pixels, whatever made it.",
            "The noise of SG's own samples depends on the input, so it changes too.",
        ),
    ),
    Experiment(
        "input_dependence",
        "Input dependence rate, objects pasted on scenes",
        "How often does an object that means nothing to a classifier of scenes get less "
        "attribution than the scene had there without it?",
        data="objects_on_scenes",
        classifier="scenes",
        maps=(SEA, SILENT, paper_sea("imagenet"), *TABLE_1),
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
        maps=(SEA, SILENT, paper_sea("imagenet"), *TABLE_1),
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
    _localisation("pets", notes=(ASKED_NOTE, OPTIMAL_NOTE)),
    _localisation("cub", notes=(ASKED_NOTE, OPTIMAL_NOTE)),
    _localisation("lgg", notes=(ASKED_NOTE, OPTIMAL_NOTE)),
    _localisation(
        "imagenet",
        mask_share=(0.01, 0.5),
        notes=(
            "The masks are boxes: part of each is background. Only pictures whose boxes cover 1 "
            "to 50 % of what the classifier sees.",
            ASKED_NOTE,
            OPTIMAL_NOTE,
        ),
    ),
)

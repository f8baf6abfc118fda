"""The experiments about the function learned from answers: ``SEA(model, budget=...)``.

``predicts`` asks whether it predicts the model, ``budgets`` whether its map is the best for its
price, ``mass`` how much of it lies on true masks, ``magnitudes`` whether its values are the
model's, ``smallest`` how few pixels keep or break the class, ``twice`` what the second of two
copies adds.
"""

from dataclasses import replace
from typing import Any

from sea_bench.experiments.copies import MODEL
from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.magnitudes import MAGNITUDES, MONOTONE
from sea_bench.experiments.predictions import ESTIMATE, PREDICTED
from sea_bench.experiments.standard_maps import (
    AGGREGATES,
    IG,
    OPTIMAL_NOTE,
    SG,
    VG,
    cite,
    paper_sea,
)
from sea_nn.config import SEAConfig
from sea_nn.members.cheap import CONVOLUTIONAL

BUDGETS = (34, 128, 512, 1024)
ANSWERS = (30, 128, 378, 1000)
OURS = tuple(Map(f"SEA {count}", "budget", (), budget=count) for count in BUDGETS)
OUR_LABELS = tuple(one.label for one in OURS)
WISHED = tuple(
    replace(one, label=f"{one.label}, {text}", how=wish)
    for one in OURS
    for wish, text in (("order", "by cells"), ("keep", "to keep"), ("break", "to break"))
)
FEW = (
    Map("two members, 30 questions", "sea", CONVOLUTIONAL, SEAConfig(), asked=True),
    Map("mean of two members", "mean", CONVOLUTIONAL),
)
MEMBERS = (
    *(VG, IG, SG),
    Map("SmoothGrad", "member", ("smoothgrad",)),
    Map("input×gradient", "member", ("input_x_gradient",)),
    Map("DeepLIFT", "member", ("deeplift",)),
    Map("guided backprop", "member", ("guided_backprop",)),
    Map("deconvolution", "member", ("deconvolution",)),
    Map("Grad-CAM", "member", ("grad_cam",)),
    Map("guided Grad-CAM", "member", ("guided_grad_cam",)),
    Map("gradient SHAP", "member", ("gradient_shap",)),
    Map("occlusion", "member", ("occlusion",)),
)
SAMPLED = (
    Map("LIME", "member", ("lime",)),
    Map("Kernel SHAP", "member", ("kernel_shap",)),
    Map("RISE", "member", ("rise",)),
)
SEARCHES = (
    Map("greedy regions", "member", ("greedy_regions",)),
    Map("bidirectional greedy (LiMA)", "member", ("bidirectional_regions",)),
    Map("windowed greedy (PhaseWin)", "member", ("window_regions",)),
)
SEARCH_NOTE = (
    "greedy regions, bidirectional and windowed greedy are compact forms of SMDL-Attribution, LiMA "
    "and PhaseWin on 8 x 8 cells, asked with blur, drawn flat in the order found."
)
BLUR_NOTE = (
    "SEA, greedy regions and their kin ask with blur: for them the blur columns are no evidence "
    "beyond their own questions, the others are."
)
CHOSEN_NOTE = (
    "How questions are spent and maps drawn was chosen on tuning pictures (the end of the order), "
    "none of which is here."
)
WISH_NOTE = (
    "SEA B, by cells: the features of ``top(p)``, whole cells, where the map orders pixels; to "
    "keep and to break: those of ``top(p, keep=True)`` and ``keep=False``, which serve one wish "
    "alone. They stand beside the others and do not compete."
)
TIME_NOTE = "Seconds: in blocks, on a device shared with other work; compare them roughly."
FILLS = ("blur", "mean", "inpaint", "noise")
PLACES: dict[str, dict[str, Any]] = {
    "imagenet": {"data": "imagenet", "classifier": "efficientnet-lite0", "mask": "box"},
    "pets": {"data": "pets", "classifier": "efficientnet-lite0", "mask": "pet"},
    "cub": {"data": "cub20", "classifier": "cub20", "mask": "bird"},
    "lgg": {"data": "lgg", "classifier": "lgg", "mask": "tumour"},
    "resnet50": {"data": "imagenet", "classifier": "resnet50"},
    "tiny_imagenet": {"data": "tiny_imagenet", "classifier": "tiny_imagenet"},
    "btd": {"data": "btd", "classifier": "btd", "correct": False},
    "fmnist": {"data": "fashion_sample", "classifier": "fashion"},
}
TITLES = {
    "imagenet": "ImageNet",
    "pets": "pets",
    "cub": "birds",
    "lgg": "brain tumours",
    "resnet50": "ImageNet, ResNet-50",
    "tiny_imagenet": "Tiny ImageNet",
    "btd": "brain tumour detection",
    "fmnist": "Fashion-MNIST",
}


def _predicts(name: str) -> Experiment:
    return Experiment(
        f"predicts_{name}",
        f"Does f predict the model? {TITLES[name]}",
        "Functions learned from the same 30 to 1,000 answers about random sets of cells, asked "
        "what the model says about sets that nobody asked about. The constant is the random map of "
        "this table; one unit, f without heat and f that is always monotone are the controls of "
        "f's interactions, prior and evidence against.",
        maps=(VG, IG, Map("Grad-CAM", "member", ("grad_cam",))),
        metrics=tuple(f"{what}@{count}" for what in PREDICTED for count in ANSWERS),
        kind="predictions",
        against="f",
        aside=(ESTIMATE,),
        n_inputs=32,
        blocks=64,
        figures=(),
        notes=(
            "8 x 8 cells, hidden by blur. Prefixes: of the orders of VG, IG and Grad-CAM.",
            "LIME, Kernel SHAP: a linear function of the same cells and answers by their weights, "
            "with the ridge penalty that served them best on tuning pictures.",
            "f, as answers left out say: the error SEA itself reports, from a fit to the others; "
            "it knows the sets asked about, not those of the prefix columns.",
        ),
        **{**PLACES[name], "mask": None},
    )


def budget_metrics(fills: tuple[str, ...] = FILLS) -> tuple[str, ...]:
    """Return what maps of a price are compared by, with positions hidden by these fills."""
    curves = (f"{what}:{fill}" for what in ("deletion", "insertion") for fill in fills)
    return ("evaluations", "seconds", *curves, "aupc_windows:noise")


def _budgets(
    name: str,
    *aupc: str,
    setting: str = "imagenet",
    figures: tuple[float, ...] = (),
    **more: Any,
) -> Experiment:
    """Every map at its price; ``figures`` are the paper's for the last of the ``aupc`` forms."""
    return Experiment(
        f"budgets_{name}",
        f"The best map for every budget, {TITLES[name]}",
        "SEA(model, budget=B) against every member and aggregator of the package and other "
        "methods that ask the model, each at its own price.",
        maps=(*OURS, *FEW, paper_sea(setting), *MEMBERS, *AGGREGATES, *SAMPLED, *SEARCHES),
        metrics=(
            *budget_metrics(),
            *aupc,
            *(("pointing_game",) if PLACES[name].get("mask") else ()),
        ),
        paper={aupc[-1]: cite(*figures)} if figures else {},
        paper_data="other pictures, another classifier" if figures else "",
        against=OUR_LABELS[-1],
        ours=OUR_LABELS,
        blocks=16,
        figures=(),
        notes=(BLUR_NOTE, SEARCH_NOTE, CHOSEN_NOTE, OPTIMAL_NOTE, TIME_NOTE),
        **{**PLACES[name], "n_inputs": 32, **more},
    )


def _mass(name: str, **more: Any) -> Experiment:
    maps = (*OURS, *FEW, paper_sea("imagenet"), *MEMBERS, *AGGREGATES)
    return Experiment(
        f"mass_{name}",
        f"Mass on true masks, {TITLES[name]}",
        "How much of each map lies on the object, as it is, and after each map's order was painted "
        "with SEA 512's values, so that all are equally sharp?",
        maps=maps,
        metrics=(
            "relevance_mass",
            f"mass_equal_sharpness:{OUR_LABELS[2]}",
            "rank_accuracy",
            "pointing_game",
        ),
        against=OUR_LABELS[2],
        ours=OUR_LABELS,
        blocks=24,
        figures=(),
        notes=(CHOSEN_NOTE, OPTIMAL_NOTE),
        **{**PLACES[name], "n_inputs": 48, **more},
    )


def _magnitudes(name: str, **more: Any) -> Experiment:
    members = ("VG", "IG", "DeepLIFT", "Grad-CAM", "guided Grad-CAM", "occlusion")
    rivals = (one for one in MEMBERS if one.label in members)
    return Experiment(
        f"magnitudes_{name}",
        f"Are a map's values the model's? {TITLES[name]}",
        "Cells are shown in each map's own order, all others hidden by blur: does the model rise "
        "by what the map says? And does as much of its own rise lie on the mask as of the map?",
        maps=(*OURS, *FEW, *rivals, *SAMPLED[:2], *AGGREGATES[:1]),
        metrics=tuple(metric for metric in MAGNITUDES if metric != "off_same_order"),
        kind="magnitudes",
        against=OUR_LABELS[2],
        blocks=48,
        figures=(),
        notes=(
            "8 x 8 cells. SEA's values are in log-odds and may end below 0; the others are scaled "
            "to what the whole picture has more than a blurred one, in the unit of the column.",
            f"SEA 512, {MONOTONE}: the same answers and order, f without evidence against.",
            "What the model rises by: its running maximum along the order, in log-odds.",
            "SEA has asked about some of these sets itself: that is what a budget is spent on.",
        ),
        **{**PLACES[name], "n_inputs": 48, **more},
    )


def _same_order() -> Experiment:
    """A control of ``_magnitudes``: are other maps off because of their order, or their values?"""
    base = _magnitudes("imagenet", **BOXED)
    return replace(
        base,
        name="magnitudes_same_order",
        title="Are a map's values the model's? ImageNet, all in one order",
        question="Cells are shown in each map's own order, all others hidden by blur, and in that "
        f"of {base.against}: does the model rise by what the map says?",
        maps=tuple(one for one in base.maps if one not in OURS or one.label == base.against),
        metrics=("off_probability", "off_same_order"),
        n_inputs=24,
        blocks=4,
    )


def _smallest(name: str, **more: Any) -> Experiment:
    return Experiment(
        f"smallest_{name}",
        f"The smallest set that keeps or breaks the class, {TITLES[name]}",
        "The first positions of each map: how few keep the class when all else is hidden, and how "
        "few have to be hidden until another class is predicted?",
        maps=(*OURS, *WISHED, *FEW, *MEMBERS, *AGGREGATES, *SEARCHES),
        metrics=tuple(
            f"smallest_{wish}:{fill}"
            for wish in ("half", "most", "break")
            for fill in ("blur", "mean")
        ),
        against=OUR_LABELS[-1],
        ours=OUR_LABELS,
        aside=tuple(one.label for one in WISHED),
        blocks=64,
        figures=(),
        notes=(BLUR_NOTE, WISH_NOTE, SEARCH_NOTE, CHOSEN_NOTE, OPTIMAL_NOTE),
        **{**PLACES[name], "mask": None, "n_inputs": 32, **more},
    )


def _twice(name: str, data: str, title: str, classifier: str, correct: bool) -> Experiment:
    return Experiment(
        f"twice_{name}",
        f"What does a second copy add? {title}",
        "The same thing twice in a picture, with all else hidden by blur: what does the second "
        "copy add after the first, in units of the first? The model's own answer is the truth; f "
        "is asked about sets it has not seen; a map says it by its mass on the two copies.",
        data=data,
        classifier=classifier,
        maps=(*OURS, *FEW, IG, Map("Grad-CAM", "member", ("grad_cam",)), *AGGREGATES[:1]),
        metrics=("second_over_first", "off_by"),
        kind="copies",
        against="f of SEA 512",
        aside=(MODEL,),
        n_inputs=32,
        blocks=64,
        correct=correct,
        figures=(),
        notes=(
            "Inputs count where the better copy alone raises the log-odds by at least 1.",
            "A cell of the 8 x 8 belongs to a copy that covers a quarter of it.",
        ),
    )


# The paper's figures, in the order of ``cite``.
PAPER_CUB = (4.82, 4.90, 5.20, 5.21, 4.84, 6.21, 4.85, 5.17)
PAPER_TINY = (5.42, 5.49, 5.51, 5.79, 5.47, 5.79, 5.57, 5.73)
PAPER_BTD = (11.11, 16.78, 17.31, 17.51, 17.24, 16.67, 16.8, 18.24)
PAPER_FMNIST = (3.46, 3.62, 3.68, 3.57, 3.51, 3.69, 4.39, 4.48)
BOXED = {"mask_share": (0.01, 0.5)}
LEARNED_EXPERIMENTS = (
    *map(_predicts, ("imagenet", "resnet50", "cub", "tiny_imagenet", "pets", "btd", "fmnist")),
    _budgets("imagenet", n_inputs=48),
    _budgets("pets", n_inputs=48),
    _budgets("cub", "aupc_authors:noise", setting="cub", figures=PAPER_CUB, n_inputs=48),
    _budgets("tiny_imagenet", "aupc_authors:noise", setting="tiny_imagenet", figures=PAPER_TINY),
    _budgets("btd", "aupc_pixels:black", setting="btd", figures=PAPER_BTD),
    _budgets(
        "fmnist",
        "aupc_windows:black",
        "aupc_authors:black",
        setting="fmnist",
        figures=PAPER_FMNIST,
    ),
    _mass("imagenet", **BOXED),
    *map(_mass, ("pets", "cub")),
    _mass("lgg", n_inputs=24),
    _magnitudes("imagenet", **BOXED),
    *map(_magnitudes, ("pets", "cub")),
    _magnitudes("lgg", n_inputs=24),
    _same_order(),
    _smallest("imagenet"),
    _twice("objects", "objects_twice", "Objects pasted on scenes", "efficientnet-lite0", False),
    _twice("slices", "lgg_twice", "Brain slices side by side", "lgg", True),
)

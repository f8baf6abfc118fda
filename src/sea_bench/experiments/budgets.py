"""The experiments about the function learned from answers: ``SEA(model, budget=...)``.

``predicts`` asks whether it predicts the model, ``budgets`` whether its map is the best for its
price, ``mass`` how much of it lies on true masks, ``smallest`` how few pixels keep or break the
class, ``twice`` what the second of two copies adds.
"""

from dataclasses import replace
from typing import Any

from sea_bench.experiments.comparison import (
    AGGREGATES,
    IG,
    SG,
    VG,
    Comparison,
    Map,
    cite,
    member,
    paper_sea,
)
from sea_bench.experiments.measurements import MODEL
from sea_bench.experiments.metrics import GAIN
from sea_bench.experiments.predictions import OURS as OUR_FUNCTION

BUDGETS = (34, 128, 512, 1024)
ANSWERS = (30, 128, 378, 1000)
OURS = tuple(Map(f"SEA {count}", "budget", (), budget=count) for count in BUDGETS)
OUR_LABELS = tuple(one.label for one in OURS)
WISHED = tuple(
    replace(one, label=f"{one.label}, {text}", how=wish)
    for one in OURS
    for wish, text in (("order", "by cells"), ("keep", "to keep"), ("break", "to break"))
)
PAIR = Map("mean of two members", "mean", ("deeplift", "guided_grad_cam"))
GRAD_CAM = member("Grad-CAM", "grad_cam")
MEMBERS = (
    *(VG, IG, SG),
    member("SmoothGrad", "smoothgrad"),
    member("input×gradient", "input_x_gradient"),
    member("DeepLIFT", "deeplift"),
    member("guided backprop", "guided_backprop"),
    member("deconvolution", "deconvolution"),
    GRAD_CAM,
    member("guided Grad-CAM", "guided_grad_cam"),
    member("gradient SHAP", "gradient_shap"),
    member("occlusion", "occlusion"),
)
SAMPLED = (member("LIME", "lime"), member("Kernel SHAP", "kernel_shap"), member("RISE", "rise"))
SEARCH = member("greedy regions", "greedy_regions")
SEARCH_NOTE = (
    "greedy regions is a compact form of SMDL-Attribution on 8 x 8 cells, asked with blur, drawn "
    "flat in the order found."
)
BLUR_NOTE = (
    "SEA and greedy regions ask with blur: for them the blur columns are no evidence "
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
    "vit": {"data": "fashion", "classifier": "fashion/vit"},
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
    "vit": "a vision transformer on Fashion-MNIST",
}


def _predicts(name: str) -> Comparison:
    return Comparison(
        f"predicts_{name}",
        f"Does the function predict the model? {TITLES[name]}",
        "Functions learned from 30 to 1,000 answers about sets of cells, asked what the model says "
        "about sets that nobody asked about. The constant, the mean answer, is the random map of "
        "this table.",
        maps=(VG, IG) if name == "vit" else (VG, IG, GRAD_CAM),
        metrics=tuple(f"{what}@{count}" for what in ("r2", "error") for count in ANSWERS),
        kind="predictions",
        against=OUR_FUNCTION,
        n_inputs=32,
        blocks=8,
        notes=(
            "8 x 8 cells, hidden by blur; 384 unseen sets an input, half of them random, half "
            "prefixes of the orders of VG, IG and Grad-CAM, kept or hidden.",
            "SEA chooses its own questions (and may choose features of its own); the others are "
            "asked about random sets of every size and their complements.",
            "LIME, Kernel SHAP: a linear function of the same cells and answers by their weights, "
            "with the ridge penalty that says answers left out best, for each input.",
        ),
        **{**PLACES[name], "mask": None},
    )


def _budgets(
    name: str,
    *aupc: str,
    setting: str = "imagenet",
    figures: tuple[float, ...] = (),
    **more: Any,
) -> Comparison:
    """Every map at its price; ``figures`` are the paper's for the last of the ``aupc`` forms."""
    return Comparison(
        f"budgets_{name}",
        f"The best map for every budget, {TITLES[name]}",
        "SEA(model, budget=B) against every member and aggregator of the package and other "
        "methods that ask the model, each at its own price.",
        maps=more.pop("maps", None)
        or (*OURS, PAIR, paper_sea(setting), *MEMBERS, *AGGREGATES, *SAMPLED, SEARCH),
        metrics=(
            *("evaluations", "seconds", GAIN),
            *(f"{what}:{fill}" for what in ("deletion", "insertion") for fill in FILLS),
            "aupc_windows:noise",
            *aupc,
            *(("pointing_game",) if PLACES[name].get("mask") else ()),
        ),
        paper={aupc[-1]: cite(*figures)} if figures else {},
        paper_data="other pictures, another classifier" if figures else "",
        against=OUR_LABELS[-1],
        ours=OUR_LABELS,
        notes=(BLUR_NOTE, SEARCH_NOTE, CHOSEN_NOTE, TIME_NOTE),
        **{**PLACES[name], "n_inputs": 32, "blocks": 16, **more},
    )


def _mass(name: str, **more: Any) -> Comparison:
    return Comparison(
        f"mass_{name}",
        f"Mass on true masks, {TITLES[name]}",
        "How much of each map lies on the object, as it is, and after each map's order was painted "
        "with SEA 512's values, so that all are equally sharp?",
        maps=(*OURS, PAIR, paper_sea("imagenet"), *MEMBERS, *AGGREGATES),
        metrics=(
            *("relevance_mass", f"mass_equal_sharpness:{OUR_LABELS[2]}"),
            *("rank_accuracy", "pointing_game"),
        ),
        against=OUR_LABELS[2],
        ours=OUR_LABELS,
        blocks=24,
        notes=(CHOSEN_NOTE,),
        **{**PLACES[name], "n_inputs": 48, **more},
    )


def _twice(name: str, data: str, title: str, classifier: str, correct: bool) -> Comparison:
    return Comparison(
        f"twice_{name}",
        f"What does a second copy add? {title}",
        "The same thing twice in a picture, with all else hidden by blur: what does the second "
        "copy add after the first, in units of the first? The model's own answer is the truth; f "
        "is asked about sets it has not seen; a map says it by its mass on the two copies.",
        data=data,
        classifier=classifier,
        maps=(*OURS, PAIR, IG, GRAD_CAM, *AGGREGATES[:1]),
        metrics=("second_over_first", "off_by"),
        kind="copies",
        against="f of SEA 512",
        aside=(MODEL,),
        n_inputs=32,
        blocks=64,
        correct=correct,
        notes=(
            "Inputs count where the better copy alone raises the log-odds by at least 1.",
            "A cell of the 8 x 8 belongs to a copy that covers a quarter of it.",
        ),
    )


ATTENTION = (
    member("attention rollout", "attention_rollout"),
    member("attention×gradient", "attention_gradient"),
    member("attention LRP", "attention_lrp"),
)
RULES = ("DeepLIFT", "guided backprop", "deconvolution", "guided Grad-CAM")  # of rectifiers
FITTING = (*(one for one in MEMBERS if one.label not in RULES), *ATTENTION)
# The paper's figures, in the order of ``cite``.
PAPER_CUB = (4.82, 4.90, 5.20, 5.21, 4.84, 6.21, 4.85, 5.17)
PAPER_TINY = (5.42, 5.49, 5.51, 5.79, 5.47, 5.79, 5.57, 5.73)
PAPER_BTD = (11.11, 16.78, 17.31, 17.51, 17.24, 16.67, 16.8, 18.24)
PAPER_FMNIST = (3.46, 3.62, 3.68, 3.57, 3.51, 3.69, 4.39, 4.48)
BOXED = {"mask_share": (0.01, 0.5)}
BUDGET_EXPERIMENTS = (
    *map(
        _predicts, ("imagenet", "resnet50", "cub", "tiny_imagenet", "pets", "btd", "fmnist", "vit")
    ),
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
    _budgets(
        "vit",
        setting="fmnist",
        maps=(*OURS, paper_sea("fmnist"), *FITTING, *AGGREGATES, *SAMPLED, SEARCH),
        n_inputs=96,
        blocks=32,
    ),
    _mass("imagenet", **BOXED),
    *map(_mass, ("pets", "cub")),
    _mass("lgg", n_inputs=24),
    Comparison(
        "smallest_imagenet",
        "The smallest set that keeps or breaks a class",
        "The first positions of each map: how few keep the class when all else is hidden, and how "
        "few have to be hidden until another class is predicted?",
        maps=(*OURS, *WISHED, PAIR, *MEMBERS, *AGGREGATES, SEARCH),
        metrics=tuple(
            f"smallest_{wish}:{fill}"
            for wish in ("half", "most", "break")
            for fill in ("blur", "mean")
        ),
        against=OUR_LABELS[-1],
        ours=OUR_LABELS,
        aside=tuple(one.label for one in WISHED),
        n_inputs=32,
        blocks=64,
        notes=(BLUR_NOTE, WISH_NOTE, SEARCH_NOTE, CHOSEN_NOTE),
        **{**PLACES["imagenet"], "mask": None},
    ),
    _twice("objects", "objects_twice", "Pasted objects", "efficientnet-lite0", False),
    _twice("slices", "lgg_twice", "Brain slices side by side", "lgg", True),
)

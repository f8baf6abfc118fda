"""The experiments about SEA's default: its settings, cost, top-p sets, stability."""

from dataclasses import replace
from typing import Any

from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.stability import LABELS, METRICS
from sea_bench.experiments.standard_maps import (
    AGGREGATES,
    ASKED_NOTE,
    IG,
    MEAN,
    OPTIMAL_NOTE,
    SEA,
    SG,
    SILENT,
    SMOOTH_METRICS,
    TABLE_1,
    VG,
)
from sea_nn.config import SEAConfig
from sea_nn.members.registry import ENSEMBLES

PLACES: dict[str, dict[str, Any]] = {
    "fmnist": {"data": "fashion", "classifier": "fashion", "blocks": 20, "n_inputs": 500},
    "imagenet": {"data": "imagenet", "classifier": "efficientnet-lite0"},
    "cub": {"data": "cub20", "classifier": "cub20"},
    "tiny_imagenet": {"data": "tiny_imagenet", "classifier": "tiny_imagenet"},
}
TITLES = {
    "fmnist": "Fashion-MNIST",
    "imagenet": "ImageNet",
    "cub": "birds",
    "tiny_imagenet": "Tiny ImageNet",
}


def _other(label: str, config: SEAConfig | None = None, **choices: float) -> Map:
    return replace(SEA, label=label, config=config or SEAConfig(), choices=choices)


CHOICES = (
    SEA,
    SILENT,
    _other("members weighed alike", trust=0.0),
    _other("members weighed sharply", trust=10.0),
    _other("answers as one member", say=1.0),
    _other("answers as six members", say=6.0),
    _other("cuts by area", even=1.0),
    _other("cuts by heat", even=0.2),
    _other("hard edges", softness=1e-3),
    _other("softer edges", softness=0.5),
    _other("asked with the mean", SEAConfig(absent="mean")),
    _other("2 rounds", SEAConfig(rounds=2)),
    _other("3 rounds", SEAConfig(rounds=3)),
    _other("rate 0.05", SEAConfig(learning_rate=0.05)),
    _other("rate 0.5", SEAConfig(learning_rate=0.5)),
    _other("grid 28 × 28", SEAConfig(grid=(28, 28))),
    _other("one layer", SEAConfig(widths=(512,))),
    _other("log(1+x)", SEAConfig(activation="log1p")),
    _other("margin term", SEAConfig(margin_weight=1.0)),
    Map("silent, margin term", "sea", config=SEAConfig(rounds=0, margin_weight=1.0)),
    Map("silent, Adagrad", "sea", config=SEAConfig(rounds=0, solver="adagrad", learning_rate=0.01)),
    MEAN,
)


def _choices(name: str) -> Experiment:
    return Experiment(
        f"choices_{name}",
        f"What was chosen, and what was not, {TITLES[name]}",
        "How much does each setting of the default matter? On tuning inputs, which no other "
        "result uses. The default was chosen by the tables of Fashion-MNIST and ImageNet, which "
        "therefore flatter it; those of birds and Tiny ImageNet were run afterwards, as a check, "
        "on inputs that the trials in tried.md had used too.",
        maps=CHOICES,
        metrics=("aupc_windows:noise", "aupc_windows:black", "deletion:mean", "insertion:mean"),
        tuning=True,
        **{**PLACES[name], "n_inputs": 120},
    )


def _top_p(name: str) -> Experiment:
    shares = (0.01, 0.02, 0.05, 0.1)
    return Experiment(
        f"top_p_{name}",
        f"The top 1, 2, 5 and 10 % of the pixels, {TITLES[name]}",
        "Does the class survive if only these pixels are kept, and break if they are removed?",
        maps=(SEA, SILENT, VG, IG, SG, *AGGREGATES),
        metrics=tuple(
            f"{what}:{how},share={share:g}"
            for what in ("keep", "remove")
            for how in ("mean", "inpaint")
            for share in shares
        )
        + tuple(f"spacing@{count}" for count in (10, 50)),
        figures=(),
        notes=(ASKED_NOTE, OPTIMAL_NOTE),
        **PLACES[name],
    )


def _stability(name: str, count: int) -> Experiment:
    given = {**PLACES[name], "n_inputs": count}
    return Experiment(
        f"stability_{name}",
        f"Does the map stay the same? {TITLES[name]}",
        "SEA's map against the map it gives in double precision throughout; with every tie broken "
        "the other way; with questions and ensemble on the other device; with other random draws "
        "of its members. Agg-Mean shows what other draws do to the members themselves; the last "
        "rows have other draws of an SG with noise of every point's own, at its price and at four "
        "times that.",
        maps=tuple(replace(SEA, label=label) for label in LABELS),
        metrics=METRICS,
        kind="stability",
        against=LABELS[0],
        notes=("other device: this machine's CPU and GPU; the CPU twice where there is no GPU.",),
        **given,
    )


def _ensemble(name: str, rounds: int) -> tuple[Map, ...]:
    members = ENSEMBLES[name]
    return (
        replace(SEA, label=f"SEA, {name}", members=members, config=SEAConfig(rounds=rounds)),
        replace(MEAN, label=f"Agg-Mean, {name}", members=members),
    )


COST = Experiment(
    "cost_imagenet",
    "Quality against cost, ImageNet",
    "What does a model evaluation buy? Members, their means, SEA on the ready ensembles, and a "
    "greedy choice of regions that asks the model about every candidate (after SMDL-Attribution).",
    maps=(
        *_ensemble("paper", 1),
        *_ensemble("fast", 1),
        *_ensemble("thorough", 3),
        *TABLE_1[:3],
        Map("Grad-CAM", "member", ("grad_cam",)),
        Map("occlusion", "member", ("occlusion",)),
        Map("RISE", "member", ("rise",)),
        Map("greedy regions", "member", ("greedy_regions",)),
    ),
    metrics=("aupc_windows:noise", "aupc_windows:black", *SMOOTH_METRICS),
    against="SEA, paper",
    options={"rise": {"n_masks": 400}},
    n_inputs=100,
    figures=("cost", "dots"),
    notes=(
        "An evaluation is one forward, or forward and backward, pass of one input; questions are "
        "counted. RISE takes 400 masks, as in the ensemble thorough.",
        "SEA and greedy regions ask with blur, which is why no column blurs.",
    ),
    **PLACES["imagenet"],
)


def _asked(count: int, rounds: int) -> Map:
    """SEA on the ensemble "fast" with more questions than its default."""
    config = SEAConfig(regions=count, rounds=rounds)
    label = f"SEA, fast, {config.questions} questions"
    return replace(SEA, label=label, members=ENSEMBLES["fast"], config=config)


QUESTIONS = Experiment(
    "questions_imagenet",
    "What do more questions buy? ImageNet",
    "SEA on three cheap gradients with 30 questions about 16 regions, and with 126 and 378 about "
    "64; the greedy choice of regions in cost_imagenet.md, on the same inputs, asks 4,160 times.",
    maps=(_asked(16, 1), _asked(64, 1), _asked(64, 3), Map("Grad-CAM", "member", ("grad_cam",))),
    metrics=SMOOTH_METRICS,
    against="SEA, fast, 30 questions",
    n_inputs=32,
    notes=("SEA asks with blur, which is why no column blurs.",),
    **PLACES["imagenet"],
)

DEFAULT_EXPERIMENTS = (
    *(_choices(name) for name in PLACES),
    _top_p("fmnist"),
    _top_p("imagenet"),
    _stability("fmnist", 200),
    _stability("imagenet", 40),
    COST,
    QUESTIONS,
)

"""Does the default win on a vision transformer too? The main table again, on the bench's ViT."""

from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.learned import (
    BLUR_NOTE,
    MEMBERS,
    OUR_LABELS,
    OURS,
    SAMPLED,
    SEARCH_NOTE,
    SEARCHES,
    TIME_NOTE,
    budget_metrics,
)
from sea_bench.experiments.standard_maps import AGGREGATES, OPTIMAL_NOTE, paper_sea

ATTENTION = (
    Map("attention rollout", "member", ("attention_rollout",)),
    Map("attention×gradient", "member", ("attention_gradient",)),
    Map("attention LRP", "member", ("attention_lrp",)),
)
RULES = ("DeepLIFT", "guided backprop", "deconvolution", "guided Grad-CAM")  # of rectifiers
FITTING = (*(one for one in MEMBERS if one.label not in RULES), *ATTENTION)
CHOSEN_NOTE = (
    "The two members of a budget (attention×gradient, attention LRP) were chosen on the first 400 "
    "test images; 4 % of the inputs here can be among them."
)
PATCH_NOTE = (
    "From about 140 evaluations on SEA asks about this model's 7 x 7 patches, the searches always "
    "about 8 x 8 cells."
)
TRANSFORMER_EXPERIMENTS = (
    Experiment(
        "budgets_vit",
        "The best map for every budget, a vision transformer on Fashion-MNIST",
        "SEA(model, budget=B) against every member that a transformer has, the aggregators and "
        "searches for regions, each at its own price.",
        data="fashion",
        classifier="fashion/vit",
        maps=(*OURS, paper_sea("fmnist"), *FITTING, *AGGREGATES, *SAMPLED, *SEARCHES),
        metrics=budget_metrics(),
        against=OUR_LABELS[-1],
        ours=OUR_LABELS,
        n_inputs=96,
        blocks=32,
        figures=(),
        notes=(BLUR_NOTE, SEARCH_NOTE, PATCH_NOTE, CHOSEN_NOTE, OPTIMAL_NOTE, TIME_NOTE),
    ),
)

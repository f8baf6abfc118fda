"""``sea bench speed_learning``, ``_members``, ``_text``, ``_metrics``: beside the bare model."""

import time
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench.experiments.asking import explain
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.experiments.maps import read_clock
from sea_bench.speed.timing import crop_photographs, take_seconds
from sea_bench.toxic_classifier import load_minilm
from sea_nn.metrics import random_map, score_maps
from sea_nn.sea import SEA
from sea_nn.vision.models import load_model
from sea_nn.vision.shipped import load_cnn, load_sample

BUDGETS = (34, 128, 512)
WORDS = ("a", "quiet", "film", "about", "people", "who", "say", "little", "to", "each", "other")
N_WORDS = 128
CURVE_STEPS = 28
LOOPED = 5  # inputs that the plain loop of metrics does, which is slow


class Timed(nn.Module):
    """A model that adds up the seconds spent and the inputs seen, in copies of it as well."""

    seconds = 0.0
    inputs = 0

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The model's own answer."""
        started = read_clock(x)
        logits: Tensor = self.model(x)
        Timed.seconds += read_clock(x) - started
        Timed.inputs += len(x)
        return logits


def give_heat(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """A member that costs nothing: some smooth heat."""
    return x.abs().mean(1, keepdim=True)


@experiment(
    "speed_learning",
    "What does learning cost beside the answers?",
    "two photographs",
    n_inputs=16,
    quick=4,
)
def learning(run: Run) -> Findings:
    """How much of an explanation's time is not the model's?"""
    loaded = load_model("efficientnet-lite0", run.device)
    model, rows = Timed(loaded.model), list[list[str]]()
    for count in (1, run.count) if run.count > 1 else (1,):
        x = crop_photographs(loaded.preprocess, count).to(run.device)
        with torch.no_grad():
            target = loaded.model(x).argmax(1)
        explain(model, x[:1], target[:1], methods=[give_heat], budget=8, output="logits")
        for budget in BUDGETS:
            run.tell(f"{budget} evaluations, {count} inputs", len(rows), 2 * len(BUDGETS))
            Timed.seconds, Timed.inputs = 0.0, 0
            started = time.perf_counter()
            explain(model, x, target, methods=[give_heat], budget=budget, output="logits")
            whole = time.perf_counter() - started
            rest = whole - Timed.seconds
            cells = [f"{1e3 * v / count:.0f}" for v in (whole, Timed.seconds, rest)]
            share = f"{rest / Timed.seconds:.0%}"
            rows.append([str(budget), str(count), f"{Timed.inputs / count:.0f}", *cells, share])
    note = (
        "Milliseconds an image of `SEA(model, budget=B).explain(x)`, EfficientNet-Lite0, with a "
        "member that costs nothing, so that what is not spent in the model is learning: choosing "
        "questions, fits, orders, the map."
    )
    head = ["budget", "inputs at once", "passes", "all", "in the model", "learning", "share"]
    return Findings([Table("Learning beside the model's answers", note, head, rows)])


@experiment("speed_members", "Members beside Captum", "two photographs", n_inputs=8, quick=1)
def members(run: Run) -> Findings:
    """How long do the paper's three members take, here and by Captum?"""
    from captum.attr import IntegratedGradients, NoiseTunnel, Saliency

    loaded = load_model("efficientnet-lite0", run.device)
    model, rows = loaded.model, []
    x = crop_photographs(loaded.preprocess, run.count).to(run.device)
    with torch.no_grad():
        target = model(x).argmax(1)
    ig = IntegratedGradients(model)
    sg: dict[str, Any] = {"nt_samples": 3, "stdevs": 1.0}
    theirs = {
        "saliency": lambda: Saliency(model).attribute(x, target=target, abs=False),
        "integrated_gradients": lambda: ig.attribute(x, target=target),
        "smooth_ig": lambda: NoiseTunnel(ig).attribute(x, target=target, **sg),
    }
    for number, (name, call) in enumerate(theirs.items()):
        run.tell(name, number, len(theirs))
        method = (name, {"n_samples": 3, "stdev": 1.0}) if name == "smooth_ig" else name
        sea = SEA(model, [method], output="logits")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, other = take_seconds(partial(sea.attribute, x, target), 1), take_seconds(call, 1)
        rows.append([name, f"{ours:.2f}", f"{other:.2f}", f"{other / ours:.2f}"])
    note = (
        f"Seconds for {run.count} photographs, EfficientNet-Lite0; ours includes the paper's map "
        "of this one member. Captum as its documentation shows it."
    )
    head = ["member", "ours, s", "Captum, s", "ratio"]
    return Findings([Table("Members", note, head, rows)])


@experiment("speed_text", "What does SEA cost on texts?", "made here", n_inputs=1)
def text(run: Run) -> Findings:
    """How much longer does SEA take than the passes it asks for?"""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # of the head
        model, tokenizer = load_minilm()
    model.eval().to(run.device)
    text = " ".join(WORDS[k % len(WORDS)] for k in range(N_WORDS))
    given = tokenizer([text] * 16, return_tensors="pt").to(run.device)
    rows = []
    for number, absent in enumerate(("mask", "delete")):
        run.tell(absent, number, 2)
        sea = SEA.for_text(model, tokenizer, budget=128, absent=absent)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            ours = take_seconds(partial(sea.explain, [text], target=1))
            asked = sum(sea.explain([text], target=1).provenance.evaluations.values())
            bare = -(-asked // 16) * take_seconds(partial(model, **given))
        rows.append([absent, str(asked), f"{ours:.2f}", f"{bare:.2f}", f"{ours / bare:.2f}"])
    note = (
        f"Seconds of `SEA.for_text(model, tokenizer, budget=128)` on a text of {N_WORDS} "
        "words, MiniLM-L6, beside as many passes of the bare model about the whole text in batches "
        "of 16. Deleted words make texts shorter."
    )
    head = ["absent", "evaluations", "SEA", "bare model", "ratio"]
    return Findings([Table("A text of 128 words", note, head, rows)])


def loop_curve(model: nn.Module, x: Tensor, target: Tensor, maps: Tensor, insert: bool) -> Tensor:
    """Deletion or insertion by black, one input and one step at a time: [N]."""
    areas = []
    for image, one, goal in zip(x, maps, target, strict=True):
        order, curve = one.flatten().argsort(descending=True, stable=True), []
        for step in range(CURVE_STEPS + 1):
            first = torch.zeros(one.numel(), dtype=torch.bool, device=x.device)
            first[order[: step * one.numel() // CURVE_STEPS]] = True
            shown = image * (first == insert).view(one.shape)
            with torch.no_grad():
                curve.append(float(model(shown[None]).softmax(1)[0, goal]))
        areas.append(torch.trapezoid(torch.tensor(curve), dx=1 / CURVE_STEPS))
    return torch.stack(areas)


@experiment(
    "speed_metrics",
    "Perturbation metrics beside a plain loop",
    "fashion_sample",
    n_inputs=200,
    quick=100,
)
def metrics(run: Run) -> Findings:
    """Perturbation metrics beside a plain loop that does one map and one step at a time."""
    model, x = load_cnn(run.device), load_sample().images[: run.count].to(run.device)
    with torch.no_grad():
        target = model(x).argmax(1)
    maps = random_map((len(x), *x.shape[2:]), 0, device=x.device)
    bare = take_seconds(torch.no_grad()(lambda: model(x))) / len(x)
    rows = []
    names = ("deletion:black", "insertion:black", "aupc_windows:black")
    for number, asked in enumerate([(name,) for name in names] + [names]):
        run.tell(", ".join(asked), number, len(names) + 1)

        def score(asked: tuple[str, ...] = asked, count: int = len(x)) -> dict[str, Tensor]:
            given = (x[:count], target[:count], {"map": maps[:count]}, asked)
            return dict(score_maps(model, *given, bounds=(0, 1), random=False).values)

        ours, slow, gap = take_seconds(score) / len(x), "", ""
        if asked[0] in names[:2] and len(asked) == 1:
            insert, few = asked[0].startswith("insertion"), slice(0, LOOPED)
            loop = partial(loop_curve, model, x[few], target[few], maps[few], insert)
            slow = f"{take_seconds(loop, 1) / LOOPED / ours:.1f}"
            found = score(count=LOOPED)[asked[0]][:, 0] - loop().double().cpu()
            gap = f"{float(found.abs().max()):.1e}"
        label = asked[0] if len(asked) == 1 else "all of these in one call"
        rows.append([label, f"{ours * 1e3:.2f}", f"{ours / bare:.1f}", slow, gap])
    note = (
        f"{len(x)} Fashion-MNIST pictures, one map each. Passes: our time in units of one pass of "
        "the classifier about all pictures together, for one of them."
    )
    head = ["metric", "ours, ms a map", "passes", "plain loop / ours", "largest difference"]
    return Findings([Table("Perturbation metrics", note, head, rows)])

"""``sea bench speed_metrics``: perturbation metrics beside a plain loop, on the same maps."""

from functools import partial

import torch
from torch import Tensor, nn

from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.speed.timing import take_seconds
from sea_nn.metrics import random_map, score_maps
from sea_nn.vision.shipped import load_cnn, load_sample

STEPS = 28
LOOPED = 5  # inputs that the loop does, which is slow


def loop_curve(model: nn.Module, x: Tensor, target: Tensor, maps: Tensor, insert: bool) -> Tensor:
    """Deletion or insertion by black, one input and one step at a time: [N]."""
    areas = []
    for image, one, goal in zip(x, maps, target, strict=True):
        order, curve = one.flatten().argsort(descending=True, stable=True), []
        for step in range(STEPS + 1):
            first = torch.zeros(one.numel(), dtype=torch.bool, device=x.device)
            first[order[: step * one.numel() // STEPS]] = True
            shown = image * (first == insert).view(one.shape)
            with torch.no_grad():
                curve.append(float(model(shown[None]).softmax(1)[0, goal]))
        areas.append(torch.trapezoid(torch.tensor(curve), dx=1 / STEPS))
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

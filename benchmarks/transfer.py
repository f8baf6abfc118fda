"""A scorer learned once, used on other inputs, data sets and classifiers without asking them [M17].

    python -m benchmarks.transfer --device cuda -o docs/results/transfer.md
    python -m benchmarks.transfer --device cpu --photographs 20       # few, and only to be used on

SEA learns the weights w of f(A) = g(w(A)) for each input anew, with 30 questions to the model. Here
a small network reads w_v from what the members say about v and around it. It is trained on inputs
about which much was asked: from w alone it must foretell which of two halves the model needs more.
Training inputs come from the end of the test set's order, test inputs from its beginning. Questions
blur what they hide; the metrics never do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cosine_similarity

from benchmarks.table import Table, hardware, to_markdown
from sea_bench import data
from sea_bench.classifiers import load_classifier
from sea_bench.experiments.experiment import PAPER_MEMBERS
from sea_nn import SEAConfig
from sea_nn.ensembling.algorithm1 import attribute
from sea_nn.ensembling.heatmaps import pool, to_heatmap, upsample
from sea_nn.features import clip_grid, sum_cells
from sea_nn.members.compute import compute_maps
from sea_nn.metrics import Scores, pixel_bounds, score_maps
from sea_nn.pipeline import learn
from sea_nn.questions.ask import make_ask
from sea_nn.submodular.dsf import CollapsedDSF
from sea_nn.vision.models import LoadedModel

FASHION, PHOTOS, BIRDS = "Fashion-MNIST", "ImageNet", "CUB"
SETS = {  # data set and classifier
    FASHION: ("fashion", "fashion"),
    PHOTOS: ("imagenet", "efficientnet-lite0"),
    BIRDS: ("cub20", "cub20"),
}
USES = {FASHION: (FASHION, PHOTOS), PHOTOS: (PHOTOS, BIRDS, FASHION)}  # trained on: used on
METRICS = ("aupc_windows:noise", "deletion:mean", "insertion:mean")
MEAN, PIXELS, SILENT, SEA = "Agg-Mean", "Agg-Mean, every pixel", "SEA without questions", "SEA"
GRID, REGIONS, SPLITS = (56, 56), (8, 8), 64
NEAR = (1 / 14, 3 / 14)  # reach of the two neighbourhoods, in widths of the input
TEST_SHARE = 0.6  # of a set's order; the rest is for training
HELD_OUT = 5  # every fifth training input only shows how well answers are foretold
# Chosen by the answers of other inputs from the end of Fashion-MNIST's order.
WIDTH, STEPS, RATE, NETWORKS = 32, 200, 0.01, 5
BLOCK = 50
NOTE = f"""Networks learned over many inputs from {SPLITS} answers about each, then used on other
inputs, and for other classifiers, without asking them. Members: {", ".join(PAPER_MEMBERS)}.
Means over test inputs; in brackets the difference to Agg-Mean and its 95 % interval (paired
bootstrap over inputs alone). Maps are 56 × 56 cells, or Fashion-MNIST's 28 × 28 pixels, unless they
say otherwise. "Foretold": mean cosine between the answers and what a map's own mass would say.
"""


@dataclass(frozen=True)
class Inputs:
    """Inputs [N, C, H, W] that a model gets right, and their members' heatmaps [N, m, H, W]."""

    loaded: LoadedModel
    x: Tensor
    target: Tensor
    heatmaps: Tensor

    @property
    def cells(self) -> Tensor:
        """The heatmaps averaged over the cells of the grid, [N, m, rows, columns]."""
        return pool(self.heatmaps, clip_grid(GRID, self.x.shape[2:]))


def choose(images: data.ImageSet, loaded: LoadedModel, count: int, training: bool) -> Inputs:
    """Take the first inputs of the set's order that are classified right; for training the last."""
    device = next(loaded.model.parameters()).device
    order = np.random.default_rng(0).permutation(len(images))
    early, late = np.split(order, [round(TEST_SHARE * len(order))])
    order = late[::-1] if training else early
    inputs, targets = torch.empty(0, device=device), torch.empty(0, device=device).long()
    for start in range(0, len(order), BLOCK):
        items = [images[index] for index in order[start : start + BLOCK].tolist()]
        x = torch.stack([loaded.preprocess(item.read()) for item in items]).to(device)
        label = torch.tensor([item.label for item in items], device=device)
        with torch.no_grad():
            right = loaded.model(x).argmax(1) == label
        inputs, targets = torch.cat([inputs, x[right]]), torch.cat([targets, label[right]])
        if len(inputs) >= count:
            break
    inputs, targets = inputs[:count], targets[:count]
    found = compute_maps(loaded.model, inputs, targets, PAPER_MEMBERS)
    maps = [to_heatmap(raw) for raw in found.maps.values()]
    return Inputs(loaded, inputs, targets, torch.stack(maps, 1))


def describe(cells: Tensor) -> Tensor:
    """Say what the members say: cells [N, m, rows, columns] to [N, rows, columns, 4m].

    Heat, rank, and the mean heat of two neighbourhoods. Heat is relative to the map's mean, tied
    cells share a rank between 0 and 1, and reach is in widths of the input, so that neither one
    bright cell nor the size of the input decides.
    """
    mean = cells.mean((2, 3), keepdim=True).clamp_min(torch.finfo(cells.dtype).tiny)
    heat = (cells / mean).log1p()
    flat = heat.flatten(2)
    ordered = flat.sort(2).values
    below, upto = (torch.searchsorted(ordered, flat, right=right) for right in (False, True))
    told = [flat, (below + upto) / (2 * flat.shape[2])]
    for share in NEAR:
        reach = max(1, round(share * cells.shape[3]))
        told.append(avg_pool2d(heat, 2 * reach + 1, 1, reach, count_include_pad=False).flatten(2))
    return torch.cat(told, 1).mT.reshape(len(cells), *cells.shape[2:], -1)


class FeatureScorer(nn.ModuleList):
    """From what ``describe`` says to weights >= 0 of sum 1, [networks, N, rows, columns].

    All cells are read by the same small networks, so they fit inputs of any size. Networks differ
    by their start alone, which a table would show; so their mean is used.
    """

    def __init__(self, told: int) -> None:
        super().__init__()
        for _ in range(NETWORKS):
            first, second, last = (nn.Linear(a, b) for a, b in pairwise((told, WIDTH, WIDTH, 1)))
            self.append(nn.Sequential(first, nn.GELU(), second, nn.GELU(), last))

    def forward(self, described: Tensor) -> Tensor:
        raw = torch.stack([network(described).flatten(1) for network in self])
        return raw.softmax(2).view(len(self), *described.shape[:3])


def ask_halves(inputs: Inputs, seed: int) -> tuple[Tensor, Tensor]:
    """Draw halves of the regions, as signs [N, R, regions], and ask about them, [N, R]."""
    n_regions = REGIONS[0] * REGIONS[1]
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(len(inputs.x), SPLITS, n_regions, generator=generator)
    chosen = (draws.argsort(2) < n_regions // 2).to(inputs.x.device)
    answers = []
    for start in range(0, len(inputs.x), BLOCK):
        rows = slice(start, start + BLOCK)
        ask = make_ask(inputs.loaded.model, inputs.x[rows], inputs.target[rows], absent="blur")
        answers.append(ask(upsample(chosen[rows].unflatten(2, REGIONS), inputs.x.shape[2:])))
    return chosen.float() * 2 - 1, torch.cat(answers).float()


def foretell(weights: Tensor, signs: Tensor, answers: Tensor) -> Tensor:
    """Cosine between the answers and what weights [..., N, rows, columns] would say, [..., N]."""
    expected = signs @ sum_cells(weights, REGIONS).flatten(-2).unsqueeze(-1)
    return cosine_similarity(expected.squeeze(-1), answers, dim=-1)


def train(inputs: Inputs, seed: int) -> tuple[FeatureScorer, str]:
    """Learn a scorer from many answers; say how well it foretells those about inputs held out."""
    cells, described = inputs.cells, describe(inputs.cells)
    signs, answers = ask_halves(inputs, seed)
    new = torch.arange(len(cells), device=cells.device) % HELD_OUT == 0
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        scorer = FeatureScorer(described.shape[3]).to(cells.device)
    adam = torch.optim.Adam(scorer.parameters(), RATE)  # each network's loss is its own
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    for _ in range(STEPS):
        adam.zero_grad()
        (-foretell(scorer(described[~new]), signs[~new], answers[~new]).mean(1).sum()).backward()
        adam.step()
        schedule.step()
    scorer.requires_grad_(False)
    found = [foretell(w, signs, answers) for w in (scorer(described).mean(0), cells.mean(1))]
    seen, unseen = ([float(cosine[part].mean()) for cosine in found] for part in (~new, new))
    return scorer, (
        f"Foretold on {len(cells) - int(new.sum())} training inputs: {seen[0]:.2f} (Agg-Mean "
        f"{seen[1]:.2f}); on {int(new.sum())} held out: {unseen[0]:.2f} ({unseen[1]:.2f})."
    )


def score(inputs: Inputs, scorers: dict[str, FeatureScorer]) -> Scores:
    """Score every contender on the same inputs; scorers go by the set they were trained on."""
    x, target, model = inputs.x, inputs.target, inputs.loaded.model
    cells, size, preprocess = inputs.cells, x.shape[2:], inputs.loaded.preprocess
    ask, maps = make_ask(model, x, target), {MEAN: upsample(cells.mean(1), size)}
    if cells.shape[2:] != size:
        maps[PIXELS] = inputs.heatmaps.mean(1)
    for name, rounds in ((SILENT, 0), (SEA, 1)):
        config = SEAConfig(grid=GRID, rounds=rounds)
        maps[name] = learn(inputs.heatmaps, config, ask=ask, keep_scorer=False).attribution
    for name, scorer in scorers.items():
        weights = scorer(describe(cells)).mean(0)
        values = attribute(CollapsedDSF(weights.flatten(1).double()))[2]
        maps[name] = upsample(values.unflatten(1, cells.shape[2:]), size)
    bounds = pixel_bounds(preprocess.mean, preprocess.std)
    return score_maps(model, x, target, maps, METRICS, bounds=bounds, allow_zero=True)


def tabulate(scores: Scores, source: str) -> list[list[str]]:
    """One row a contender: its means, and the paired difference to Agg-Mean with its interval."""
    others = [name for name in SETS if name != source]
    rows = {n: [n, "30" if n == SEA else "0"] for n in scores.methods if n not in others}
    rows[source][0] = "transferred scorer"
    for metric in METRICS:
        means, apart = scores.mean(metric), scores.difference(metric, MEAN)
        for name, row in rows.items():
            place = scores.methods.index(name)
            middle, low, high = (float(one[place]) for one in (apart.mean, apart.low, apart.high))
            said = "" if name == MEAN else f" ({middle:+.3f}: {low:+.3f} to {high:+.3f})"
            row.append(f"{means[name]:.3f}{said}")
    return list(rows.values())


def run(
    device: str = "",
    n_train: int = 150,
    n_test: int = 150,
    n_photographs: int | None = None,
    seed: int = 0,
) -> Iterator[Table]:
    """Give a table for each training and test set.

    On a CPU scorers are learned on Fashion-MNIST alone, and photographs are few or none.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device != "cpu"
    if n_photographs is None:
        n_photographs = n_test if on_gpu else 0
    wanted = tuple(SETS) if on_gpu else (FASHION, PHOTOS)
    if not (n_photographs and data.find_data()):
        wanted = (FASHION,)
    known = {n: (data.load(SETS[n][0]), load_classifier(SETS[n][1], device)) for n in wanted}
    trained, scored = {}, {}
    for source in (name for name in known if name in USES and (on_gpu or name == FASHION)):
        trained[source] = train(choose(*known[source], n_train, training=True), seed)
    for aim in known:
        scorers = {source: one for source, (one, _) in trained.items() if aim in USES[source]}
        count = n_test if aim == FASHION else n_photographs
        scored[aim] = score(choose(*known[aim], count, training=False), scorers)
    for source, aim in ((s, a) for s in trained for a in USES[s] if a in scored):
        arrows = [f"{name} {scored[aim].metrics[name].arrow}" for name in METRICS]
        title = f"Trained on {source}, used on {'other inputs' if source == aim else aim}"
        note = f"{len(scored[aim])} test inputs. {trained[source][1]}"
        yield title, note, ["map", "questions", *arrows], tabulate(scored[aim], source)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("--device", default="", help="cuda or cpu")
    parser.add_argument("--photographs", type=int, metavar="N", help="test inputs of other sets")
    parser.add_argument("--train", type=int, default=150, metavar="N", help="training inputs")
    parser.add_argument("--test", type=int, default=150, metavar="N", help="test inputs")
    parser.add_argument("--seed", type=int, default=0, help="of questions and the network's start")
    parser.add_argument("-o", "--output", help="also write the tables to this Markdown file")
    arguments = parser.parse_args()
    started = time.perf_counter()
    given = (arguments.train, arguments.test, arguments.photographs, arguments.seed)
    tables = list(run(arguments.device, *given))
    took = f"{hardware()}; {time.perf_counter() - started:.0f} s in all.\n"
    text = "\n".join(["# Amortised scorer\n", NOTE, took, *(to_markdown(*one) for one in tables)])
    print(text)
    if arguments.output:
        Path(arguments.output).write_text(text)


if __name__ == "__main__":
    main()

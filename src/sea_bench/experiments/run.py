"""Run any experiment: measure as many inputs as wanted, write its page, keep scores by input."""

from dataclasses import dataclass
from pathlib import Path

import torch

from sea_bench.experiments.archive import ARCHIVE, PUBLISHED, write_scores
from sea_bench.experiments.blocks import compare_maps
from sea_bench.experiments.comparison import Comparison
from sea_bench.experiments.earlier import compare_with_earlier
from sea_bench.experiments.experiment import Compared, Experiment, Findings, Run, Tell
from sea_bench.experiments.pages import count_published, write_page
from sea_bench.experiments.store import Store
from sea_nn.metrics import Scores
from sea_nn.vision.folders import find_cache


@dataclass(frozen=True)
class Result:
    """What a run made.

    ``n_reused`` inputs were remembered from an earlier run; ``complete`` says whether these are all
    that a published result needs; ``kept`` is one of more inputs, which this did not replace.
    """

    experiment: Experiment
    findings: Findings
    n_inputs: int
    n_reused: int
    complete: bool
    page: Path
    kept: Path | None = None

    @property
    def scores(self) -> Scores:
        """The scores of its first table that has such."""
        return next(p.scores for p in self.findings.parts if isinstance(p, Compared))


def run_experiment(
    experiment: Experiment,
    *,
    count: int | None = None,
    device: str = "auto",
    seed: int = 0,
    out: str | Path = "out/bench",
    cache: str | Path | None = None,
    fresh: bool = False,
    ours: bool = False,
    archive: str | Path | None = None,
    command: str = "",
    tell: Tell = lambda text, done, total: None,
) -> Result:
    """Run an experiment and write NAME.md and its scores by input.

    Args:
        experiment: what is measured.
        count: of how many inputs; None for as many as a published result has. With fewer it is a
            trial: a published page in ``out`` is not replaced by a smaller one, which goes to
            ``out/trial`` then.
        device: "auto", "cpu" or "cuda".
        seed: of the inputs' order, of members and metrics.
        out: folder of the page.
        cache: folder for results of single inputs, by default ``$SEA_NN_CACHE/bench``.
        fresh: measure again what is remembered.
        ours: measure only maps with a budget, and compare them, input by input, with the scores
            that ``archive`` has of all others and of our earlier version.
        archive: zip file for scores by input; by default they are written to ``archive.zip``
            beside the page, and read from that of ``docs/results``.
        command: says on the page how to run this again.
        tell: is called with (text, inputs done, inputs in all).
    """
    wanted = experiment.n_inputs if count is None else count
    about = (experiment.name, experiment.version, wanted)
    store = Store(find_cache("bench") if cache is None else cache)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    run = Run(*about, store, seed, torch.device(device), fresh, ours, tell)
    if isinstance(experiment, Comparison):
        findings = compare_maps(experiment, run)
    else:
        findings = experiment.work(run)
    if ours:
        findings = compare_with_earlier(findings, Path(archive or PUBLISHED), experiment.name)
    n = wanted if findings.n_inputs is None else findings.n_inputs
    complete = not ours and (n >= experiment.n_inputs or n < wanted)
    target, kept = Path(out), None
    published = count_published(target, experiment.name)
    if ours or (published is not None and n < published):
        target, kept = target / "trial", target / f"{experiment.name}.md"
    target.mkdir(parents=True, exist_ok=True)
    command = command or f"sea bench {experiment.name}"
    page = write_page(experiment, findings, run, target, n, command, trial=not complete)
    parts = [part for part in findings.parts if isinstance(part, Compared)]
    if parts and not ours:
        write_scores(Path(archive or target / ARCHIVE), experiment.name, parts)
    tell("done", n, n)
    return Result(experiment, findings, n, run.reused["inputs"], complete, page, kept)

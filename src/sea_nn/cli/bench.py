"""``sea bench``: run the experiments behind the tables and figures of ``docs/results``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli.terminal import Bar, err, guard, list_examples, make_table, out, say, show

EXAMPLES = list_examples(
    "sea bench list",
    "sea bench aupc_fmnist --limit 20 -o trial",
    "sea bench aupc_cub --device cuda",
    "sea bench localisation",
)
_EVERY = 20.0  # seconds between lines where there is no terminal to draw a bar on


@guard
def bench(
    name: Annotated[
        str, typer.Argument(help="An experiment, a group such as 'localisation', 'all' or 'list'.")
    ],
    limit: Annotated[
        int | None, typer.Option(help="At most this many inputs: a trial.", show_default="all")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the inputs' order and of every draw.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for tables and figures.")
    ] = Path("docs/results"),
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder that remembers every input's result, so that a run can be resumed.",
            show_default="$SEA_NN_CACHE/bench or ~/.cache/sea_nn/bench",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what is remembered.")
    ] = False,
) -> None:
    """Run an experiment and write its table (NAME.md), its numbers (NAME.csv) and its figures.

    A run that was interrupted goes on where it was.
    """
    if name == "list":
        _list(output)
        return

    from sea_nn.experiments import find_experiments, run_experiment

    for experiment in find_experiments(name):
        command = f"sea bench {experiment.name}"
        command += f" --limit {limit}" if limit is not None else ""
        command += f" --device {device}" if device != "auto" else ""
        command += f" --seed {seed}"
        total = experiment.n_inputs if limit is None else limit
        with Bar(total) as bar:
            lines = _Lines(bar)
            result = run_experiment(
                experiment,
                limit=limit,
                device=device,
                seed=seed,
                out=output,
                cache=cache,
                fresh=fresh,
                command=command,
                progress=lines.show,
            )
        metric = experiment.metrics[0]
        arrow = result.scores.metrics[metric].arrow
        table = make_table(f"{experiment.title}: {metric} {arrow}", "map", "mean", "95 % interval")
        estimate = result.scores.estimate(metric)
        for k, method in enumerate(result.scores.methods):
            mean, low, high = (float(e[k]) for e in (estimate.mean, estimate.low, estimate.high))
            table.add_row(method, f"{mean:.4g}", f"{low:.4g} to {high:.4g}")
        out.print(table)
        reused = f", {result.n_reused} of them remembered" if result.n_reused else ""
        n = result.n_inputs
        say(f"{n} input{'' if n == 1 else 's'}{reused}. Look at {show(result.files[0])}")
        if result.kept is not None:
            say(f"{show(result.kept)} has more inputs and stays as it is", "yellow")
        elif not result.complete:
            say(f"A trial: a result takes {experiment.n_inputs} inputs", "yellow")


def _list(folder: Path) -> None:
    from sea_nn.experiments.catalogue import EXPERIMENTS
    from sea_nn.experiments.tables import count_published

    table = make_table("Experiments", "name", "what", "data", "inputs", f"in {show(folder)}")
    for one in EXPERIMENTS.values():
        done = count_published(folder, one.name)
        state = "not yet run" if done is None else f"{done} inputs"
        table.add_row(one.name, one.title, one.data, str(one.n_inputs), state)
    out.print(table)


class _Lines:
    """The bar, or, where standard error is no terminal, a line now and then."""

    def __init__(self, bar: Bar) -> None:
        self._bar, self._started, self._said = bar, time.monotonic(), time.monotonic()
        self._first: int | None = None

    def show(self, text: str, done: int, total: int) -> None:
        self._bar.show(text, done)
        if err.is_terminal:
            return
        now = time.monotonic()
        if self._first is None and done:
            # Remembered inputs take no time, so the pace is measured from here on.
            self._first, self._started = done, now
        if now - self._said < _EVERY or self._first is None or done <= self._first:
            return
        self._said = now
        left = (now - self._started) / (done - self._first) * (total - done)
        say(f"{done} of {total} inputs, about {_write_time(left)} left", console=err)


def _write_time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

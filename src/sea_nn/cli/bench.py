"""``sea bench``: run the experiments behind the tables and figures of ``docs/results``."""

from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli.terminal import (
    Bar,
    guard,
    list_examples,
    make_table,
    out,
    prepare_folder,
    say,
    show,
)

EXAMPLES = list_examples(
    "sea bench list",
    "sea bench budgets_fmnist --limit 4 -o trial",
    "sea bench budgets_cub --device cuda",
    "sea bench mass",
)


@guard
def bench(
    name: Annotated[
        str, typer.Argument(help="An experiment, a group such as 'mass', 'all' or 'list'.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="At most this many inputs: a trial.", show_default="all"
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Of the inputs' order and of every draw.")
    ] = 0,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder for tables and figures."),
    ] = Path("docs/results"),
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder that remembers every input's result, so that a run can be resumed.",
            show_default="$SEA_NN_CACHE/bench or ~/.cache/sea_nn/bench",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", metavar="", help="Measure again what is remembered.")
    ] = False,
) -> None:
    """Run an experiment and write its table (NAME.md), its numbers (NAME.csv) and its figures.

    A run that was interrupted goes on where it was.
    """
    if name == "list":
        _list(output)
        return

    from sea_bench.experiments import find_experiments, run_experiment
    from sea_bench.experiments.catalogue import STUDIES

    if name in STUDIES:
        _run_study(name, limit, seed, output)
        return
    chosen = find_experiments(name)
    prepare_folder(output)
    for experiment in chosen:
        command = f"sea bench {experiment.name}"
        command += f" --limit {limit}" if limit is not None else ""
        command += f" --device {device}" if device != "auto" else ""
        command += f" --seed {seed}"
        total = min(experiment.n_inputs, limit or experiment.n_inputs)
        with Bar(total) as bar:
            result = run_experiment(
                experiment,
                limit=limit,
                device=device,
                seed=seed,
                out=output,
                cache=cache,
                fresh=fresh,
                command=command,
                progress=lambda text, done, total: bar.show(text, done),
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
            say(f"A trial: the published result has {experiment.n_inputs} inputs", "yellow")


def _run_study(name: str, limit: int | None, seed: int, output: Path) -> None:
    from sea_bench.experiments.catalogue import STUDIES
    from sea_bench.experiments.studies import run_study

    prepare_folder(output)
    command = f"sea bench {name}" + (f" --limit {limit}" if limit is not None else "")
    with Bar(100) as bar:
        page = run_study(
            STUDIES[name],
            limit=limit,
            seed=seed,
            out=output,
            command=f"{command} --seed {seed}",
            tell=lambda text, done, total: bar.show(text, 100 * done // max(1, total)),
        )
    say(f"Look at {show(page)}")


def _list(folder: Path) -> None:
    from sea_bench.experiments.catalogue import EXPERIMENTS, STUDIES
    from sea_bench.experiments.tables import count_published

    table = make_table("Experiments", "name", "what", "data", "inputs", f"in {show(folder)}")
    for one in EXPERIMENTS.values():
        done = count_published(folder, one.name)
        state = "not yet run" if done is None else f"{done} inputs"
        table.add_row(one.name, one.title, one.data, str(one.n_inputs), state)
    for study in STUDIES.values():
        done = (folder / f"{study.name}.md").exists()
        state = "there" if done else "not yet run"
        table.add_row(study.name, study.title, study.data, f"{study.n_inputs} a case", state)
    out.print(table)

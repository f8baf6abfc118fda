"""``sea bench``: run the experiments behind the pages of ``docs/results``."""

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
    "sea bench",
    "sea bench games",
    "sea bench budgets_fmnist --inputs 4 -o trial",
    "sea bench budgets_pets --ours --inputs 24",
    "sea bench mass --full --device cuda",
)


@guard
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="An experiment, a group such as 'mass', or 'all'; left out, all are listed.",
            show_default=False,
        ),
    ] = "",
    inputs: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="How many inputs.", show_default="a few"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", metavar="", help="As many inputs as a published page has.")
    ] = False,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Of the inputs' order and of every draw.")
    ] = 0,
    ours: Annotated[
        bool,
        typer.Option(
            "--ours",
            metavar="",
            help="Measure SEA with a budget alone, beside the archive's scores of the same inputs.",
        ),
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the page.")
    ] = Path("docs/results"),
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Zip file that scores by input are written to, and read from with --ours.",
            show_default="archive.zip beside the page",
        ),
    ] = None,
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
    """Run an experiment and write its page (NAME.md), its figures, and its scores by input.

    A run that was interrupted goes on where it was.
    """
    from sea_nn.errors import InputError

    if full and inputs is not None:
        raise InputError("--full and --inputs both say how many inputs: give one of them")
    if not name:
        _list(output)
        return

    from sea_bench.experiments import find_experiments, run_experiment

    chosen = find_experiments(name)
    prepare_folder(output)
    for experiment in chosen:
        count = experiment.n_inputs if full else min(experiment.quick, experiment.n_inputs)
        count = count if inputs is None else inputs
        command = f"sea bench {experiment.name} --inputs {count} --seed {seed}"
        command += f" --device {device}" if device != "auto" else ""
        command += " --ours" if ours else ""
        with Bar(100) as bar:
            result = run_experiment(
                experiment,
                count=count,
                device=device,
                seed=seed,
                out=output,
                cache=cache,
                fresh=fresh,
                ours=ours,
                archive=archive,
                command=command,
                tell=lambda text, done, total: bar.show(text, 100 * done // max(1, total)),
            )
        reused = f", {result.n_reused} of them remembered" if result.n_reused else ""
        n = result.n_inputs
        say(f"{n} input{'' if n == 1 else 's'}{reused}. Look at {show(result.page)}")
        if result.kept is not None:
            say(f"{show(result.kept)} stays as it is", "yellow")
        elif not result.complete:
            say(f"A trial: the published result has {experiment.n_inputs} inputs", "yellow")


def _list(folder: Path) -> None:
    from sea_bench.experiments import EXPERIMENTS
    from sea_bench.experiments.pages import count_published

    table = make_table("Experiments", "name", "what", "data", "inputs", f"in {show(folder)}")
    for one in EXPERIMENTS.values():
        done = count_published(folder, one.name)
        state = "not yet run" if done is None else f"{done} inputs"
        table.add_row(one.name, one.title, one.data, str(one.n_inputs), state)
    out.print(table)

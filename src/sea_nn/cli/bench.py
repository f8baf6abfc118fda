"""``sea bench``: run the experiments behind the pages of ``docs/results``."""

from pathlib import Path
from textwrap import shorten

from sea_nn.cli.options import check_device, check_folder, option
from sea_nn.cli.terminal import open_bar, say, show
from sea_nn.errors import InputError


def bench(
    name: str = option(
        "", "[NAME]", "An experiment, a group such as 'mass', or 'all'; left out, all are listed."
    ),
    inputs: int | None = option(
        None, "NUMBER", "How many inputs.", "--inputs", shown="a few", min=1
    ),
    full: bool = option(False, "", "As many inputs as a published page has.", "--full"),
    device: str = option("auto", "DEVICE", "auto, cpu or cuda.", "--device"),
    seed: int = option(0, "NUMBER", "Of the inputs' order and of every draw.", "--seed", min=0),
    ours: bool = option(
        False, "", "Measure SEA with a budget alone, beside the archive's scores.", "--ours"
    ),
    output: Path = option(Path("out/bench"), "FOLDER", "Folder for the page.", "--output", "-o"),
    cache: Path | None = option(
        None, "FOLDER", "Remembers results by input.", "--cache", shown="in $SEA_NN_CACHE, ~/.cache"
    ),
) -> None:
    """Run an experiment and write its page (NAME.md) and its scores by input.

    A run that was interrupted goes on where it was.

    Examples:
      sea bench
      sea bench games
      sea bench budgets_fmnist --inputs 4 -o trial
      sea bench budgets_pets --ours --inputs 24
      sea bench mass --full --device cuda
    """
    if full and inputs is not None:
        raise InputError("--full and --inputs both say how many inputs: give one of them")
    if not name:
        _list(output)
        return
    check_device(device)
    check_folder(output)

    from sea_bench.catalogue import find_experiments
    from sea_bench.experiments import run_experiment

    chosen = find_experiments(name)
    for experiment in chosen:
        every = experiment.n_inputs
        count = inputs or (every if full else min(experiment.quick, every))
        command = f"sea bench {experiment.name} --inputs {count} --seed {seed}"
        command += f" --device {device}" if device != "auto" else ""
        command += " --ours" if ours else ""
        with open_bar("preparing", 100) as bar:
            result = run_experiment(
                experiment,
                count=count,
                device=device,
                seed=seed,
                out=output,
                cache=cache,
                ours=ours,
                command=command,
                tell=lambda text, done, total: bar(text, 100 * done // max(1, total)),
            )
        reused = f", {result.n_reused} of them remembered" if result.n_reused else ""
        say(f"{result.n_inputs} inputs{reused}. Look at {show(result.page)}")
        if result.kept is not None:
            say(f"{show(result.kept)} stays as it is", "yellow")
        elif not result.complete:
            say(f"A trial: the published result has {experiment.n_inputs} inputs", "yellow")


def _list(folder: Path) -> None:
    """A line for each experiment; the name says what a title that is cut does not."""
    from sea_bench.catalogue import EXPERIMENTS
    from sea_bench.experiments.pages import count_published

    for one in EXPERIMENTS.values():
        done = count_published(folder, one.name)
        count = str(one.n_inputs) if done is None else f"{done}/{one.n_inputs}"
        title = shorten(one.title, 48, placeholder=" …")
        say(f"{one.name:22} {count:>7}  {title}")
    say(f"Numbers are inputs of a published page; before / those that {show(folder)} has.")

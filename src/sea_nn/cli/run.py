"""``sea run``: explain a whole data set, resumably, in one process or on a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sea_nn.cli import declarations
from sea_nn.cli.terminal import PARTIAL, err, guard, list_examples, say, show

EXAMPLES = list_examples(
    "sea run photos/ -o out",
    "sea run photos/ -o out --dry-run",
    "sea run photos/ -o out --budget 128",
    "sea run 'photos/**/*.jpg' -o out --workers 2 --shard-size 32",
    "sea run pictures.csv -o out --target label --model resnet50",
    "sea run table.csv -o out --model my_model.py:make_model",
    "sea run photos/ -o out --retry-errors --strict",
)


@guard
def run(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or glob of pictures or NIfTI volumes, a CSV or Parquet table (of paths "
            "or features), or .safetensors/.npz files.",
            metavar="SOURCE",
        ),
    ],
    output: declarations.Output,
    model: declarations.Model = declarations.DEFAULT_MODEL,
    methods: declarations.Methods = None,
    budget: declarations.Budget = None,
    assignments: declarations.Assignments = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="Class to explain: number, name, or 'label' for the true one.",
            show_default="predicted",
        ),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of the true class.", show_default="label"),
    ] = None,
    model_output: declarations.ModelOutput = None,
    grid: declarations.Grid = None,
    config: declarations.Config = None,
    device: declarations.Device = "auto",
    seed: declarations.Seed = 0,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="NUMBER", help="Inputs to explain at once.", show_default="by size"
        ),
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Inputs to a shard.", show_default="64 or 512"),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Processes; more than one needs Ray.")
    ] = 1,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Ray cluster, such as auto or ray://host:10001."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Explain only the first so many.")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="TYPE", help="Of stored maps: float16, uint8 or float32.")
    ] = "float16",
    members: Annotated[bool, typer.Option("--members", help="Store members' maps too.")] = False,
    no_curve: Annotated[
        bool,
        typer.Option("--no-curve", help="Do not ask the model about the top 1 to 50 % of each."),
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Explain those again that failed.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if any input failed.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Write nothing; say what it would take, from a sample."),
    ] = False,
) -> None:
    """Explain a whole data set; run again, it does only what is missing.

    The folder gets a manifest, Parquet files in rows/ (one row an input) and safetensors files in
    tensors/ (maps). 'sea summary' shows what they say by class. Inputs that cannot be explained are
    rows with an error. Ctrl-C finishes the open shards. Exit code 0: done; 1: with --strict, some
    failed; 2: nothing could be done; 130 or 143: stopped.
    """
    from sea_nn.cli import options
    from sea_nn.config import choose_budget
    from sea_nn.datasets.run import Outcome, explain_dataset
    from sea_nn.members.registry import expand_methods

    settings = options.read_settings(config, grid)
    chosen = options.parse_assignments(assignments or ())
    if config is None:
        methods, budget = choose_budget(methods, None, budget)
    if methods is not None:
        expand_methods(methods, chosen)
    loaded = options.load(model, device)
    options.check_grid(grid, loaded)
    wanted: str | int | None = target
    if target not in (None, "label"):
        wanted = options.find_class(str(target), loaded)
    means: dict[str, Any] = {"output": model_output, "seed": seed}
    outcome = explain_dataset(
        source,
        options.make_sea(loaded.model, methods, settings, budget, chosen, **means),
        output,
        preprocess=loaded.preprocess,
        target=wanted,
        labels=loaded.labels or None,
        label_column=label_column,
        model_name=loaded.name,
        workers=workers,
        address=address,
        batch_size=batch,
        shard_size=shard_size,
        limit=limit,
        precision=precision,  # type: ignore[arg-type]  # it says itself what is allowed
        members=members,
        curve=False if no_curve else None,
        retry_errors=retry_errors,
        dry_run=dry_run,
    )
    say(str(outcome))
    if not isinstance(outcome, Outcome):
        return
    if outcome.n_failed:
        say(f"Failed: {outcome.n_failed}; --retry-errors explains these again", "yellow", err)
    if outcome.n_done:
        say(f"See what they say by class: sea summary {show(output)}")
    if outcome.given_up or (strict and outcome.n_failed):
        raise typer.Exit(PARTIAL)

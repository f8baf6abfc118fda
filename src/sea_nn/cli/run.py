"""``sea run``: explain a whole data set, resumably, in one process or on a Ray cluster."""

import glob
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import typer

from sea_nn.cli.options import Settings, choose, find_class, option
from sea_nn.cli.terminal import FAILED, complain, open_bar, say, show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import check_path
from sea_nn.extras import check_extras

PRECISIONS = ("float16", "uint8", "float32")
TRUE = "label"


@dataclass(frozen=True, kw_only=True)
class Run(Settings):
    """The options of ``sea run``."""

    source: str = option(
        MISSING, "SOURCE", "A folder or glob of pictures or NIfTI volumes, a CSV or Parquet table "
        "(of paths or features), or .safetensors/.npz files.",
    )  # fmt: skip
    output: Path = option(MISSING, "FOLDER", "Folder to write to.", "--output", "-o")
    target: str | None = option(
        None, "CLASS", "Class to explain, a number or a name, or 'label' for the true one.",
        "--target", shown="predicted",
    )  # fmt: skip
    label_column: str | None = option(
        None, "NAME", "Column of the true class.", "--label-column", shown=TRUE
    )
    batch: int | None = option(
        None, "NUMBER", "Inputs to explain at once.", "--batch", shown="by size", min=1
    )
    shard_size: int | None = option(
        None, "NUMBER", "Inputs to a shard.", "--shard-size", shown="64 or 512", min=1
    )
    workers: int = option(1, "NUMBER", "Processes; more than one needs Ray.", "--workers", min=1)
    address: str | None = option(
        None, "ADDRESS", "A Ray cluster, such as auto or ray://host:10001.", "--address"
    )
    limit: int | None = option(
        None, "NUMBER", "Explain only the first so many.", "--limit", shown="all", min=1
    )
    precision: str = option(
        PRECISIONS[0], "TYPE", f"Of stored maps: {', '.join(PRECISIONS)}.", "--precision"
    )
    members: bool = option(False, "", "Store members' maps too.", "--members")
    no_curve: bool = option(
        False, "", "Do not ask the model about the top 1 to 50 % of each.", "--no-curve"
    )
    retry_errors: bool = option(False, "", "Explain those again that failed.", "--retry-errors")
    strict: bool = option(False, "", "Exit with code 1 if any input failed.", "--strict")

    def check(self) -> None:
        """Refuse what is wrong, as far as it can be told before a model is loaded."""
        path = check_path(self.source).expanduser()
        try:
            there = path.exists() or any(glob.iglob(str(path), recursive=True))
        except (OSError, ValueError) as error:
            raise InputError(f"SOURCE cannot be opened: {error}") from error
        if not there:
            raise InputError(f"there is no file or folder {show(path)}, and it matches nothing")
        super().check()
        choose("--precision", self.precision, PRECISIONS)
        check_extras("a whole data set", "pyarrow")
        if self.workers > 1 or self.address is not None:
            check_extras("work by several processes", "ray")
        if self.target not in (None, TRUE) and self.known.labels:
            find_class(str(self.target), self.known.labels, self.model)


def run(o: Run) -> None:
    """Explain a whole data set; run again, it does only what is missing.

    The folder gets a manifest, Parquet files in rows/ (one row an input) and safetensors files in
    tensors/ (maps). 'sea summary' shows what they say by class. Inputs that cannot be explained are
    rows with an error. Ctrl-C finishes the open shards.

    Exit code 0: every input has its row; 1: some have none, or with --strict some failed; 2: wrong
    use; 130 or 143: stopped.

    Examples:
      sea run photos/ -o out
      sea run photos/ -o out --budget 128
      sea run 'photos/**/*.jpg' -o out --workers 2 --shard-size 32
      sea run pictures.csv -o out --target label --model resnet50
      sea run table.csv -o out --model my_model.py:make_model
      sea run photos/ -o out --retry-errors --strict
    """
    o.check()
    with open_bar(f"loading PyTorch and {o.model}"):
        from sea_nn.cli.work import build, load
        from sea_nn.datasets.run import explain_dataset

        loaded = load(o)
    o.check_grid(loaded.preprocess.shape[1:])
    wanted: Any = o.target
    if wanted not in (None, TRUE):
        wanted = find_class(wanted, loaded.labels, o.model)
    outcome = explain_dataset(
        o.source,
        build(o, loaded),
        o.output,
        preprocess=loaded.preprocess,
        target=wanted,
        labels=loaded.labels or None,
        label_column=o.label_column,
        model_name=loaded.name,
        workers=o.workers,
        address=o.address,
        batch_size=o.batch,
        shard_size=o.shard_size,
        limit=o.limit,
        precision=o.precision,  # type: ignore[arg-type]  # it is one of them
        members=o.members,
        curve=False if o.no_curve else None,
        retry_errors=o.retry_errors,
    )
    say(str(outcome))
    if outcome.n_failed:
        complain(f"Failed: {outcome.n_failed}; --retry-errors explains these again", "yellow")
    if outcome.n_done:
        say(f"See what they say by class: sea summary {show(o.output)}")
    missing = outcome.n_inputs - outcome.n_done
    if missing:
        complain(f"{missing} inputs have no row: start the same command again")
    if missing or outcome.given_up or (o.strict and outcome.n_failed):
        raise typer.Exit(FAILED)

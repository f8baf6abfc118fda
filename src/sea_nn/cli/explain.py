"""``sea explain`` and ``sea run``: inputs in; maps, figures, files, a report or a data set out."""

import contextlib
import glob
import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sea_nn.cli.options import (
    EXPLANATION,
    REPORT,
    Explain,
    Input,
    Settings,
    find_class,
    option,
)
from sea_nn.cli.terminal import FAILED, INTERRUPTED, complain, open_bar, say, show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import DAY, check_path, remove_drafts
from sea_nn.extras import check_extras
from sea_nn.vision.names import ASSETS, PICTURES

DRAWN = ("map.png", "strip.png", "top.png", "words.png")
TRUE = "label"


def explain(o: Explain) -> None:
    """Explain what a classifier looks at in pictures, or which words of a text it reads.

    Each input gets a folder with explanation.safetensors and pictures: map.png (the SEA map over
    the picture), strip.png (SEA beside its members) and top.png (the features that matter most) of
    a picture, strip.png (slices) of a volume, words.png of a text. One report.html shows them all.
    Models of volumes take [1, 1, D, H, W] in the file's units.

    Exit code 0: all explained; 1: something failed; 2: wrong use; 130: interrupted.

    Examples:
      sea explain --demo
      sea explain cat.jpg 'photos/*.png' folder/ -o out --methods paper
      sea explain cat.jpg --target tabby --grid 16x16 --top 20
      sea explain cat.jpg --methods saliency,rise --set rise.n_masks=500
      sea explain cat.jpg --target tabby --not 'Egyptian cat'
      sea explain cat.jpg --budget 128 --absent mean
      sea explain boot.png --model fashion-cnn --json > boot.json
      sea explain x.png --model my_model.py:make_model
      sea explain slide.tif --tile --target 3
      sea explain scan.nii.gz dicom_folder/ --model my_model.py:make_model
      sea explain --text 'Not bad at all.' --model hf:FOLDER --target positive
    """
    stdout = sys.stdout
    # A user's own model file may print; with --json that must not end up in the document.
    quiet = contextlib.redirect_stdout(sys.stderr) if o.as_json else contextlib.nullcontext()
    with quiet:
        o.check()
        inputs, empty = gather(o)
        total = len(inputs) + len(empty)
        with open_bar(f"loading PyTorch and {o.model}", total) as tell:
            from sea_nn.cli import work

            kinds = {"picture": work.Pictures, "volume": work.Subject, "text": work.Texts}
            outcome = work.Outcome(kinds[o.kind](o), failed=list(empty.items()))
            remove_drafts(o.output, DAY)
            outcome.explain(inputs, tell)
        outcome.write_page()
        if outcome.finished and not o.as_json:
            outcome.print()
    if o.as_json:
        print(json.dumps(outcome.describe(), indent=2, allow_nan=False), file=stdout)
    for name, reason in outcome.failed:
        where = "" if name in reason else f"{name}: "
        complain(f"Failed: {where}{reason}")
    done = len(outcome.finished)
    if outcome.interrupted:
        kept = f"{done} of {total} inputs were finished and are in {show(o.output)}"
        complain(f"Interrupted: {kept}", "yellow")
        raise typer.Exit(INTERRUPTED)
    if done < total:
        complain(f"{total - done} of {total} inputs could not be explained")
    if outcome.failed:
        raise typer.Exit(FAILED)


def gather(o: Explain) -> tuple[list[Input], dict[str, str]]:
    """The inputs that the arguments mean, and by argument why it means none."""
    if o.text:
        texts = enumerate(o.text, 1)
        return [Input(f"text {k}", f"text-{k}", text) for k, text in texts], {}
    if o.volumes:
        return name_inputs(o.volumes), {}
    return gather_pictures(o.inputs or (), o.model if o.demo else None)


def find_files(
    patterns: Iterable[str], suffixes: Collection[str], noun: str, inside: str = "*"
) -> tuple[list[Path], dict[str, str]]:
    """The files that the arguments of a command mean, in their order, each once.

    A single file is returned unseen: a missing or broken one must not stop the others, and nor
    must a folder or a glob that has no file with one of the ``suffixes`` (lower case). What
    ``sea explain`` has drawn is none. Returns the files, and by argument why it means none;
    ``noun`` is what errors call such files, ``inside`` a glob for those in a folder.
    """
    found: dict[Path, Path] = {}
    empty: dict[str, str] = {}
    kinds = f"{noun} ({' '.join(sorted(suffixes))})"
    for pattern in patterns:
        path = Path(pattern).expanduser()
        try:
            if path.is_dir():
                paths, why = [*path.glob(inside)], f"the folder {show(path)} holds no {kinds}"
            elif glob.has_magic(pattern) and not path.exists():  # a name may have such letters
                paths = [Path(match) for match in glob.iglob(str(path), recursive=True)]
                why = f"no {kinds} match {show(pattern)!r}"
            else:
                found.setdefault(path.resolve(), path)
                continue
            fitting = sorted(p for p in paths if p.suffix.lower() in suffixes and p.is_file())
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            fitting, why = [], str(error)
        own = [p for p in fitting if p.name in DRAWN and (p.parent / EXPLANATION).exists()]
        for path in fitting:
            if path not in own:
                found.setdefault(path.resolve(), path)
        if len(own) == len(fitting):
            empty[pattern] = why
    return list(found.values()), empty


def name_inputs(paths: Iterable[Path]) -> list[Input]:
    """Each file with a folder for its results, called by its stem; equal ones are numbered.

    >>> [one.folder for one in name_inputs([Path("cat.jpg"), Path("b/Cat.png"), Path("cat-2.gif")])]
    ['cat', 'Cat-2', 'cat-2-2']
    """
    used = {REPORT}
    found = []
    for path in paths:
        # Windows cannot open names that end in a dot or a space.
        stem = path.stem.removesuffix(".nii").rstrip(". ") or "picture"
        name, again = stem, 2
        while name.casefold() in used:  # some file systems do not tell Cat from cat
            name, again = f"{stem}-{again}", again + 1
        used.add(name.casefold())
        found.append(Input(show(path), name, path))
    return found


def gather_pictures(
    patterns: Sequence[str], demo_for: str | None = None
) -> tuple[list[Input], dict[str, str]]:
    """The pictures that arguments mean, and by argument why it means none; one must be readable.

    ``demo_for`` names a model to add a shipped picture for.
    """
    from sea_nn.vision.images import load_image

    paths, empty = find_files(patterns, PICTURES, "pictures")
    if demo_for is not None:  # the network for clothes knows no cups
        paths = [ASSETS / ("boot.png" if demo_for == "fashion-cnn" else "coffee.jpg"), *paths]
    if not paths and not empty:
        raise InputError(
            "there is nothing to explain: name pictures, folders or globs, or try --demo"
        )
    reasons = list(empty.values())
    for path in paths:
        try:
            load_image(path)
            return name_inputs(paths), empty
        except InputError as error:
            reasons.append(str(error))
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    raise InputError("; ".join(reasons[:5]) + more)


@dataclass(frozen=True, kw_only=True)
class Run(Settings):
    """The options of ``sea run``."""

    source: str = option(
        ..., "SOURCE", "A folder or glob of pictures or NIfTI volumes, a CSV or Parquet table "
        "(of paths or features), or .safetensors/.npz files.",
    )  # fmt: skip
    output: Path = option(..., "FOLDER", "Folder to write to.", "--output", "-o")
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
    workers: int = option(1, "NUMBER", "Processes; more than one needs Ray.", "--workers", min=1)
    address: str | None = option(
        None, "ADDRESS", "A Ray cluster, such as auto or ray://host:10001.", "--address"
    )
    limit: int | None = option(
        None, "NUMBER", "Explain only the first so many.", "--limit", shown="all", min=1
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
      sea run 'photos/**/*.jpg' -o out --workers 2
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
        limit=o.limit,
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

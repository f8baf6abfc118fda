"""``sea explain``: pictures in; maps, figures, files and a report out."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sea_nn.cli import declarations
from sea_nn.cli.files import find_volumes
from sea_nn.cli.pictures import gather_pictures
from sea_nn.cli.terminal import (
    BAD_INPUT,
    INTERRUPTED,
    PARTIAL,
    Bar,
    describe_error,
    err,
    guard,
    list_examples,
    prepare_folder,
    say,
    show,
    translate,
)
from sea_nn.errors import InputError

EXAMPLES = list_examples(
    "sea explain --demo",
    "sea explain cat.jpg 'photos/*.png' folder/ -o out --methods paper",
    "sea explain cat.jpg --target tabby --grid 28x28 --top 20",
    "sea explain cat.jpg --methods saliency,rise --set rise.n_masks=500",
    "sea explain cat.jpg --target tabby --not 'Egyptian cat'",
    "sea explain cat.jpg --budget 128",
    "sea explain boot.png --model fashion-cnn --json > boot.json",
    "sea explain x.png --model my_model.py:make_model",
    "sea explain slide.tif --tile --target 3",
    "sea explain scan.nii.gz dicom_folder/ --model my_model.py:make_model",
    "sea explain --text 'Not bad at all.' --model hf:FOLDER --target positive",
)
REPORT = "report.html"


@guard
def explain(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Pictures, folders of them, or globs; or volumes: NIfTI files, folders of DICOM.",
            metavar="PICTURES",
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", metavar="", help="Explain a shipped picture; needs no file.")
    ] = False,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="Explain a text instead, with --model hf:FOLDER; may be given again.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Of a text model without a head: its classes, with commas; the nearest counts.",
        ),
    ] = None,
    model: declarations.Model = declarations.DEFAULT_MODEL,
    methods: declarations.Methods = None,
    budget: declarations.Budget = None,
    assignments: declarations.Assignments = None,
    target: declarations.Target = None,
    rival: Annotated[
        str | None,
        typer.Option("--not", metavar="CLASS", help="Explain the target against this class."),
    ] = None,
    model_output: declarations.ModelOutput = None,
    output: declarations.Output = Path("out"),
    top: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Features to light up in top.png beside 1, 3, 10 and 25 %, and to list in JSON: a "
            "count (20) or a share (5%).",
        ),
    ] = None,
    grid: declarations.Grid = None,
    config: declarations.Config = None,
    device: declarations.Device = "auto",
    seed: declarations.Seed = 0,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Pictures to explain at once; Ctrl-C loses those begun.",
            show_default="1 on a CPU, 8 on a GPU",
        ),
    ] = None,
    tile: Annotated[
        bool,
        typer.Option(
            "--tile",
            metavar="",
            help="Explain pictures at their own size, in overlapping tiles of the model's size.",
        ),
    ] = False,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", metavar="", help="Look into folders' folders too.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", metavar="", help="Print one JSON document, and nothing else, to stdout."
        ),
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", metavar="", help=f"Write no {REPORT}.")
    ] = False,
) -> None:
    """Explain what a classifier looks at in pictures, or which words of a text it reads.

    Each picture gets a folder with map.png (the SEA map over the picture), strip.png (SEA beside
    its members), top.png (the features that matter most) and explanation.safetensors; one
    report.html shows them all. Volumes get strip.png, their slices, instead of pictures; the model
    takes them as [1, 1, D, H, W] in the file's units. Texts get words.png. Exit code 0: all
    explained; 1: some failed; 2: nothing could be done; 130: interrupted.
    """
    stdout = sys.stdout
    # A user's own model file may print; with --json that must not end up in the document.
    quiet = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    if text or labels is not None:
        given: dict[str, Any] = {"PICTURES": inputs, "--demo": demo, "--top": top, "--grid": grid}
        given |= {"--config": config, "--batch": batch, "--seed": seed}
        strange = [name for name, value in given.items() if value]
        if strange or not text:
            raise InputError(
                f"{strange[0]} does not go with --text" if strange else "--labels need a --text"
            )
        from sea_nn.cli.texts import explain_texts

        with quiet:
            explain_texts(
                text,
                model,
                output,
                labels=labels,
                methods=methods,
                budget=budget,
                assignments=assignments or (),
                target=target,
                rival=rival,
                model_output=model_output,
                device=device,
                report=None if no_report else REPORT,
                document=stdout if as_json else None,
            )
        return
    volumes = find_volumes(inputs or ())
    if volumes:
        given = {"pictures": len(volumes) < len(inputs or ()), "--demo": demo, "--grid": grid}
        given |= {"--top": top, "--batch": batch, "--tile": tile, "--recursive": recursive}
        strange = [name for name, value in given.items() if value]
        if strange:
            raise InputError(f"{strange[0]} do not go with volumes: explain these by themselves")
        from sea_nn.cli.volumes import explain_volumes

        with quiet:
            explain_volumes(
                volumes,
                model,
                output,
                methods=methods,
                budget=budget,
                assignments=assignments or (),
                config=config,
                target=target,
                rival=rival,
                device=device,
                means={"output": model_output, "seed": seed},
                report=None if no_report else REPORT,
                document=stdout if as_json else None,
            )
        return
    with quiet:
        pictures = gather_pictures(
            inputs or (), recursive, model if demo else None, (REPORT,), output
        )
        if not pictures:
            raise InputError(
                "there is nothing to explain: name pictures, folders or globs, or try --demo"
            )
        from sea_nn.cli import options, summary
        from sea_nn.cli.batches import Job, explain_pictures
        from sea_nn.config import choose_budget
        from sea_nn.explanation.atomic import find_target
        from sea_nn.members.registry import expand_methods
        from sea_nn.show.viewer import write_report

        # What is wrong with the options is best heard of before anything is computed.
        settings = options.read_settings(config, grid)
        n_top = None if top is None else options.parse_top(top)
        chosen = options.parse_assignments(assignments or ())
        if config is None:
            methods, budget = choose_budget(methods, None, budget)
        if methods is not None:
            expand_methods(methods, chosen)
        loaded = options.load(model, device)
        options.check_grid(grid, loaded)
        options.check_top(n_top, settings, loaded, budget is not None)
        means: dict[str, Any] = {"output": model_output, "seed": seed}
        job = Job(
            loaded,
            options.make_sea(loaded.model, methods, settings, budget, chosen, **means),
            output,
            options.find_target(target, rival, loaded),
            n_top,
            tile,
        )
        prepare_folder(output)
        if not no_report:
            find_target(output / REPORT)
        size = 1 if tile else batch or options.choose_batch(options.find_device(loaded))
        with Bar(len(pictures)) as bar:
            outcome = explain_pictures(job, pictures, size, bar)
        report, problem = None, ""
        if outcome.finished and not no_report:
            labelled = summary.label_for_report(outcome.finished)
            try:
                report = write_report(labelled, output / REPORT, f"What {loaded.name} looks at")
            except OSError as error:
                problem = describe_error(error)
        if outcome.finished and not as_json:
            summary.print_outcome(outcome.finished, job, report)
    if as_json:
        document = summary.describe(outcome, job, report)
        print(json.dumps(document, indent=2, allow_nan=False), file=stdout)
    for picture, reason in outcome.failed:
        where = "" if picture.name in reason else f"{picture.name}: "
        say(f"Failed: {where}{translate(reason)}", "red", err)
    if outcome.interrupted:
        count = f"{len(outcome.finished)} of {len(pictures)} pictures"
        say(f"Interrupted: {count} were finished and are in {show(output)}", "yellow", err)
        raise typer.Exit(INTERRUPTED)
    if problem:
        say(f"Failed: {REPORT}: {problem}", "red", err)
    if outcome.failed:
        say(f"{len(outcome.failed)} of {len(pictures)} pictures could not be explained", "red", err)
    if outcome.failed or problem:
        raise typer.Exit(PARTIAL if outcome.finished else BAD_INPUT)

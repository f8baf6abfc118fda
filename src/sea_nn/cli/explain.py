"""``sea explain``: pictures, volumes or texts in; maps, figures, files and a report out."""

import contextlib
import json
import sys

import typer

from sea_nn.cli.request import Explain
from sea_nn.cli.terminal import FAILED, INTERRUPTED, complain, open_bar, show
from sea_nn.explanation.atomic import remove_stale


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
        inputs, empty = o.gather()
        total = len(inputs) + len(empty)
        with open_bar(f"loading PyTorch and {o.model}", total) as tell:
            from sea_nn.cli import work

            kinds = {"picture": work.Pictures, "volume": work.Subject, "text": work.Texts}
            outcome = work.Outcome(kinds[o.kind](o), failed=list(empty.items()))
            remove_stale(o.output)
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

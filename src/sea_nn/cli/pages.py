"""``sea report``, ``sea summary`` and ``sea app``: pages to look closer, in a file or served."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sea_nn.cli.explain import find_files
from sea_nn.cli.options import DEFAULT_MODEL, check_device, check_folder, option
from sea_nn.cli.terminal import open_bar, say, show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.extras import check_extras
from sea_nn.vision.names import check_model

LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"
MANIFEST = "manifest.json"


def report(
    explanations: list[str] = option(
        ..., "FILES...", "Saved explanations, folders that hold some, or globs."
    ),
    output: Path = option(Path("report.html"), "FILE", "File to write.", "--output", "-o"),
    title: str = option("SEA explanations", "TEXT", "The page's heading.", "--title"),
) -> None:
    """Build one HTML report, which needs no network, from saved explanations.

    Examples:
      sea report out/ -o report.html
      sea report run/ -o report.html  (the first 200 inputs of a folder that 'sea run' wrote)
      sea report out/cat/explanation.safetensors 'runs/*/dog/*.safetensors' --title Pets
    """
    runs = [name for name in explanations if (Path(name) / MANIFEST).is_file()]
    files = [name for name in explanations if name not in runs]
    paths, empty = find_files(files, {".safetensors"}, "saved explanations", "**/*")
    missing = [f"there is no file {show(path)}" for path in paths if not path.exists()]
    if wrong := [*empty.values(), *missing]:
        raise InputError("; ".join(wrong))
    find_target(output)
    check_folder(output.absolute().parent)
    loaded: list[Any] = []
    with open_bar("loading PyTorch", len(runs) + len(paths)) as tell:
        from sea_nn.datasets.read import read_dataset
        from sea_nn.explanation.explanation import Explanation
        from sea_nn.show.viewer import write_report

        for done, path in enumerate([*map(Path, runs), *paths]):
            tell(show(path), done)
            if path.is_dir():
                loaded += read_dataset(path).to_explanations()
                continue
            e = Explanation.load(path)
            # All files that `sea explain` writes have one name; their folders tell them apart.
            name = show(path.parent.name if path.stem == "explanation" else path.stem)
            loaded.append(replace(e, labels=tuple(f"{e.name(i)} ({name})" for i in range(len(e)))))
    write_report(loaded, output, title)
    n_inputs = sum(map(len, loaded))
    say(f"Open {show(output)} in a browser: {n_inputs} input{'s' if n_inputs > 1 else ''}")


def summary(
    folder: Path = option(..., "OUT", "A folder that 'sea run' wrote, finished or not."),
    output: Path | None = option(
        None, "FOLDER", "Folder to write to.", "--output", "-o", shown="OUT/summary"
    ),
    examples: int = option(
        4, "NUMBER", "Prototypes and outliers of each class.", "--examples", min=1
    ),
) -> None:
    """Show what a model looks at, class by class: an HTML page, pictures and a table.

    By class: the mean map, the class-level SEA map, where members disagree (with --members), likely
    shortcuts, prototypes and outliers by map.

    Examples:
      sea summary out
      sea summary out -o pages --examples 6
    """
    check_run(folder)
    target = folder / "summary" if output is None else output
    check_folder(target)
    with open_bar("reading the run, and learning maps of classes"):
        from sea_nn.datasets.read import read_dataset
        from sea_nn.datasets.summary import write_pages

        found = read_dataset(folder).summary(n_examples=examples)
        page = write_pages(found, target)
    said = f"{found.n_done} of {found.n_inputs} inputs of {found.model}"
    say(f"{said}, {len(found.classes)} classes. Open {show(page)} in a browser")


def check_run(folder: Path) -> None:
    """Refuse what is no folder of a run, or a run where nothing can read it."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{show(folder)} has no {MANIFEST}: give a folder that 'sea run' wrote")
    check_extras("a whole data set", "pyarrow")


def app(
    results: Path | None = option(None, "[OUT]", "A folder that 'sea run' wrote, to browse."),
    model: list[str] = option(
        [DEFAULT_MODEL], "NAME", "A name, or FILE.py:FUNCTION; again, to compare.", "--model", "-m"
    ),
    device: str = option("auto", "DEVICE", "auto, cpu, cuda or cuda:1.", "--device"),
    host: str = option(
        LOCAL, "ADDRESS", "Where to listen; other than this machine needs a token.", "--host"
    ),
    port: int | None = option(
        None, "NUMBER", "Where to listen.", "--port", shown="a free one from 7860", min=1, max=65535
    ),
    browser: bool = option(True, "", "Open a browser.", "--browser/--no-browser"),
) -> None:
    """Open a page to ask a model why: which class, why not another, what if only this is left.

    Nothing leaves this machine, and nothing that is uploaded is written to disk. Ctrl-C ends it.

    Examples:
      sea app
      sea app --model my_model.py:make_model
      sea app --model efficientnet-lite0 --model resnet50  (to compare them)
      sea app out/  (what 'sea run' has explained)
      sea app --host 0.0.0.0 --port 8000  (prints an address with a token)
    """
    check_extras("the app", "gradio")
    for name in model:
        check_model(name)
    check_device(device)
    if results is not None:
        check_run(results)
    with open_bar(f"loading PyTorch, Gradio, {', '.join(model)}"):
        from sea_nn.app.gallery import Gallery
        from sea_nn.app.page import build_page, serve
        from sea_nn.app.subjects import load_subject
        from sea_nn.cli.work import find_place

        gallery = None if results is None else Gallery(results)
        page = build_page([load_subject(name, find_place(device)) for name in model], gallery)
    address = serve(page, host, port)
    say(f"Open {address} (Ctrl-C ends it)")
    if host == EVERYWHERE:
        say("From another machine, write this one's name or address in the place of localhost.")
    if browser:
        import webbrowser

        webbrowser.open(address)
    page.block_thread()

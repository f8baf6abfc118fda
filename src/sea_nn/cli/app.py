"""``sea app``: a page to ask a model why."""

from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli import declarations
from sea_nn.cli.terminal import guard, list_examples, say
from sea_nn.errors import MissingExtraError

EXAMPLES = list_examples(
    "sea app",
    "sea app --model my_model.py:make_model",
    "sea app --model efficientnet-lite0 --model resnet50  (to compare them)",
    "sea app out/  (what 'sea run' has explained)",
    "sea app --host 0.0.0.0 --port 8000  (prints an address with a token)",
)
LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"


@guard
def app(
    results: Annotated[
        Path | None,
        typer.Argument(help="A folder that 'sea run' wrote, to browse.", metavar="[OUT]"),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="A name from 'sea models', or FILE.py:FUNCTION; may be given again, to compare.",
            show_default=declarations.DEFAULT_MODEL,
        ),
    ] = None,
    device: declarations.Device = "auto",
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Where to listen; another one than this machine needs a token."
        ),
    ] = LOCAL,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="NUMBER", show_default="a free one from 7860"),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", metavar="", help="Open a browser.")
    ] = True,
) -> None:
    """Open a page to ask a model why: which class, why not another, what if only this is left.

    Nothing leaves this machine, and nothing that is uploaded is written to disk. Ctrl-C ends it.
    """
    try:
        from sea_nn.app.page import build_page
        from sea_nn.app.serve import serve
    except ImportError as error:
        raise MissingExtraError(
            f"the app needs gradio ({error}): pip install 'sea-nn[app]'"
        ) from error
    from sea_nn.app.cores import share_cores
    from sea_nn.app.gallery import Gallery
    from sea_nn.app.load import load_subject
    from sea_nn.cli.options import find_place

    share_cores()
    gallery = None if results is None else Gallery(results)
    place, names = find_place(device), model or [declarations.DEFAULT_MODEL]
    say(f"Loading {', '.join(names)} ...")
    page = build_page([load_subject(name, place) for name in names], gallery)
    address = serve(page, host, port)
    say(f"Open {address} (Ctrl-C ends it)")
    if host == EVERYWHERE:
        say("From another machine, write this one's name or address in the place of localhost.")
    if browser:
        import webbrowser

        webbrowser.open(address)
    page.block_thread()

"""``sea app``: a page to ask a model why."""

from dataclasses import dataclass
from pathlib import Path

from sea_nn.cli.options import DEFAULT_MODEL, Table, check_device, option
from sea_nn.cli.report import check_run
from sea_nn.cli.terminal import open_bar, say
from sea_nn.extras import check_extras
from sea_nn.vision.names import check_model

LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"


@dataclass(frozen=True, kw_only=True)
class App(Table):
    """The options of ``sea app``."""

    results: Path | None = option(None, "[OUT]", "A folder that 'sea run' wrote, to browse.")
    model: list[str] | None = option(
        None, "NAME", "A name from 'sea models', or FILE.py:FUNCTION; again, to compare.",
        "--model", "-m", shown=DEFAULT_MODEL,
    )  # fmt: skip
    device: str = option("auto", "DEVICE", "auto, cpu, cuda or cuda:1.", "--device")
    host: str = option(
        LOCAL, "ADDRESS", "Where to listen; other than this machine needs a token.", "--host"
    )
    port: int | None = option(
        None, "NUMBER", "Where to listen.", "--port", shown="a free one from 7860", min=1, max=65535
    )
    browser: bool = option(True, "", "Open a browser.", "--browser/--no-browser")


def app(o: App) -> None:
    """Open a page to ask a model why: which class, why not another, what if only this is left.

    Nothing leaves this machine, and nothing that is uploaded is written to disk. Ctrl-C ends it.

    Examples:
      sea app
      sea app --model my_model.py:make_model
      sea app --model efficientnet-lite0 --model resnet50  (to compare them)
      sea app out/  (what 'sea run' has explained)
      sea app --host 0.0.0.0 --port 8000  (prints an address with a token)
    """
    names = o.model or [DEFAULT_MODEL]
    check_extras("the app", "gradio")
    for name in names:
        check_model(name)
    check_device(o.device)
    if o.results is not None:
        check_run(o.results)
    with open_bar(f"loading PyTorch, Gradio, {', '.join(names)}"):
        from sea_nn.app.gallery import Gallery
        from sea_nn.app.page import build_page, serve
        from sea_nn.app.subjects import load_subject
        from sea_nn.cli.work import find_place

        gallery = None if o.results is None else Gallery(o.results)
        page = build_page([load_subject(name, find_place(o.device)) for name in names], gallery)
    address = serve(page, o.host, o.port)
    say(f"Open {address} (Ctrl-C ends it)")
    if o.host == EVERYWHERE:
        say("From another machine, write this one's name or address in the place of localhost.")
    if o.browser:
        import webbrowser

        webbrowser.open(address)
    page.block_thread()

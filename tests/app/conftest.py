"""One page for all tests of the app: four models, the results of a run, one visitor at a time."""

import base64

import pytest
from PIL import Image

from sea_nn import SEA, explain_dataset
from sea_nn.app import gallery
from sea_nn.vision.models import load_model
from sea_nn.vision.shipped import load_sample
from tests.helpers.browser import Browser

KNOWN = ("Method not implemented.", "[svelte-i18n]")  # Gradio's own complaints
ROOT = "const root = [...document.querySelectorAll('#%s *')].find((n) => n.shadowRoot)?.shadowRoot;"
SERVED = pytest.mark.filterwarnings(
    "default", "ignore::Warning:gradio.*", "ignore:unclosed:ResourceWarning"
)
"""For tests beside a server: a warning in its threads is shown, and Gradio's own are not."""
PICTURES = (("T-shirt", 0), ("Trouser", 20), ("Sandal", 100), ("Sneaker", 101), ("Bag", 160))
"""Folders and numbers of the sample's pictures; 101 is a sandal, so its folder is wrong."""
OWN = """
import torch
from sea_nn.app import Columns

def table():
    model = torch.nn.Linear(3, 2)
    model.weight.data = torch.tensor([[1.0, 0.0, -0.5], [0.0, 1.0, 0.0]])
    torch.nn.init.zeros_(model.bias)
    rows = torch.tensor([[3.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
    return model, Columns(("<b>a</b>", "b", "c"), ("x", "y"), examples=rows)

class Peak(torch.nn.Module):
    def forward(self, x):
        return torch.stack([x[:, 0, 4:8].sum(1), x[:, 1].mean(1)], 1)

def series():
    x = torch.zeros(1, 2, 16)
    x[0, 0, 4:8], x[0, 1] = 1.0, torch.linspace(0, 1, 16)
    return Peak(), Columns(("left", "right"), ("peak", "flat"), steps=16, examples=x)

def text():
    from sea_nn import SEA
    from tests.helpers.texts import make_classifier, make_tokenizer
    return SEA.for_text(make_classifier(), make_tokenizer())
"""


@pytest.fixture(scope="package")
def results(tmp_path_factory):
    """A run over six pictures, one in the wrong folder, one black; and one that cannot be read."""
    folder = tmp_path_factory.mktemp("run")
    sample, loaded = load_sample(), load_model("fashion-cnn")
    for name, k in PICTURES:
        (folder / "in" / name).mkdir(parents=True)
        pixels = sample.images[k, 0].mul(255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / "in" / name / f"{k}.png")
    Image.new("L", (28, 28)).save(folder / "in" / "Sandal" / "black.png")
    (folder / "in" / "Bag" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    sea = SEA(loaded.model, ("saliency", "input_x_gradient"))
    how = {"preprocess": loaded.preprocess, "labels": loaded.labels, "quiet": True}
    explain_dataset(folder / "in", sea, folder / "out", **how)
    return folder / "out"


@pytest.fixture(scope="package")
def shown(results):
    """The gallery of the page."""
    return gallery.Gallery(results)


@pytest.fixture(scope="package")
def own(tmp_path_factory):
    """A file with models of a table, a series and texts."""
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN)
    return file


@pytest.fixture(scope="package")
def address(own, shown):
    """Where a page with four models and the results of a run is served; four results a page."""
    pytest.importorskip("gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'")
    from sea_nn.app.page import build_page, serve
    from sea_nn.app.subjects import load_subject

    names = ("fashion-cnn", *(f"{own}:{kind}" for kind in ("table", "series", "text")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "PAGE", 4)
        page = build_page([load_subject(name) for name in names], shown)
        yield serve(page)
        page.close(verbose=False)


class Page(Browser):
    """The app in the browser; what it draws itself lies in shadow roots, one a place."""

    def inside(self, place, code, *values):
        """Run a script with the ``root`` of a place."""
        return self.run(ROOT % place + code, *values)

    def until(self, place, condition, seconds=60):
        """Wait for something inside a place."""
        self.wait(f"(() => {{ {ROOT % place} return root && ({condition}); }})()", seconds)

    def see(self, place, selector):
        """The texts of elements inside a place."""
        code = "return [...root.querySelectorAll(arguments[0])].map((n) => n.textContent)"
        return self.inside(place, code, selector)

    def click(self, place, selector, number=0):
        """Click one of the elements inside a place."""
        self.inside(place, "root.querySelectorAll(arguments[0])[arguments[1]].click()",
                    selector, number)  # fmt: skip

    def until_done(self, name=None):
        """Wait for a map, of a class of this name, that gets no finer."""
        if name is not None:
            self.until("stage", f"root.getElementById('name').textContent === {name!r}", 90)
        self.wait("document.querySelector('#status').textContent.trim().startsWith('Map of')", 90)

    def open_tab(self, number):
        self.run(f"document.querySelectorAll('[role=tab]')[{number}].click()")

    def pick(self, name, option):
        """Choose an option of one of Gradio's lists, as a reader does."""
        self.run(f"const i = document.querySelector('#{name} input'); i.focus(); i.click()")
        options = f"[...document.querySelectorAll('#{name} [role=option]')]"
        found = f"{options}.find((o) => o.textContent.includes({option!r}))"
        self.wait(found)
        how = "new MouseEvent('mousedown', {bubbles: true})"
        self.run(f"{found}.dispatchEvent({how})")
        self.run("document.activeElement.blur()")

    def bring(self, name, content):
        """Drop a file."""
        self.run(
            "const file = new File([Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0))],"
            " arguments[0]); const box = new DataTransfer(); box.items.add(file);"
            "document.dispatchEvent(new DragEvent('drop', {dataTransfer: box, bubbles: true}))",
            name,
            base64.b64encode(content).decode(),
        )


@pytest.fixture(scope="package")
def b(chromium, address, tmp_path_factory):
    """A visitor who wants the smallest maps."""
    page = Page(chromium, address)
    page.downloads = tmp_path_factory.mktemp("downloads")
    how = {"behavior": "allow", "downloadPath": str(page.downloads)}
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", how)
    page.until("picker", "root.querySelector('.choice')")
    page.until_done()
    page.run("document.querySelectorAll('#budget input')[0].click()")
    yield page
    assert [m for m in page.errors() if not any(known in m for known in KNOWN)] == []
    assert [url for url in page.requests() if not url.startswith(address)] == []
    chromium.get("about:blank")  # a server waits for the pages that are open


@pytest.fixture
def ask(b):
    """The page with the map of the first picture, for the class that the model gives it."""
    b.open_tab(0)
    if b.run("return document.querySelector('#model input').value") != "fashion-cnn":
        b.pick("model", "fashion-cnn")
        b.until_done()
    b.until_done()
    if b.see("stage", "#name") != ["Ankle boot"]:
        b.click("picker", ".choice")
        b.until_done("Ankle boot")
    return b

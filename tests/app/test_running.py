"""Results of a run that is still under way, beside the app."""

import threading
import time

import pytest
import torch

from sea_nn import SEA, explain_dataset
from sea_nn.app.gallery import Gallery
from sea_nn.errors import InputError
from sea_nn.vision import load_model
from sea_nn.vision.shipped import load_sample
from tests.app.conftest import SERVED

pytestmark = SERVED


FREE = threading.Event()


class Held(torch.nn.Module):
    """A model that answers about one picture only when it may."""

    def __init__(self, model, picture):
        super().__init__()
        self.model = model
        self.register_buffer("picture", picture)

    def forward(self, x):
        if (x == self.picture).flatten(1).all(1).any():
            assert FREE.wait(30)
        return self.model(x)


@pytest.fixture
def running(tmp_path):
    """The folder of a run that has explained eight of ten and waits, and what lets it go on."""
    images, out = load_sample().images[0:100:10], tmp_path / "out"
    loaded = load_model("fashion-cnn")
    how = {"labels": loaded.labels, "batch_size": 2, "shard_size": 2, "quiet": True}
    work = (images, SEA(Held(loaded.model, images[8]), "saliency"), out)
    thread = threading.Thread(target=explain_dataset, args=work, kwargs=how)
    FREE.clear()
    thread.start()

    def finish():
        FREE.set()
        thread.join()

    while thread.is_alive():
        try:
            if len(Gallery(out).data) == 8:
                break
        except InputError:  # there is nothing yet
            pass
        time.sleep(0.01)
    yield out, finish
    finish()


def test_running_results_are_shown_refreshed_and_opened(b, shown, running, monkeypatch):
    out, finish = running
    with monkeypatch.context() as patch:
        patch.setattr(shown, "out", out)
        b.open_tab(2)
        b.run("document.querySelector('#refresh').click()")
        says = "document.querySelector('#gallery').textContent"
        b.wait(f"{says}.includes('8 of 10 inputs explained. Page 1 of 2')")
        finish()
        b.run("document.querySelector('#refresh').click()")
        b.wait(f"{says}.includes('10 of 10 inputs explained. Page 1 of 3')")
        for page in (2, 3):
            b.run("[...document.querySelectorAll('#gallery .sea-buttons button')].at(-1).click()")
            b.wait(f"{says}.includes('Page {page} of 3')")
        b.run("[...document.querySelectorAll('#gallery .sea-item')].at(-1).click()")
        b.wait("document.querySelector('#opened [data-id=\"9\"] canvas')")
        b.run("const i = document.querySelector('#class input'); i.focus(); i.click()")
        classes = [name for name, _ in Gallery(out).classes()]
        assert len(classes) > 2
        b.wait(f"document.querySelectorAll('#class [role=option]').length === {len(classes)}")
        b.run("document.activeElement.blur()")
    b.run("document.querySelector('#refresh').click()")
    b.wait(f"{says}.includes('of 7 inputs')")

"""Results of a run that is still under way, beside the app."""

import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from sea_nn.vision.shipped import load_sample

pytestmark = pytest.mark.filterwarnings("default")  # Gradio warns of pandas
SEA = (sys.executable, "-c", "from sea_nn.cli import main; main()")


@pytest.fixture
def running(tmp_path):
    """The folder that a real ``sea run`` writes to, and its process, held after the first shard."""
    sample = load_sample()
    (tmp_path / "in").mkdir()
    for k in range(0, 60, 10):  # two classes
        pixels = sample.images[k, 0].mul(255).round().byte().numpy()
        Image.fromarray(pixels).save(tmp_path / "in" / f"{k:02}.png")
    out = tmp_path / "out"
    options = f"-m fashion-cnn --budget 34 --batch 2 --shard-size 2 -o {out}".split()
    with subprocess.Popen([*SEA, "run", str(tmp_path / "in"), *options]) as process:
        try:
            while process.poll() is None and not any(out.glob("rows/*/*.parquet")):
                time.sleep(0.002)
            os.kill(process.pid, signal.SIGSTOP)
            yield out, process
        finally:
            process.kill()


def test_running_results_are_shown_refreshed_and_opened(b, running):
    from sea_nn.app.gallery import Gallery
    from sea_nn.app.load import load_subject
    from sea_nn.app.page import build_page
    from sea_nn.app.serve import serve

    out, process = running
    page = build_page([load_subject("fashion-cnn")], Gallery(out))
    b.driver.switch_to.new_window("tab")
    b.driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    try:
        b.driver.get(serve(page))
        b.wait("document.querySelector('#gallery [data-count]')", 60)
        shown = b.run("return document.querySelectorAll('#gallery .sea-item').length")
        assert 1 <= shown < 6
        assert f"{shown} of 6 inputs explained" in b.texts("#gallery .sea-note")[0]
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) == 0
        b.run("document.querySelector('#refresh').click()")
        b.wait("document.querySelector('#gallery').textContent.includes('6 of 6 inputs explained')")
        last = b.texts("#gallery .sea-id")[-1]
        b.run("[...document.querySelectorAll('#gallery .sea-item')].at(-1).click()")
        b.wait(f"document.querySelector('#opened [data-id=\"{last}\"] canvas')")
        b.run("const i = document.querySelector('#class input'); i.focus(); i.click()")
        classes = [name for name, _ in Gallery(out).classes()]
        assert len(classes) > 2
        b.wait(f"document.querySelectorAll('#class [role=option]').length === {len(classes)}")
    finally:
        b.driver.close()
        b.driver.switch_to.window(b.driver.window_handles[0])
        page.close(verbose=False)

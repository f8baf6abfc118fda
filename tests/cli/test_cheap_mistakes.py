"""What is wrong with a command is said before PyTorch is imported, and within a second."""

import json
import subprocess
import sys
import time

import pytest

MISTAKES = {
    "path": ("explain nothing.png", "no image at nothing.png"),
    "folder": ("explain empty", "holds no pictures"),
    "damaged": ("explain broken.jpg", "not an image"),
    "target": ("explain --demo --target 'golden retriver'", "golden retriever"),
    "number": ("explain --demo --target 1000", "0 to 999"),
    "budget": ("explain --demo --budget 0", "--budget"),
    "price": ("explain --demo --methods paper --budget 100", "members alone cost 301"),
    "method": ("explain --demo --methods salency", "did you mean 'saliency'"),
    "option": ("explain --demo --methods rise --set rise.n_masks=abc", "whole number"),
    "model": ("explain --demo --model efficientnet", "efficientnet-lite0"),
    "file": ("explain --demo --model own.py:make", "no file own.py"),
    "function": ("explain --demo --model mine.py:make", "no function 'make'"),
    "grid": ("explain --demo --grid 28", "ROWSxCOLUMNS"),
    "fine grid": ("explain --demo --grid 500x500", "224 x 224"),
    "absent": ("explain --demo --absent nothing", "blur"),
    "output": ("explain --demo -o file.txt/out", "Not a directory"),
    "extra": ("explain --demo --model torchvision:resnet18", "--no-deps"),
    "text": ("explain --text Hello", "hf:FOLDER"),
    "run": ("run nowhere -o out", "there is no file or folder nowhere"),
    "run's target": ("run empty -o out --target tabbby", "near: tabby"),
    "run's precision": ("run empty -o out --precision float8", "float16"),
    "summary": ("summary empty", "manifest.json"),
    "report": ("report nothing.safetensors", "there is no file"),
    "app": ("app empty", "manifest.json"),
    "app's model": ("app --model nothing", "Choose from"),
    "doctor": ("doctor --methods salency", "did you mean"),
    "methods": ("methods salency", "did you mean"),
    "bench": ("bench mass --device toaster", "cpu, cuda"),
}
RUN = """
import io, json, shlex, sys, time
from contextlib import redirect_stderr, redirect_stdout
from sea_nn.cli import app

found = {}
for name, (line, _) in json.loads(sys.argv[1]).items():
    text, began = io.StringIO(), time.process_time()
    from sea_nn.cli import terminal
    terminal.err.file = text
    try:
        with redirect_stderr(text), redirect_stdout(text):
            app(shlex.split(line))
    except SystemExit as stop:
        code = stop.code
    heavy = [m for m in ("torch", "captum", "matplotlib", "gradio") if m in sys.modules]
    found[name] = [code, text.getvalue(), time.process_time() - began, heavy]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cheap")
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("a file")
    (folder / "mine.py").write_text("def build():\n    return None\n")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff not a photograph")
    command = [sys.executable, "-c", RUN, json.dumps(MISTAKES)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_before_anything_is_loaded(found, name):
    code, said, seconds, heavy = found[name]
    assert MISTAKES[name][1] in " ".join(said.split())
    assert code == 2
    assert not heavy
    assert seconds < 1


def test_help_is_there_at_once():
    took = []
    for _ in range(3):
        began = time.perf_counter()
        command = [sys.executable, "-X", "importtime", "-c", "from sea_nn.cli import app; app()"]
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
    assert "sea explain --demo" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"torch", "numpy", "captum", "matplotlib", "PIL", "pygments", "markdown_it"}
    assert min(took) < 1.5  # a third of a second on a machine with nothing else to do

"""What is wrong with a command is said before PyTorch is imported, and within a second."""

import json
import subprocess
import sys
import time

import pytest

from sea_nn.vision.names import ASSETS

MISTAKES = {
    "path": ("explain nothing.png", "no image at nothing.png"),
    "folder": ("explain empty", "holds no pictures"),
    "damaged": ("explain broken.jpg nothing.png", "not an image"),
    "glob": ("explain '*.tiff'", "match"),
    "nothing": ("explain", "nothing to explain"),
    "target": ("explain --demo --target 'golden retriver'", "golden retriever"),
    "number": ("explain --demo --target 1000", "0 to 999"),
    "negative": ("explain boot.png --target -1", "0 to 999"),
    "near": ("explain boot.png --model fashion-cnn --target boot", "near: Ankle boot"),
    "rival": ("explain boot.png --not 3", "needs a --target"),
    "budget": ("explain --demo --budget 0", "--budget"),
    "price": ("explain --demo --methods paper --budget 100", "members alone cost 301"),
    "dear": ("explain boot.png --methods rise,lime --budget 64", "members alone cost"),
    "budget's name": ("explain boot.png --methods fastt", "did you mean 'fast'"),
    "method": ("explain --demo --methods salency", "did you mean 'saliency'"),
    "option": ("explain --demo --methods rise --set rise.n_masks=abc", "whole number"),
    "assignment": ("explain boot.png --set saliency=3", "MEMBER.OPTION=VALUE"),
    "strange option": ("explain --demo --methods saliency --set rise.n_masks=3", "not among the"),
    "no option": ("explain --demo --methods saliency --set saliency.abs=true", "no option 'abs'"),
    "model": ("explain --demo --model efficientnet", "efficientnet-lite0"),
    "file": ("explain --demo --model own.py:make", "no file own.py"),
    "function": ("explain --demo --model mine.py:make", "no function 'make'"),
    "device": ("explain boot.png --device toaster", "toaster"),
    "model's output": ("explain boot.png --model-output logit", "logits, probabilities"),
    "grid": ("explain --demo --grid 28", "ROWSxCOLUMNS"),
    "fine grid": ("explain --demo --grid 500x500", "224 x 224"),
    "config": ("explain boot.png --config nothing.toml", "No such file"),
    "config's budget": ("explain boot.png --config few.toml --budget 64", "without a budget"),
    "setting": ("explain boot.png --config wrong.toml", "unknown setting epoch"),
    "widths": ("explain boot.png --config scalar.toml", "widths must be a list"),
    "binary config": ("explain boot.png --config boot.png", "codec can't decode"),
    "folder as config": ("explain boot.png --config empty", "Is a directory"),
    "top": ("explain boot.png --top 0", "--top"),
    "absent": ("explain --demo --absent background", "blur, mean"),
    "labels": ("explain boot.png --labels a,b", "needs a --text"),
    "tile": ("explain boot.png --tile --target 1 --not 2", "explains one class"),
    "old option": ("explain --demo --compile", "No such option"),
    "output": ("explain --demo -o file.txt/out", "no folder that can be written to"),
    "file as output": ("explain boot.png -o boot.png", "boot.png"),
    "extra": ("explain --demo --model torchvision:resnet18", "--no-deps"),
    "text": ("explain --text Hello", "hf:FOLDER"),
    "text's folder": ("explain --text Hello --model hf:nowhere", "no folder"),
    "text's options": ("explain --text Hello --demo", "--demo does not go with --text"),
    "volume": ("explain scan.nii", "FILE.py:FUNCTION"),
    "volume and picture": ("explain scan.nii boot.png", "do not go with volumes"),
    "run": ("run nowhere -o out", "there is no file or folder nowhere"),
    "run's target": ("run empty -o out --target tabbby", "near: tabby"),
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
    (folder / "boot.png").write_bytes((ASSETS / "boot.png").read_bytes())
    (folder / "scan.nii").write_bytes(b"no scan")
    (folder / "few.toml").write_text("epochs = 3\ngrid = [4, 4]\n")
    (folder / "wrong.toml").write_text("epoch = 3\n")
    (folder / "scalar.toml").write_text("widths = 5\n")
    before = set(folder.iterdir())
    command = [sys.executable, "-c", RUN, json.dumps(MISTAKES)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert set(folder.iterdir()) == before
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
    heavy = {"torch", "numpy", "captum", "matplotlib", "PIL", "rich", "pygments", "markdown_it"}
    assert not loaded & heavy
    assert min(took) < 1.5  # a third of a second on a machine with nothing else to do

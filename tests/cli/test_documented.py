"""Documented command lines work; what is wrong with one is said before PyTorch is imported.

Each line is run up to where a model would be loaded, in a folder that has what the lines name.
Commands that need no model (reports, summaries, lists) are run whole; so are, by
``tests/test_docs.py``, the blocks of the pages.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from sea_nn.cli import app
from sea_nn.vision.names import ASSETS
from tests.helpers.command import OWN_MODEL

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = get_command(app).commands
NOT_INSTALLED = ("torchvision:", "timm:", "resnet50", "efficientnet-lite2")
ARGUMENTS = {"NAME": "games", "FOLDER": "folder", "OUT": "out", "hf:FOLDER": "hf:folder"}


class Reached(Exception):  # noqa: N818
    """A model would be loaded now."""


def find_lines():
    found = {}
    for page in PAGES:
        text = page.read_text()
        named = re.findall(r"`(?:\.venv/bin/)?(sea [^`\n]+)`", text)
        for line in (*named, *re.findall(r"^ *(?:\.venv/bin/)?(sea .*)$", text, re.MULTILINE)):
            found[line] = page.name
    for name, command in COMMANDS.items():
        for line in re.findall(r"^ +(sea .*?)(?:  \(.*\))?$", command.epilog, re.MULTILINE):
            found[line] = f"--help of {name}"
    return {line: page for line, page in found.items() if line and line.split()[1] in COMMANDS}


LINES = find_lines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("pyarrow", reason="sea run and sea summary need pyarrow")
    folder = tmp_path_factory.mktemp("documented")
    picture = Image.open(ROOT / "src/sea_nn/vision/assets/cat.jpg").convert("RGB")
    for name in ("cat.jpg", "dog.jpg", "x.png", "boot.png", "slide.tif"):
        picture.save(folder / name)
    for name in ("photos", "folder", "minilm", "dicom_folder"):
        (folder / name).mkdir()
    for name in ("photos/a.jpg", "photos/b.png", "folder/c.jpg"):
        picture.resize((32, 32)).save(folder / name)
    (folder / "dicom_folder" / "slice.dcm").touch()
    (folder / "scan.nii.gz").touch()
    (folder / "settings.toml").write_text("epochs = 20\n")
    (folder / "pictures.csv").write_text("path,label\ncat.jpg,tabby\n")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    text = OWN_MODEL.format(body="total = x.mean((1, 2, 3))", labels="['cat', 'dog']")
    (folder / "my_model.py").write_text(text.replace("def make()", "def make_model()"))
    fashion = ["--model", "fashion-cnn", "--methods", "saliency", "--no-curve"]
    run = ["run", str(folder / "photos"), *fashion, "-o"]
    for name in ("out", "run"):
        done = CliRunner().invoke(app, [*run, str(folder / name)])
        assert done.exit_code == 0, done.output
    explain = ["explain", "--demo", *fashion[:4], "--no-report"]
    for name in ("out", "out/cat"):
        done = CliRunner().invoke(app, [*explain, "-o", str(folder / name)])
        assert done.exit_code == 0, done.output
    shutil.copy(folder / "out/boot/explanation.safetensors", folder / "out/cat")
    (folder / "runs/one").mkdir(parents=True)
    shutil.copytree(folder / "out/boot", folder / "runs/one/dog")
    return folder


@pytest.mark.parametrize("line", LINES)
def test_a_documented_command_works(line, folder, monkeypatch):
    import sea_bench.experiments

    def stop(*_, **__):
        raise Reached

    monkeypatch.chdir(folder)
    monkeypatch.setattr("sea_nn.cli.work.load_model", stop)
    monkeypatch.setattr("sea_nn.text.load.load_text_model", stop)
    monkeypatch.setattr("sea_nn.app.subjects.load_subject", stop)
    monkeypatch.setattr(sea_bench.experiments, "run_experiment", stop)
    if "hf:" in line or "--text" in line:
        pytest.importorskip("transformers")
    if ".nii" in line:
        pytest.importorskip("nibabel")
    if line.startswith("sea app"):
        pytest.importorskip("gradio")
    words = shlex.split(line.partition(" > ")[0].replace("…", "..."), comments=True)[1:]
    words = [ARGUMENTS.get(word, word) for word in words]
    if len(words) == 1 and words[0] not in ("app", "doctor", "methods", "models", "bench"):
        words.append("--help")  # it is only named
    words = [
        found
        for word in words
        for found in (sorted(map(str, Path().glob(word))) if word.endswith("/*") else [word])
    ]
    done = CliRunner().invoke(app, words)
    reached = isinstance(done.exception, Reached)
    missing = any(name in line for name in NOT_INSTALLED) and (
        "pip install" in done.output or "SEA_NN_DATA" in done.output
    )
    assert reached or done.exit_code == 0 or missing, f"{line} ({LINES[line]})\n{done.output}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_the_defaults_that_hold(name):
    told = CliRunner().invoke(app, [name, "--help"])
    assert told.exit_code == 0
    assert f"sea {name}" in told.output[told.output.index("Examples") :]
    text = " ".join(told.output.split())
    for parameter in COMMANDS[name].params:
        if parameter.default not in (None, False, True, "") and parameter.name != "help":
            defaults = parameter.default if parameter.multiple else [parameter.default]
            assert f"default: {', '.join(map(str, defaults))}" in text, parameter.name


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

"""Every command line of the documentation and of ``--help`` is one that works.

Each is run up to where a model would be loaded, in a folder that has what the lines name. Commands
that need no model (reports, summaries, lists) are run whole; so are, by ``tests/test_docs.py``, the
blocks of the pages.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from sea_nn.cli import app
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

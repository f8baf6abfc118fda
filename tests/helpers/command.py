"""The command line for tests: run it, pictures to give it, a model of one's own."""

from pathlib import Path

import pytest
from PIL import Image

from sea_nn import Explanation
from sea_nn.cli import app
from sea_nn.vision.shipped import load_sample

FILES = {"map.png", "strip.png", "top.png", "explanation.safetensors"}
QUICK = ("--model", "fashion-cnn", "--methods", "saliency,input_x_gradient")
OWN_MODEL = """
import torch
from sea_nn.vision.images import Preprocess

print("a model that talks")

class Model(torch.nn.Module):
    def forward(self, x):
        {body}
        return torch.stack([total, -total], 1)

def make():
    return Model(), Preprocess(resize=12, crop=12, mean=(0.0,) * 3, std=(1.0,) * 3), {labels}
"""


def write_map(e, kind, path, **options):
    """A file in place of a figure, which takes longer to draw than its map to find."""
    Path(path).write_bytes(e.attribution.numpy().tobytes())


@pytest.fixture
def sea(capsys, monkeypatch):
    """Run the command line, check its exit code; returns standard output and standard error."""

    def run(*arguments, code=0, drawn=False):
        with monkeypatch.context() as patch:
            if not drawn:
                patch.setattr(Explanation, "plot", write_map)
            with pytest.raises(SystemExit) as stop:
                app([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert (stop.value.code or 0) == code, printed.err
        return printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def clothes(tmp_path_factory):
    """Fashion-MNIST pictures as files: one of each of three classes, and a broken one."""
    folder = tmp_path_factory.mktemp("clothes")
    sample = load_sample()
    for name, index in (("boot", 180), ("sandal", 100), ("trouser", 20)):
        pixels = (sample.images[index, 0] * 255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / f"{name}.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff not a photograph")
    return folder


def write_model(folder, body, labels="['up', 'down']"):
    path = folder / "own.py"
    path.write_text(OWN_MODEL.format(body=body, labels=labels))
    return f"{path}:make"

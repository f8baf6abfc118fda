"""`sea run` and `sea summary`."""

from __future__ import annotations

import pytest
from PIL import Image
from typer.testing import CliRunner

from sea_nn import read_dataset
from sea_nn.cli import app

OPTIONS = ("--model", "fashion-cnn", "--methods", "saliency,input_x_gradient", "--device", "cpu")


@pytest.fixture
def pictures(tmp_path):
    from sea_nn.vision.shipped import load_sample

    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, image in enumerate(load_sample().images[:4]):
        pixels = (image[0] * 255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def sea(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_run_and_summary_of_a_folder(pictures, tmp_path):
    out = tmp_path / "out"
    (pictures / "broken.png").write_bytes(b"not a picture")
    first = sea("run", pictures, "-o", out, *OPTIONS)
    assert first.exit_code == 0, first.output
    assert "failed (load): 1" in first.output
    again = sea("run", pictures, "-o", out, *OPTIONS, "--strict")
    assert again.exit_code == 1
    assert "0 now" in again.output
    assert read_dataset(out)["0.png"].row["target_name"]
    other = sea("run", pictures, "-o", out, *OPTIONS, "--seed", "3")
    assert other.exit_code == 2
    assert "setting seed" in other.output
    shown = sea("summary", out)
    assert shown.exit_code == 0, shown.output
    assert (out / "summary" / "summary.html").is_file()
    told = sea("report", out, "-o", tmp_path / "report.html")
    assert told.exit_code == 0, told.output
    assert "4 inputs" in told.output


def test_a_run_takes_the_budget_and_output_of_explain(pictures, tmp_path):
    given = ("--model", "fashion-cnn", "--budget", "30", "--model-output", "logits")
    done = sea("run", pictures, "-o", tmp_path / "out", *given, "--limit", 1, "--no-curve")
    assert done.exit_code == 0, done.output
    data = read_dataset(tmp_path / "out")
    assert data.manifest.sea["budget"] == 30
    assert data["0.png"].row["evaluations"] <= 30

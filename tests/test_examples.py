import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parent.parent / "examples"
WRITTEN = {
    "own_model": ["strip.png", "overlay.png", "explanation.safetensors"],
    "class_map": ["trouser.png"],
    "tabular": ["columns.png", "measurements.png"],
    "time_series": ["series.png"],
    "constraints": ["strip.png"],
}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """All examples, started together because most of their time is importing torch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    started = {}
    for name in WRITTEN:
        place = tmp_path_factory.mktemp(name)
        started[name] = place, subprocess.Popen(
            [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")],
            cwd=place, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    yield started
    for _, process in started.values():
        process.kill()
        process.communicate()


def test_every_example_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_example_runs_as_it_says(processes, name):
    if name == "tabular":
        pytest.importorskip("sklearn")
    place, process = processes[name]
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    assert f"wrote out/{name}/" in out
    folder = place / "out" / name
    assert {path.name for path in folder.iterdir()} == set(WRITTEN[name])
    for path in folder.glob("*.png"):
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("L"))
        assert pixels.shape[1] >= 1000
        assert pixels.std() > 10, f"{path.name} is blank"


def test_examples_are_short():
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path.name

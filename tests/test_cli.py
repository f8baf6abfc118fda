import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from sea_nn import Explanation
from sea_nn.cli import app, terminal
from sea_nn.cli.listing import SOURCES
from sea_nn.cli.options import choose_batch
from sea_nn.explanation import atomic
from sea_nn.members.registry import ENSEMBLES, names
from sea_nn.vision.models import model_names
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


@pytest.fixture
def sea(capsys):
    """Run the command line; returns the exit code, standard output and standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            app([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return stop.value.code or 0, printed.out, printed.err

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


def test_every_picture_gets_its_folder_and_all_one_report(sea, clothes, tmp_path):
    code, out, err = sea("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK,
                         "--batch", "2", "-o", tmp_path)  # fmt: skip
    assert code == 0
    assert err == ""
    for name, label in (("boot", "Ankle boot"), ("sandal", "Sandal")):
        assert {file.name for file in (tmp_path / name).iterdir()} == FILES
        with Image.open(tmp_path / name / "map.png") as drawn:
            assert drawn.size == (672, 672)
        explanation = Explanation.load(tmp_path / name / "explanation.safetensors")
        assert explanation.labels == (label,)
        spent = {"saliency": 1, "input_x_gradient": 0, "sea": 30}
        assert explanation.provenance.evaluations == spent
        assert explanation.answers.shape == (1, 28, 28)
        assert label in out
    page = (tmp_path / "report.html").read_text()
    assert "boot.png" in page
    assert "sandal.png" in page
    for word in ("saliency", "input_x_gradient", "seconds", "report.html", "map.png"):
        assert word in out
    (questions,) = [line for line in out.splitlines() if line.split()[:1] == ["questions"]]
    assert questions.split() == ["questions", "60"]


def test_the_demo_needs_no_file(sea, tmp_path):
    code, out, _ = sea("explain", "--demo", *QUICK, "-o", tmp_path, "--no-report")
    assert code == 0
    assert "Ankle boot" in out
    assert {file.name for file in tmp_path.iterdir()} == {"boot"}


def test_compile_reaches_the_members(sea, tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda module: compiled.append(module) or module)
    code, _, _ = sea("explain", "--demo", "--model", "fashion-cnn", "--compile", "--no-report",
                     "--methods", "integrated_gradients", "-o", tmp_path)  # fmt: skip
    assert code == 0
    assert len(compiled) == 1


def test_a_broken_file_is_left_out_and_reported(sea, clothes, tmp_path):
    code, out, err = sea("explain", clothes, *QUICK, "-o", tmp_path, "--batch", "3")
    assert code == 1
    assert "broken.jpg" in err
    assert "1 of 4 pictures could not be explained" in err
    assert "Trouser" in out
    assert {f.name for f in tmp_path.iterdir()} == {"boot", "sandal", "trouser", "report.html"}


def test_nothing_but_bad_files_is_bad_input(sea, clothes, tmp_path):
    missing = clothes / "nothing.png"
    code, out, err = sea("explain", clothes / "broken.jpg", missing, *QUICK, "-o", tmp_path)
    assert code == 2
    assert out == ""
    assert "damaged" in err or "not an image" in err
    assert "There is no image" in err
    assert not list(tmp_path.iterdir())


def test_a_picture_the_model_does_not_react_to_does_not_harm_its_batch(sea, tmp_path):
    model = write_model(tmp_path, "total = (x.flatten(1).mean(1) - 0.5).relu()")
    for name, shade in (("light", 250), ("dark", 3), ("lighter", 254)):
        picture = Image.new("RGB", (12, 12), (shade,) * 3)
        picture.putpixel((4, 4), (255, 255, 255))
        picture.save(tmp_path / f"{name}.png")
    code, _, err = sea("explain", tmp_path / "*.png", "--model", model, "-o", tmp_path / "out",
                       "--methods", "input_x_gradient", "--batch", "3")  # fmt: skip
    assert code == 0, err
    found = {name: Explanation.load(tmp_path / "out" / name / "explanation.safetensors")
             for name in ("light", "dark", "lighter")}  # fmt: skip
    assert [bool(found[name].attribution.any()) for name in found] == [True, False, True]
    assert any("does not react" in check.message for check in found["dark"].checks)


def test_json_is_one_document_whatever_a_model_prints(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    code, out, err = sea("explain", clothes / "boot.png", clothes / "broken.jpg", "--json",
                         "--model", model, "--methods", "saliency,integrated_gradients",
                         "--set", "integrated_gradients.n_steps=7", "--target", "DOWN",
                         "--top", "3", "-o", tmp_path / "out")  # fmt: skip
    document = json.loads(out)
    assert code == 1
    assert "a model that talks" in err
    assert document["methods"] == ["saliency", "integrated_gradients"]
    assert [failed["input"] for failed in document["failed"]] == [str(clothes / "broken.jpg")]
    assert document["interrupted"] is False
    assert document["evaluations"]["integrated_gradients"] == 7
    (found,) = document["inputs"]
    assert (found["predicted"][0]["label"], found["target"]["label"]) == ("up", "down")
    assert Path(document["report"]).is_file()
    assert all(Path(path).is_file() for path in found["files"].values())
    saved = Explanation.load(found["files"]["explanation"])
    assert [12 * f["row"] + f["column"] for f in found["top"]] == saved.top(3)[0].tolist()
    assert document["agreement"]["names"] == ["SEA", "saliency", "integrated_gradients"]
    assert document["agreement"]["spearman"][0][0] == pytest.approx(1)


def test_folders_globs_and_odd_names_are_understood(sea, clothes, tmp_path):
    deep = tmp_path / "in" / "deep"
    deep.mkdir(parents=True)
    odd = ("in/[red]a.png", "in/Same.png", "in/deep/same.png", "in/report.html.png")
    for name in odd:
        (tmp_path / name).write_bytes((clothes / "boot.png").read_bytes())
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    code, out, _ = sea("explain", tmp_path / "in", "-r", tmp_path / "in" / "[red]a.png",
                       tmp_path / "in" / "S*.png", *QUICK, "-o", tmp_path / "out")  # fmt: skip
    assert code == 0
    folders = {path.name for path in (tmp_path / "out").iterdir()}
    assert folders == {"[red]a", "Same", "same-2", "report.html-2", "report.html"}
    assert "[red]a.png" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/*.tiff"], "match"),
        (["{}/empty"], "holds no pictures"),
        ([], "nothing to explain"),
        (["{}/boot.png", "--target", "10"], "0 to 9"),
        (["{}/boot.png", "--target", "boot"], "near: Ankle boot"),
        (["{}/boot.png", "--target", "-1"], "0 to 9"),
        (["{}/boot.png", "--methods", "salency"], "did you mean 'saliency'"),
        (["{}/boot.png", "--model", "fashion"], "fashion-cnn"),
        (["{}/boot.png", "--device", "toaster"], "toaster"),
        (["{}/boot.png", "--grid", "28"], "ROWSxCOLUMNS"),
        (["{}/boot.png", "--set", "saliency=3"], "MEMBER.OPTION=VALUE"),
        (["{}/boot.png", "--set", "rise.n_masks=3"], "not among the methods"),
        (["{}/boot.png", "--set", "saliency.abs=true"], "no option 'abs'"),
        (["{}/boot.png", "--methods", "rise", "--set", "rise.n_masks=abc"], "a whole number"),
        (["{}/boot.png", "--methods", "fastt"], "did you mean 'fast'"),
        (["{}/boot.png", "--grid", "500x500"], "28 x 28 pixels"),
        (["{}/boot.png", "--top", "785"], "784"),
        (["{}/boot.png", "--top", "0%"], "share"),
        (["{}/boot.png", "--config", "{}/nothing.toml"], "No such file"),
        (["{}/boot.png", "--config", "{}/wrong.toml"], "unknown setting epoch"),
        (["{}/boot.png", "--config", "{}/boot.png"], "not a text file"),
        (["{}/boot.png", "--config", "{}/empty"], "is a folder"),
        (["{}/boot.png", "--config", "{}/scalar.toml"], "widths must be a list"),
        (["{}/boot.png", "-o", "{}/boot.png/out"], "choose another folder with -o"),
        (["{}/boot.png", "--batch", "0"], "--batch"),
        (["{}/boot.png", "-o", "{}/boot.png"], "boot.png"),
    ],
)
def test_bad_input_is_one_clear_message(sea, clothes, tmp_path, arguments, message):
    for source in clothes.glob("*.png"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.toml").write_text("epoch = 3\n")
    (tmp_path / "scalar.toml").write_text("widths = 5\n")
    given = [argument.format(tmp_path) for argument in arguments]
    code, out, err = sea("explain", *QUICK, "-o", tmp_path / "out", *given)
    assert code == 2
    assert out == ""
    # A box drawn around a message may break it anywhere.
    assert message.replace(" ", "") in "".join(err.split()).replace("│", "")
    assert not (tmp_path / "out").exists()


def test_target_by_number_or_name_and_settings_reach_the_ensemble(sea, clothes, tmp_path):
    (tmp_path / "few.toml").write_text("epochs = 7\ngrid = [4, 4]\n")
    documents = []
    for target in ("7", "sneaker"):
        code, out, _ = sea("explain", clothes / "boot.png", *QUICK, "--target", target, "--json",
                           "--config", tmp_path / "few.toml", "--grid", "7x14", "--top", "50%",
                           "--no-report", "-o", tmp_path / target)  # fmt: skip
        assert code == 0
        documents.append(json.loads(out))
    for document in documents:
        assert document["inputs"][0]["target"]["class"] == 7
        assert document["config"]["epochs"] == 7
        assert document["inputs"][0]["feature_shape"] == [7, 14]
        assert len(document["inputs"][0]["top"]) == 49
        assert document["report"] is None


def test_a_model_without_names_takes_numbers_it_has(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)", labels="[]")
    common = (clothes / "boot.png", "--model", model, "--methods", "saliency", "-o", tmp_path)
    assert "0 to 1" in sea("explain", *common, "--target", "2")[2]
    assert "names of" in sea("explain", *common, "--target", "up")[2]
    code, out, _ = sea("explain", *common, "--target", "1")
    assert code == 0
    assert "class 1" in out


def test_what_is_left_of_earlier_runs_is_said(sea, clothes, tmp_path):
    assert "earlier run" not in sea("explain", clothes / "boot.png", *QUICK, "-o", tmp_path)[1]
    first = (tmp_path / "boot" / "explanation.safetensors").stat().st_mtime_ns
    code, out, _ = sea("explain", clothes / "sandal.png", *QUICK, "-o", tmp_path, "--no-report")
    assert code == 0
    assert "report.html is of an earlier run" in out
    assert "not in this report: boot" in out
    sea("explain", clothes / "boot.png", *QUICK, "-o", tmp_path)
    assert (tmp_path / "boot" / "explanation.safetensors").stat().st_mtime_ns > first
    assert "sandal" not in (tmp_path / "report.html").read_text()


def test_reports_are_built_from_saved_files(sea, clothes, tmp_path):
    sea("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK, "-o", tmp_path / "out",
        "--no-report")  # fmt: skip
    page = tmp_path / "page.html"
    code, out, _ = sea("report", tmp_path / "out", "-o", page, "--title", "Shoes & more")
    assert code == 0
    assert "2 inputs" in out
    text = page.read_text()
    assert "Shoes &amp; more" in text
    assert "Ankle boot (boot)" in text
    assert "Sandal (sandal)" in text
    (tmp_path / "out" / "bad.safetensors").write_bytes(b"no")
    code, _, err = sea("report", tmp_path / "out" / "**" / "*.safetensors", "-o", page)
    assert code == 1
    assert "bad.safetensors" in err
    code, _, err = sea("report", tmp_path / "out" / "boot", "-o", "/dev/null")
    assert code == 2
    assert "/dev/null is a device" in err
    assert Path("/dev/null").is_char_device()
    code, _, err = sea("report", tmp_path / "none.safetensors", "-o", tmp_path / "no.html")
    assert code == 2
    assert "there is no file" in err
    assert not (tmp_path / "no.html").exists()


def test_doctor_ends_with_1_only_if_a_check_fails(sea, clothes, tmp_path):
    code, out, _ = sea("doctor", clothes / "boot.png", *QUICK)
    assert code == 0
    assert "3 fine" in out
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    code, out, _ = sea("doctor", "--model", model, "--methods", "saliency,grad_cam")
    assert code == 1
    assert "grad_cam" in out
    assert "1 failed" in out
    assert "options=" not in out
    assert "--set" in out
    assert "grad_cam.layer=..." in out
    code, out, _ = sea("doctor", *QUICK[:2], "--methods", "integrated_gradients",
                       "--set", "integrated_gradients.n_steps=2")  # fmt: skip
    assert code == 0
    assert "--set" in out
    assert "n_steps=100" in "".join(out.split())
    code, _, err = sea("doctor", clothes / "broken.jpg", *QUICK)
    assert code == 2
    assert "broken.jpg" in err


def test_methods_and_models_are_listed_completely(sea):
    code, out, _ = sea("methods")
    assert code == 0
    assert all(name in out for name in (*names(), *ENSEMBLES, "301", "arXiv:1312.6034"))
    assert "For images 30 (fast, paper) or 90 (thorough) questions" in out
    code, out, _ = sea("models")
    assert code == 0
    assert set(SOURCES) == set(model_names())
    assert all(name in out for name in model_names())


@pytest.mark.parametrize("command", ["explain", "doctor", "report", "methods", "models"])
def test_help_has_an_example(sea, command):
    code, out, _ = sea(command, "--help")
    assert code == 0
    assert f"sea {command}" in out[out.index("Examples") :]


def test_version(sea):
    code, out, _ = sea("--version")
    assert code == 0
    assert out.startswith("sea-nn ")


def test_ctrl_c_keeps_what_is_finished(sea, tmp_path):
    body = """if x.flatten(1).mean(1).max() > 0.5:
            raise KeyboardInterrupt
        total = (x * x).flatten(1).sum(1)"""
    model = write_model(tmp_path, body)
    for name, shade in (("a", 30), ("b", 250), ("c", 30)):
        picture = Image.new("RGB", (12, 12), (shade,) * 3)
        picture.putpixel((4, 4), (90, 90, 90))
        picture.save(tmp_path / f"{name}.png")
    given = ("explain", tmp_path / "*.png", "--model", model, "--methods", "saliency",
             "--device", "cpu", "-o", tmp_path / "out")  # fmt: skip
    assert "0 of 3 pictures were finished" in sea(*given, "--batch", "3")[2]
    code, out, err = sea(*given)
    assert code == 130
    assert "1 of 3 pictures were finished" in err
    assert "a.png" in out
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"a", "report.html"}
    code, out, _ = sea(*given, "--json")
    assert code == 130
    assert json.loads(out)["interrupted"] is True


def test_one_picture_at_a_time_on_a_cpu_and_eight_on_a_gpu():
    assert choose_batch(torch.device("cpu")) == 1
    assert choose_batch(torch.device("cuda", 1)) == 8


def test_a_picture_is_written_whole_or_not_at_all(sea, clothes, tmp_path, monkeypatch):
    def read():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop_by(reason):
        def save(*_):
            raise reason

        patch.setattr(Explanation, "save", save)

    common = ("explain", clothes / "boot.png", *QUICK, "--no-report", "-o", tmp_path)
    with monkeypatch.context() as patch:
        stop_by(OSError(errno.ENOSPC, "No space left on device"))
        assert sea(*common)[0] == 2
        assert not list(tmp_path.iterdir())
        stop_by(KeyboardInterrupt())
        assert sea(*common)[0] == 130
        assert not list(tmp_path.iterdir())
    assert sea(*common)[0] == 0
    (tmp_path / "boot" / "notes.txt").write_text("one's own")
    before = read()
    with monkeypatch.context() as patch:
        stop_by(KeyboardInterrupt())
        assert sea(*common, "--target", "0")[0] == 130
    assert read() == before
    assert sea(*common, "--target", "0")[0] == 0
    after = read()
    assert {path.name for path in before if before[path] != after[path]} == FILES
    assert after.keys() == before.keys()


def test_a_full_disk_keeps_what_is_written_and_says_so(sea, clothes, tmp_path, monkeypatch):
    plain = Explanation.save

    def save(e, path):
        if e.labels != ("Ankle boot",):
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(e, path)

    monkeypatch.setattr(Explanation, "save", save)
    given = ("explain", clothes / "boot.png", clothes / "sandal.png", clothes / "trouser.png")
    code, _, err = sea(*given, *QUICK, "-o", tmp_path)
    assert code == 1
    assert err.count("No space left on device") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"boot", "report.html"}


def test_a_file_in_the_way_of_one_result_stops_that_one_only(sea, clothes, tmp_path):
    (tmp_path / "boot").touch()
    given = ("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK, "-o", tmp_path)
    code, _, err = sea(*given, "--no-report")
    assert code == 1
    assert "results need a folder of this name" in " ".join(err.split())
    assert {path.name for path in tmp_path.iterdir()} == {"boot", "sandal"}
    (tmp_path / "report.html").mkdir()
    assert sea(*given)[0] == 2  # before anything is computed


def test_what_killed_runs_left_is_removed(sea, clothes, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    left = atomic._name_draft(tmp_path)
    left.with_name(left.name.replace(str(os.getpid()), str(dead.pid))).mkdir()
    assert sea("explain", clothes / "boot.png", *QUICK, "--no-report", "-o", tmp_path)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"boot"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_ctrl_c_counts_even_where_a_model_catches_it(sea, clothes, tmp_path):
    body = """import os, signal, time
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            pass
        total = (x * x).flatten(1).sum(1)"""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = sea("explain", clothes / "boot.png", "--model", write_model(tmp_path, body),
                           "--methods", "saliency", "-o", tmp_path / "out")  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert "0 of 1 pictures were finished" in err


def test_results_of_an_earlier_run_are_not_explained(sea, clothes, tmp_path):
    own = tmp_path / "map.png"
    own.write_bytes((clothes / "boot.png").read_bytes())
    given = (*QUICK, "-r", "--no-report", "--json", "-o", tmp_path / "out")
    assert sea("explain", tmp_path, *given)[::2] == (0, "")
    code, out, err = sea("explain", tmp_path, *given)
    assert code == 0
    assert [found["input"] for found in json.loads(out)["inputs"]] == [str(own)]
    assert "3 results of an earlier run" in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"map"}
    code, _, err = sea("explain", tmp_path / "out", *given)
    assert code == 2
    assert "nothing to explain" in err
    # One's own pictures may lie where the results go.
    assert sea("explain", own, *QUICK, "--no-report", "-o", tmp_path)[::2] == (0, "")
    assert {file.name for file in (tmp_path / "map").iterdir()} == FILES


def test_an_argument_that_means_no_picture_does_not_stop_the_others(sea, clothes, tmp_path):
    (tmp_path / "empty").mkdir()
    nothing = (clothes / "*.tiff", tmp_path / "empty")
    common = (*QUICK, "--no-report", "-o", tmp_path / "out")
    code, out, err = sea("explain", nothing[0], clothes / "boot.png", nothing[1], *common, "--json")
    assert code == 1
    assert "*.tiff" in err
    assert "holds no pictures" in err
    document = json.loads(out)
    assert [failed["input"] for failed in document["failed"]] == list(map(str, nothing))
    assert len(document["inputs"]) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"boot"}
    assert sea("explain", *nothing, *common)[0] == 2
    assert sea("explain", nothing[0], "--demo", *common)[0] == 1
    saved = ("report", tmp_path / "out", clothes / "*.safetensors", "-o", tmp_path / "page.html")
    code, out, err = sea(*saved)
    assert code == 1
    assert "1 input" in out
    assert "match" in err


def test_advice_about_a_failed_member_is_given_for_the_command_line(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    given = ("explain", clothes / "boot.png", "--model", model, "--json", "-o", tmp_path / "out")
    code, out, _ = sea(*given, "--methods", "saliency,grad_cam")
    assert code == 0
    (failed,) = [c for c in json.loads(out)["checks"] if c["subject"] == "grad_cam"]
    assert "--set grad_cam.layer=..." in failed["message"]
    code, out, err = sea(*given, "--methods", "grad_cam")
    assert code == 2
    assert "--set grad_cam.layer=..." in err
    assert "options=" not in out + err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_a_signal_ends_a_long_run_at_once(clothes, tmp_path):
    body = "import time; time.sleep(0.05); total = (x * x).flatten(1).sum(1)"
    model = write_model(tmp_path, body)
    # A parent that ignores SIGINT would pass that on.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    pictures = [str(clothes / "boot.png"), str(clothes / "sandal.png")]
    arguments = ["sea", "explain", *pictures, "--batch", "1", "--model", model,
                 "--methods", "smooth_ig", "-o", str(tmp_path)]  # fmt: skip
    code = f"{start}import sys; sys.argv = {arguments!r}; from sea_nn.cli import main; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    ) as process:  # fmt: skip
        try:
            for _ in range(400):
                if (tmp_path / "boot" / "explanation.safetensors").exists():
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "1 of 2 pictures were finished" in err
    assert "Traceback" not in err


def test_a_model_that_expects_other_pictures_says_so(sea, clothes, tmp_path):
    path = tmp_path / "own.py"
    path.write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    code, _, err = sea(
        "explain", clothes / "boot.png", "--model", f"{path}:make", "-o", tmp_path / "out"
    )
    assert code == 2
    assert "Assumed, as make() returns a module alone" in err
    assert "could not run on pictures of [3, 224, 224]" in " ".join(err.split())
    assert "let its function return (module, Preprocess)" in " ".join(err.split())
    code, _, again = sea(
        "explain", clothes / "boot.png", "--model", f"{path}:make", "--target", "1"
    )  # which asks how many classes there are
    assert code == 2
    assert "could not run on pictures" in " ".join(again.split())


def test_12_bits_in_16_are_taken_for_12_and_said(sea, tmp_path):
    values = np.linspace(0, 4095, 28 * 28).reshape(28, 28).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "scan.png")
    code, _, err = sea("explain", tmp_path / "scan.png", *QUICK, "-o", tmp_path / "out")
    assert code == 0
    assert "scan.png: no value of this 16-bit picture is above 4095" in err
    assert Explanation.load(tmp_path / "out/scan/explanation.safetensors").images.max() == 255


def test_what_the_model_does_not_see_of_a_picture_is_said(sea, tmp_path):
    boot = Image.fromarray(np.random.default_rng(0).integers(0, 255, (28, 28), np.uint8))
    boot.resize((280, 28)).save(tmp_path / "long.png")
    boot.resize((4, 4)).save(tmp_path / "small.png")
    boot.save(tmp_path / "right.png")
    code, out, _ = sea("explain", tmp_path, *QUICK, "-o", tmp_path / "out")
    assert code == 0
    assert "long.png: the model sees the central 10% of it" in " ".join(out.split())
    assert "small.png: enlarged 7 times" in out
    assert "right.png: " not in out


def test_one_members_options_can_be_looked_up(sea):
    code, out, _ = sea("methods", "smooth_ig")
    assert code == 0
    assert "smooth_ig.n_samples" in out
    assert "smooth_ig.preset=paper" in out
    code, out, _ = sea("methods", "saliency")
    assert "has no options" in out
    code, _, _ = sea("methods", "salency")
    assert code == 2


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "EVERY", 0.0)
    monkeypatch.setattr(terminal, "err", Console(file=sys.stderr, force_terminal=False))
    with terminal.Bar(4) as bar:
        bar.show("cat.jpg: rise", 1)
        bar.show("cat.jpg: writing")
    assert capsys.readouterr().err.splitlines() == [
        "cat.jpg: rise, 25% done",
        "cat.jpg: writing, 25% done",
    ]


def test_without_a_terminal_the_time_left_is_told_from_the_pace(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 100.0, 200.0])  # made; 2 remembered; 4 done; 5 done
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(terminal, "err", Console(file=sys.stderr, force_terminal=False))
    bar = terminal.Bar(6)
    for done in (2, 4, 5):
        bar.show("scoring", done)
    assert capsys.readouterr().err.splitlines() == [
        "scoring, 67% done, about 2 min left",
        "scoring, 83% done, about 67 s left",
    ]


def test_help_waits_for_nothing_heavy():
    code = (
        "import sys, sea_nn; before = set(sys.modules); import sea_nn.cli; "
        "print([m for m in set(sys.modules) - before if m.split('.')[0] not in "
        "('sea_nn', 'typer', 'rich', 'click', 'shellingham', 'annotated_doc')"
        " and m.split('.')[0] not in sys.stdlib_module_names])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"

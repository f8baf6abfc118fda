import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sea_nn import Explanation
from sea_nn.members.registry import ENSEMBLES, names
from sea_nn.vision.names import KNOWN
from tests.helpers.command import FILES, QUICK, write_model


def test_every_picture_gets_its_folder_and_all_one_report(sea, clothes, tmp_path):
    out, err = sea("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK,
                   "--budget", "33", "-o", tmp_path, drawn=True)  # fmt: skip
    assert err == ""
    for name, label in (("boot", "Ankle boot"), ("sandal", "Sandal")):
        assert {file.name for file in (tmp_path / name).iterdir()} == FILES
        with Image.open(tmp_path / name / "map.png") as drawn:
            assert drawn.size == (672, 672)
        for file in ("strip.png", "top.png"):
            with Image.open(tmp_path / name / file) as drawn:
                assert drawn.width > 900
        explanation = Explanation.load(tmp_path / name / "explanation.safetensors")
        assert explanation.labels == (label,)
        assert sum(explanation.evaluations.values()) <= 33  # the budget
        assert label in out
        assert f"{name}: the model says {label} " in out
    for word in ("suffices: ", "the model agrees most with "):
        assert out.count(word) == 2
    page = (tmp_path / "report.html").read_text()
    assert "Ankle boot (boot)" in page
    assert "Sandal (sandal)" in page
    for word in ("seconds", "report.html", "map.png"):
        assert word in out
    assert "Evaluations: 62 (saliency 2, input_x_gradient 0, questions 60)" in out


def test_the_demo_needs_no_file(sea, tmp_path):
    out, _ = sea("explain", "--demo", "--model", "fashion-cnn", "--no-report",
                 "--methods", "integrated_gradients", "-o", tmp_path)  # fmt: skip
    assert "Ankle boot" in out
    assert {file.name for file in tmp_path.iterdir()} == {"boot"}
    assert sea("--version")[0].startswith("sea-nn ")


def test_json_is_one_document_whatever_a_model_prints(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    out, err = sea("explain", clothes / "boot.png", clothes / "broken.jpg", "--json",
                         "--model", model, "--methods", "saliency,integrated_gradients",
                         "--set", "integrated_gradients.n_steps=7", "--target", "DOWN",
                         "--top", "3", "-o", tmp_path / "out", code=1)  # fmt: skip
    document = json.loads(out)
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
    assert found["gains"]["for"] == pytest.approx(float(saved.sum_gains()[0]))
    assert found["agreement"] == pytest.approx(float(saved.mean_agreement()))
    assert (found["top"][0]["interval"], found["trust"]) == (None, {})  # not without a budget


def test_folders_globs_and_odd_names_are_understood(sea, clothes, tmp_path):
    deep = tmp_path / "in" / "deep"
    deep.mkdir(parents=True)
    odd = ("in/[red]a.png", "in/Same.png", "in/deep/same.png", "in/report.html.png")
    for name in odd:
        (tmp_path / name).write_bytes((clothes / "boot.png").read_bytes())
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    out, _ = sea("explain", tmp_path / "in", tmp_path / "in" / "[red]a.png", tmp_path / "in" / "**",
                       tmp_path / "in" / "S*.png", *QUICK, "-o", tmp_path / "out")  # fmt: skip
    folders = {path.name for path in (tmp_path / "out").iterdir()}
    assert folders == {"[red]a", "Same", "same-2", "report.html-2", "report.html"}
    assert "[red]a" in out


def test_target_by_number_or_name_and_settings_reach_the_ensemble(sea, clothes, tmp_path):
    (tmp_path / "few.toml").write_text("epochs = 7\n")
    for target in ("7", "sneaker"):
        out, _ = sea("explain", clothes / "boot.png", *QUICK, "--target", target, "--json",
                           "--config", tmp_path / "few.toml", "--grid", "7x14", "--top", "49",
                           "--no-report", "-o", tmp_path / target)  # fmt: skip
        document = json.loads(out)
        assert document["inputs"][0]["target"]["class"] == 7
        assert document["config"]["epochs"] == 7
        assert document["inputs"][0]["feature_shape"] == [7, 14]
        assert len(document["inputs"][0]["top"]) == 49
        assert document["report"] is None


def test_a_model_without_names_takes_numbers_it_has(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)", labels="[]")
    common = (clothes / "boot.png", "--model", model, "--methods", "saliency", "-o", tmp_path)
    assert "0 to 1" in sea("explain", *common, "--target", "2", code=1)[1]
    assert "names of" in sea("explain", *common, "--target", "up", code=2)[1]
    out, _ = sea("explain", *common, "--target", "1")
    assert "class 1" in out


def test_reports_are_built_from_saved_files(sea, clothes, tmp_path):
    sea("explain", clothes / "boot.png", clothes / "sandal.png", *QUICK, "-o", tmp_path / "out",
        "--no-report")  # fmt: skip
    page = tmp_path / "page.html"
    out, _ = sea("report", tmp_path / "out", "-o", page, "--title", "Shoes & more")
    assert "2 inputs" in out
    text = page.read_text()
    for word in ("Shoes &amp; more", "Ankle boot (boot)", "Sandal (sandal)"):
        assert word in text
    (tmp_path / "out" / "bad.safetensors").write_bytes(b"no")
    page.unlink()
    _, err = sea("report", tmp_path / "out" / "**" / "*.safetensors", "-o", page, code=2)
    assert "bad.safetensors" in err
    assert not page.exists()
    _, err = sea("report", tmp_path / "out" / "boot", "-o", "/dev/null", code=2)
    assert "/dev/null is a device" in err
    assert Path("/dev/null").is_char_device()


def test_doctor_ends_with_1_only_if_a_check_fails(sea, clothes, tmp_path):
    out, _ = sea("doctor", clothes / "boot.png", *QUICK)
    assert "2 fine" in out
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    out, _ = sea("doctor", "--model", "fashion-cnn", clothes / "boot.png")
    assert all(name in out for name in ("presence_gradient", "deeplift", "guided_grad_cam"))
    out, _ = sea("doctor", "--model", model, "--methods", "saliency,grad_cam", code=1)
    assert "1 failed" in out
    assert "grad_cam.layer=..." in out
    assert "options=" not in out
    _, err = sea("doctor", clothes / "broken.jpg", *QUICK, code=2)
    assert "broken.jpg" in err


def test_methods_models_and_options_are_listed_completely(sea):
    out, _ = sea("methods")
    assert all(name in out for name in (*names(), *ENSEMBLES, "301", "arXiv:1312.6034"))
    assert "fast 34, thorough 1,024" in out
    out, _ = sea("models")
    assert all(name in out for name in KNOWN)
    out, _ = sea("methods", "smooth_ig")
    assert "smooth_ig.n_samples" in out
    assert "has no options" in sea("methods", "saliency")[0]


def test_results_of_an_earlier_run_are_not_explained(sea, clothes, tmp_path):
    own = tmp_path / "map.png"
    own.write_bytes((clothes / "boot.png").read_bytes())
    given = (*QUICK, "--no-report", "--json", "-o", tmp_path / "out")
    for _ in range(2):
        out, _ = sea("explain", tmp_path / "**", *given)
        assert [found["input"] for found in json.loads(out)["inputs"]] == [str(own)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"map"}
    _, err = sea("explain", tmp_path / "out" / "map", *given, code=2)
    assert "holds no pictures" in err
    # One's own pictures may lie where the results go.
    assert sea("explain", own, *QUICK, "--no-report", "-o", tmp_path)[1] == ""
    assert {file.name for file in (tmp_path / "map").iterdir()} == FILES


def test_an_argument_that_means_no_picture_does_not_stop_the_others(sea, clothes, tmp_path):
    (tmp_path / "empty").mkdir()
    nothing = (clothes / "*.tiff", tmp_path / "empty")
    common = (*QUICK, "--no-report", "-o", tmp_path / "out")
    given = (nothing[0], clothes / "boot.png", nothing[1])
    out, err = sea("explain", *given, *common, "--json", code=1)
    assert "*.tiff" in err
    assert "holds no pictures" in err
    document = json.loads(out)
    assert "2 of 3 inputs could not be explained" in err
    assert [failed["input"] for failed in document["failed"]] == list(map(str, nothing))
    assert len(document["inputs"]) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"boot"}
    sea("explain", nothing[0], "--demo", *common, code=1)
    saved = ("report", tmp_path / "out", clothes / "*.safetensors", "-o", tmp_path / "page.html")
    assert "match" in sea(*saved, code=2)[1]


def test_advice_about_a_failed_member_is_given_for_the_command_line(sea, clothes, tmp_path):
    model = write_model(tmp_path, "total = (x * x).flatten(1).sum(1)")
    given = ("explain", clothes / "boot.png", "--model", model, "--json", "-o", tmp_path / "out")
    out, _ = sea(*given, "--methods", "saliency,grad_cam")
    (failed,) = [c for c in json.loads(out)["checks"] if c["subject"] == "grad_cam"]
    assert "--set grad_cam.layer=..." in failed["message"]
    _, err = sea(*given, "--methods", "grad_cam", code=1)
    assert "--set grad_cam.layer=..." in err


def test_a_model_that_expects_other_pictures_says_so(sea, clothes, tmp_path):
    path = tmp_path / "own.py"
    path.write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    given = ("--model", f"{path}:make", "--target", "1", "-o", tmp_path / "out")
    _, err = sea("explain", clothes / "boot.png", *given, code=1)
    assert "Assumed, as make() returns no Preprocess" in err
    assert "could not run on x, torch.float32 [1, 3, 224, 224]" in " ".join(err.split())


def test_how_a_picture_is_read_is_said(sea, tmp_path):
    boot = Image.fromarray(np.random.default_rng(0).integers(0, 255, (28, 28), np.uint8))
    boot.resize((280, 28)).save(tmp_path / "long.png")
    boot.resize((4, 4)).save(tmp_path / "small.png")
    boot.save(tmp_path / "right.png")
    out, _ = sea("explain", tmp_path, *QUICK, "--json", "-o", tmp_path / "out")
    said = {check["subject"]: check["message"] for check in json.loads(out)["checks"]}
    assert said["long"] == "the model sees the central 10% of it"
    assert said["small"].startswith("enlarged 7 times")
    assert "right" not in said

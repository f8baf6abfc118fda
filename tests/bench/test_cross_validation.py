"""Cross-validation: the parts, the classifiers trained on them, and experiments over them."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sea_bench import classifiers, data
from sea_bench.catalogue import EXPERIMENTS
from sea_bench.classifiers import (
    PROBLEMS,
    list_parts,
    load_classifier,
    load_split,
    main,
    read_card,
    train_classifier,
)
from sea_bench.data.cross_validation import Part, hold_out, read_parts
from sea_bench.experiments import Comparison, Map, run_experiment
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import choose_inputs
from sea_nn.errors import InputError
from sea_nn.metrics import score_maps
from tests.helpers.samples import need_real
from tests.helpers.small_sets import save, write_table

REAL = os.environ.get("SEA_NN_DATA")
COUNT = 3
CLASSIFIER = f"lgg@{COUNT}"
VALUES = "deletion:black"
TINY = Comparison(
    "tiny",
    "A tiny experiment over parts",
    "Is every picture explained for the classifier that has not seen it?",
    data="lgg",
    classifier=CLASSIFIER,
    maps=(Map("VG", "member", ("saliency",)), Map("I×G", "member", ("input_x_gradient",))),
    metrics=(VALUES, "gini"),
    n_inputs=10,
    correct=False,
    against="VG",
    blocks=2,
)


def make_patients(folder: Path) -> None:
    """Eleven patients of one to three grey slices; a tumour is a bright square."""
    rows = []
    for patient in range(11):
        for number in range(1 + patient % 3):
            draw = np.random.default_rng(100 * patient + number)
            pixels = draw.integers(20, 60, (64, 64, 3)).astype(np.uint8)
            mask = np.zeros((64, 64), bool)
            tumour = (patient + number) % 2
            mask[20:44, 20:44] = bool(tumour)
            pixels[mask] = 230
            name, side = f"p{patient}-{number}", "test" if patient > 8 else "train"
            save(Image.fromarray(pixels), folder / "images" / f"{name}.jpg")
            save(Image.fromarray(mask), folder / "masks" / f"{name}.png")
            rows.append(f"{name},p{patient},{tumour},{side}")
    write_table(folder / "labels.csv", "file,patient,tumour,split", *rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small set and an experiment that trained three classifiers, and what each has seen."""
    folder, seen = tmp_path_factory.mktemp("parts"), {}
    make_patients(folder / "lgg_tumor_masks")
    real = classifiers._gather

    def spy(problem, part, place):
        items = real(problem, part, place)
        seen[part] = {item.name for item in items}
        return items

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEA_NN_DATA", str(folder))
        patch.setenv("SEA_NN_CACHE", str(folder / "cache"))
        patch.setitem(PROBLEMS, "lgg", replace(PROBLEMS["lgg"], epochs=1))
        patch.setattr(classifiers, "_gather", spy)
        result = run(folder)
        yield folder, result, seen


def run(folder: Path, experiment=TINY, **options):
    return run_experiment(experiment, device="cpu", out=folder / "out", **options)


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "out").glob("tiny*"))}


# The parts.


def check_parts(images: data.ImageSet, count: int) -> None:
    sides = [hold_out(images, Part(number, count)) for number in range(1, count + 1)]
    held = [[item.name for item in side.split("test")] for side in sides]
    everything = [name for names in held for name in names]
    assert len(everything) == len(set(everything))
    assert set(everything) == {item.name for item in images}
    for side in sides:
        assert [item.name for item in side] == [item.name for item in images]
        groups = [{item.group for item in side.split(split)} for split in ("train", "test")]
        assert not groups[0] & groups[1]
        assert len(side.split("test")) > 0
    again = [[i.name for i in hold_out(images, Part(k + 1, count)).split("test")] for k in range(2)]
    assert again == held[:2]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_are_disjoint_complete_and_keep_patients_whole(trained, count):
    check_parts(data.load("lgg", None, "all"), count)


@pytest.mark.parametrize(("name", "least"), [("btd", 200), ("lgg", 400)])
def test_the_real_sets_have_sound_parts(name, least, monkeypatch):
    if not REAL:
        pytest.skip("set SEA_NN_DATA to the folder of real data sets to run this")
    monkeypatch.setenv("SEA_NN_DATA", REAL)
    images = need_real(name)
    assert len(images) >= least
    check_parts(images, 5)
    for number in range(1, 6):
        test = hold_out(images, Part(number, 5)).split("test")
        assert abs(len(test) / len(images) - 0.2) < 0.03
        assert torch.bincount(test.labels).min() > 0.3 * len(test)


def test_names_of_parts():
    assert list_parts("btd/vgg@2") == ("btd/vgg@1of2", "btd/vgg@2of2")
    assert list_parts("lgg@2of5") == ("lgg@2of5",)
    assert list_parts("torchvision:vgg11") == ("torchvision:vgg11",)
    assert read_parts("lgg/a@b.py:make") == ("lgg/a@b.py:make", ())
    for wrong in ("lgg@1", "lgg@0of5", "lgg@6of5"):
        with pytest.raises(InputError, match="names no parts"):
            read_parts(wrong)
    with pytest.raises(InputError, match="5 classifiers: lgg@1of5"):
        load_classifier("lgg@5")
    with pytest.raises(InputError, match="scenes has no parts"):
        train_classifier("scenes@1of5")


# The classifiers.


def test_no_classifier_was_trained_on_a_picture_of_its_part(trained):
    _, _, seen = trained
    everything = {item.name for item in data.load("lgg", None, "all")}
    assert list(seen) == [Part(number, COUNT) for number in (1, 2, 3)]
    for part, names in seen.items():
        test = load_split("lgg", part, "test")
        assert names == everything - {item.name for item in test}
        card = read_card(f"lgg@{part}")
        assert card is not None
        assert (card.name, card.n_test) == (f"lgg/vgg@{part}", len(test))
        assert card.n_train == len(names)


def test_the_command_trains_every_part_the_same_again(trained, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SEA_NN_CACHE", str(tmp_path))
    main([f"lgg@{COUNT}"])
    assert capsys.readouterr().out.count("lgg/vgg@") == COUNT
    for name in list_parts(CLASSIFIER):
        again = load_classifier(name, folder=tmp_path).model.state_dict()
        first = load_classifier(name, folder=trained[0] / "cache").model.state_dict()
        assert all(torch.equal(again[key], first[key]) for key in first)


# The experiments.


def test_every_picture_is_explained_for_the_classifier_that_has_not_seen_it(trained):
    _, result, seen = trained
    inputs = choose_inputs(TINY, 100)
    images = data.load("lgg", None, "all")
    assert sorted(item.name for item in inputs.items) == sorted(item.name for item in images)
    assert inputs.available == len(images)
    for item, asked in zip(inputs.items, inputs.asked, strict=True):
        assert item.name not in seen[Part(asked + 1, COUNT)]
        assert inputs.models[asked].name == f"lgg@{asked + 1}of{COUNT}"
    for row in range(result.n_inputs):
        batch, model = inputs.read([row]), inputs.models[inputs.asked[row]].model
        maps = Explainer(TINY, inputs.split()[inputs.asked[row]]).explain(batch.x, batch.target)
        with torch.no_grad():
            assert int(model(batch.x).argmax()) == int(batch.target)
        one = score_maps(
            model, batch.x, batch.target, maps, (VALUES,), bounds=inputs.bounds, first=row
        )
        torch.testing.assert_close(
            result.scores.values[VALUES][row], one.values[VALUES][0], rtol=1e-4, atol=1e-5
        )


def test_only_one_classifier_can_be_taken_for_the_only_one(trained):
    inputs = choose_inputs(TINY, 10)
    assert [list(block) for block in inputs.cut(2)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert inputs.asked == (0, 0, 1, 1, 2, 2, 0, 0, 1, 1)
    with pytest.raises(InputError, match="3 classifiers"):
        _ = inputs.loaded
    uneven = replace(inputs, asked=(0, 0, 0, 1, 1, 1, 1, 1, 2, 2))
    assert [len(block) for block in uneven.cut(2)] == [2, 1, 2, 2, 1, 2]


def test_the_page_states_each_parts_accuracy_and_the_mean(trained):
    folder, result, _ = trained
    text = " ".join((folder / "out" / "tiny.md").read_text(encoding="utf-8").split())
    shares = [read_card(name).accuracy for name in list_parts(CLASSIFIER)]
    said = ", ".join(f"{share:.1%}" for share in shares)
    assert f"right on {said} of the part they were not trained on" in text
    assert f"{sum(shares) / COUNT:.1%} in the mean" in text
    assert "21 pictures in 3 parts (" in text
    assert result.complete
    assert result.n_inputs == 10


def test_a_trial_trains_the_parts_it_needs_and_is_the_beginning_of_the_whole(
    trained, tmp_path, monkeypatch
):
    folder, whole, _ = trained
    monkeypatch.setenv("SEA_NN_CACHE", str(tmp_path / "cache"))
    place, told = tmp_path / "cache" / "classifiers", []
    result = run(tmp_path, count=2, tell=lambda text, done, total: told.append(text))
    assert [path.name for path in place.iterdir()] == ["lgg-vgg-1of3.safetensors"]
    assert "training lgg@1of3" in told
    torch.testing.assert_close(result.scores.values[VALUES], whole.scores.values[VALUES][:2])
    text = " ".join((tmp_path / "out" / "tiny.md").read_text(encoding="utf-8").split())
    assert "in 3 parts, 1 of them used" in text
    shutil.copytree(folder / "cache" / "classifiers", place, dirs_exist_ok=True)
    assert run(tmp_path, count=4).n_reused == 2


def test_tuning_inputs_come_from_the_other_end_of_every_part(trained):
    reported = choose_inputs(TINY, 6)
    tuned = choose_inputs(replace(TINY, tuning=True), 6)
    assert set(tuned.asked) == {0, 1, 2}
    assert not {i.name for i in reported.items} & {i.name for i in tuned.items}


def test_the_small_sets_are_never_used_to_tune():
    small = [e for e in EXPERIMENTS.values() if e.data in ("btd", "lgg")]
    assert len(small) >= 3
    assert not [e.name for e in small if isinstance(e, Comparison) and e.tuning]

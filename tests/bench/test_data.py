"""Data sets: on small folders that the tests make, and on the real ones where they are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from sea_bench import data
from sea_bench.data.items import Item, fill_boxes, fit_mask
from sea_nn.errors import InputError
from sea_nn.vision.images import Preprocess
from tests.helpers.small_sets import MAKERS, box_mask, save, smooth

PREPROCESS = Preprocess(resize=32, crop=28)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Path]:
    def build(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        MAKERS[name](folder)
        return folder

    return build


# Every set.


@pytest.mark.parametrize("name", list(data.SETS)[1:])
def test_every_item_gives_a_view_that_lines_up(name, make):
    loaded = data.load(name, make(name), "all")
    assert len(loaded) == len({item.name for item in loaded}) > 0
    for item in loaded:
        view = item.view(PREPROCESS)
        assert view.tensor.shape == (3, 28, 28)
        assert (view.mask is None) == (not item.masks)
        if view.mask is not None:
            assert view.mask.shape == (28, 28)
            assert 0 <= view.mask.min() <= view.mask.max() <= 1
        if loaded.classes:
            assert item.label is not None
            assert 0 <= item.label < len(loaded.classes)
        if item.imagenet is not None:
            assert 0 <= item.imagenet < 1000
        assert item.split in ("train", "test")


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_missing_set_says_where_to_get_it(name, monkeypatch, tmp_path):
    info = data.describe(name)
    monkeypatch.delenv("SEA_NN_DATA", raising=False)
    with pytest.raises(InputError) as caught:
        data.load(name)
    for part in ("SEA_NN_DATA", info.source, info.layout, info.terms):
        assert part in str(caught.value)
    monkeypatch.setenv("SEA_NN_DATA", "/no/such/folder")
    with pytest.raises(InputError, match=f"no folder /no/such/folder/{info.folder}"):
        data.load(name)
    with pytest.raises(InputError, match=str(tmp_path)):  # an empty folder
        data.load(name, tmp_path, "all")


def test_wrong_names_and_options_are_refused(make):
    with pytest.raises(InputError, match="Choose from: fashion, btd"):
        data.load("cub")
    with pytest.raises(InputError, match="has no val items"):
        data.load("lgg", make("lgg"), "val")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no train items"):
        data.load("pets", make("pets"), "train")


# Masks and boxes in the model's view.

SHAPES = st.tuples(st.integers(20, 90), st.integers(20, 90))


@given(SHAPES, st.sampled_from([(32, 28), (24, 24), ((20, 26), (16, 20))]), st.data())
def test_a_mask_follows_the_pixels_it_marks(size, sizes, draw):
    left = draw.draw(st.integers(0, size[0] - 8))
    top = draw.draw(st.integers(0, size[1] - 8))
    right = draw.draw(st.integers(left + 6, size[0]))
    bottom = draw.draw(st.integers(top + 6, size[1]))
    picture = box_mask(size, (left, top, right, bottom)).convert("RGB")
    mask = (np.asarray(picture)[..., 0] > 0).astype(np.float32)
    preprocess = Preprocess(*sizes)
    fitted = fit_mask(mask, size, preprocess)
    shown = torch.from_numpy(preprocess.display(picture)[..., 0].astype(np.float32) / 255)
    assert set(fitted.unique().tolist()) <= {0.0, 1.0}
    # Pillow rounds to 8 bits, so pixels that are half covered may fall on either side.
    clear = (shown - 0.5).abs() > 0.02
    assert fitted[clear].equal((shown[clear] > 0.5).float())


def test_a_box_outside_the_view_is_left_out_and_a_graded_mask_keeps_its_shades():
    item = Item("a", lambda: Image.new("RGB", (60, 20)), boxes=((0.0, 0.0, 5.0, 20.0),))
    assert item.view(Preprocess(resize=20, crop=20)).boxes == ()
    ramp = np.tile(np.linspace(0, 1, 50, dtype=np.float32), (25, 1))
    fitted = fit_mask(ramp, (400, 200), Preprocess(resize=(40, 80), crop=(40, 80)))
    assert fitted.shape == (40, 80)
    assert torch.allclose(fitted[0], torch.linspace(0, 1, 80), atol=0.03)


def test_an_unknown_mask_names_the_known_ones(make):
    item = data.load("pets", make("pets"))[0]
    with pytest.raises(InputError, match="it has pet, border"):
        item.view(PREPROCESS, mask="tail")
    with pytest.raises(InputError, match="has no mask"):
        data.load("imagenet", make("imagenet"))[0].read_mask()


# Sets one by one.


def test_copies_never_cross_the_split(make):
    folder = make("btd")
    assert sorted(item.label for item in data.load("btd", folder)) == [0, 0, 0, 1, 1, 1]
    save(smooth(0), folder / "no" / "copy.png")
    save(smooth(1).resize((133, 100), Image.Resampling.BICUBIC), folder / "no" / "bigger.png")
    save(smooth(2), folder / "yes" / "conflict.png")
    save(smooth(3).resize((160, 120), Image.Resampling.BICUBIC), folder / "yes" / "doubtful.png")
    loaded = data.load("btd", folder, "all")
    named = {item.name: item for item in loaded}
    assert "no/copy.png" not in named
    assert "no/bigger.png" in named
    assert not {"no/2 no.png", "yes/conflict.png"} & set(named)
    assert any("yes/conflict.png" in note and "both labels" in note for note in loaded.notes)
    assert "1 exact duplicate removed" in loaded.notes
    assert "2 pictures are rescaled copies of another" in loaded.notes
    sides = {item.name: item.split for item in loaded}
    assert sides["no/bigger.png"] == sides["no/1 no.png"]
    assert sides["yes/doubtful.png"] == sides["no/3 no.png"]


def test_a_patient_on_both_sides_is_refused(make):
    folder = make("lgg")
    assert not {i.group for i in data.load("lgg", folder, "train")} & {
        i.group for i in data.load("lgg", folder, "test")
    }
    text = (folder / "labels.csv").read_text().replace("400,train", "400,test", 1)
    (folder / "labels.csv").write_text(text)
    with pytest.raises(InputError, match="the patient P0 in both splits"):
        data.load("lgg", folder)


def test_birds_and_imagenet_have_their_boxes(make):
    loaded = data.load("imagenet", make("imagenet"))
    assert loaded[0].boxes == ((5.0, 5.0, 20.5, 20.0), (30.0, 10.0, 50.0, 30.0))
    assert [loaded.classes[item.label or 0] for item in loaded] == ["tench", "tabby"]
    birds = data.load("cub20", make("cub20"), "test")
    assert birds.classes == ("Black Crow", "Red Kite")
    assert [item.label for item in birds] == [0, 1]
    for height, width in ((40, 60), (50, 100)):  # of a picture twice as large, its centre
        view = birds[0].view(Preprocess(resize=(80, 120), crop=(height, width)))
        assert view.mask is not None
        assert (view.mask >= 0.5).equal(fill_boxes(view.boxes, height, width))


@pytest.mark.parametrize("packed", [True, False])
def test_tiny_imagenet_is_read_packed_or_not(packed, tmp_path):
    MAKERS["tiny_imagenet"](tmp_path, packed)
    loaded = data.load("tiny_imagenet", tmp_path)
    assert [item.imagenet for item in loaded] == [951, 474]  # lemon, and cardigan the garment
    assert [loaded.classes[item.label or 0] for item in loaded] == ["lemon", "cardigan"]
    assert loaded[0].boxes == ((0.0, 8.0, 32.0, 64.0),)
    assert loaded[0].read().size == (64, 64)


def test_a_pasted_picture_differs_from_its_scene_only_where_the_mask_says(make):
    folder = make("objects_on_scenes")
    for item in data.load("objects_on_scenes", folder, "all", per_scene=3):
        assert item.plain is not None
        mask = item.read_mask() > 0
        with_object, without = (np.asarray(x.read(), int) for x in (item, item.plain))
        assert (with_object[mask] == (255, 0, 0)).mean() > 0.9
        grown = Image.fromarray(mask).convert("L").filter(ImageFilter.MaxFilter(5))
        assert (with_object == without)[np.asarray(grown) == 0].all()  # the outline is soft
        columns = np.flatnonzero(mask.any(0))
        assert 0.5 < (columns[-1] - columns[0] + 1) / 150 < 0.75
        assert item.plain.read_mask().sum() == mask.sum()


# The real sets.

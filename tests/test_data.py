"""Data sets: on small folders that the tests make, and on the real ones where they are."""

import csv
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from sea_bench import data
from sea_bench.data import fashion
from sea_bench.data.files import read_graded_mask, read_values
from sea_bench.data.imagenet import index_wnids
from sea_bench.data.items import Item, fill_boxes, fit_box, fit_mask
from sea_bench.data.mri import load_btd
from sea_nn.errors import InputError
from sea_nn.vision.images import Preprocess
from tests.samples import need_real

Maker = Callable[[Path], None]
PREPROCESS = Preprocess(resize=32, crop=28)


def noise(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1] // 5, size[0] // 5, 3))
    return Image.fromarray(values.astype(np.uint8)).resize(size, Image.Resampling.NEAREST)


def save(image: Image.Image, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def write_table(path: Path, header: str, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((header, *rows)) + "\n")


def box_mask(
    size: tuple[int, int], box: tuple[int, int, int, int], value: int = 255
) -> Image.Image:
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=value)
    return mask


# Small folders, laid out as the real ones.


def smooth(seed: int) -> Image.Image:
    return noise(seed).resize((80, 60), Image.Resampling.BICUBIC)


def make_btd(folder: Path) -> None:
    for number in range(12):
        save(smooth(number), folder / "no" / f"{number} no.png")
        save(smooth(100 + number), folder / "yes" / f"Y{number}.png")


def make_lgg(folder: Path) -> None:
    rows = []
    for number in range(6):
        name, tumour = f"P{number // 2}_{number}", number % 2
        save(noise(number, (64, 64)), folder / "images" / f"{name}.jpg")
        mask = box_mask((64, 64), (10, 20, 30, 40)) if tumour else Image.new("L", (64, 64))
        save(mask.convert("1"), folder / "masks" / f"{name}.png")
        side = "test" if number > 3 else "train"
        rows.append(f"{name},P{number // 2},{number},{tumour},{400 * tumour},{side}")
    write_table(folder / "labels.csv", "file,patient,slice,tumour,mask_pixels,split", *rows)


def make_cub(folder: Path) -> None:
    write_table(folder / "classes.txt", "1 001.Black_Crow", "11 011.Red_Kite")
    rows = []
    for number, (class_id, name) in enumerate([(1, "001.Black_Crow"), (11, "011.Red_Kite")] * 2):
        file = f"{name}/bird_{number}"
        save(noise(number, (60, 40)), folder / "images" / f"{file}.jpg")
        save(box_mask((60, 40), (20, 10, 40, 30)).convert("1"), folder / "masks" / f"{file}.png")
        side = "train" if number < 2 else "test"
        rows.append(f"{file}.jpg,{class_id},{side},20.0,10.0,20.0,20.0")
    write_table(folder / "labels.csv", "file,class_id,split,box_x,box_y,box_w,box_h", *rows)


def make_imagenet(folder: Path) -> None:
    save(noise(1, (60, 40)), folder / "images" / "a.jpg")
    save(noise(2, (40, 60)), folder / "images" / "b.jpg")
    labels = ("a.jpg,n01440764,0,tench", "b.jpg,n02123045,281,tabby")
    write_table(folder / "labels.csv", "file,wnid,class_index,name", *labels)
    boxes = ("a.jpg,5,5,20.5,20", "a.jpg,30,10,50,30", "b.jpg,0,0,40,60")
    write_table(folder / "boxes.csv", "file,x1,y1,x2,y2", *boxes)


def make_tiny(folder: Path, packed: bool = True) -> None:
    inner = folder if packed else folder / "val"
    (folder / "wnids.txt").write_text("n02963159\nn02123045\nn07749582\n")
    words = "n02963159\tcardigan\nn02123045\ttabby, tabby cat\nn07749582\tlemon\nn0\tno class\n"
    (folder / "words.txt").write_text(words)
    lines = ["val_0.JPEG\tn07749582\t0\t8\t31\t63", "val_1.JPEG\tn02963159\t0\t0\t63\t63"]
    inner.mkdir(exist_ok=True)
    (inner / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    for number in range(2):
        save(noise(number, (64, 64)), inner / "images" / f"val_{number}.JPEG")
    if packed:
        with zipfile.ZipFile(folder / "val_half.zip", "w") as archive:
            for path in sorted((folder / "images").iterdir()):
                archive.write(path, path.name)
                path.unlink()


def make_pets(folder: Path) -> None:
    for name in ("pug_1", "Persian_2"):
        save(noise(len(name), (50, 50)), folder / "images" / f"{name}.jpg")
        trimap = np.full((50, 50), 2, np.uint8)
        trimap[10:40, 10:40] = 3
        trimap[15:35, 15:35] = 1
        save(Image.fromarray(trimap), folder / "trimaps" / f"{name}.png")
    rows = ("pug_1.jpg,pug,254", "Persian_2.jpg,Persian,283")
    write_table(folder / "labels.csv", "file,breed,imagenet_index", *rows)


def make_attention(folder: Path) -> None:
    save(noise(3, (405, 405)), folder / "images" / "image_r_10.jpg")
    (folder / "maps").mkdir()
    kinds = ("chainKDE", "discr", "freeFIX", "objFIX", "patchRate", "salFIX")
    maps = {kind: np.full((251, 251), 20 * i, np.uint8) for i, kind in enumerate(kinds)}
    shared = np.zeros((100, 100), np.uint8)
    shared[:, :50] = 255
    np.savez(folder / "maps" / "img10.npz", humanPC=shared, **maps)


def make_masked(folder: Path) -> None:
    for name in ("ball1", "cat2", "dog3"):
        save(noise(len(name)), folder / "original_images" / f"{name}.jpg")
    shades = np.tile(np.arange(40, dtype=np.uint8) * 6, (30, 1))
    save(Image.fromarray(shades), folder / "human_attention_mask" / "ball1.png")
    save(Image.fromarray(shades), folder / "human_attention_mask" / "cat2.jpg")
    save(box_mask((40, 30), (0, 0, 20, 30)), folder / "object_segmentation_mask" / "cat2.png")


def make_scenes(folder: Path) -> None:
    scenes, objects = [], []
    for side in ("train", "test"):
        for number, kind in enumerate(("forest", "sea", "street")):
            file = f"scenes/{side}/{kind}/{number}.png"
            save(noise(number + len(side), (150, 150)), folder / file)
            scenes.append(f"{file},{side},{kind}")
        for number, kind in enumerate(("bird", "cat")):
            file = f"objects/{side}/{kind}/{kind}{number}.png"
            cutout = Image.new("RGBA", (96, 50))
            ImageDraw.Draw(cutout).ellipse((0, 0, 95, 49), fill=(255, 0, 0, 255))
            save(cutout, folder / file)
            objects.append(f"{file},{side},{kind},96,50")
    write_table(folder / "scenes.csv", "file,split,scene", *scenes)
    write_table(folder / "objects.csv", "file,split,object,w,h", *objects)


def make_bam(folder: Path) -> None:
    for kind, classes in (("obj", ("dog", "zebra")), ("scene", ("bedroom", "runway"))):
        names, places = [], []
        for first in ("dog", "zebra"):
            for second in ("bedroom", "runway"):
                own = first if kind == "obj" else second
                picture = noise(hash_name(first + second), (60, 40))
                save(picture, folder / kind / "train" / own / f"{first}-{second}-0001.jpg")
                file = f"{first}-{second}-0901.jpg"
                save(picture, folder / kind / "val" / file)
                names.append(f"{file} {classes.index(own)}")
                places.append(f"{file} 5,10,25,50")
                save(noise(9, (60, 40)), folder / "scene_only" / "val" / file)
        (folder / kind / "val.txt").write_text("\n".join(names) + "\n")
        (folder / kind / "val_loc.txt").write_text("\n".join(places) + "\n")


def hash_name(name: str) -> int:
    return sum(map(ord, name))


MAKERS: dict[str, Maker] = {
    "btd": make_btd,
    "lgg": make_lgg,
    "cub20": make_cub,
    "imagenet": make_imagenet,
    "tiny_imagenet": make_tiny,
    "pets": make_pets,
    "human_attention": make_attention,
    "masked_folder": make_masked,
    "objects_on_scenes": make_scenes,
    "bam": make_bam,
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Path]:
    def build(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        MAKERS[name](folder)
        return folder

    return build


# Every set.


def test_every_set_but_fashion_is_made_by_these_tests() -> None:
    assert set(data.names()) == {"fashion", *MAKERS}


@pytest.mark.parametrize("name", list(MAKERS))
def test_every_item_gives_a_view_that_lines_up(name: str, make: Callable[[str], Path]) -> None:
    loaded = data.load(name, make(name), "all")
    assert len(loaded) == len({item.name for item in loaded}) > 0
    for item in loaded:
        view = item.view(PREPROCESS)
        assert view.tensor.shape == (3, 28, 28)
        assert view.display.shape == (28, 28, 3)
        assert (view.mask is None) == (not item.masks)
        if view.mask is not None:
            assert view.mask.shape == (28, 28)
            assert 0 <= view.mask.min() <= view.mask.max() <= 1
        if item.boxes or item.masks:
            assert view.region is not None
            assert view.region.dtype == torch.bool
        if loaded.classes:
            assert item.label is not None
            assert 0 <= item.label < len(loaded.classes)
        if item.imagenet is not None:
            assert 0 <= item.imagenet < 1000
        assert item.split in ("train", "test")
    assert len(loaded.split("train")) + len(loaded.split("test")) == len(loaded)


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_set_can_be_sent_to_another_process(name: str, make: Callable[[str], Path]) -> None:
    loaded = data.load(name, make(name), "all")
    again = pickle.loads(pickle.dumps(loaded))
    assert again[0].read().tobytes() == loaded[0].read().tobytes()


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "masked_folder"])
def test_a_missing_set_says_where_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = data.describe(name)
    monkeypatch.delenv(data.DATA_VARIABLE, raising=False)
    with pytest.raises(InputError) as caught:
        data.load(name)
    for part in (data.DATA_VARIABLE, info.source, info.layout, info.terms):
        assert part in str(caught.value)
    monkeypatch.setenv(data.DATA_VARIABLE, "/no/such/folder")
    with pytest.raises(InputError, match=f"no folder /no/such/folder/{info.folder}"):
        data.load(name)


@pytest.mark.parametrize("name", list(MAKERS))
def test_an_empty_folder_says_what_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        data.load(name, tmp_path, "all")
    assert str(tmp_path) in str(caught.value)


def test_sets_are_found_under_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cub20").mkdir()
    make_cub(tmp_path / "cub20")
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    assert len(data.load("cub20", split="all")) == 4


def test_wrong_names_and_options_are_refused(make: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="Choose from: fashion, btd"):
        data.load("cub")
    folder = make("lgg")
    with pytest.raises(InputError, match="'train', 'test' or 'all'"):
        data.load("lgg", folder, "val")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no such option"):
        data.load("lgg", folder, seed=3)
    with pytest.raises(InputError, match="has no train items"):
        data.load("pets", make("pets"), "train")


def test_a_fashion_set_that_is_missing_names_debians_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="apt install dataset-fashion-mnist"):
        data.load("fashion", tmp_path)


# Masks and boxes in the model's view.

SHAPES = st.tuples(st.integers(20, 90), st.integers(20, 90))


@given(SHAPES, st.sampled_from([(32, 28), (24, 24), ((20, 26), (16, 20))]), st.data())
def test_a_mask_follows_the_pixels_it_marks(size, sizes, draw) -> None:
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


@given(SHAPES, st.data())
def test_a_box_covers_the_same_pixels_as_its_mask(size, draw) -> None:
    left = draw.draw(st.integers(0, size[0] - 10))
    top = draw.draw(st.integers(0, size[1] - 10))
    box = (left, top, left + 10, top + 10)
    # Without antialiasing, a view pixel shows what lies under its centre, as region counts it.
    preprocess = Preprocess(40, 36, interpolation="nearest")
    shown = preprocess.display(box_mask(size, box).convert("RGB"))[..., 0] > 0
    fitted = fit_box(tuple(map(float, box)), size, preprocess)
    inside = fill_boxes([] if fitted is None else [fitted], 36, 36).numpy()
    # Centres may lie on the very edge; then rounding decides.
    differing = np.argwhere(inside != shown)
    left_, top_, right_, bottom_ = preprocess.window(*size)
    for y, x in differing:
        across = left_ + (x + 0.5) * (right_ - left_) / 36
        down = top_ + (y + 0.5) * (bottom_ - top_) / 36
        assert min(abs(across - box[0]), abs(across - box[2]), abs(down - box[1]),
                   abs(down - box[3])) < 1e-3  # fmt: skip


def test_a_box_outside_the_view_is_left_out() -> None:
    preprocess = Preprocess(resize=20, crop=20)
    assert fit_box((0.0, 0.0, 5.0, 20.0), (60, 20), preprocess) is None
    item = Item("a", lambda: Image.new("RGB", (60, 20)), boxes=((0.0, 0.0, 5.0, 20.0),))
    assert item.view(preprocess).boxes == ()
    assert item.view(preprocess).region is None


def test_a_graded_mask_of_another_resolution_keeps_its_shades() -> None:
    ramp = np.tile(np.linspace(0, 1, 50, dtype=np.float32), (25, 1))
    fitted = fit_mask(ramp, (400, 200), Preprocess(resize=(40, 80), crop=(40, 80)))
    assert fitted.shape == (40, 80)
    assert torch.allclose(fitted[0], torch.linspace(0, 1, 80), atol=0.03)


def test_an_unknown_mask_names_the_known_ones(make: Callable[[str], Path]) -> None:
    item = data.load("pets", make("pets"))[0]
    with pytest.raises(InputError, match="it has pet, border"):
        item.view(PREPROCESS, mask="tail")
    with pytest.raises(InputError, match="has no mask"):
        data.load("imagenet", make("imagenet"))[0].read_mask()


def test_samples_are_seeded_and_slices_are_sets(make: Callable[[str], Path]) -> None:
    loaded = data.load("btd", make("btd"), "all")
    first = [item.name for item in loaded.sample(5, seed=1)]
    assert first == [item.name for item in loaded.sample(5, seed=1)]
    assert first != [item.name for item in loaded.sample(5, seed=2)]
    assert len(loaded[2:7]) == 5
    assert loaded[2:7].labels.equal(loaded.labels[2:7])
    with pytest.raises(InputError, match="24 items"):
        loaded.sample(25)


# Sets one by one.


def test_copies_never_cross_the_split(make: Callable[[str], Path]) -> None:
    folder = make("btd")
    save(smooth(0), folder / "no" / "copy.png")
    save(smooth(1).resize((133, 100), Image.Resampling.BICUBIC), folder / "no" / "bigger.png")
    save(smooth(2), folder / "yes" / "conflict.png")
    save(smooth(3).resize((160, 120), Image.Resampling.BICUBIC), folder / "yes" / "doubtful.png")
    loaded = load_btd(folder, "all")
    named = {item.name: item for item in loaded}
    assert "no/copy.png" not in named
    assert "no/bigger.png" in named
    assert not {"no/2 no.png", "yes/conflict.png"} & set(named)
    assert any("yes/conflict.png" in note and "both labels" in note for note in loaded.notes)
    assert "1 exact duplicate removed" in loaded.notes
    assert "2 pictures are rescaled copies of another" in loaded.notes
    for seed in range(6):
        sides = {item.name: item.split for item in load_btd(folder, "all", seed=seed)}
        assert sides["no/bigger.png"] == sides["no/1 no.png"]
        assert sides["yes/doubtful.png"] == sides["no/3 no.png"]


def test_the_tumour_split_is_seeded_and_keeps_the_shares(make: Callable[[str], Path]) -> None:
    folder = make("btd")
    splits = [[item.split for item in load_btd(folder, "all", seed=seed)] for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]
    test = load_btd(folder, "test", test_share=0.25)
    assert torch.bincount(test.labels).tolist() == [3, 3]
    with pytest.raises(InputError, match="between 0 and 1"):
        load_btd(folder, test_share=1.5)


def test_a_patient_on_both_sides_is_refused(make: Callable[[str], Path]) -> None:
    folder = make("lgg")
    assert not {i.group for i in data.load("lgg", folder, "train")} & {
        i.group for i in data.load("lgg", folder, "test")
    }
    text = (folder / "labels.csv").read_text().replace("400,train", "400,test", 1)
    (folder / "labels.csv").write_text(text)
    with pytest.raises(InputError, match="the patient P0 in both splits"):
        data.load("lgg", folder)


def test_bird_masks_and_boxes_agree(make: Callable[[str], Path]) -> None:
    birds = data.load("cub20", make("cub20"), "test")
    assert birds.classes == ("Black Crow", "Red Kite")
    assert birds.labels.tolist() == [0, 1]
    view = birds[0].view(Preprocess(resize=(40, 60), crop=(40, 60)))
    assert view.mask is not None
    assert view.region is not None
    assert view.region.equal(fill_boxes(view.boxes, 40, 60))


def test_imagenet_pictures_keep_all_their_boxes(make: Callable[[str], Path]) -> None:
    loaded = data.load("imagenet", make("imagenet"))
    assert loaded[0].boxes == ((5.0, 5.0, 20.5, 20.0), (30.0, 10.0, 50.0, 30.0))
    assert [loaded.classes[item.label or 0] for item in loaded] == ["tench", "tabby"]


@pytest.mark.parametrize("packed", [True, False])
def test_tiny_imagenet_is_read_packed_or_not(packed: bool, tmp_path: Path) -> None:
    make_tiny(tmp_path, packed)
    loaded = data.load("tiny_imagenet", tmp_path)
    assert [item.imagenet for item in loaded] == [951, 474]  # lemon, and cardigan the garment
    assert [loaded.classes[item.label or 0] for item in loaded] == ["lemon", "cardigan"]
    assert loaded[0].boxes == ((0.0, 8.0, 32.0, 64.0),)
    assert loaded[0].read().size == (64, 64)
    assert (loaded[0].path is None) == packed


def test_words_that_are_no_class_are_refused() -> None:
    with pytest.raises(InputError, match="not one of the 1000"):
        index_wnids({"n1": "flying saucer"})
    # The dog comes before the garment in the order of the wnids.
    both = index_wnids({"n02113186": "Cardigan, Cardigan Welsh corgi", "n02963159": "cardigan"})
    assert both == {"n02113186": 264, "n02963159": 474}


def test_trimaps_give_pet_and_border(make: Callable[[str], Path]) -> None:
    pets = data.load("pets", make("pets"))
    assert pets.classes == ("Persian", "pug")
    assert [item.imagenet for item in pets] == [254, 283]
    assert pets[0].read_mask().sum() == 20 * 20
    assert pets[0].read_mask("border").sum() == 30 * 30 - 20 * 20


def test_human_maps_cover_the_whole_photograph(make: Callable[[str], Path]) -> None:
    item = data.load("human_attention", make("human_attention"))[0]
    assert len(item.masks) == 7
    view = item.view(Preprocess(resize=(80, 80), crop=(80, 80)))
    assert view.mask is not None
    assert view.mask[:, :40].min() == 1
    assert view.mask[:, 40:].max() == 0
    other = item.view(PREPROCESS, mask="salFIX").mask
    assert other is not None
    assert torch.allclose(other, torch.tensor(100 / 255))


def test_masks_pair_with_pictures_by_name(make: Callable[[str], Path]) -> None:
    folder = make("masked_folder")
    loaded = data.load("masked_folder", folder)
    assert [item.name for item in loaded] == ["ball1", "cat2"]
    assert loaded.notes == ("left out, without a mask: dog3.jpg",)
    assert list(loaded[1].masks) == ["human_attention_mask", "object_segmentation_mask"]
    shades = loaded[0].read_mask()
    assert np.allclose(shades[0], np.arange(40) * 6 / 255)
    with pytest.raises(InputError, match="Name the folder"):
        data.load("masked_folder")
    for path in (folder / "human_attention_mask").iterdir():
        path.unlink()
    (folder / "object_segmentation_mask" / "cat2.png").unlink()
    with pytest.raises(InputError, match="has a mask of its name"):
        data.load("masked_folder", folder)


def test_a_pasted_picture_differs_from_its_scene_only_where_the_mask_says(
    make: Callable[[str], Path],
) -> None:
    folder = make("objects_on_scenes")
    for item in data.load("objects_on_scenes", folder, "all", per_scene=3):
        assert item.plain is not None
        mask = item.read_mask() > 0
        with_object, without = (np.asarray(x.read(), int) for x in (item, item.plain))
        assert (with_object[mask] == (255, 0, 0)).mean() > 0.9
        grown = mask.copy()  # the outline is soft for a pixel or two
        for _ in range(2):
            grown[1:] |= grown[:-1]
            grown[:-1] |= grown[1:]
            grown[:, 1:] |= grown[:, :-1]
            grown[:, :-1] |= grown[:, 1:]
        assert (with_object == without)[~grown].all()
        columns = np.flatnonzero(mask.any(0))
        assert 0.5 < (columns[-1] - columns[0] + 1) / 150 < 0.75
        assert item.plain.read_mask().sum() == mask.sum()


def test_pasting_is_seeded_and_labels_follow_the_question(make: Callable[[str], Path]) -> None:
    folder = make("objects_on_scenes")

    def load(**options: object) -> data.ImageSet:
        return data.load("objects_on_scenes", folder, "train", **options)

    first, again, other = (load(seed=seed) for seed in (0, 0, 1))
    assert first[0].read().tobytes() == again[0].read().tobytes()
    assert any(a.read().tobytes() != b.read().tobytes() for a, b in zip(first, other, strict=True))
    more = load(per_scene=2)
    assert more[0].read().tobytes() == first[0].read().tobytes()
    assert more[0].group == more[1].group != more[2].group
    assert first.classes == ("forest", "sea", "street")
    objects = load(label="object")
    assert objects.classes == ("bird", "cat")
    for item in objects:
        assert item.label is not None
        assert objects.classes[item.label] in item.name
    with pytest.raises(InputError, match="'scene' or 'object'"):
        load(label="colour")


def test_bam_pairs_pictures_with_their_scene(make: Callable[[str], Path]) -> None:
    folder = make("bam")
    scenes = data.load("bam", folder, "test")
    assert scenes.classes == ("bedroom", "runway")
    assert len(scenes) == 4
    for item in scenes:
        assert scenes.classes[item.label or 0] in item.name
        assert item.boxes == ((10.0, 5.0, 50.0, 25.0),)
        assert item.plain is not None
        assert item.plain.read().tobytes() != item.read().tobytes()
    objects = data.load("bam", folder, "all", label="object")
    assert objects.classes == ("dog", "zebra")
    assert len(objects.split("train")) == 4


def test_fashion_items_are_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:

    try:
        images, labels = fashion.load_fashion("test")
    except InputError as error:
        pytest.skip(str(error))
    loaded = data.load("fashion")
    assert len(loaded) == len(images)
    assert loaded.labels.numpy().tolist() == labels.tolist()
    tensor = loaded[7].view(Preprocess(28, 28, (0.0,), (1.0,), channels=1)).tensor
    assert np.array_equal(tensor[0].numpy(), images[7].astype(np.float32) / 255)


# The real sets.


def test_real_tumour_pictures_without_copies() -> None:
    loaded = need_real("btd")
    assert len(loaded) == 228
    assert "25 exact duplicates removed" in loaded.notes
    train, test = loaded.split("train"), loaded.split("test")
    assert not {item.group for item in train} & {item.group for item in test}
    shares = [float(part.labels.float().mean()) for part in (train, test)]
    assert abs(shares[0] - shares[1]) < 0.02


def test_real_birds() -> None:
    loaded = need_real("cub20")
    assert (len(loaded.split("train")), len(loaded.split("test"))) == (599, 579)
    for item in loaded.sample(8):
        view = item.view(Preprocess(resize=256, crop=224))
        assert view.mask is not None
        inside = fill_boxes(view.boxes, 224, 224)
        assert (view.mask.bool() & inside).sum() / view.mask.sum() > 0.9


def test_real_imagenet_and_tiny_imagenet_agree_on_the_classes() -> None:
    tiny, full = need_real("tiny_imagenet"), need_real("imagenet")
    assert (len(tiny), len(full)) == (5000, 1000)
    root = Path(os.environ[data.DATA_VARIABLE])
    with (root / "imagenet_val_boxes" / "labels.csv").open(newline="") as file:
        index = {row["wnid"]: int(row["class_index"]) for row in csv.DictReader(file)}
    wnids = (root / "tiny_imagenet" / "wnids.txt").read_text().split()
    assert all(item.imagenet == index[wnids[item.label or 0]] for item in tiny)
    assert all(item.boxes for item in full)
    assert tiny[4999].read().size == (64, 64)


def test_real_pets_slices_and_photographs() -> None:
    pets, slices, photographs = (need_real(n) for n in ("pets", "lgg", "human_attention"))
    assert (len(pets), len(slices), len(photographs)) == (600, 861, 25)
    for item in slices.sample(20):
        assert bool(item.read_mask().any()) == bool(item.label)
    for item in pets.sample(5):
        assert item.read_mask().any()
    for item in photographs:
        assert all(item.read_mask(kind).max() > 0.9 for kind in item.masks)


def test_real_scenes() -> None:
    loaded = need_real("objects_on_scenes")
    assert (len(loaded.split("train")), len(loaded.split("test"))) == (600, 240)
    for item in loaded.sample(10):
        assert 0.02 < item.read_mask().mean() < 0.6


def test_masks_of_sixteen_bits_keep_their_shades(tmp_path: Path) -> None:
    values = np.array([[0, 100, 300], [1000, 30000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "mask.png")
    assert np.array_equal(read_values(tmp_path / "mask.png"), values)
    assert np.allclose(read_graded_mask(tmp_path / "mask.png"), values / 65535)


@pytest.mark.parametrize(
    ("name", "make", "file", "column", "wanted"),
    [
        ("lgg", make_lgg, "labels.csv", "tumour", "one of 0, 1"),
        ("lgg", make_lgg, "labels.csv", "split", "one of train, test"),
        ("cub20", make_cub, "labels.csv", "box_w", "a number"),
        ("cub20", make_cub, "labels.csv", "class_id", "one of 1, 11"),
        ("imagenet", make_imagenet, "labels.csv", "class_index", "a whole number"),
        ("imagenet", make_imagenet, "boxes.csv", "x2", "a number"),
        ("pets", make_pets, "labels.csv", "imagenet_index", "a whole number"),
        ("objects_on_scenes", make_scenes, "scenes.csv", "split", "one of train, test"),
    ],
)
@pytest.mark.parametrize("value", ["nonsense", "", "nan"])
def test_a_field_that_is_not_what_it_should_be_is_named(
    name: str, make: Maker, file: str, column: str, wanted: str, value: str, tmp_path: Path
) -> None:
    make(tmp_path)
    with (tmp_path / file).open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    rows[1][column] = value
    with (tmp_path / file).open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(InputError, match=f"Line 3 of .*{file}: {column} should be {wanted}"):
        data.load(name, tmp_path, "all")


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    make_lgg(tmp_path)
    (tmp_path / "labels.csv").write_bytes(b"file,patient,tumour,split\n\xff\xfe,1,1,test\n")
    with pytest.raises(InputError, match=r"labels.csv is no CSV file in UTF-8"):
        data.load("lgg", tmp_path, "all")


def test_a_box_that_is_none_is_named(tmp_path: Path) -> None:
    make_tiny(tmp_path)
    path = next(tmp_path.rglob("val_annotations.txt"))
    lines = path.read_text().splitlines()
    lines[1] = "\t".join([*lines[1].split("\t")[:-1], "wide"])
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"Line 2 of .*: a box should be a number; it is 'wide'"):
        data.load("tiny_imagenet", tmp_path, "all")

"""Small folders laid out as the data sets are, for tests."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw


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


def make_scenes(folder: Path, train: int = 1, test: int = 1) -> None:
    """So many scenes of each kind: one is red, one green, one blue."""
    scenes, objects = [], []
    for side, count in (("train", train), ("test", test)):
        for channel, kind in enumerate(("forest", "sea", "street")):
            for number in range(count):
                file = f"scenes/{side}/{kind}/{number}.png"
                pixels = np.asarray(noise(number + len(side), (150, 150))) // 4
                pixels[..., channel] += 120
                save(Image.fromarray(pixels), folder / file)
                scenes.append(f"{file},{side},{kind}")
        for number, kind in enumerate(("bird", "cat")):
            file = f"objects/{side}/{kind}/{kind}{number}.png"
            cutout = Image.new("RGBA", (96, 50))
            ImageDraw.Draw(cutout).ellipse((0, 0, 95, 49), fill=(255, 0, 0, 255))
            save(cutout, folder / file)
            objects.append(f"{file},{side},{kind},96,50")
    write_table(folder / "scenes.csv", "file,split,scene", *scenes)
    write_table(folder / "objects.csv", "file,split,object,w,h", *objects)


MAKERS: dict[str, Callable[[Path], None]] = {
    "btd": make_btd,
    "lgg": make_lgg,
    "lgg_twice": make_lgg,
    "cub20": make_cub,
    "imagenet": make_imagenet,
    "tiny_imagenet": make_tiny,
    "pets": make_pets,
    "human_attention": make_attention,
    "objects_on_scenes": make_scenes,
    "objects_twice": make_scenes,
}

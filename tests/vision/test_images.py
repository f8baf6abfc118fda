"""Pictures of every kind come out as upright RGB; preprocessing is what the model sees."""

import io
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import EpsImagePlugin, Image

from sea_nn.errors import InputError
from sea_nn.vision.images import Preprocess, load_image, to_rgb


def paint(width=40, height=30):
    """Left half red, right half blue, top row white: its orientation can be seen."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (255, 0, 0)
    pixels[:, width // 2 :] = (0, 0, 255)
    pixels[0] = 255
    return Image.fromarray(pixels)


def same(one, other):
    return np.array_equal(np.asarray(one), np.asarray(other))


def through_file(image, path, **options):
    image.save(path, **options)
    return load_image(path)


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "webp", "ppm"])
def test_rgb_files_come_back_as_they_are(tmp_path, ending):
    options = {"lossless": True} if ending == "webp" else {}
    loaded = through_file(paint(), tmp_path / f"a.{ending}", **options)
    assert loaded.mode == "RGB"
    assert same(loaded, paint())


@pytest.mark.parametrize(
    ("image", "ending", "within"),
    [
        (paint(), "jpg", 12),
        (paint().convert("CMYK"), "jpg", 12),
        (paint().convert("L"), "png", 0),
        (paint().convert("1"), "png", 0),
        (paint().quantize(8), "png", 0),
    ],
    ids=["jpeg", "cmyk", "grey", "bilevel", "palette"],
)
def test_pictures_of_every_mode_keep_their_colours(tmp_path, image, ending, within):
    loaded = through_file(image, tmp_path / f"a.{ending}", quality=95)
    for place in ((5, 15), (35, 15)):  # off the edges, which JPEG blurs
        expected = np.array(image.convert("RGB").getpixel(place))
        assert np.abs(np.array(loaded.getpixel(place)) - expected).max() <= within


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparent_parts_become_white(mode, tmp_path):
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    assert to_rgb(image).getpixel((0, 0)) == (255, 255, 255)
    half = through_file(Image.new("RGBA", (4, 4), (0, 0, 0, 128)), tmp_path / "a.png")
    assert half.getpixel((1, 1)) == (127, 127, 127)


@pytest.mark.parametrize(
    ("image", "transparent"),
    [
        (Image.new("RGB", (3, 3), (9, 9, 9)).quantize(2), 0),
        (Image.new("L", (3, 3), 7), 7),
        (Image.new("RGB", (3, 3), (1, 2, 3)), (1, 2, 3)),
    ],
    ids=["palette", "grey", "rgb"],
)
def test_a_colour_marked_transparent_becomes_white(tmp_path, image, transparent):
    loaded = through_file(image, tmp_path / "a.png", transparency=transparent)
    assert loaded.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 257, 32896, 65535]], np.uint16), [0, 1, 128, 255]),
        (np.array([[0, 65535]], np.int32), [0, 255]),
    ],
)
def test_grey_values_of_16_bits_reach_the_byte_range(tmp_path, values, expected):
    loaded = through_file(Image.fromarray(values), tmp_path / "a.tiff")
    assert np.asarray(loaded)[0, :, 0].tolist() == expected


@pytest.mark.parametrize("values", [[-100, 100], [0, 70_000], [0.0, 1.0]])
def test_grey_values_without_a_known_white_are_refused(tmp_path, values):
    kind = np.float32 if isinstance(values[0], float) else np.int32
    with pytest.raises(InputError, match="no numbers of 8 or 16 bits"):
        through_file(Image.fromarray(np.array([values], kind)), tmp_path / "a.tiff")


@pytest.mark.parametrize("turn", range(1, 9))
def test_the_camera_rotation_is_applied(tmp_path, turn):
    """A file that says how it lies comes back upright, whichever of the eight ways it lies."""
    T = Image.Transpose
    lay_down = (None, T.FLIP_LEFT_RIGHT, T.ROTATE_180, T.FLIP_TOP_BOTTOM, T.TRANSPOSE)
    step = (*lay_down, T.ROTATE_90, T.TRANSVERSE, T.ROTATE_270)[turn - 1]
    image = paint() if step is None else paint().transpose(step)
    exif = Image.Exif()
    exif[0x0112] = turn
    assert same(through_file(image, tmp_path / "a.png", exif=exif), paint())


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "tiff"])
def test_the_first_frame_of_an_animation_is_taken(tmp_path, ending):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    path = tmp_path / f"a.{ending}"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    red, green, blue = np.asarray(load_image(path))[4, 4]
    assert red > 240 > 15 > max(green, blue)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an image"),
        (b"hello, this is text", "not an image.*JPEG, PNG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "damaged|not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image.*JPEG, PNG"),
    ],
)
def test_files_that_are_no_images_are_refused(tmp_path, content, message):
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_image(path)
    assert "picture.png" in str(caught.value)


def test_missing_files_folders_and_wrong_kinds_are_refused(tmp_path):
    with pytest.raises(InputError, match="no image at"):
        load_image(tmp_path / "gone.png")
    with pytest.raises(InputError, match="A folder"):
        load_image(tmp_path)
    with pytest.raises(InputError, match="ndarray"):
        load_image(np.zeros((2, 2)))  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe.png")
    for name in (tmp_path / "pipe.png", "/dev/zero"):  # reading these might never end
        with pytest.raises(InputError, match="a pipe or a device"):
            load_image(name)
    for name in ("a" * 300 + ".png", "a\0.png"):
        with pytest.raises(InputError, match="no image at"):
            load_image(tmp_path / name)
    with pytest.raises(InputError, match="no image at ~nobody-of-this-name"):
        load_image("~nobody-of-this-name/a.png")


@given(data=st.data())
def test_damage_never_gives_another_error_or_a_warning(data):
    kind = data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "WEBP"]))
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    paint(12, 9).save(buffer, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}))
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(content)))
    try:
        image = load_image(io.BytesIO(bytes(content[:end])))
    except InputError:
        return
    assert image.mode == "RGB"


def test_a_picture_over_the_limit_is_refused(tmp_path, monkeypatch):
    paint(100, 80).save(tmp_path / "a.png")
    for limit in (7000, 3000):  # of 8000 pixels Pillow warns; beyond double it raises
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(InputError, match=r"too large.*8000 pixels"):
            load_image(tmp_path / "a.png")


def test_preprocess_resizes_the_short_side_and_cuts_the_centre():
    """The same pixels, to a rounding step, as resizing everything and then cropping."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 451, 3), np.uint8)
    image = Image.fromarray(noise)
    whole = image.resize((384, 256), Image.Resampling.BICUBIC)
    expected = np.asarray(whole.crop((80, 16, 304, 240)), int)
    preprocess = Preprocess(resize=256, crop=224, interpolation="bicubic")
    assert np.abs(preprocess.display(image) - expected).max() <= 1


@given(
    width=st.integers(1, 400),
    height=st.integers(1, 400),
    crop=st.integers(1, 32),
    more=st.integers(0, 9),
)
def test_the_window_lies_in_the_picture_centred_and_undistorted(width, height, crop, more):
    preprocess = Preprocess(resize=crop + more, crop=crop)
    left, top, right, bottom = preprocess.window(width, height)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    step = max(width, height) / (crop + more)  # one pixel of the resized picture
    assert abs((left + right) - width) <= 2 * step
    assert abs((top + bottom) - height) <= 2 * step
    assert preprocess(Image.new("RGB", (width, height))).shape == (3, crop, crop)


@pytest.mark.parametrize(
    ("preprocess", "window"),
    [
        (Preprocess(20, 16, interpolation="bicubic"), None),
        (Preprocess((10, 20), (10, 20)), (0, 0, 50, 37)),  # squashed: all of it is seen
        (Preprocess(28, 28, mean=(0.0,), std=(1.0,), channels=1), None),
    ],
)
def test_display_is_the_input_before_normalising(preprocess, window):
    image = paint(50, 37)
    mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (preprocess.mean, preprocess.std))
    pixels = preprocess(image)
    assert pixels.shape == preprocess.shape
    pixels = ((pixels * std + mean) * 255).round().byte().expand(3, -1, -1)
    assert np.array_equal(pixels.permute(1, 2, 0), preprocess.display(image))
    if window is not None:
        assert preprocess.window(50, 37) == window


def test_a_very_long_picture_does_not_fill_the_memory():
    assert Preprocess(resize=256, crop=224)(Image.new("L", (1, 60_000))).shape == (3, 224, 224)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": 4}, "channels"),
        ({"channels": 1}, "one value for each"),
        ({"mean": (0.5,)}, "one value for each"),
        ({"interpolation": "cubic"}, "bicubic"),
    ],
)
def test_preprocess_checks_itself(change, message):
    with pytest.raises(InputError, match=message):
        replace(Preprocess(resize=256, crop=224), **change)


@pytest.mark.parametrize("change", [{"crop": 300}, {"crop": 0}, {"resize": (200, 300)}])
def test_a_crop_that_does_not_fit_gives_no_picture(change):
    with pytest.raises(ValueError, match=r"[Bb]ox|must be > 0"):
        replace(Preprocess(resize=256, crop=224), **change).display(paint())


def test_eps_in_a_png_does_not_reach_ghostscript(tmp_path, monkeypatch):
    def start(*arguments, **options):
        raise AssertionError("Ghostscript was started")

    paint().save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    with pytest.raises(InputError, match="not an image"):
        load_image(tmp_path / "a.png")

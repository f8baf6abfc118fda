"""Files that nobody trusts: judged by content, refused before they are decoded."""

import io
import struct
import zlib

import pytest
import torch
from PIL import Image

from sea_nn.app import uploads
from sea_nn.app.uploads import MOST_BYTES, read_picture, read_table
from sea_nn.errors import InputError


def png(width, height, rows=b""):
    """A PNG file that says it is this large, whatever it holds."""

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def save(picture, kind):
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_pictures_are_known_by_content(kind):
    assert read_picture(save(Image.new("RGB", (20, 10), "red"), kind)).size == (20, 10)


def test_bomb_is_refused_by_its_header(monkeypatch):
    monkeypatch.setattr(uploads, "load_image", lambda file: pytest.fail("it was decoded"))
    for width, height in ((30_000, 30_000), (2**31 - 1, 1), (65_500, 65_500)):
        with pytest.raises(InputError, match=r"pixels|no picture"):
            read_picture(png(width, height))


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"MZ\x90\0 no picture",
        b"GIF89a",
        b"PK\x03\x04 an archive",
        "<html>ä".encode(),
        b"\x80\x04\x95pickle",
    ],
    ids=["svg", "postscript", "program", "cut gif", "archive", "page", "pickle"],
)
def test_what_is_no_picture_is_refused(content):
    with pytest.raises(InputError, match="no picture"):
        read_picture(content)


def test_truncated_picture_says_so():
    whole = save(Image.effect_noise((300, 300), 80), "PNG")
    with pytest.raises(InputError, match="damaged or cut short"):
        read_picture(whole[: len(whole) // 2])


@pytest.mark.parametrize("size", [0, MOST_BYTES + 1])
def test_size_of_a_file_is_limited(size):
    for read in (read_picture, lambda content: read_table(content, 2)):
        with pytest.raises(InputError, match="10 MB"):
            read(b"1" * size)


def test_table_is_read_with_and_without_headings_and_names():
    for text in ("1,2\n3,4", "x,y\n1,2\n3,4\n\n", "\ufeff1,2\r\n3,4"):
        names, values = read_table(text.encode(), 2)
        assert names == ["row 1", "row 2"]
        assert torch.equal(values, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert read_table(b"id,x,y\nann,1,2\n", 2)[0] == ["ann"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"1,2,3,4", "4 columns"),
        (b"1,nan\n", "no finite number"),
        (b"1,inf\n", "no finite number"),
        (b"1,<b>\n", "no finite number"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"x,y\n", "rows of numbers; got 0"),
        pytest.param(b"1,2\n" * 201, "got 201", id="201 rows"),
        pytest.param(b'1,"' + b"2" * 200_000, "CSV", id="a field without an end"),
    ],
)
def test_table_that_cannot_be_meant_says_why(text, said):
    with pytest.raises(InputError, match=said):
        read_table(text, 2)

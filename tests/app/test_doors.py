"""The doors of the app: names, tokens, routes, sizes, malformed events, files of a run."""

import io
import json
import re
import struct
import zlib
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from PIL import Image

from sea_nn.app import uploads
from sea_nn.app.gallery import Gallery
from sea_nn.app.uploads import MOST_BYTES, read_picture, read_table
from sea_nn.cli import app
from sea_nn.errors import InputError
from tests.app.conftest import SERVED

if find_spec("gradio") is None:  # importing it takes seconds
    pytest.skip("tests of the app need gradio: pip install 'sea-nn[app]'", allow_module_level=True)

import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from scripts.attack_app import BEGIN, attack, send
from sea_nn.app.gate import COOKIE, MOST_BODY, Gate, is_open

HERE, FAR = "http://localhost:7860", "http://far.example"


async def answer(scope, receive, send):
    """An app that reads all it is sent, and says how much that was."""
    size = len(await Request(scope, receive).body())
    await PlainTextResponse(str(size))(scope, receive, send)


def knock(token=None, address=HERE):
    """A visitor of a gate."""
    return TestClient(Gate(answer, token), address, follow_redirects=False)


def test_names_of_other_machines_are_refused():
    assert knock().get("/").status_code == knock(address="http://127.0.0.1").get("/").status_code
    for host in ("evil.example", "127.0.0.1.evil.example:7860", "192.168.0.2", ""):
        assert knock().get("/", headers={"host": host}).status_code == 403


def test_token_opens_once_and_a_cookie_after_it():
    visitor = knock("right", FAR)
    for method, token in (("GET", ""), ("GET", "wrong"), ("POST", "right")):
        assert visitor.request(method, "/", params={"token": token}).status_code == 401
    found = visitor.get("/", params={"token": "right"})
    assert (found.status_code, found.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(found.headers["set-cookie"].split("; "))
    assert visitor.get("/").status_code == 200
    visitor.cookies.set(COOKIE, "wrong")
    assert knock("right", FAR).get("/", headers={"cookie": f"{COOKIE}=no"}).status_code == 401


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path",
    [
        *("/gradio_api/upload", "/upload", "/gradio_api/file=/etc/passwd", "/static/..%2fx"),
        *("/gradio_api/proxy=http://x", "/gradio_api/process_recording", "/gradio_api/run/explain"),
    ],
)
def test_doors_to_the_disk_and_the_network_are_closed(path, method):
    assert knock().request(method, path).status_code == 404
    assert not is_open(method, "/static/../x")


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "OPTIONS"])
def test_other_pages_may_neither_ask_nor_frame(method):
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://localhost.evil"):
        found = knock().request(method, "/config", headers={"origin": origin})
        assert found.status_code == 403
    assert knock().request(method, "/config", headers={"origin": "http://["}).status_code == 400
    assert knock().get("/", headers={"origin": HERE}).status_code == 200
    for path in ("/", "/gradio_api/upload"):
        headers = knock().get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"


def test_large_bodies_and_those_of_unknown_length_are_refused():
    post = partial(knock().post, "/gradio_api/cancel")
    for length in (str(MOST_BODY + 1), "many", "-1"):
        assert post(headers={"content-length": length}).status_code == 413
    assert post(content=iter([b"x"])).status_code == 413  # says nothing of its length
    assert post(content=b"x" * 7).text == "7"


# ---- the running app ------------------------------------------------------------------------

PAGE = {
    *("/", "/config", "/config/", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"),
    *("/static/{path:path}", "/assets/{path:path}", "/svelte/{path:path}"),
}
OWN = {
    *("startup-events", "theme.css", "heartbeat/{session_hash}", "info", "info/", "app_id"),
    *("app_id/", "queue/data", "queue/join", "cancel", "component_server", "component_server/"),
}
"""The routes of Gradio 6.31 that the page needs; one that a later Gradio adds is closed."""


def list_routes(routes, before=""):
    for route in routes:
        inner = getattr(getattr(route, "original_router", route), "routes", None)
        path = before + getattr(route, "path", "")
        if inner:
            yield from list_routes(inner, path)
        else:
            yield from ((method, path) for method in getattr(route, "methods", None) or ())


def test_every_route_of_gradio_is_known_and_closed_unless_needed():
    import gradio as gr
    from gradio.routes import App

    with gr.Blocks() as page:
        gr.Markdown("x")
    routes = {
        (method, path.removeprefix("/gradio_api"))
        for method, path in list_routes(App.create_app(page).routes)
    }
    assert len(routes) > 60
    wanted = PAGE | {f"/{name}" for name in OWN}
    for method, path in routes:
        for place in (path, f"/gradio_api{path}"):
            filled = place.replace("{path:path}", "a.js").replace("{session_hash}", "abc")
            if is_open(method, filled):
                assert path in wanted, (method, place)
    assert wanted <= {path for _, path in routes}


@SERVED
def test_malformed_events_are_refused_and_harm_nobody(address):
    with httpx.Client(base_url=f"{address}gradio_api/", timeout=60) as client:
        found = attack(client, 160)
        for kind, came in found.items():
            assert came.total() == 20
            assert came["5xx"] + came["crashed"] == 0, (kind, came)
        for closed in ("upload", "process_recording", "file=/etc/passwd"):
            assert found[closed]["4xx"] == 20
        assert found["a handler"]["told"] <= 2  # of the right kind, and out of range
        assert send(client, "queue/join", json.dumps(BEGIN).encode()) == "served"


def change_row(gallery, id_, monkeypatch, **values):
    one = gallery.data[id_]
    other = replace(one, row=one.row | values)
    monkeypatch.setattr(type(gallery.data), "__getitem__", lambda *_: other)


def test_a_row_that_names_another_file_is_refused(results, monkeypatch, tmp_path):
    gallery = Gallery(results)
    id_ = gallery.select("wrong")[0]
    name, content = gallery.read(id_)
    assert name == id_
    assert content.startswith(b"\x89PNG")
    for path in (str(tmp_path), None, "/dev/zero", "/etc/passwd"):
        change_row(gallery, id_, monkeypatch, path=path)
        assert gallery.read(id_) is None
    # A hash that was changed with it does not help: the content has another one.
    change_row(gallery, id_, monkeypatch, path="/etc/passwd", digest="0" * 16)
    assert gallery.read(id_) is None


def test_a_label_that_no_class_has_is_not_shown_as_the_last_class(results, monkeypatch):
    gallery = Gallery(results)
    id_ = gallery.select("wrong")[0]
    change_row(gallery, id_, monkeypatch, label=-1)
    said, found = gallery.open(id_)
    assert "which is wrong." in said
    assert gallery.data.manifest.labels[-1] not in said
    assert found["group"]["view"] == "picture"


@SERVED
def test_another_address_needs_the_token_that_is_printed(capsys, monkeypatch):
    gradio = pytest.importorskip("gradio", reason="pip install 'sea-nn[app]'")
    import httpx

    found = {}

    def visit(page):
        address = re.search(r"http://\S+/\?token=\S+", capsys.readouterr().out)[0]
        plain = address.partition("?")[0]
        with httpx.Client(follow_redirects=True, timeout=30) as client:
            for name, url in (("without", plain), ("wrong", f"{plain}?token=no")):
                found[name] = client.get(url).status_code
            found["with"] = client.get(address)
        page.close(verbose=False)
        raise KeyboardInterrupt

    monkeypatch.setattr(gradio.Blocks, "block_thread", visit)  # where the command waits for Ctrl-C
    with pytest.raises(SystemExit) as stop:
        app(["app", "--host", "0.0.0.0", "--model", "fashion-cnn", "--no-browser"])
    assert stop.value.code == 130
    assert found["without"] == found["wrong"] == 401
    assert found["with"].status_code == 200
    assert "token" not in str(found["with"].url)
    assert "why does the model say that" in found["with"].text


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

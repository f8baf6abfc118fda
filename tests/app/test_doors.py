"""The doors of the app: names, tokens, routes, sizes, malformed events, files of a run."""

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from sea_nn.app.gallery import Gallery
from sea_nn.app.gate import COOKIE, MOST_BODY, Gate, is_open
from tests.app.conftest import SERVED


async def answer(scope, receive, send):
    """An app that reads all it is sent, and says how much that was."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def ask(gate, path="/", host="localhost:7860", query="", body=(b"",), method="GET", **headers):
    """The status, headers and body of one request."""
    sent, parts = [], list(body)
    named = {"host": host, **{k.replace("_", "-"): v for k, v in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in named.items()],
    }

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, receive, send))
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:])


def test_names_of_other_machines_are_refused():
    gate = Gate(answer)
    assert ask(gate)[0] == 200
    assert ask(gate, host="127.0.0.1:7860")[0] == 200
    for host in ("evil.example", "127.0.0.1.evil.example:7860", "192.168.0.2", ""):
        assert ask(gate, host=host)[0] == 403


def test_token_opens_once_and_a_cookie_after_it():
    gate = Gate(answer, "right")
    assert ask(gate, host="far.example")[0] == 401
    assert ask(gate, host="far.example", query="token=wrong")[0] == 401
    assert ask(gate, host="far.example", query="token=right", method="POST")[0] == 401
    status, headers, _ = ask(gate, host="far.example", query="token=right")
    assert (status, headers["location"]) == (303, "/")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    assert ask(gate, host="far.example", cookie=cookie)[0] == 200
    assert ask(gate, host="far.example", cookie=f"{COOKIE}=wrong")[0] == 401


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path",
    [
        *("/gradio_api/upload", "/upload", "/gradio_api/file=/etc/passwd", "/static/../x"),
        *("/gradio_api/proxy=http://x", "/gradio_api/process_recording", "/gradio_api/run/explain"),
    ],
)
def test_doors_to_the_disk_and_the_network_are_closed(path, method):
    assert ask(Gate(answer), path=path, method=method)[0] == 404


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "OPTIONS"])
def test_other_pages_may_neither_ask_nor_frame(method):
    gate = Gate(answer)
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://localhost.evil"):
        assert ask(gate, "/config", method=method, origin=origin)[0] == 403
    assert ask(gate, origin="http://localhost:7860")[0] == 200
    for path in ("/", "/gradio_api/upload"):
        _, headers, _ = ask(gate, path)
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"


def test_large_bodies_are_refused_before_and_while_they_come():
    gate = Gate(answer)
    assert ask(gate, content_length=str(MOST_BODY + 1))[0] == 413
    assert ask(gate, content_length="many")[0] == 413
    part = b"x" * (MOST_BODY // 4)
    assert ask(gate, body=[part] * 5)[0] == 413  # says nothing of its length
    assert ask(gate, body=[part] * 4)[2] == str(MOST_BODY).encode()


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
    gr = pytest.importorskip(
        "gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'"
    )
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


def send(address, path, body=None, **headers):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json", **headers}
    request = urllib.request.Request(address.rstrip("/") + path, data, named)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@SERVED
def test_malformed_events_get_a_clear_answer(address):
    assert send(address, "/config") == 200
    events = [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", {}, {"data": 1}, {"fn_index": 0}]
    numbers = (-1, 10**6, 10**30, "x", None, [], 1.5)
    events += [{"data": [], "fn_index": k, "session_hash": "a"} for k in numbers]
    events += [{"data": d, "fn_index": 1, "session_hash": "a"} for d in (None, 1, "x", {"a": 1})]
    events += [
        {"data": [], "fn_index": 1, "session_hash": h} for h in (None, 1, [], {}, "a" * 10**5)
    ]
    calls = [{"data": d, "component_id": c, "fn_name": f, "session_hash": "a"}
             for d in (None, 5, {"key": 1}, {"key": "x", "p": "y"})
             for c in (-1, 0, 10**9, "x") for f in ("weigh", "__init__", 5)]  # fmt: skip
    for path, bodies in (("queue/join", events), ("component_server", events + calls),
                         ("cancel", events)):  # fmt: skip
        for body in bodies:
            status = send(address, f"/gradio_api/{path}", body)
            assert status < 500, (path, body, status)
    assert send(address, "/gradio_api/process_recording", {"x": 1}) == 404
    assert send(address, "/gradio_api/queue/join", {}, origin="http://evil.example") == 403
    assert send(address, "/config") == 200


def test_a_row_that_names_another_file_is_refused(results, monkeypatch, tmp_path):
    gallery = Gallery(results)
    id_ = gallery.select("wrong")[0]
    name, content = gallery.read(id_)
    assert name == id_
    assert content.startswith(b"\x89PNG")
    one = gallery.data[id_]
    for path in ("/etc/passwd", str(tmp_path), None, "/dev/zero"):
        other = replace(one, row=one.row | {"path": path})
        monkeypatch.setattr(type(gallery.data), "__getitem__", lambda self, _, o=other: o)
        assert gallery.read(id_) is None
    # A list of inputs that was changed with it does not help: the content has another hash.
    inputs = {"id": [id_], "path": ["/etc/passwd"], "digest": ["0" * 16]}
    monkeypatch.setattr("sea_nn.app.gallery.read_inputs", lambda _: inputs)
    other = replace(one, row=one.row | {"path": "/etc/passwd"})
    monkeypatch.setattr(type(gallery.data), "__getitem__", lambda self, _: other)
    assert gallery.read(id_) is None


def test_a_label_that_no_class_has_is_not_shown_as_the_last_class(results, monkeypatch):
    gallery = Gallery(results)
    id_ = gallery.select("wrong")[0]
    one = gallery.data[id_]
    other = replace(one, row=one.row | {"label": -1})
    monkeypatch.setattr(type(gallery.data), "__getitem__", lambda self, _: other)
    said, found = gallery.open(id_)
    assert "which is wrong." in said
    assert gallery.data.manifest.labels[-1] not in said
    assert found["group"]["view"] == "picture"

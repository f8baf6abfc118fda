"""The gate before Gradio: names, tokens, doors and sizes."""

import asyncio

import pytest

from sea_nn.app.gate import COOKIE, MOST_BODY, Gate


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


@pytest.mark.parametrize(
    "path",
    ["/gradio_api/upload", "/upload", "/gradio_api/file=/etc/passwd", "/gradio_api/proxy=http://x"],
)
def test_doors_to_the_disk_and_the_network_are_closed(path):
    assert ask(Gate(answer), path=path, method="POST")[0] == 404


def test_large_bodies_are_refused_before_and_while_they_come():
    gate = Gate(answer)
    assert ask(gate, content_length=str(MOST_BODY + 1))[0] == 413
    assert ask(gate, content_length="many")[0] == 413
    part = b"x" * (MOST_BODY // 4)
    assert ask(gate, body=[part] * 5)[0] == 413  # says nothing of its length
    assert ask(gate, body=[part] * 4)[2] == str(MOST_BODY).encode()

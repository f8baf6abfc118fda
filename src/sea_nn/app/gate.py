"""The gate before Gradio: who may come in, by which doors, and with how much.

A plain ASGI middleware, so that it holds for every route that Gradio has or will have: only the
doors of ``OPEN`` are open.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BODY = 16 << 20
"""Bytes of one request: an upload of 10 MB in base64, and a little more."""
COOKIE = "sea_token"
BEGIN = "/gradio_api/startup-events"
"""Gradio calls its own server here, without a token, before anybody can come: it starts the queue
and says nothing."""
OPEN = {
    "GET": (
        r"/", r"/config/?", r"/theme\.css", r"/favicon\.ico", r"/manifest\.json", r"/robots\.txt",
        r"/(static|assets|svelte)/[^.][^\\]*", BEGIN, r"/gradio_api/theme\.css",
        r"/gradio_api/heartbeat/\w+", r"/gradio_api/info/?", r"/gradio_api/app_id/?",
        r"/gradio_api/queue/data",
    ),
    "POST": (
        r"/gradio_api/queue/join", r"/gradio_api/cancel", r"/gradio_api/component_server/?",
    ),
}  # fmt: skip
"""The doors that the page needs, by method; nothing is stored, so nothing else is fetched."""
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Gradio makes its parts with inline scripts and ``new Function``; nothing comes from elsewhere."""
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
)


class TooLargeError(Exception):
    """More came than was allowed, or was said to come."""


class Gate:
    """Let requests through that are small, meant for this page, and, with a token, that bring it.

    The token comes once in the address, ``/?token=...``, and then in a cookie that scripts cannot
    read. Without one, only names of this machine are answered: a page elsewhere that has its own
    name resolve to 127.0.0.1 gets nothing. Requests that other pages make are refused.
    """

    def __init__(self, app: Any, token: str | None = None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        host = headers.get("host", "")
        if self.token is None and not is_local(host):
            await _say(send, 403, "This page is for the machine it runs on: open it as localhost.")
            return
        if "origin" in headers and urlsplit(headers["origin"]).netloc != host:
            await _say(send, 403, "Another page may not ask this one.")
            return
        begins = scope["path"] == BEGIN and scope["method"] == "GET"
        if self.token is not None and not begins and not self._knows(headers):
            if self._brings(scope):
                cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                await _say(send, 303, "", [("set-cookie", cookie), ("location", "/")])
            else:
                await _say(send, 401, "Open the address that 'sea app' printed: it has a token.")
            return
        if not is_open(scope["method"], scope["path"]):
            await _say(send, 404, "There is nothing here.")
            return
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY:
            await _say(send, 413, f"At most {MOST_BODY >> 20} MB are read.")
            return
        await self._pass(scope, receive, send)

    async def _pass(self, scope: Any, receive: Receive, send: Send) -> None:
        """Hand the request on, and stop reading where it is longer than it said."""
        seen, begun = 0, False

        async def count() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MOST_BODY:
                raise TooLargeError
            return message

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_encode(HEADERS)]
            await send(message)

        try:
            await self.app(scope, count, note)
        except TooLargeError:
            if not begun:
                await _say(send, 413, f"At most {MOST_BODY >> 20} MB are read.")
        except Exception:
            # Gradio trusts its own page: an event that the page would not send breaks it inside.
            if begun or scope["method"] != "POST":
                raise
            logging.getLogger(__name__).debug("a request broke", exc_info=True)
            await _say(send, 400, "This request is not one that the page makes.")

    def _knows(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and self._same(found.value)

    def _brings(self, scope: Any) -> bool:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])
        return scope["method"] == "GET" and self._same(given[0])

    def _same(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), str(self.token).encode())


def is_open(method: str, path: str) -> bool:
    """Whether a door is one of ``OPEN``.

    >>> is_open("GET", "/config"), is_open("POST", "/gradio_api/upload")
    (True, False)
    """
    doors = OPEN.get("GET" if method == "HEAD" else method, ())
    return ".." not in path and any(re.fullmatch(door, path) for door in doors)


def is_local(host: str) -> bool:
    """Whether a Host header names this machine.

    >>> [is_local(host) for host in ("localhost:7860", "127.0.0.1", "[::1]:80", "evil.example")]
    [True, True, True, False]
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


async def _say(send: Send, status: int, text: str, more: Iterable[tuple[str, str]] = ()) -> None:
    body = text.encode()
    headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
    raw = _encode((*headers, *HEADERS, *more))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _encode(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]

"""The gate before Gradio: who may come in, by which doors, and with how much.

A plain ASGI middleware, so that it holds for every route that Gradio has or will have.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BODY = 16 << 20
"""Bytes of one request: an upload of 10 MB in base64, and a little more."""
COOKIE = "sea_token"
CLOSED = ("upload", "file=", "file/", "proxy=", "stream/", "vibe", "deep_link", "reset")
"""Doors of Gradio's that this page has no use for: nothing is stored, so nothing is fetched."""


BEGIN = "/gradio_api/startup-events"
"""Gradio calls its own server here, without a token, before anybody can come: it starts the queue
and says nothing."""


class TooLargeError(Exception):
    """More came than was allowed, or was said to come."""


class Gate:
    """Let requests through that are small, meant for this page, and, with a token, that bring it.

    The token comes once in the address, ``/?token=...``, and then in a cookie that scripts cannot
    read. Without one, only names of this machine are answered: a page elsewhere that has its own
    name resolve to 127.0.0.1 gets nothing.
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
        if self.token is None and not is_local(headers.get("host", "")):
            await _say(send, 403, "This page is for the machine it runs on: open it as localhost.")
            return
        begins = scope["path"] == BEGIN and scope["method"] == "GET"
        if self.token is not None and not begins and not self._knows(headers):
            if self._brings(scope):
                cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                await _say(send, 303, "", [("set-cookie", cookie), ("location", "/")])
            else:
                await _say(send, 401, "Open the address that 'sea app' printed: it has a token.")
            return
        door = scope["path"].removeprefix("/gradio_api/").removeprefix("/")
        if door.startswith(CLOSED):
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
            await send(message)

        try:
            await self.app(scope, count, note)
        except TooLargeError:
            if not begun:
                await _say(send, 413, f"At most {MOST_BODY >> 20} MB are read.")

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
    raw = [(name.encode(), value.encode()) for name, value in (*headers, *more)]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})

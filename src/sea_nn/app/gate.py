"""The gate before Gradio: who may come in, by which doors, and with how much.

A plain ASGI middleware, so that it holds for every route that Gradio has or will have: only the
doors of ``OPEN`` are open.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

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
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


class Gate:
    """Let requests through that are small, meant for this page, and, with a token, that bring it.

    The token comes once in the address, ``/?token=...``, and then in a cookie that scripts cannot
    read. Without one, only names of this machine are answered: a page elsewhere that has its own
    name resolve to 127.0.0.1 gets nothing. Requests that other pages make are refused.
    """

    def __init__(self, app: Any, token: str | None = None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await (self._refuse(Request(scope)) or self.app)(scope, receive, note)
        except Exception:
            # Gradio trusts its own page: an event that the page would not send breaks it inside.
            logging.getLogger(__name__).debug("a request broke", exc_info=True)
            if begun:
                await send({"type": "http.response.body"})  # ends what was said until then
            else:
                answer = PlainTextResponse("This request is not one that the page makes.", 400)
                await answer(scope, receive, note)

    def _refuse(self, request: Request) -> Response | None:
        """The answer to a request that may not come in; None to one that may."""
        headers, host = request.headers, request.headers.get("host", "")
        path, method = request.scope["path"], request.method
        if self.token is None and not is_local(host):
            said = "This page is for the machine it runs on: open it as localhost."
            return PlainTextResponse(said, 403)
        if "origin" in headers and urlsplit(headers["origin"]).netloc != host:
            return PlainTextResponse("Another page may not ask this one.", 403)
        begins = path == BEGIN and method == "GET"
        if not begins and not self._is_token(request.cookies.get(COOKIE, "")):
            if method != "GET" or not self._is_token(request.query_params.get("token", "")):
                said = "Open the address that 'sea app' printed: it has a token."
                return PlainTextResponse(said, 401)
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, str(self.token), httponly=True, samesite="strict")
            return answer
        if not is_open(method, path):
            return PlainTextResponse("There is nothing here.", 404)
        # What says nothing of its length could be of any.
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > MOST_BODY:
            return PlainTextResponse(f"At most {MOST_BODY >> 20} MB are read.", 413)
        return None

    def _is_token(self, given: str) -> bool:
        """Whether this is the token; without one, everybody has it."""
        return self.token is None or hmac.compare_digest(given.encode(), self.token.encode())


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

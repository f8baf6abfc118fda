"""``sea app --host``: served elsewhere, behind a token."""

import _thread
import re
import threading
import time
import urllib.error
import urllib.request

import pytest

from sea_nn.cli import app
from tests.app.conftest import SERVED


@SERVED
@pytest.mark.xdist_group("browser")  # where Gradio is loaded already
def test_another_address_needs_the_token_that_is_printed(capsys):
    pytest.importorskip("gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'")
    found, ended = {}, threading.Event()

    def open_page(address, cookie=""):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        try:
            with opener.open(address, timeout=30) as reply:
                return reply.status, reply.url, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, address, error.read()

    def visit():
        try:
            printed, end = "", time.monotonic() + 240
            while not (match := re.search(r"http://\S+/\?token=\S+", printed)):
                assert time.monotonic() < end, printed
                time.sleep(0.05)
                printed += capsys.readouterr().out
            plain = match[0].partition("?")[0]
            found["without"], found["wrong"] = open_page(plain), open_page(f"{plain}?token=no")
            found["with"] = open_page(match[0])
        finally:
            _thread.interrupt_main()
            while not ended.wait(5):  # an interrupt in an import or a callback is lost
                _thread.interrupt_main()

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        with pytest.raises(SystemExit) as stop:
            app(["app", "--host", "0.0.0.0", "--model", "fashion-cnn", "--no-browser"])
    finally:
        ended.set()
    visitor.join()
    assert stop.value.code == 130
    assert found["without"][0] == found["wrong"][0] == 401
    status, url, body = found["with"]
    assert status == 200
    assert "token" not in url
    assert b"why does the model say that" in body

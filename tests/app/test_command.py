"""``sea app --host``: served elsewhere, behind a token."""

import _thread
import re
import threading
import time

import pytest

from sea_nn.cli import app
from tests.app.conftest import SERVED


@SERVED
@pytest.mark.xdist_group("browser")  # where Gradio is loaded already
def test_another_address_needs_the_token_that_is_printed(capsys):
    pytest.importorskip("gradio", reason="tests of the app need gradio: pip install 'sea-nn[app]'")
    import httpx

    found, ended = {}, threading.Event()

    def visit():
        try:
            printed, end = "", time.monotonic() + 240
            while not (match := re.search(r"http://\S+/\?token=\S+", printed)):
                assert time.monotonic() < end, printed
                time.sleep(0.05)
                printed += capsys.readouterr().out
            plain = match[0].partition("?")[0]
            with httpx.Client(follow_redirects=True, timeout=30) as client:
                for name, address in ("without", plain), ("wrong", f"{plain}?token=no"):
                    found[name] = client.get(address).status_code
                found["with"] = client.get(match[0])
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
    assert found["without"] == found["wrong"] == 401
    assert found["with"].status_code == 200
    assert "token" not in str(found["with"].url)
    assert "why does the model say that" in found["with"].text

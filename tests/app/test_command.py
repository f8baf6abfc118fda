"""``sea app --host``: served elsewhere, behind a token."""

import re

import pytest

from sea_nn.cli import app
from tests.app.conftest import SERVED


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

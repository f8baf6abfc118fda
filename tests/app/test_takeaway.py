"""What can be taken away is what is on the screen."""

import os

import pytest
import torch

from sea_nn import Explanation
from sea_nn.app.load import load_subject
from sea_nn.app.session import Session
from sea_nn.app.takeaway import FILES, make_file, write_code
from sea_nn.errors import InputError

TABLE = """
import torch
from sea_nn.app import Columns

def make():
    model = torch.nn.Linear(3, 2)
    torch.nn.init.eye_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return model, Columns(("a", "b", "c"), ("x", "y"), examples=torch.tensor([[1.0, 3.0, 2.0]]))
"""


@pytest.fixture(scope="module")
def session():
    session = Session(load_subject("fashion-cnn"))
    session.choose(session.subject.examples[1])
    session.aim((5, 7))
    list(session.explain(34))
    return session


def test_code_reproduces_the_map_on_the_screen(session, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(write_code(session), found)
    assert torch.equal(found["e"].attribution, session.explanation.attribution)
    assert torch.equal(found["e"].images, session.explanation.images)
    assert found["e"].labels == session.explanation.labels
    assert "Sandal" in capsys.readouterr().out
    assert torch.equal(
        Explanation.load("explanation.safetensors").attribution, session.explanation.attribution
    )


def test_code_has_the_calls_whose_answers_were_used_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session(load_subject("fashion-cnn"))
    session.choose(session.subject.examples[1])
    list(session.explain(40))
    session.aim(7)
    list(session.explain(60))
    found = {}
    exec(write_code(session), found)
    assert torch.equal(found["e"].attribution, session.explanation.attribution)


def test_code_of_a_table_reads_the_upload_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(TABLE)
    (tmp_path / "rows.csv").write_text("4,1,2\n0.5,7,1\n")
    subject = load_subject("own.py:make")
    session = Session(subject)
    session.choose(subject.read("rows.csv", (tmp_path / "rows.csv").read_bytes())[1])
    list(session.explain(16))
    found = {}
    exec(write_code(session), found)
    assert torch.equal(found["e"].attribution, session.explanation.attribution)
    assert found["e"].name(0) == "y"
    assert make_file(session, "figure (SVG)").startswith(b"<?xml")


def test_files_are_what_they_say_and_leave_nothing_behind(session, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = {FILES[what][0]: make_file(session, what) for what in FILES}
    assert os.listdir(tmp_path) == []
    begin = {
        "map.png": b"\x89PNG",
        "map.svg": b"<?xml",
        "map.pdf": b"%PDF",
        "report.html": b"<!doc",
    }
    assert all(files[name].startswith(first) for name, first in begin.items())
    (tmp_path / "e.safetensors").write_bytes(files["explanation.safetensors"])
    loaded = Explanation.load(tmp_path / "e.safetensors")
    assert torch.equal(loaded.attribution, session.explanation.attribution)
    with pytest.raises(InputError, match="there is no file"):
        make_file(session, "everything")

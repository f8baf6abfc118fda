"""What can be taken away is what is on the screen."""

import io
import os

import pytest
import torch
from PIL import Image

from sea_nn import Explanation
from sea_nn.app.load import load_subject
from sea_nn.app.session import Session
from sea_nn.app.takeaway import PANELS, draw_figure, save_explanation, save_report, write_code
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
    assert (tmp_path / "map.png").is_file()
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
    assert draw_figure(session.explanation, "SVG").startswith(b"<?xml")


@pytest.mark.parametrize(
    ("kind", "begins"), [("SVG", b"<?xml"), ("PDF", b"%PDF"), ("PNG", b"\x89")]
)
def test_figure_has_the_format_asked_for(session, kind, begins):
    assert draw_figure(session.explanation, kind).startswith(begins)


def test_figure_has_the_width_panels_and_colours_asked_for(session):
    def draw(**options):
        return Image.open(io.BytesIO(draw_figure(session.explanation, **options)))

    assert draw(width=3.3).size[0] == round(3.3 * 200)
    one, all_ = draw(panels=["SEA"]), draw(panels=PANELS)
    assert one.size[0] == all_.size[0]
    assert one.size[1] > all_.size[1]
    assert draw(colours="Greys_r", panels=["SEA"]).tobytes() != one.tobytes()


@pytest.mark.parametrize(
    "wrong", [{"kind": "EXE"}, {"panels": []}, {"colours": "x"}, {"width": 99}]
)
def test_figure_that_is_not_offered_is_refused(session, wrong):
    with pytest.raises(InputError):
        draw_figure(session.explanation, **wrong)


def test_files_hold_the_explanation_and_leave_nothing_behind(session, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content = save_explanation(session.explanation)
    report = save_report(session.kept)
    assert os.listdir(tmp_path) == []
    (tmp_path / "e.safetensors").write_bytes(content)
    loaded = Explanation.load(tmp_path / "e.safetensors")
    assert torch.equal(loaded.attribution, session.explanation.attribution)
    assert b"<!DOCTYPE html>" in report[:40] or b"<!doctype html>" in report[:40]

"""A visitor's session, without a page: what is asked, remembered, forgotten and taken away."""

import io
import threading
import time

import pytest
import torch
from PIL import Image

from sea_nn import SEA, Explanation
from sea_nn.app.session import Session, Sessions
from sea_nn.app.subjects import load_subject
from sea_nn.app.takeaway import FILES, make_file, write_code
from sea_nn.errors import InputError
from sea_nn.questions.absent import blur


@pytest.fixture(scope="module")
def clothes():
    return load_subject("fashion-cnn")


def begin(subject):
    session = Session(subject)
    session.choose(subject.examples[0])
    return session


@pytest.fixture
def session(clothes):
    return begin(clothes)


@pytest.fixture(scope="module")
def explained(clothes):
    """A session with a map; tests may ask it more, not change its input or class."""
    session = begin(clothes)
    explain(session)
    return session


def explain(session, target=None, budget=34):
    if target is not None:
        session.aim(target)
    return list(session.explain(budget))


def count_spent(e):
    return sum(e.provenance.evaluations.values())


@pytest.mark.parametrize("target", [None, (9, 7)])
def test_map_is_that_of_the_same_call_in_python(session, clothes, target):
    whole = session.score()
    explain(session, target)
    e = SEA(clothes.model, budget=34).explain(session.given.x, target)
    assert torch.equal(session.explanation.attribution, e.attribution)
    assert session.score() == pytest.approx(float(e.score[0]), abs=1e-6)
    if target is None:
        assert session.explanation.labels == ("Ankle boot",)
    else:
        assert session.score() > whole
        assert session.explanation.name(0) == "Ankle boot, not Sneaker"


def test_top_classes_are_sorted_probabilities_of_the_model(session, clothes):
    with torch.no_grad():
        wanted = clothes.model(session.given.x).softmax(1)[0]
    top = session.top()
    assert [a.score for a in top] == sorted((a.score for a in top), reverse=True)
    for answer in top:
        assert answer.score == pytest.approx(float(wanted[answer.target]), abs=1e-6)
        assert answer.label == clothes.labels[answer.target]


def test_first_map_comes_before_the_finer_one(session):
    steps = list(session.explain(80))
    maps = [step.explanation for step in steps if step.explanation is not None]
    spent = list(map(count_spent, maps))
    assert len(spent) > 2
    assert spent == sorted(spent)
    assert spent[0] < 40 < spent[-1] <= 80
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert all(step.done <= step.total == 80 for step in steps)


def test_stop_keeps_the_map_that_is_there(session):
    for step in session.explain(1024):
        if step.explanation is not None:
            session.stop()
    assert count_spent(session.explanation) < 200


def test_another_input_ends_the_work_on_the_first(session, clothes):
    steps = session.explain(1024)
    next(steps)
    session.choose(clothes.examples[1])
    assert [s for s in steps if s.explanation is not None] == []
    assert session.explanation is None
    assert session.top(1)[0].label == "Sandal"


def test_leaving_a_generator_ends_its_thread(session):
    before = threading.active_count()
    steps = session.explain(1024)
    next(steps)
    steps.close()
    assert threading.active_count() == before


def test_evidence_is_what_the_model_says_of_the_set(explained, clothes):
    e, x = explained.explanation, explained.given.x
    found = explained.weigh(10)
    left = e.top_mask(10).unsqueeze(1)
    for kept, said in ((left, found.only), (~left, found.removed)):
        with torch.no_grad():
            wanted = clothes.model(torch.where(kept, x, blur(x))).softmax(1)[0, 9]
        assert said == pytest.approx(float(wanted), abs=1e-5)
    none, whole = explained.weigh(0), explained.weigh(64)
    assert none.only == pytest.approx(whole.removed)
    assert whole.only == pytest.approx(explained.score(), abs=1e-6)


def test_answers_and_members_paid_for_serve_other_classes_and_budgets(session):
    explain(session, budget=64)
    first = session.explanation
    each = [first.provenance.evaluations[name] for name in first.methods]
    for target, budget, reused in ((None, 80, True), (7, 64, False), (9, 64, True)):
        answers = session.explanation.asked.sets.shape[1]
        explain(session, target, budget)
        spent = session.explanation.provenance.evaluations
        assert [spent[m] for m in first.methods] == ([0] * len(each) if reused else each)
        assert session.reused == answers + sum(each) * reused
        assert sum(spent.values()) < 80
    assert torch.equal(first.maps, session.explanation.maps)


def test_members_are_those_asked_for(session):
    methods = ("saliency", "input_x_gradient")
    list(session.explain(34, methods))
    assert session.explanation.methods == methods
    assert [*session.kept][-1].endswith("saliency · input_x_gradient")
    assert {"saliency", "occlusion"} <= set(session.subject.members)


def test_kept_explanations_are_few_and_each_once(session, monkeypatch):
    monkeypatch.setattr("sea_nn.app.session.MOST_KEPT", 2)
    for target in (9, 7, 9, 0):
        explain(session, target, budget=8)
    assert [name.partition(" · ")[0] for name in session.kept] == ["Ankle boot", "T-shirt/top"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        *((lambda s, k=k: s.remove([k]), "0 to 63") for k in (64, -1, "0", None)),
        *((lambda s, t=t: s.aim(t), "classes 0 to 9") for t in (10, -1, (9, 9), (9, 10))),
        (lambda s: s.weigh(65), "0 to 64"),
        (lambda s: begin(s.subject).weigh(3), "no map yet"),
        (lambda s: list(Session(s.subject).explain()), "choose an input"),
        (lambda s: s.subject.read("x", b"1,2"), "no picture"),
    ],
)
def test_what_is_not_there_is_refused(explained, does, said):
    with pytest.raises(InputError, match=said):
        does(explained)


def test_another_model_is_asked_about_the_same_input_if_it_can_read_it(session, clothes, own):
    other = load_subject("fashion-cnn")
    session.choose(clothes.examples[2])
    session.switch(other)
    assert (session.subject, session.given.name) == (other, "Trouser")
    file = io.BytesIO()
    Image.new("L", (28, 28), 90).save(file, "PNG")
    session.read("own.png", file.getvalue())
    session.switch(clothes)
    assert session.given.name == "own.png"
    session.switch(load_subject(f"{own}:table"))  # which cannot read a picture
    assert session.given.name == "example 1"
    session.read("rows.csv", b"1,2,3\n5,6,7")
    assert [given.name for given in session.choices] == ["row 1", "row 2"]


def test_sessions_make_room_for_new_ones_and_stop_working(clothes):
    sessions = Sessions(most=2)
    session = sessions.start("a", clothes)
    session.choose(clothes.examples[0])
    sessions.start("b", clothes)
    assert sessions.find("a") is session is not sessions.find("b")
    steps = session.explain(1024)
    next(steps)
    sessions.start("c", clothes)
    started = time.monotonic()
    assert [s for s in steps if s.explanation is not None] == []
    assert time.monotonic() - started < 60
    sessions.end("b")
    for gone in "ab":
        with pytest.raises(InputError, match="reload"):
            sessions.find(gone)


@pytest.mark.parametrize("kind", ["fashion-cnn", "table", "series", "text"])
def test_every_kind_has_the_same_flow_and_its_code_gives_its_map(kind, own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = begin(load_subject(kind if kind == "fashion-cnn" else f"{own}:{kind}"))
    explain(session, budget=40)
    before = session.explanation
    assert session.weigh(before.order.shape[1]).only == pytest.approx(session.score(), abs=1e-5)
    explain(session, target=int(session.target == 0), budget=60)
    e = session.explanation
    assert session.reused >= before.asked.sets.shape[1]
    found = {}
    exec(write_code(session), found)
    saved = Explanation.load("explanation.safetensors")
    for other in (found["e"], saved):
        assert torch.equal(other.attribution, e.attribution)
        assert other.name(0) == e.name(0)


def test_code_of_an_upload_reads_it_again(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("4,1,2\n0.5,7,1\n")
    session = Session(load_subject(f"{own}:table"))
    session.read("rows.csv", (tmp_path / "rows.csv").read_bytes())
    session.choose(session.choices[1])
    explain(session, budget=16)
    found = {}
    exec(write_code(session), found)
    assert torch.equal(found["e"].attribution, session.explanation.attribution)
    series = load_subject(f"{own}:series")
    assert series.read("s.csv", b"1,2\n" * 16)[0].x.shape == (1, 2, 16)
    with pytest.raises(InputError, match="16"):
        series.read("s.csv", b"1,2\n3,4\n")


def test_files_are_what_they_say_and_leave_nothing_behind(explained, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = {FILES[what][0]: make_file(explained, what) for what in FILES}
    assert list(tmp_path.iterdir()) == []
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert all(files[f"map.{suffix}"].startswith(first) for suffix, first in begins.items())
    assert files["report.html"].startswith(b"<!doc")
    (tmp_path / "e.safetensors").write_bytes(files["explanation.safetensors"])
    loaded = Explanation.load(tmp_path / "e.safetensors")
    assert torch.equal(loaded.attribution, explained.explanation.attribution)


def test_request_overtaken_by_the_next_leaves_the_page_as_it_is(session):
    gr = pytest.importorskip("gradio", reason="pip install 'sea-nn[app]'")
    from sea_nn.app.events import Events

    events = Events([session.subject], Sessions())
    request = gr.Request(session_hash="a")
    own = events.sessions.start("a", session.subject)
    own.choose(session.given)
    sent = events.explain(34, [], request)
    first = next(sent)
    own.take_turn()
    # Of an answer without any part Gradio makes None for everything shown.
    assert first == (gr.skip(), "", gr.skip())
    assert list(sent) == []

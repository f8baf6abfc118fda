"""A visitor's session, without a page: what is asked, remembered and forgotten."""

import io
import threading
import time
from functools import partial

import pytest
import torch
from PIL import Image

from sea_nn import SEA
from sea_nn.app import cores
from sea_nn.app.load import Columns, load_subject, of_columns, of_texts
from sea_nn.app.session import Session, Sessions
from sea_nn.app.takeaway import write_code
from sea_nn.errors import InputError
from sea_nn.questions.absent import blur


@pytest.fixture(scope="module")
def clothes():
    return load_subject("fashion-cnn")


@pytest.fixture
def session(clothes):
    session = Session(clothes)
    session.choose(clothes.examples[0])
    return session


@pytest.fixture(scope="module")
def explained(clothes):
    """A session with a map; tests may ask it more, not change its input or class."""
    session = Session(clothes)
    session.choose(clothes.examples[0])
    explain(session)
    return session


def explain(session, target=None, budget=34):
    if target is not None:
        session.aim(target)
    return list(session.explain(budget))


def test_map_is_that_of_the_same_call_in_python(explained, clothes):
    given = clothes.examples[0]
    e = SEA(clothes.model, budget=34).explain(given.x)
    assert torch.equal(explained.explanation.attribution, e.attribution)
    assert explained.explanation.labels == ("Ankle boot",)


def test_top_classes_are_sorted_probabilities_of_the_model(session, clothes):
    with torch.no_grad():
        wanted = clothes.model(session.given.x).softmax(1)[0]
    top = session.top()
    assert [a.score for a in top] == sorted((a.score for a in top), reverse=True)
    for answer in top:
        assert answer.score == pytest.approx(float(wanted[answer.target]), abs=1e-6)
        assert answer.label == clothes.labels[answer.target]


def test_first_map_comes_before_the_finer_one(session):
    steps = list(session.explain(128))
    maps = [step.explanation for step in steps if step.explanation is not None]
    spent = [sum(e.provenance.evaluations.values()) for e in maps]
    assert len(spent) > 2
    assert spent == sorted(spent)
    assert spent[0] < 64 < spent[-1] <= 128
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert all(step.done <= step.total == 128 for step in steps)


def test_stop_keeps_the_map_that_is_there(session):
    for step in session.explain(1024):
        if step.explanation is not None:
            session.stop()
    assert sum(session.explanation.provenance.evaluations.values()) < 200


def test_another_input_ends_the_work_on_the_first(session, clothes):
    steps = session.explain(1024)
    next(steps)
    session.choose(clothes.examples[1])
    assert [s for s in steps if s.explanation is not None] == []
    assert session.explanation is None
    assert session.top(1)[0].label == "Sandal"


def test_another_budget_begins_with_what_the_first_has_found(session):
    for step in session.explain(1024):
        if step.explanation is not None:
            steps = list(session.explain(34))
            break
    assert [budget for _, budget, *_ in session.calls] == [1024, 34]
    assert session.reused > 20
    assert steps[-1].total == 34


def test_leaving_a_generator_ends_its_thread(session):
    before = threading.active_count()
    steps = session.explain(1024)
    next(steps)
    steps.close()
    assert threading.active_count() == before


def test_an_explanation_has_the_cores_and_all_else_one(monkeypatch):
    monkeypatch.setattr(cores, "_CORES", 0)
    found, before = {}, torch.get_num_threads()

    def note(name, started=None):
        if started is not None:
            started.wait()  # the starter has one core again
        found[name] = torch.get_num_threads()

    try:
        torch.set_num_threads(3)
        cores.share_cores()
        for _ in range(2):
            started = threading.Event()
            thread = cores.start(partial(note, "explanation", started))
            started.set()
            thread.join()
        other = threading.Thread(target=note, args=("another",))
        other.start()
        other.join()
        note("starter")
    finally:
        torch.set_num_threads(before)
    assert found == {"explanation": 3, "another": 1, "starter": 1}


def test_evidence_is_what_the_model_says_of_the_set(explained, clothes):
    e, x = explained.explanation, explained.given.x
    found = explained.weigh(10)
    left = e.top_mask(10).unsqueeze(1)
    for kept, said in ((left, found.only), (~left, found.removed)):
        with torch.no_grad():
            wanted = clothes.model(torch.where(kept, x, blur(x))).softmax(1)[0, 9]
        assert said == pytest.approx(float(wanted), abs=1e-5)


def test_evidence_at_both_ends_is_the_whole_input_and_none_of_it(explained):
    none, whole = explained.weigh(0), explained.weigh(64)
    assert none.only == pytest.approx(whole.removed)
    assert whole.only == pytest.approx(explained.score(), abs=1e-6)


def test_what_was_asked_is_not_asked_again(explained):
    explained.weigh(5)
    asked = explained.evaluations
    explained.weigh(5)
    assert explained.evaluations == asked
    explained.remove(explained.explanation.order[0, :5].tolist())  # the same set, by hand
    assert explained.evaluations == asked


def test_answers_serve_every_class(session):
    explain(session)
    cells = [1, 2, 3]
    asked = session.evaluations
    first = session.remove(cells)
    explain(session, target=7)
    asked += 1 + sum(session.explanation.provenance.evaluations.values())
    assert session.remove(cells) == first
    assert session.evaluations == asked


def test_answers_paid_for_serve_the_next_class_and_a_larger_budget(session):
    explain(session, budget=64)
    explain(session, target=7, budget=64)
    assert sum(session.explanation.provenance.evaluations.values()) < 40
    assert session.reused >= 30
    explain(session, budget=128)
    assert sum(session.explanation.provenance.evaluations.values()) < 100


def test_members_paid_for_serve_another_budget_and_a_class_explained_before(session):
    explain(session, budget=64)
    first = session.explanation
    each = [first.provenance.evaluations[name] for name in first.methods]
    for target, budget, reused in ((None, 128, True), (7, 64, False), (9, 64, True)):
        answers = session.explanation.asked.sets.shape[1]
        explain(session, target, budget)
        spent = session.explanation.provenance.evaluations
        assert [spent[m] for m in first.methods] == ([0] * len(each) if reused else each)
        assert session.reused == answers + sum(each) * reused
    assert torch.equal(first.maps, session.explanation.maps)


def test_removing_and_keeping_are_complements(explained):
    cells = list(range(20))
    others = [k for k in range(64) if k not in cells]
    assert explained.remove(cells) == explained.remove(others, keep=True)


@pytest.mark.parametrize("cells", [[64], [-1], ["0"], [None]])
def test_cells_that_are_not_there_are_refused(explained, cells):
    with pytest.raises(InputError, match="0 to 63"):
        explained.remove(cells)


def test_what_needs_a_map_says_so(session):
    with pytest.raises(InputError, match="no map yet"):
        session.weigh(3)
    with pytest.raises(InputError, match="choose an input"):
        list(Session(session.subject).explain())


def test_kept_explanations_are_few_and_each_once(session, monkeypatch):
    monkeypatch.setattr("sea_nn.app.session.MOST_KEPT", 2)
    for target in (9, 7, 9, 0):
        explain(session, target, budget=8)
    names = [kept.name for kept in session.kept]
    assert [name.partition(" · ")[0] for name in names] == ["Ankle boot", "T-shirt/top"]


def test_classes_are_set_against_each_other(session, clothes):
    whole = session.score()
    explain(session, (9, 7))
    e = SEA(clothes.model, budget=34).explain(session.given.x, (9, 7))
    assert torch.equal(session.explanation.attribution, e.attribution)
    assert session.score() == pytest.approx(float(e.score[0]), abs=1e-6)
    assert session.score() > whole
    assert session.name_target() == "Ankle boot and not Sneaker"


@pytest.mark.parametrize("target", [10, -1, (9, 9), (9, 10)])
def test_classes_that_are_not_there_are_refused(session, target):
    with pytest.raises(InputError, match="classes 0 to 9"):
        session.aim(target)


def test_another_model_is_asked_about_the_same_input_if_it_can_read_it(session, clothes, tmp_path):
    other = load_subject("fashion-cnn")
    session.choose(clothes.examples[2])
    session.switch(other)
    assert (session.subject, session.given.name) == (other, "Trouser")
    file = io.BytesIO()
    Image.new("L", (28, 28), 90).save(file, "PNG")
    session.read("own.png", file.getvalue())
    session.switch(clothes)
    assert session.given.name == "own.png"
    session.switch(table())  # which cannot read a picture
    assert session.given.name == "example 1"
    session.read("rows.csv", b"1,2,3,4\n5,6,7,8")
    assert [given.name for given in session.choices] == ["row 1", "row 2"]


def test_sessions_make_room_for_new_ones(clothes):
    sessions = Sessions(most=3)
    for key in "abc":
        sessions.start(key, clothes)
    sessions.find("a")
    sessions.start("d", clothes)
    assert len(sessions) == 3
    with pytest.raises(InputError, match="reload"):
        sessions.find("b")
    assert sessions.find("a") is not sessions.find("c")
    sessions.end("a")
    with pytest.raises(InputError, match="reload"):
        sessions.find("a")


def test_a_session_that_makes_room_stops_working(clothes):
    sessions = Sessions(most=1)
    session = sessions.start("a", clothes)
    session.choose(clothes.examples[0])
    steps = session.explain(1024)
    next(steps)
    sessions.start("b", clothes)
    started = time.monotonic()
    assert [s for s in steps if s.explanation is not None] == []
    assert time.monotonic() - started < 60


def table():
    weight = torch.tensor([[0.0, 2.0, -1.0, 0.0], [0.0, -2.0, 1.0, 0.0]])
    model = torch.nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.zero_()
    rows = torch.tensor([[1.0, 3.0, 0.5, 2.0], [1.0, -1.0, 2.0, 0.0]])
    return of_columns("m", model.eval(), Columns(("a", "b", "<i>", "d"), ("no", "yes"), None, rows))


def test_tables_have_the_same_flow():
    subject = table()
    session = Session(subject)
    session.choose(subject.read("t.csv", b"a,b,c,d\n1,3,0.5,2\n")[0])
    assert session.top(1)[0].label == "no"
    explain(session)
    assert session.explanation.name_feature(int(session.explanation.order[0, 0])) == "b"
    assert session.weigh(1).only > session.weigh(1).removed


def test_series_have_the_same_flow():
    class Peak(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x[:, 0, 4:8].sum(1), x[:, 1].mean(1)], 1)

    columns = Columns(("one", "two"), ("peak", "flat"), 12, torch.rand(2, 2, 12))
    subject = of_columns("m", Peak().eval(), columns)
    session = Session(subject)
    rows = [f"{3.0 * (4 <= t < 8)},0.5" for t in range(12)]
    session.choose(subject.read("s.csv", "\n".join(rows).encode())[0])
    assert session.given.x.shape == (1, 2, 12)
    explain(session)
    assert session.top(1)[0].label == "peak"
    with pytest.raises(InputError, match="12"):
        subject.read("s.csv", b"1,2\n3,4\n")


def test_texts_have_the_same_flow():
    from tests.helpers.texts import make_classifier, make_tokenizer

    sea = SEA.for_text(make_classifier(), make_tokenizer())
    subject = of_texts("m", sea, ["the film was not bad, very good acting!"])
    session = Session(subject)
    session.choose(subject.examples[0])
    maps = [step.explanation for step in session.explain(64) if step.explanation is not None]
    assert len(maps) > 2
    before = session.explanation
    explain(session, target=(session.target + 1) % 3, budget=64)
    assert session.reused == before.asked.sets.shape[1]
    spent = [sum(e.provenance.evaluations.values()) for e in (before, session.explanation)]
    assert spent[1] < spent[0] / 2
    found = {"subject": subject}
    exec("\n".join(line for line in write_code(session).splitlines()[3:-2]), found)
    assert torch.equal(found["e"].attribution, session.explanation.attribution)


def test_members_are_those_asked_for(session):
    methods = ("saliency", "input_x_gradient")
    list(session.explain(34, methods))
    assert session.explanation.methods == methods
    assert session.kept[-1].name.endswith("saliency · input_x_gradient")
    assert {"saliency", "occlusion"} <= set(session.subject.members)


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

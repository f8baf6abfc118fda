"""Views of the page: tables, series, texts, comparing, results of a run."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sea_nn import SEA, explain_dataset, read_dataset
from sea_nn.app import gallery
from tests.app.conftest import DONE, SERVED

pytestmark = SERVED


def test_table_has_bars_rows_to_choose_and_a_trial(b):
    b.choose_model(1)
    assert b.texts(".sea-feature .sea-name")[0] == "<b>a</b>"
    gains = dict(
        zip(*b.run("const m = sea.page.state.map; return [m.order, m.gains]"), strict=True)
    )
    widths = b.run(
        "return [...document.querySelectorAll('.sea-feature .sea-bar:first-child')]"
        ".map(bar => parseFloat(bar.style.width))"
    )
    wanted = [100 * max(0, gain) / max(gains.values()) for gain in gains.values()]
    assert widths == pytest.approx(wanted, abs=0.1)
    assert b.run("return document.getElementById('picture-only').hidden")
    b.bring("rows.csv", b"a,b,c\n0,5,1\n4,1,1\n")
    b.wait(f"sea.page.state.input === 'row 1' && {DONE}", 60)
    assert b.texts(".sea-thumb") == ["row 1", "row 2"]
    assert b.texts("#classes .sea-name")[0] == "y"
    b.run("document.querySelectorAll('.sea-feature')[0].click()")
    b.wait("document.querySelector('#trial [data-count=\"1\"]')")


def test_series_has_lines_with_shaded_spans_and_a_trial(b):
    b.choose_model(2)
    assert b.texts("#classes .sea-name")[0] == "peak"
    rows, columns = b.run("return sea.page.state.map.grid")
    best = b.run("return sea.page.state.map.order[0]")
    assert (best // columns, 4 <= best % columns * 16 // columns < 8) == (0, True)
    drawn = (
        "const c = document.querySelector('.sea-frame canvas'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return new Set(d).size"
    )
    b.wait(f"(() => {{ {drawn} }})() > 20")  # lines, and more than two shades of heat
    b.run("document.querySelectorAll('.sea-cell')[arguments[0]].click()", best)
    b.wait("document.querySelector('#trial [data-count=\"1\"]')")
    assert b.run("return document.querySelectorAll('.sea-cell').length") == rows * columns


def test_text_has_coloured_words_typing_and_a_trial(b):
    b.choose_model(3)
    assert not b.run("return document.querySelector('.sea-typing').hidden")
    b.set("sea-typed", "the film was not bad, <b>very</b> good acting!")
    b.run("document.querySelector('.sea-typing button').click()")
    b.wait(f"sea.page.state.input.startsWith('the film') && {DONE}", 60)
    words = ["the", "film", "was", "not", "bad,", "<b>very</b>", "good", "acting!"]
    assert b.texts(".sea-word") == words
    order, gains, against = b.run(
        "const m = sea.page.state.map; return [m.order, m.gains, m.against]"
    )
    net = {k: max(0, g) - against[k] for k, g in zip(order, gains, strict=True)}
    shares = b.run(
        "return [...document.querySelectorAll('.sea-word')].map(word =>"
        " [word.classList.contains('against'), word.style.getPropertyValue('--share')])"
    )
    most = max(map(abs, gains))
    for k, (contra, share) in enumerate(shares):
        wanted = 70 * min(1, abs(net[k]) / most) ** 0.5
        assert (contra, float(share.rstrip("%"))) == (net[k] < 0, pytest.approx(wanted, abs=0.6))
    best = order[0]
    b.run("document.querySelectorAll('.sea-word')[arguments[0]].focus()", best)
    does = "adds" if gains[0] >= 0 else "takes away"
    assert b.texts(".sea-read")[0].startswith(f"{words[best]}: 1. of 8, {does} {abs(gains[0]):.3g}")
    b.run("document.querySelectorAll('.sea-word')[arguments[0]].click()", best)
    b.wait("document.querySelector('#trial [data-count=\"1\"]')")
    assert len(b.texts("#trial .sea-name")) == 3
    b.set("sea-p", 3)
    b.wait("document.querySelector('#evidence [data-measured=\"3\"]')")


def compare(b, first, second, layers=("SEA", "SEA")):
    """Choose two of the explanations that were kept, by what their names hold."""
    b.open_tab(1)
    kept = b.run("return sea.page.state.kept")
    for side, wanted, layer in zip("ab", (first, second), layers, strict=True):
        name = next(name for name in kept if all(part in name for part in wanted))
        b.set(f"sea-{side}", name, "change")
        title = (
            f"document.querySelectorAll('#compare figcaption')['ab'.indexOf('{side}')].textContent"
        )
        b.wait(f"{title}.includes('{name}')")
        b.set(f"sea-{side}-layer", layer, "change")
    return b.texts("#compare figcaption"), b.texts("#compare .sea-note")[0]


def test_inputs_classes_models_and_methods_are_compared(ask):
    own = ask.run("return sea.page.state.kept[0]")
    assert "Ankle boot" in own
    ask.run("document.querySelectorAll('.sea-thumb')[1].click()")
    ask.wait(f"sea.page.state.input === 'Sandal' && {DONE}", 60)
    ask.open_tab(1)
    newest = [f"Sandal · Sandal · {own.split(' · ')[2]}", own]
    assert [ask.run(f"return document.getElementById('sea-{s}').value") for s in "ab"] == newest
    titles, says = compare(ask, ("Sandal · Sandal",), ("Ankle boot ·",))
    assert titles == [f"A: SEA of {newest[0]}", f"B: SEA of {own}"]
    assert "One colour scale for both" in says
    assert float(says.rpartition(": ")[2].rstrip(".")) < 1
    titles, says = compare(ask, ("Sandal · Sandal",), ("Sandal · Sandal",), ("SEA", "deeplift"))
    assert titles[1].startswith("B: deeplift of Sandal")
    assert float(says.rpartition(": ")[2].rstrip(".")) < 1
    ask.open_tab(0)
    ask.run("document.querySelector('#classes .sea-not').click()")
    ask.wait(f"Array.isArray(sea.page.state.target) && {DONE}", 60)
    titles, _ = compare(ask, ("Sandal and not", "Sandal"), ("Sandal · Sandal",))
    assert "Sandal and not" in titles[0]
    ask.open_tab(0)
    ask.choose_model(1)
    titles, says = compare(ask, ("own.py:table",), ("fashion-cnn",))
    assert "own.py:table" in titles[0]
    assert "fashion-cnn" in titles[1]
    assert says.endswith("none, as their sizes differ.")


def test_comparison_blinks_and_swipes(asked):
    asked.open_tab(1)
    asked.run("[...document.querySelectorAll('#compare button')][2].click()")
    asked.run(
        "const s = document.querySelector('#compare input[type=range]'); s.value = 30;"
        "s.dispatchEvent(new Event('input'))"
    )
    assert "70%" in asked.run("return document.querySelector('#compare figure').style.clipPath")
    assert asked.texts("#compare .sea-note")[0].startswith("On the left A: SEA of ")
    asked.run("[...document.querySelectorAll('#compare button')][1].click()")
    first = asked.run("return document.querySelector('.sea-compare').dataset.shown")
    asked.wait(f"document.querySelector('.sea-compare').dataset.shown !== '{first}'")
    asked.run("[...document.querySelectorAll('#compare button')][0].click()")


def items(b):
    return b.texts("#gallery .sea-id")


def wait_for_items(b, ids):
    shown = "[...document.querySelectorAll('#gallery .sea-id')].map(n => n.textContent)"
    b.wait(f"JSON.stringify({shown}) === '{json.dumps(ids, separators=(',', ':'))}'")


def choose_option(b, name, option):
    """Choose from one of Gradio's lists with the mouse; it listens to the button going down."""
    b.run(f"const i = document.querySelector('#{name} input'); i.focus(); i.click()")
    b.wait(f"document.querySelectorAll('#{name} [role=option]').length")
    b.run(
        f"[...document.querySelectorAll('#{name} [role=option]')]"
        ".find(o => o.textContent.includes(arguments[0]))"
        ".dispatchEvent(new MouseEvent('mousedown', {bubbles: true}))",
        option,
    )


def test_results_are_filtered(b, results, monkeypatch):
    data = read_dataset(results)
    by_agreement = data.select(failed=False, sort="agreement")
    monkeypatch.setattr(gallery, "LITTLE", data[by_agreement[1]].row["agreement"])
    b.open_tab(2)
    b.run("document.querySelectorAll('#which input')[0].click()")
    b.wait("document.querySelector('#gallery').textContent.includes('6 shown')")
    wanted = {1: ["Sneaker/101.png"], 4: ["Bag/broken.png"], 3: ["Sandal/black.png"]}
    for number, ids in wanted.items():
        b.run("document.querySelectorAll('#which input')[arguments[0]].click()", number)
        wait_for_items(b, ids)
    assert b.texts("#gallery .sea-item span")[0].endswith("1 check failed")
    b.run("document.querySelector('#gallery .sea-item').click()")
    b.wait("document.querySelector('#opened [data-id=\"Sandal/black.png\"] canvas')")
    assert b.texts("#opened .sea-checks li") == [
        "failedinput x gradient: its map is the same everywhere, so it does not count"
    ]
    b.run("document.querySelectorAll('#which input')[2].click()")
    wait_for_items(b, sorted(by_agreement[:2]))
    b.run("document.querySelectorAll('#which input')[0].click()")
    choose_option(b, "class", "Sandal")
    wait_for_items(b, ["Sandal/100.png", "Sandal/black.png", "Sneaker/101.png"])
    choose_option(b, "class", "every class")
    b.wait("document.querySelector('#gallery').textContent.includes('6 shown')")


def test_results_are_sorted_and_turned_page_by_page(b, results):
    b.open_tab(2)
    choose_option(b, "sort", "lowest score first")
    data = read_dataset(results)
    up = data.select(failed=False, sort="score")
    wait_for_items(b, up[:4])
    b.run("[...document.querySelectorAll('#gallery button')].at(-1).click()")
    b.wait("document.querySelector('#gallery').textContent.includes('Page 2 of 2')")
    assert items(b) == up[4:]
    b.run("[...document.querySelectorAll('#gallery button')].at(-2).click()")
    b.wait("document.querySelector('#gallery').textContent.includes('Page 1 of 2')")
    choose_option(b, "sort", "highest score first")
    wait_for_items(b, up[::-1][:4])
    choose_option(b, "sort", "least agreement first")
    wait_for_items(b, data.select(failed=False, sort="agreement")[:4])
    choose_option(b, "sort", "as they come")
    wait_for_items(b, data.select(failed=False)[:4])


def test_result_is_opened_and_the_model_is_asked_about_it(asked):
    b = asked
    b.open_tab(2)
    b.run("document.querySelectorAll('#which input')[1].click()")
    b.wait("document.querySelectorAll('#gallery .sea-item').length === 1")
    b.run("document.querySelector('#gallery .sea-item').click()")
    b.wait("document.querySelector('#opened [data-id=\"Sneaker/101.png\"] canvas')")
    says = b.texts("#opened p")[0]
    assert says.startswith("The model says Sandal, ")
    assert "which is wrong: it is Sneaker. Agreement of the members: " in says
    b.run("document.querySelectorAll('#which input')[0].click()")
    b.run("document.getElementById('sea-ask').click()")
    b.wait(f"sea.page.state?.input === 'Sneaker/101.png' && {DONE}", 60)
    assert b.texts("#classes .sea-name")[0] == "Sandal"


def explain_all(x, out):
    """The gallery of a run over a tensor of inputs."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), 2))
    explain_dataset(x, SEA(model, ("saliency", "input_x_gradient")), out, quiet=True)
    return gallery.Gallery(out)


@pytest.mark.parametrize("shape", [(1, 4, 8, 6), (2, 12), (5,)])
def test_volume_series_or_row_of_a_run_is_opened_as_a_figure(b, tmp_path, shape):
    draw = torch.Generator().manual_seed(0)
    found = explain_all(torch.rand(2, *shape, generator=draw), tmp_path / "out")
    if len(shape) == 4:  # its thumbnail is of the middle slice, and so is the map over it
        one = found.data["1"]
        seen = SimpleNamespace(map=one.map[2], view="picture", thumbnail=one.thumbnail)
        assert found.show(["1"])["items"][0]["url"] == gallery._draw(seen)
    b.run(
        "const place = document.createElement('div'); place.id = 'figure-of-a-run';"
        "document.body.append(place);"
        "sea.opened(place, {value: JSON.parse(arguments[0])}, () => {}, () => {})",
        json.dumps(found.open("1")),
    )
    b.wait("document.querySelector('#figure-of-a-run img').naturalWidth > 300")
    b.run("document.getElementById('figure-of-a-run').remove()")


def test_package_data_has_every_script_of_the_page():
    from sea_nn.app.page import SCRIPTS, read_asset

    folder = Path(__file__).parents[2] / "src" / "sea_nn" / "app"
    assert sorted(SCRIPTS) == sorted(path.name for path in folder.glob("*.js"))
    assert all(map(read_asset, (*SCRIPTS, "page.css")))

"""The keyboard alone: every control is reached, shows the focus, and can be used."""

import pytest

from tests.app.conftest import DONE

# The server runs beside the tests, and Gradio warns of pandas.
pytestmark = pytest.mark.filterwarnings("default")
CONTROLS = """
const shown = (n) => n.getClientRects().length && getComputedStyle(n).visibility !== 'hidden';
const controls = [...document.querySelectorAll('button, input, select, textarea, [tabindex]')]
  .filter((n) => shown(n) && !n.disabled);
"""
# Of a group in which arrows move, one is reached by the Tab key.
GROUP = """
const group = (n) => n.type === 'radio' ? n.name : n.closest('.sea-cells, .sea-tabs') ?? n;
"""
LIST = f"{CONTROLS}{GROUP} return new Set(controls.filter((n) => n.tabIndex >= 0).map(group)).size"
WALK = f"""{GROUP}
const n = document.activeElement, seen = window.seen ??= new Map(), key = group(n);
if (n === document.body) return ['', true];  // the end of the page, then its beginning
if (seen.get(key) === n) return [null, true];
seen.set(key, n);
const rings = [n, n.nextElementSibling, n.closest('label, .wrap')].filter(Boolean);
const ring = rings.some((m) => {{ const s = getComputedStyle(m);
  return (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0); }});
return [n.id || n.getAttribute('aria-label') || n.textContent.trim() || n.className, ring];
"""


def press(b, name, times=1):
    from selenium.webdriver import Keys

    b.press(*[getattr(Keys, name)] * times)


def focus(b, selector, number=0):
    """Put the focus on a control, from which keys go on."""
    b.run(
        "document.querySelectorAll(arguments[0])[arguments[1]].focus({focusVisible: true})",
        selector,
        number,
    )


@pytest.mark.parametrize(("view", "model"), [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (0, 3)])
def test_tab_key_reaches_every_control_and_shows_where_it_is(ask, view, model):
    ask.open_tab(view)
    if model:
        ask.choose_model(model)
    ask.run("window.seen = undefined; document.activeElement.blur()")
    reached = []
    for _ in range(200):
        press(ask, "TAB")
        name, ring = ask.run(WALK)
        if name is None:
            break
        reached.append((name, ring))
    assert [name for name, ring in reached if not ring] == []
    assert ask.run("return seen.size") == ask.run(LIST), reached


def focused(b):
    """The name of the control that has the focus."""
    return b.run(
        "const n = document.activeElement;"
        "return n.getAttribute('aria-label') ?? n.querySelector('.sea-name')?.textContent ?? n.id"
    )


def test_keys_choose_an_input_a_class_a_budget_and_mark_cells(ask):
    focus(ask, ".sea-thumb", 1)
    press(ask, "ENTER")
    ask.wait(f"sea.page.state.input === 'Sandal' && {DONE}", 60)
    assert focused(ask) == "Explain Sandal"  # what an answer draws anew keeps the focus
    focus(ask, "#classes .sea-row")
    press(ask, "TAB")  # to the second class
    press(ask, "ENTER")
    ask.wait(f"sea.page.state.target !== 5 && {DONE}", 60)
    assert focused(ask) == ask.run("return sea.page.state.label")
    focus(ask, "#classes .sea-not")
    press(ask, "SPACE")
    ask.wait(f"Array.isArray(sea.page.state.target) && {DONE}", 60)
    assert focused(ask) == "Why not Sandal?"
    focus(ask, "#sea-other")
    ask.press("Bag")
    press(ask, "ENTER")
    ask.wait(f"sea.page.state.target === 8 && {DONE}", 60)
    for number in (1, 0):
        turn = ask.run("return sea.page.turn")
        focus(ask, "#budget input", number)
        press(ask, "SPACE")
        ask.wait(f"sea.page.turn > {turn} && {DONE}", 60)
    focus(ask, ".sea-cell")
    press(ask, "ARROW_RIGHT")
    press(ask, "ARROW_DOWN")
    press(ask, "SPACE")
    ask.wait("document.querySelector('#trial [data-count=\"1\"]')")
    assert ask.run("return [...sea.page.marked]") == [9]
    assert "row 2, column 2" in ask.texts(".sea-read")[0]
    focus(ask, "#trial button", 1)
    press(ask, "SPACE")
    ask.wait("document.querySelector('#trial').textContent.includes('With only 1 cell left the')")
    focus(ask, "#trial button", 2)
    press(ask, "ENTER")
    assert ask.run("return sea.page.marked.size") == 0
    before = ask.run("return sea.page.p")
    focus(ask, "#sea-p")
    press(ask, "ARROW_RIGHT", 2)
    assert ask.run("return sea.page.p") == before + 2


def test_keys_stop_a_map_and_open_the_file_dialogue(ask):
    focus(ask, "#budget input", 3)
    press(ask, "SPACE")
    ask.wait("sea.page.running && sea.page.state.map")
    focus(ask, "#sea-stop")
    press(ask, "ENTER")
    ask.wait(f"!sea.page.running && {DONE}", 60)
    assert ask.run("return sea.page.state.map.spent") < 1000
    focus(ask, "#budget input", 0)
    press(ask, "SPACE")
    ask.wait(f"sea.page.state.map?.code.includes('34)]') && {DONE}", 60)
    # The key is a click on the input of files, which opens the dialogue unless it is prevented.
    ask.run(
        "window.asked = 0; document.getElementById('sea-file')"
        ".addEventListener('click', (event) => { asked += 1; event.preventDefault(); },"
        " {once: true})"
    )
    focus(ask, "#sea-file")
    press(ask, "SPACE")
    assert ask.run("return asked") == 1


def test_keys_switch_views_compare_and_take_away(ask):
    focus(ask, "#kind input", 2)
    press(ask, "SPACE")
    focus(ask, "#panels input", 2)
    press(ask, "SPACE")
    focus(ask, "#take-figure")
    press(ask, "ENTER")
    ask.wait("document.querySelector('#parcel').textContent.includes('Saved as map.pdf')")
    focus(ask, "#tab-0")
    press(ask, "ARROW_RIGHT")
    assert ask.run("return !document.getElementById('view-1').hidden")
    focus(ask, "#sea-a-layer")
    press(ask, "ARROW_DOWN")
    ask.wait("document.querySelector('#compare figcaption').textContent.startsWith('A: deeplift')")
    focus(ask, "#compare button", 2)
    press(ask, "SPACE")
    focus(ask, "#compare input[type=range]")
    press(ask, "ARROW_RIGHT", 3)
    clip = ask.run("return document.querySelector('#compare figure').style.clipPath")
    assert "47%" in clip
    focus(ask, "#compare button", 0)
    press(ask, "SPACE")
    focus(ask, "#tab-1")
    press(ask, "ARROW_RIGHT")
    focus(ask, "#which input", 1)
    press(ask, "SPACE")
    ask.wait("document.querySelectorAll('#gallery .sea-item').length === 1")
    focus(ask, "#gallery .sea-item")
    press(ask, "ENTER")
    ask.wait("document.querySelector('#opened [data-id=\"Sneaker/101.png\"] canvas')")
    ask.wait("document.activeElement.closest('#opened')")  # the focus goes to what was opened
    focus(ask, "#which input", 0)
    press(ask, "SPACE")
    ask.wait("document.querySelectorAll('#gallery .sea-item').length === 4")

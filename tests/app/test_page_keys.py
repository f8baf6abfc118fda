"""For everyone: every view in a narrow and a wide window, for axe-core, and by keys alone."""

import pytest

from tests.app.conftest import DONE, SERVED

pytestmark = SERVED
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


def check_tab_key(b):
    """The Tab key reaches every control and shows where it is."""
    b.run("window.seen = undefined; document.activeElement.blur()")
    reached = []
    for _ in range(200):
        press(b, "TAB")
        name, ring = b.run(WALK)
        if name is None:
            break
        reached.append((name, ring))
    assert [name for name, ring in reached if not ring] == []
    assert b.run("return seen.size") == b.run(LIST), reached


@pytest.mark.parametrize("dark", [False, True])
def test_every_view_fits_its_window_passes_axe_and_is_walked_by_the_tab_key(asked, axe, dark):
    b = asked
    width, height = (1400, 1000) if dark else (400, 800)
    # Colours fade from light to dark, and axe must not see the middle.
    still = "* { transition: none !important }"
    b.run(f"document.head.insertAdjacentHTML('beforeend', '<style>{still}</style>')")
    b.run(f"document.body.classList.toggle('dark', {str(dark).lower()})")

    def check():
        b.wait(f"document.documentElement.scrollWidth <= {width}")
        assert b.find_faults(axe) == []
        if dark:
            check_tab_key(b)

    with b.window(width, height, dark):
        for view in range(3):
            b.open_tab(view)
            check()
        for model in (1, 2, 3):
            b.choose_model(model)
            check()
    b.run("document.body.classList.remove('dark')")


def focused(b):
    """The name of the control that has the focus."""
    return b.run(
        "const n = document.activeElement;"
        "return n.getAttribute('aria-label') ?? n.querySelector('.sea-name')?.textContent ?? n.id"
    )


def test_keys_choose_an_input_a_class_a_budget_and_mark_cells(asked):
    focus(asked, ".sea-thumb", 1)
    press(asked, "ENTER")
    asked.wait(f"sea.page.state.input === 'Sandal' && {DONE}", 60)
    assert focused(asked) == "Explain Sandal"  # what an answer draws anew keeps the focus
    focus(asked, "#classes .sea-row")
    press(asked, "TAB")  # to the second class
    press(asked, "ENTER")
    asked.wait(f"sea.page.state.target !== 5 && {DONE}", 60)
    assert focused(asked) == asked.run("return sea.page.state.label")
    focus(asked, "#classes .sea-not")
    press(asked, "SPACE")
    asked.wait(f"Array.isArray(sea.page.state.target) && {DONE}", 60)
    assert focused(asked) == "Why not Sandal?"
    focus(asked, "#sea-other")
    asked.press("Bag")
    press(asked, "ENTER")
    asked.wait(f"sea.page.state.target === 8 && {DONE}", 60)
    for number in (1, 0):
        turn = asked.run("return sea.page.turn")
        focus(asked, "#budget input", number)
        press(asked, "SPACE")
        asked.wait(f"sea.page.turn > {turn} && {DONE}", 60)
    focus(asked, ".sea-cell")
    press(asked, "ARROW_RIGHT")
    press(asked, "ARROW_DOWN")
    press(asked, "SPACE")
    asked.wait("document.querySelector('#trial [data-count=\"1\"]')")
    assert asked.run("return [...sea.page.marked]") == [9]
    assert "row 2, column 2" in asked.texts(".sea-read")[0]
    focus(asked, "#trial button", 1)
    press(asked, "SPACE")
    asked.wait("document.querySelector('#trial').textContent.includes('With only 1 cell left the')")
    focus(asked, "#trial button", 2)
    press(asked, "ENTER")
    assert asked.run("return sea.page.marked.size") == 0
    before = asked.run("return sea.page.p")
    focus(asked, "#sea-p")
    press(asked, "ARROW_RIGHT", 2)
    assert asked.run("return sea.page.p") == before + 2


def test_keys_stop_a_map_and_open_the_file_dialogue(asked):
    focus(asked, "#budget input", 3)
    press(asked, "SPACE")
    asked.wait("sea.page.running && sea.page.state.map")
    focus(asked, "#sea-stop")
    press(asked, "ENTER")
    asked.wait(f"!sea.page.running && {DONE}", 60)
    assert asked.run("return sea.page.state.map.spent") < 1000
    focus(asked, "#budget input", 0)
    press(asked, "SPACE")
    asked.wait(f"sea.page.state.map?.code.includes('34)]') && {DONE}", 60)
    # The key is a click on the input of files, which opens the dialogue unless it is prevented.
    asked.run(
        "window.asked = 0; document.getElementById('sea-file')"
        ".addEventListener('click', (event) => { asked += 1; event.preventDefault(); },"
        " {once: true})"
    )
    focus(asked, "#sea-file")
    press(asked, "SPACE")
    assert asked.run("return asked") == 1


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

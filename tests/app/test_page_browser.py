"""The page in a browser: from an input to its map, the evidence, and what is taken away."""

import io
import time

import pytest
from PIL import Image

from sea_nn import Explanation
from tests.app.conftest import DONE, SERVED

pytestmark = SERVED


def test_first_example_is_explained_with_the_budget_asked_for(ask):
    assert ask.texts("#classes .sea-name")[0] == "Ankle boot"
    assert len(ask.texts("#classes .sea-score")) == 5
    spent = ask.run("return sea.page.state.map.spent")
    assert 20 < spent <= 34
    assert ask.text("sea-progress-text") == f"Map of {spent} evaluations"
    assert ask.run("return sea.page.state.map.layers.length") == 5


def test_map_gets_finer_and_progress_names_evaluations_and_time(asked):
    asked.run(
        "window.said = []; window.maps = new Set();"
        "window.watching = setInterval(() => { said.push(document.getElementById("
        "'sea-progress-text').textContent); maps.add(sea.page.state.map?.spent); }, 5)"
    )
    asked.run("document.querySelectorAll('#budget input')[1].click()")
    asked.wait(f"sea.page.state.map?.code.includes('128)]') && {DONE}", 60)
    said, maps = asked.run("clearInterval(watching); return [said, [...maps]]")
    assert any("of 128 evaluations, about" in text and "s left" in text for text in said)
    assert len(maps) > 2
    reused = asked.run("return sea.page.state.map.reused")
    assert reused > 20
    assert asked.text("sea-progress-text").endswith(f"; {reused} paid for before")
    asked.run("document.querySelectorAll('#budget input')[0].click()")
    asked.wait(f"sea.page.state.map?.code.includes('34)]') && {DONE}", 60)


def test_stop_keeps_the_map_that_is_there(asked):
    asked.run("document.querySelectorAll('#budget input')[3].click()")
    asked.wait("document.querySelector('#progress [data-running=true]') && sea.page.state.map")
    asked.run("document.getElementById('sea-stop').click()")
    asked.wait(DONE, 60)
    assert asked.run("return sea.page.state.map.spent") < 1000
    asked.run("document.querySelectorAll('#budget input')[0].click()")
    asked.wait(f"sea.page.state.map?.code.includes('34)]') && {DONE}", 60)


def test_last_click_counts_while_the_one_before_is_at_work(asked):
    for thumb in (2, 3, 1):
        asked.run("document.querySelectorAll('.sea-thumb')[arguments[0]].click()", thumb)
    asked.wait(f"sea.page.state.input === 'Sandal' && {DONE}", 60)
    # Gradio sends the last part of an answer again when it ends, be it after the next has begun.
    asked.run("sea.show({...sea.page.state, input: 'Bag', turn: sea.page.turn - 1})")
    assert asked.run("return sea.page.state.input") == "Sandal"


def test_last_click_counts_when_stopping_for_the_one_before_takes_longer(asked):
    asked.run(
        "const quick = sea.stop; window.late = new Promise((go) => { window.free = go; });"
        "sea.stop = () => { sea.stop = quick; return late; }"
    )
    for thumb in (2, 1):
        asked.run("document.querySelectorAll('.sea-thumb')[arguments[0]].click()", thumb)
    turn = asked.run("return sea.page.turn")
    asked.wait(f"sea.page.turn > {turn} && sea.page.state.input === 'Sandal' && {DONE}", 60)
    turn = asked.run("const turn = sea.page.turn; free(); return turn")
    asked.run("document.querySelectorAll('.sea-thumb')[3].click()")
    asked.wait(f"sea.page.state.input === 'T-shirt/top' && {DONE}", 60)
    assert asked.run("return sea.page.turn") == turn + 1  # the late one was never sent


def test_slider_shows_what_the_model_says_of_the_best(asked):
    asked.set("sea-p", 12)
    asked.wait("document.querySelector('#evidence [data-measured=\"12\"]')")
    point = asked.run("return sea.page.state.map.measured.find(m => m[0] === 12)")
    shown = [asked.text(name) for name in ("sea-only", "sea-removed", "sea-predicted")]
    line = asked.run("return sea.page.state.map.line[12]")
    for text, value in zip(shown, [*point[1:], line], strict=True):
        assert text == (">.99" if value > 0.995 else f"{value:.2f}"[1:])
    dots = asked.run("return document.querySelectorAll('.sea-curve .point.only').length")
    assert dots == asked.run("return sea.page.state.map.measured.length")


def test_removed_cells_are_asked_about_again(ask):
    cells = ask.run("return sea.page.state.map.order.slice(0, 12)")
    for cell in cells:
        ask.run("document.querySelectorAll('.sea-cell')[arguments[0]].click()", cell)
    ask.wait("document.querySelector('#trial [data-count=\"12\"]')")
    before = ask.run("return sea.page.state.whole")
    after = dict(ask.run("return sea.page.said.top.map(row => [row[1], row[2]])"))
    assert after.get("Ankle boot", 0) < before
    assert ask.texts("#trial .sea-name") == list(after)
    ask.run("[...document.querySelectorAll('#trial button')][1].click()")
    ask.wait("document.querySelector('#trial').textContent.includes('With only 12 cells left the')")
    ask.run("[...document.querySelectorAll('#trial button')][0].click(); sea.clear()")
    assert ask.run("return document.querySelectorAll('.sea-cell.gone').length") == 0


def test_mouse_brushes_over_cells_and_reads_their_values(ask):
    from selenium.webdriver import ActionChains

    cells = ask.driver.find_elements("css selector", ".sea-cell")
    mouse = ActionChains(ask.driver, duration=20)
    mouse.move_to_element(cells[9]).click_and_hold().move_to_element(cells[10])
    mouse.move_to_element(cells[11]).release().perform()
    ask.wait("document.querySelector('#trial [data-count=\"3\"]')")
    assert ask.run("return [...sea.page.marked]") == [9, 10, 11]
    rank = ask.run("return sea.page.state.map.order.indexOf(11) + 1")
    assert ask.texts(".sea-read")[0].startswith(f"row 2, column 4: {rank}. of 64, adds ")
    mouse.move_to_element(cells[9]).click().perform()
    ask.wait("document.querySelector('#trial [data-count=\"2\"]')")
    ask.run("sea.clear()")


def test_two_classes_are_set_against_each_other(ask):
    ask.run("document.querySelector('#classes .sea-not').click()")
    ask.wait(f"Array.isArray(sea.page.state.target) && {DONE}", 60)
    assert ask.run("return sea.page.state.label") == "Ankle boot and not Sneaker"
    assert ask.run("return sea.page.state.whole") > ask.run("return sea.page.state.chosen")


def test_another_class_is_found_by_its_name(asked):
    asked.set("sea-other", "Sandal", "change")
    asked.wait(f"sea.page.state.target === 5 && {DONE}", 60)
    assert asked.run("return sea.page.state.label") == "Sandal"
    asked.set("sea-other", "Sandwich", "change")
    assert "no class named" in asked.texts(".sea-more .sea-problem")[0]


def test_members_and_checks_are_shown_with_the_map(ask):
    names = ["SEA", "deeplift", "guided grad cam", "mean of members", "against the class"]
    assert ask.texts("#members b") == names
    ranks = ask.run("return sea.page.state.map.agreement")
    assert ask.texts("#members figcaption span") == [f"agrees {rank:.2f}" for rank in ranks[1:]]
    assert ask.texts("#checks .sea-level") == ["fine"] * 3 + ["mind"]
    assert "says little: R²" in ask.run("return document.getElementById('checks').innerText")


def wait_for_file(b, name, seconds=30):
    end = time.monotonic() + seconds
    path = b.downloads / name
    while not (path.is_file() and path.stat().st_size):  # Chromium makes an empty one first
        assert time.monotonic() < end, f"{name} did not come"
        time.sleep(0.05)
    return path


def test_what_is_taken_away_is_what_is_shown(ask):
    shown = ask.run("return sea.page.state.map.gains[0]")
    ask.run("document.getElementById('take-explanation').click()")
    loaded = Explanation.load(wait_for_file(ask, "explanation.safetensors"))
    assert float(loaded.gains[0, 0]) == pytest.approx(shown, rel=1e-3)
    for number, name, begins in ((1, "map.svg", b"<?xml"), (0, "map.png", b"\x89PNG")):
        ask.run("document.querySelectorAll('#kind input')[arguments[0]].click()", number)
        ask.run("document.querySelectorAll('#width input')[0].click()")
        ask.run("document.getElementById('take-figure').click()")
        assert wait_for_file(ask, name).read_bytes().startswith(begins)
    with Image.open(ask.downloads / "map.png") as picture:
        assert picture.width == round(3.3 * 200)
    ask.run("document.getElementById('take-report').click()")
    assert "Ankle boot" in wait_for_file(ask, "report.html").read_text("utf-8")
    assert ask.texts(".sea-code") == [ask.run("return sea.page.state.map.code")]


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_dropped_and_pasted_pictures_are_explained_and_names_are_only_text(asked, how):
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, "PNG")
    name = f"<img src=x onerror=alert(1)>{how}.png"
    asked.bring(name, file.getvalue(), how)
    asked.wait(f"sea.page.state.input === '{name}' && {DONE}", 60)
    assert asked.run("return document.querySelectorAll('img[src=x]').length") == 0


def test_chosen_file_is_explained(asked, tmp_path):
    path = tmp_path / "chosen.png"
    Image.linear_gradient("L").save(path)
    asked.driver.find_element("id", "sea-file").send_keys(str(path))
    asked.wait(f"sea.page.state.input === 'chosen.png' && {DONE}", 60)


def test_what_is_no_picture_is_refused_in_words(asked):
    asked.bring("cat.png", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    asked.wait(
        "document.querySelector('.sea-problem[role=alert]').textContent.includes('no picture')"
    )
    asked.run(
        "const big = new File([new Uint8Array(11 * 2 ** 20)], 'big.png'), box = new DataTransfer();"
        "box.items.add(big); document.dispatchEvent(new DragEvent('drop', {dataTransfer: box}))"
    )
    asked.wait("document.querySelector('#picker .sea-note').textContent.includes('at most 10')")


def test_another_visitor_sees_nothing_of_it(asked, address):
    asked.driver.switch_to.new_window("tab")
    try:
        asked.driver.get(address)
        asked.wait("document.querySelector('#gallery [data-count]')", 60)
        assert asked.run("return sea.page.state?.input ?? null") is None
    finally:
        asked.driver.close()
        asked.driver.switch_to.window(asked.driver.window_handles[0])

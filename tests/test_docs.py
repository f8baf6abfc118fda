"""What the documentation shows must run, and what it links to must exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def test_the_recipes_run_one_after_another(capsys):
    text = (ROOT / "docs/how-to/recipes.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "recipes.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "SEA explanation of 4 inputs" in printed
    paper, default = (float(n) for n in re.findall(r"([\d.]+)%", printed.split("map still")[1]))
    assert default < 5 < paper  # what the page says about the two solvers


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_within_the_project_exist(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_readme_names_every_module():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for path in re.findall(r"src/sea_nn/[\w/]+\.py", text):
        assert (ROOT / path).exists()

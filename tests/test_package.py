"""What importing the package costs and offers, and which room may import which."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import sea_nn
from sea_nn import version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "sea_nn").glob("*/__init__.py"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def loaded_after(*codes: str) -> list[set[str]]:
    """The modules loaded after each of several statements of one process."""
    program = "; ".join(["import sys", *(f"{code}; print(*sys.modules)" for code in codes)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_every_public_name_is_there():
    for name in sea_nn.__all__:
        assert getattr(sea_nn, name).__module__.startswith("sea_nn.")
    assert set(dir(sea_nn)) == set(sea_nn.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(sea_nn, "nothing")  # noqa: B009


def test_each_part_loads_only_what_it_needs():
    heavy = {"captum", "matplotlib", "PIL", "safetensors", "typer", "rich"}
    package, core, explanation = loaded_after(
        "import sea_nn",
        "from sea_nn import DSF, SEAConfig, ensemble, maximize",
        "from sea_nn import Explanation",
    )
    assert not package & {*heavy, "torch"}
    assert "torch" in core
    assert not core & heavy
    assert not explanation & {"captum", "matplotlib", "typer"}
    nothing, cli = loaded_after("pass", "import sea_nn.cli")
    ours = {"sea_nn", "typer", "rich", "click", "shellingham", "annotated_doc"}
    known = {*ours, *sys.stdlib_module_names, *(m.split(".")[0] for m in nothing)}
    assert {m.split(".")[0] for m in cli} <= known


def test_the_version_is_known_without_an_installation(monkeypatch):
    def missing(name):
        raise version.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    assert version.find_version() == PROJECT["version"]


def test_the_changelog_and_the_citation_are_of_this_version():
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", read("CHANGELOG.md"), re.MULTILINE)
    citation = read("CITATION.cff")
    assert newest
    assert newest[1] == PROJECT["version"]
    assert f'version: "{newest[1]}"\ndate-released: {newest[2]}\n' in citation


def test_the_badges_are_true():
    badges = re.findall(r"<text[^>]*>([^<]+)</text>", read("docs/images/badges.svg"))
    pythons = [c.split(" :: ")[-1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d", c)]
    assert badges == [
        *("Python", f"{pythons[0]} to {pythons[-1]}"),
        *("version", PROJECT["version"]),
        *("licence", PROJECT["license"]),
    ]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    tried = re.search(r"python: \[(.+)\]", read(".github/workflows/ci.yml"))
    assert tried
    assert tried[1] == ", ".join(f'"{python}"' for python in pythons)


def test_imports_point_one_way(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_a_call_can_be_said_in_one_breath():
    """Few parameters, each by its name."""
    for call, most in ((sea_nn.SEA.__init__, 9), (sea_nn.SEA.explain, 12)):
        parameters = list(signature(call).parameters.values())[1:]
        assert len(parameters) <= most
        assert not [p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is_for_and_has_what_it_offers(room):
    module = import_module(f"sea_nn.{room}")
    assert len(module.__doc__.split()) >= 20
    assert "TODO" not in module.__doc__
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name)

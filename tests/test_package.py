"""What importing the package costs and offers."""

import subprocess
import sys

import pytest

import sea_nn
from sea_nn import version


def loaded_after(code: str) -> set[str]:
    program = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_every_public_name_is_there():
    for name in sea_nn.__all__:
        assert getattr(sea_nn, name).__module__.startswith("sea_nn.")
    assert set(dir(sea_nn)) == set(sea_nn.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(sea_nn, "nothing")  # noqa: B009


def test_each_part_loads_only_what_it_needs():
    heavy = {"captum", "matplotlib", "PIL", "safetensors", "typer", "rich"}
    assert not loaded_after("import sea_nn") & {*heavy, "torch"}
    core = loaded_after("from sea_nn import DSF, SEAConfig, ensemble, maximize")
    assert "torch" in core
    assert not core & heavy
    assert not loaded_after("from sea_nn import Explanation") & {"captum", "matplotlib", "typer"}
    ours = {"sea_nn", "typer", "rich", "click", "shellingham", "annotated_doc"}
    known = {*ours, *sys.stdlib_module_names, *(m.split(".")[0] for m in loaded_after("pass"))}
    assert {m.split(".")[0] for m in loaded_after("import sea_nn.cli")} <= known


def test_the_version_is_known_without_an_installation(monkeypatch):
    def missing(name):
        raise version.PackageNotFoundError(name)

    expected = version.find_version()
    monkeypatch.setattr(version, "version", missing)
    assert version.find_version() == expected

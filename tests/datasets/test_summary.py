"""Summaries: class maps, prototypes and outliers, and a planted shortcut that is found."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

from sea_nn import SEA, SEAConfig, ensemble_class, read_dataset
from sea_nn.datasets.summary import find_shortcuts, write_pages
from tests.datasets.small import run
from tests.helpers.browser import Browser

SIDE = 24


class Cheat(nn.Module):
    """Class 1 by a bright mark in the bottom right corner; class 0 by a blob that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        nn.init.constant_(self.mark.weight, 1 / 9)

    def forward(self, x):
        seen = self.mark(x)
        return torch.stack(
            [seen[..., :18, :18].amax((1, 2, 3)), seen[..., 20:, 20:].mean((1, 2, 3)) * 3], 1
        )


def plant(count: int) -> torch.Tensor:
    """Pictures with a blob at a random place; every second one with the mark."""
    generator = torch.Generator().manual_seed(1)
    x = 0.05 * torch.rand(count, 1, SIDE, SIDE, generator=generator)
    for i in range(count):
        row, column = torch.randint(2, 14, (2,), generator=generator).tolist()
        x[i, 0, row : row + 4, column : column + 4] += 0.6
        if i % 2:
            x[i, 0, 20:, 20:] += 1.0
    return x


@pytest.fixture(scope="module")
def cheated(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    sea = SEA(Cheat(), ("input_x_gradient", "occlusion"))
    sizes = {"batch_size": 8, "shard_size": 8}
    run(out, plant(24), sea, **sizes, labels=("blob", "<mark>"), members=True)
    return read_dataset(out)


def test_a_planted_watermark_is_found_and_an_honest_class_is_not_accused(cheated):
    by_name = {c.row["name"]: c for c in cheated.summary().classes}
    assert "bottom right" in [zone for zone, *_ in by_name["<mark>"].shortcuts]
    assert by_name["<mark>"].shortcuts[0][2] >= 0.9
    assert not by_name["blob"].shortcuts


def test_evidence_outside_given_masks_is_reported(cheated):
    mask = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    mask[2:18, 2:18] = True
    masks = {str(i): mask for i in range(24)}
    by_name = {c.row["name"]: c for c in cheated.summary(masks=masks).classes}
    assert "outside the mask" in [zone for zone, *_ in by_name["<mark>"].shortcuts]
    assert "outside the mask" not in [zone for zone, *_ in by_name["blob"].shortcuts]


def test_class_maps_are_those_of_all_inputs_at_once(cheated):
    found = next(c for c in cheated.summary().classes if c.row["name"] == "<mark>")
    heat = torch.stack([one.members for one in cheated if one.row["target"] == 1])
    wanted = ensemble_class(heat, SEAConfig()).attribution[0]
    assert torch.allclose(found.class_map, wanted, atol=0.02 * float(wanted.max()))
    assert found.mean_map.sum() == pytest.approx(1)


def test_the_odd_one_out_is_the_outlier(tmp_path):
    x = torch.full((9, 1, 8, 8), 0.01)
    x[:, 0, 2, 2] = 1.0
    x[5, 0, 2, 2] = 0.01
    x[5, 0, 6, 6] = 1.0

    class Sum(nn.Module):
        def forward(self, x):
            return torch.stack([(x**2).sum((1, 2, 3)), x.sum((1, 2, 3)) * 0.01], 1)

    sea = SEA(Sum(), ("input_x_gradient", "saliency"))
    run(tmp_path, x, sea, curve=False)
    (only,) = read_dataset(tmp_path).summary(n_examples=2).classes
    assert only.row["outliers"][0] == "5"
    assert "5" not in only.row["prototypes"]


def test_an_even_spread_is_no_shortcut_and_a_series_has_no_frame():
    assert find_shortcuts(torch.full((5, 10, 10), 0.01)) == []
    maps = torch.zeros(5, 10, 10)
    maps[:, 0, 0] = 1.0
    assert find_shortcuts(maps)
    assert find_shortcuts(maps, view="lines") == []


def test_the_page_has_a_table_and_pictures_and_escapes_names(cheated, tmp_path):
    page = write_pages(cheated.summary(n_examples=2), tmp_path)
    text = page.read_text()
    found = json.loads(re.search(r'id="summary">(.*?)</script>', text)[1])
    assert "<mark>" not in text
    assert "<mark>" in [one["title"] for one in found["strips"]]
    assert len(found["strips"]) == len(found["table"]["rows"]) == 2
    assert all(len(one["panels"]) >= 4 for one in found["strips"])
    assert "bottom right" in json.dumps(found)
    assert (tmp_path / "summary.csv").read_text().startswith("class,name,inputs")


def test_tables_of_features_can_be_summarized(tmp_path):
    model = nn.Linear(5, 2)
    sea = SEA(model, ("saliency", "input_x_gradient"))
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    run(tmp_path / "out", x, sea)
    found = read_dataset(tmp_path / "out").summary()
    write_pages(found, tmp_path / "page")
    assert sum(c.row["inputs"] for c in found.classes) == 6


def test_the_page_loads_nothing_and_passes_axe(cheated, tmp_path, chromium, axe):
    page = write_pages(cheated.summary(n_examples=2), tmp_path)
    for dark in (False, True):
        b = Browser(chromium, page.as_uri())
        for width in (400, 1400):
            with b.window(width, dark=dark):
                assert b.run("return document.documentElement.scrollWidth") <= width
                assert b.find_faults(axe) == []
        assert b.errors() == []
        assert b.requests() == []

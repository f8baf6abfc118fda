"""Small networks for the studies of volumes and of several inputs, trained in some seconds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sea_bench.data.volumes import Brains
from sea_bench.experiments.kinds import Standardise, fit, make_network


class HalfBrain(nn.Module):
    """How much a half brain [N, 3, D, H, W] looks like one with a tumour: [N, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool3d((1, 2, 2)),
            *(nn.Conv3d(3, 8, 3, (1, 2, 2), padding=1), nn.ReLU()),
            *(nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool3d(1)),
            *(nn.Flatten(), nn.Linear(16, 1)),
        )

    def forward(self, half: Tensor) -> Tensor:
        """The score."""
        score: Tensor = self.layers(half)
        return score


class Sides(nn.Module):
    """Which side of a brain has the tumour, from its two halves: logits [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.look = HalfBrain()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Logits of "left" and "right"; the right half is mirrored, so that both lie alike."""
        return torch.cat([self.look(left), self.look(right.flip(-1))], 1)


class WholeBrain(nn.Module):
    """The same of one volume [N, 3, D, H, W]."""

    def __init__(self, sides: Sides) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, volume: Tensor) -> Tensor:
        """Logits of "left" and "right"."""
        left, right = volume.chunk(2, -1)
        logits: Tensor = self.sides(left, right)
        return logits


class SliceAndRecord(nn.Module):
    """Whether a slice [N, 3, 64, 64] shows a tumour, with its record [N, F]: logits [N, 2]."""

    def __init__(self, record: Tensor) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.AvgPool2d(2),
            *(nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        )
        self.scale = Standardise(record)
        self.decide = nn.Sequential(
            nn.Linear(24 + record.shape[1], 16), nn.ReLU(), nn.Linear(16, 2)
        )

    def forward(self, slice: Tensor, record: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.decide(torch.cat([self.look(slice), self.scale(record)], 1))
        return logits


class TwoSensors(nn.Module):
    """A watch's movement from its two sensors, [N, 3, T] each: logits [N, classes]."""

    def __init__(self, acceleration: Tensor, turn: Tensor, n_classes: int) -> None:
        super().__init__()
        self.sensors = nn.ModuleList(
            nn.Sequential(
                Standardise(x), nn.Conv1d(3, 8, 7, padding=3), nn.ReLU(), nn.AdaptiveAvgPool1d(4)
            )
            for x in (acceleration, turn)
        )
        self.decide = nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))

    def forward(self, acceleration: Tensor, turn: Tensor) -> Tensor:
        """The logits."""
        pairs = zip(self.sensors, (acceleration, turn), strict=True)
        logits: Tensor = self.decide(torch.cat([sensor(x) for sensor, x in pairs], 1))
        return logits


def move_halves(halves: Mapping[str, Tensor], draw: torch.Generator) -> Mapping[str, Tensor]:
    """Half brains turned over, shifted and of another brightness, both sides alike."""
    turned = bool(torch.rand((), generator=draw) < 0.5)
    shift = int(torch.randint(-4, 5, (), generator=draw))
    light = 0.8 + 0.4 * torch.rand(len(halves["left"]), 1, 1, 1, 1, generator=draw)
    return {k: light * (x.flip(2) if turned else x).roll(shift, 3) for k, x in halves.items()}


def move_slices(given: Mapping[str, Tensor], draw: torch.Generator) -> Mapping[str, Tensor]:
    """Slices mirrored, shifted and of another brightness; records as they are."""
    slices = given["slice"]
    slices = slices.flip(-1) if bool(torch.rand((), generator=draw) < 0.5) else slices
    shift = torch.randint(-3, 4, (2,), generator=draw).tolist()
    light = 0.85 + 0.3 * torch.rand(len(slices), 1, 1, 1, generator=draw)
    return {**given, "slice": light * slices.roll(shift, (2, 3))}


def train_sides(brains: Brains, rows: Tensor, seed: int) -> Sides:
    """The network of sides, trained on some patients for some seconds."""
    model = make_network(seed, Sides)
    assert isinstance(model, Sides)
    halves = dict(zip(("left", "right"), brains.volumes[rows].chunk(2, -1), strict=True))
    fit(model, halves, brains.sides[rows], seed, 40, move_halves)
    return model

"""Kinds of inputs: what one position of a map is, how it is absent, and in which view it is shown.

>>> import torch
>>> find_kind(torch.zeros(2, 3, 8, 8)).name
'image'
"""

from dataclasses import dataclass

from torch import Tensor

from sea_nn.errors import InputError

UNKNOWN = "values"  # the kind of inputs with more axes than any other
VIEWS = ("bars", "lines", "picture", "slices", "words", "parts")


@dataclass(frozen=True)
class Kind:
    """A kind of inputs; a kind of your own is one more of these (docs/how-to/features.md).

    Attributes:
        name: what it is called in reports and files.
        axes: of a batch of such inputs, its own included.
        channels: the axis of a batch along which values belong to one position, as the colours of
            a pixel do; None where every value is a position of its own.
        view: how its maps are shown: "bars" [F], "lines" [C, T], "picture" [H, W], "slices"
            [D, H, W], "words" [F], or "parts" (several inputs).
        absent: what features become that are left out of a question; see
            ``sea_nn.questions.absent``.
    """

    name: str
    axes: int
    channels: int | None = None
    view: str = "bars"
    absent: str = "baseline"

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise InputError(f"a view is one of {', '.join(VIEWS)}; got {self.view!r}")
        if self.channels is not None and not 1 <= self.channels < self.axes:
            raise InputError(
                f"channels is an axis from 1 to {self.axes - 1}, or None; got {self.channels}"
            )

    def map_shape(self, x: Tensor) -> tuple[int, ...]:
        """The shape of one map of inputs ``x``: (F,), (C, T), (H, W), (D, H, W)."""
        return tuple(s for axis, s in enumerate(x.shape) if axis not in (0, self.channels))

    def over_input(self, mask: Tensor) -> Tensor:
        """A mask over maps, [P, *shape], as one that broadcasts to inputs."""
        return mask if self.channels is None else mask.unsqueeze(self.channels)

    def over_map(self, marked: Tensor) -> Tensor:
        """Marks of single values, bool like the inputs, as marks of positions, [N, *shape]."""
        return marked if self.channels is None else marked.any(self.channels)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The axes along which positions have neighbours: time, rows and columns, depth.

        >>> [kind.neighbours for kind in (TABLE, SERIES, IMAGE)]
        [(), (2,), (2, 3)]
        """
        return tuple(axis for axis in range(2, self.axes) if axis != self.channels)

    @property
    def scale_axes(self) -> tuple[int, ...]:
        """The axes of values in one unit: a channel's own, or all of an input without neighbours.

        An input's own mean and extremes are taken along these.
        """
        return self.neighbours or tuple(range(1, self.axes))


TABLE = Kind("table", 2)
SERIES = Kind("series", 3, view="lines", absent="blur")
IMAGE = Kind("image", 4, 1, "picture", "blur")
VOLUME = Kind("volume", 5, 1, "slices", "blur")
TEXT = Kind("text", 2, view="words", absent="mask")
SEVERAL = Kind("several", 2, view="parts")
"""Several inputs of one call, their values side by side: [N, V]."""
KINDS = {kind.name: kind for kind in (TABLE, SERIES, IMAGE, VOLUME, TEXT, SEVERAL)}


def find_kind(x: Tensor) -> Kind:
    """The kind of inputs with as many axes as ``x``: the one place where axes tell it."""
    return next((kind for kind in KINDS.values() if kind.axes == x.ndim), Kind(UNKNOWN, x.ndim))

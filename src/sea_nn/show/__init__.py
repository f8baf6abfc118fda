"""Explanations for the eye: figures (``plots``) and one HTML report (``report``).

``panels`` holds what all figures share (colour scale, text that fits, grids), ``plots`` the figures
of images and the one call for any Explanation, ``bars`` those of tables and series, ``charts``
those of gains, agreement and learning. Everything but ``plot_explanation`` and ``write_report``
takes plain arrays.
"""

from sea_nn.show.plots import (
    plot_agreement,
    plot_bars,
    plot_class_map,
    plot_explanation,
    plot_gains,
    plot_history,
    plot_overlay,
    plot_series,
    plot_strip,
    plot_tiers,
    plot_top,
)
from sea_nn.show.report import write_report

__all__ = [
    "plot_agreement",
    "plot_bars",
    "plot_class_map",
    "plot_explanation",
    "plot_gains",
    "plot_history",
    "plot_overlay",
    "plot_series",
    "plot_strip",
    "plot_tiers",
    "plot_top",
    "write_report",
]

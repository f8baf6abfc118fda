"""Explanations for the eye: figures (``plots``) and one HTML report (``viewer``).

``panels`` holds what all figures share (colour scale, style, grids), ``plots`` the figures of
images and volumes and the one call for any Explanation, ``charts`` those of tables, texts, series,
gains, curves and agreement; ``words`` marks texts in a terminal.
"""

from sea_nn.show.plots import plot_explanation
from sea_nn.show.viewer import write_report

__all__ = ["plot_explanation", "write_report"]

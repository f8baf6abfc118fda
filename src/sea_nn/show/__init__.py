"""Explanations for the eye: figures (``plots``) and one HTML report (``report``).

``panels`` holds what all figures share (colour scale, text that fits, grids), ``plots`` the figures
of images and the one call for any Explanation, ``bars`` those of tables and series, ``charts``
those of gains, agreement and learning. All but these two functions take plain arrays.
"""

from sea_nn.show.plots import plot_explanation
from sea_nn.show.viewer import write_report

__all__ = ["plot_explanation", "write_report"]

"""Questions to a model: which features to leave in an input, what the others become, what it says.

``design`` chooses the sets to ask about, ``Probe.ask`` asks, ``learn`` learns from the answers and
reads the maps off what was learned, and ``Asked`` holds sets and answers. ``absent`` has
the ways to hide features. Metrics hide by the same means.
"""

from sea_nn.questions.asked import Asked

__all__ = ["Asked"]

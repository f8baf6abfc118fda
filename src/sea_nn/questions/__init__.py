"""Questions to a model: which features to leave in an input, what the others become, what it says.

``budget`` counts the questions, ``halves``, ``designs`` and ``search`` choose the sets to ask
about, ``make_ask_only`` gives the function that asks, ``learn`` fits f and reads the map off it,
and ``Asked`` holds sets and answers.

``absent`` has the ways to hide features, ``points`` asks about any number of variants of inputs,
and ``opening`` opens a model for that. Metrics ask by the same means.
"""

from sea_nn.questions.ask import Ask, make_ask_only
from sea_nn.questions.asked import Asked

__all__ = ["Ask", "Asked", "make_ask_only"]

"""Questions to a model: which features to leave in an input, what the others become, what it says.

With a budget, ``budget`` counts the questions, ``designs`` and ``search`` choose the sets to ask
about, ``learn`` fits the function and reads the map off it, and ``Asked`` holds sets and answers.
Without one, ``make_ask`` gives the function that the pipeline asks with about halves of each input,
and ``HalfAnswers`` holds what came back and joins it to the members' heatmaps (``join_answers``).

Either way ``absent`` has the ways to hide features, ``points`` asks about any number of variants of
the inputs, and ``opening`` opens a model for that. Metrics ask by the same means.
"""

from sea_nn.questions.answers import Ask, Asking, HalfAnswers, join_answers
from sea_nn.questions.ask import make_ask
from sea_nn.questions.asked import Asked

__all__ = ["Ask", "Asked", "Asking", "HalfAnswers", "join_answers", "make_ask"]

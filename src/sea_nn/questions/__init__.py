"""Questions to a model: which features to leave in an input, what the others become, what it says.

``make_ask`` gives the function that the pipeline asks with, and ``Answers`` holds what came back
about halves of each input and joins it to the members' heatmaps (``join_answers``). ``absent`` has
the ways to hide features, ``points`` asks about any number of variants of the inputs, and
``opening`` opens a model for that. Metrics ask by the same means.
"""

from sea_nn.questions.answers import Answers, Ask, Asking, join_answers
from sea_nn.questions.ask import make_ask

__all__ = ["Answers", "Ask", "Asking", "join_answers", "make_ask"]

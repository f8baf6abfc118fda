"""``sea app``: a page to ask a model why, on this machine alone unless told otherwise.

``Session`` knows one visitor's input, class, explanation and answers; ``subjects`` are models with
their inputs, ``uploads`` reads files that nobody trusts, ``events`` turns all into plain data, and
``page`` puts Gradio around it. A model of numbers says what it takes with ``Columns``.
"""

from sea_nn.app.session import Session
from sea_nn.app.subjects import Columns, load_subject

__all__ = ["Columns", "Session", "load_subject"]

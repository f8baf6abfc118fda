"""Texts for Hugging Face classifiers and causal language models: words as features.

A text goes the way of every input, in rooms of its own: ``spans`` and ``reading`` say which token
belongs to which word, ``absent`` leaves words out, ``model`` runs many variants at once,
``members`` are maps by embeddings, ``learn`` asks and learns, ``assemble`` makes the result.
"""

from sea_nn.text.explainer import TextSEA
from sea_nn.text.load import load_text_model
from sea_nn.text.zero_shot import ZeroShot

__all__ = ["TextSEA", "ZeroShot", "load_text_model"]

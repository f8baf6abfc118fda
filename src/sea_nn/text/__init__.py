"""Texts for Hugging Face classifiers and causal language models: words as features.

A text goes the way of every input, ``sea_nn.explain``, as a row of numbers that say which words are
there. What is of texts alone: ``reading`` says which token belongs to which word, ``model`` leaves
words out and runs many variants at once, ``members`` are maps by embeddings, ``assemble`` lays the
explanations of several texts side by side.
"""

from sea_nn.text.explainer import TextSEA
from sea_nn.text.load import ZeroShot, load_text_model

__all__ = ["TextSEA", "ZeroShot", "load_text_model"]

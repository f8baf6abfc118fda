"""Subjects of texts: classifiers that ``SEA.for_text`` explains, words as features."""

from __future__ import annotations

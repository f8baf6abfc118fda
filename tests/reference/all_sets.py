"""The slow truth about a model of few features: ask about every set, one by one."""

from itertools import combinations

import torch


def score_sets(model, x, absent, target, shape_to_input):
    """The score of every set of features of one input, {frozenset: float}.

    ``absent`` are the inputs [K, ...] whose values take the place of absent features, and
    ``shape_to_input(features)`` is the bool mask over the input that a set of features covers.
    """
    n = shape_to_input.n
    found = {}
    for size in range(n + 1):
        for chosen in combinations(range(n), size):
            keep = shape_to_input(chosen)
            points = torch.stack([torch.where(keep, x, other) for other in absent])
            found[frozenset(chosen)] = float(model(points)[:, target].mean())
    return found


def greedy_order(scores, n):
    """The order in which each next feature raises the score most."""
    taken = []
    while len(taken) < n:
        rest = [k for k in range(n) if k not in taken]
        taken.append(max(rest, key=lambda k: scores[frozenset([*taken, k])]))
    return taken


class Columns:
    """Sets of columns as masks over a row."""

    def __init__(self, n):
        self.n = n

    def __call__(self, chosen):
        mask = torch.zeros(self.n, dtype=torch.bool)
        mask[list(chosen)] = True
        return mask

"""Functions whose truth is known: does the function learned from answers find order and gains?

    python -m sea_bench.experiments.planted

Each rule gives the log-odds of a class by which of 16 features are left. f learns from random sets
of every size and their complements, without heatmaps, once for each of ten draws of the sets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sea_nn.function.answers_function import AnswersFunction, prefixes
from sea_nn.function.answers_order import fit_and_check, order_by_wish, order_features
from sea_nn.questions.designs import paired, spread_sets

N_FEATURES, N_DRAWS, N_TESTED = 16, 10, 512
ANSWERS = (64, 128, 256)
PAGE = Path("docs/results/planted.md")


@dataclass(frozen=True)
class Rule:
    """A rule over features; ``copies`` are groups of which each member says what the others do."""

    name: str
    log_odds: Callable[[Tensor], Tensor]
    copies: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Found:
    """What f says of one rule, one number a draw of the sets.

    Attributes:
        r2: of the probability, on sets that were not asked about, [draws].
        second: the gain of a group's second feature over that of its first, [draws x groups].
        order: mean of p(first k left) - p(first k removed) over k, along f's order, [draws].
        best: the same along the greedy order of the rule itself.
        keeps: how many of f's first features keep the class as well as the rule's own do, share.
    """

    r2: Tensor
    second: Tensor
    order: Tensor
    best: float
    keeps: Tensor


def _largest(s: Tensor, *features: int) -> Tensor:
    return s[..., list(features)].amax(-1)


def _weigh(s: Tensor, *weights: float) -> Tensor:
    return s[..., : len(weights)] @ s.new_tensor(weights)


RULES = (
    Rule("two copies", lambda s: 6 * _largest(s, 0, 1) + 2 * s[..., 2] - 4, ((0, 1),)),
    Rule("three copies", lambda s: 6 * _largest(s, 0, 1, 2) + 2 * s[..., 3] - 4, ((0, 1, 2),)),
    Rule(
        "two groups, each an OR",
        lambda s: 4 * _largest(s, 0, 1) + 4 * _largest(s, 2, 3) - 4,
        ((0, 1), (2, 3)),
    ),
    Rule("OR of two", lambda s: 8 * _largest(s, 0, 1) - 4, ((0, 1),)),
    Rule("AND of two", lambda s: 8 * s[..., 0] * s[..., 1] - 4),
    Rule("majority of five", lambda s: 8 * (s[..., :5].sum(-1) >= 3).to(s) - 4),
    Rule("threshold", lambda s: _weigh(s, 4.5, 3.75, 3, 2.25, 1.5, 0.75) - 8),
    Rule("sum", lambda s: _weigh(s, 4, 3, 2, 1) - 5),
    Rule("sum, two against", lambda s: _weigh(s, 4, 3, -3, -2) - 1),
)


class _Truth:
    """A rule in the shape of a predictor."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def score(self, x: Tensor) -> Tensor:
        """The probability of each set."""
        return self.rule.log_odds(x.double()).sigmoid()


def learn(rule: Rule, answers: int, draws: int = N_DRAWS) -> AnswersFunction:
    """The functions learned from so many answers, one a draw of the sets."""
    n, generators = N_FEATURES, [torch.Generator().manual_seed(seed) for seed in range(draws)]
    sets = torch.stack([paired(spread_sets(answers // 2, n, g)) for g in generators])
    ends = torch.stack([torch.zeros(n), torch.ones(n)]).double()
    none, all_ = rule.log_odds(ends).expand(draws, 2).unbind(1)
    return fit_and_check(sets, rule.log_odds(sets.double()), none, all_)[0]


def measure(rule: Rule, answers: int, draws: int = N_DRAWS) -> Found:
    """Compare what was learned with the rule."""
    f, truth, n = learn(rule, answers, draws), _Truth(rule), N_FEATURES
    new = spread_sets(N_TESTED, n, torch.Generator().manual_seed(1000)).expand(draws, -1, -1)
    wanted = truth.score(new)
    error = (f.score(new) - wanted).square().sum(1)
    r2 = 1 - error / (wanted - wanted.mean(1, keepdim=True)).square().sum(1)
    order, best = order_features(f, draws, n), order_features(truth, 1, n)
    keep, _ = order_by_wish(f, order)
    gains = f.gains(keep)
    by_feature = torch.zeros_like(gains).scatter(1, keep, gains)
    groups = [by_feature[:, list(group)] for group in rule.copies]
    ranked = [group.sort(1, descending=True).values for group in groups]
    second = [group[:, 1] / group[:, 0] for group in ranked]
    needed = _count_kept(truth, order_by_wish(truth, best)[0])
    return Found(
        r2,
        torch.cat(second) if second else torch.zeros(0),
        _judge(truth, order),
        float(_judge(truth, best)),
        (_count_kept(truth, keep) == needed).double(),
    )


def _judge(truth: _Truth, order: Tensor) -> Tensor:
    """How well an order serves both wishes, by the rule: mean of p(S) - p(all but S), [draws]."""
    first = prefixes(order)
    return (truth.score(first) - truth.score(~first)).mean(1)


def _count_kept(truth: _Truth, order: Tensor) -> Tensor:
    """The least number of first features with nine tenths of the whole's probability, [draws]."""
    whole = truth.score(torch.ones(1, 1, order.shape[1]))
    return (truth.score(prefixes(order, whole=True)) < 0.9 * whole).sum(1) + 1


def tabulate(answers: Sequence[int] = ANSWERS) -> str:
    """The table as Markdown."""
    head = "| rule | answers | R², median (least) | second / first gain, median (most) |"
    lines = [
        head + " order: f (greedy on the rule) | smallest set found |",
        "|---|---:|---|---|---|---:|",
    ]
    for rule in RULES:
        for count in answers:
            found = measure(rule, count)
            second = "-"
            if len(found.second):
                second = f"{found.second.median():.2f} ({found.second.max():.2f})"
            lines.append(
                f"| {rule.name} | {count} | {found.r2.median():.2f} ({found.r2.min():.2f}) "
                f"| {second} | {found.order.mean():.3f} ({found.best:.3f}) "
                f"| {int(found.keeps.sum())} of {len(found.keeps)} |"
            )
    return "\n".join(lines)


INTRODUCTION = """# Planted functions

Rules over 16 features whose truth is known, learned without heatmaps from random sets of every size
and their complements, for ten draws of the sets (seeds 0 to 9). Gains are those of f along the
order that keeps the class.

- *second / first gain*: of features that say the same, how much the second adds after the first.
  The aim is at most a tenth for every draw.
- *order*: mean over k of p(first k left) - p(first k removed), by the rule itself; in brackets that
  of exact greedy, which is not always the best order.
- *smallest set found*: for how many draws f's order keeps nine tenths of the probability with as
  few features as exact greedy does.

"""


def main() -> None:
    """Write the page."""
    torch.set_num_threads(1)
    foot = "\n\nMade by `python -m sea_bench.experiments.planted`.\n"
    PAGE.write_text(INTRODUCTION + tabulate() + foot, encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()

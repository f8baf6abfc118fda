"""Every number of the learned function that was set by hand."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers set by hand, on games and pictures that no table reports.

    What they do together is measured by ``sea bench games`` (docs/results/games.md), ``predicts``
    (predicts.md) and ``speed_learning`` (steady.md).

    Attributes:
        floor: probabilities are read as (p + floor) / (1 + 2 floor): below it they differ by more
            in log-odds than in what anybody would do about them.
        own_scale: how far features may differ in scale, a priori: the deviation of its logarithm.
        least_noise: of the answers, in units of their variance; keeps matrices well conditioned.
        most_answers_for_evidence: variances and scales are those of at most so many answers, since
            the search costs their cube.
        most_in_rounds: the same while questions go on.
        waves: cosines that stand for a draw of the prior.
        splits_share: of the questions that are balanced splits.
        least_splits: but at least so many splits, two questions each.
        steps: of the search for the largest evidence, at most.
        close: it ends where a step more would raise the evidence by a factor of e^(close / 2).
        least_round: questions in a round, at least.
        rounds_by: a round has one question for so many that were asked before.
        draws: functions in each round whose orders are searched for.
        curiosity: how much is asked about sets whose answer is flat, where it is 1 at the steepest.
        chains: of sets that the search for an order keeps, n times their number.
    """

    floor: float = 0.01
    own_scale: float = 0.7
    least_noise: float = 1e-5
    most_answers_for_evidence: int = 256
    most_in_rounds: int = 128
    waves: int = 256
    splits_share: float = 0.33
    least_splits: int = 4
    steps: int = 30
    close: float = 0.1
    least_round: int = 8
    rounds_by: int = 3
    draws: int = 6
    curiosity: float = 0.02
    chains: int = 1024


TUNING = Tuning()

"""Every number of the learned function that was set by hand."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers set by hand; tuned on inputs that no table reports."""

    floor: float = 0.01
    own_scale: float = 0.7
    least_noise: float = 1e-5
    evidence_rate: float = 0.1
    most_answers_for_evidence: int = 256
    waves: int = 256
    splits_share: float = 0.33
    least_splits: int = 4
    first_steps: int = 30
    steps: int = 8
    least_round: int = 8
    rounds_by: int = 4
    draws: int = 6
    curiosity: float = 0.02
    chains: int = 1024


TUNING = Tuning()

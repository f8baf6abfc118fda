"""Ask the model about inputs with parts of them hidden behind masks."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sea_nn.model.evaluator import Evaluator


def ask_masked(
    evaluator: Evaluator, count: int, masks: Callable[[int, int], Tensor], probability: bool = False
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Hide parts of every input behind `count` masks and yield what the model says.

    Args:
        evaluator: the model and the inputs.
        count: the number of masks.
        masks: `masks(start, stop)` returns [stop - start, ...], 1 keeps and 0 hides, that
            broadcasts to an input; hidden parts take the baseline's value.
        probability: return the probability of the target class (of a model of values, the
            value), not its logit.

    Yields:
        (start, stop, masks, scores [N, stop - start]).
    """
    n_inputs = len(evaluator.x)
    base = None if evaluator.baselines is None else evaluator.baseline()
    size = evaluator.chunk(n_inputs * count, gradient=False)
    block = max(1, size // n_inputs)
    for start in range(0, count, block):
        stop = min(start + block, count)
        mask = masks(start, stop)
        width = stop - start
        scores = evaluator.x.new_empty(n_inputs, width)

        def visit(low: int, high: int, mask: Tensor = mask, scores: Tensor = scores) -> None:
            points = evaluator.x[low:high, None] * mask
            if base is not None:
                points = points + base[low:high, None] * (1 - mask)
            rows = torch.arange(low, high, device=evaluator.x.device)
            rows = rows.repeat_interleave(len(mask))
            with torch.no_grad():
                outputs = evaluator.forward(evaluator.arrange(points.flatten(0, 1)), rows)
                if probability:
                    outputs = evaluator.meaning().scores(outputs)
                answer = evaluator.score(outputs, rows)
            scores[low:high] = answer.view(high - low, len(mask))

        evaluator.sweep(n_inputs, visit, size=max(1, size // width), weight=width)
        yield start, stop, mask, scores

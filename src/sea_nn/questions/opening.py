"""Open a model for questions about many variants of many inputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, SEAError
from sea_nn.model import batching, forms
from sea_nn.model.borrowing import borrow
from sea_nn.model.evaluator import Evaluator, check_autocast
from sea_nn.model.outputs import Output, Target, TensorModel, as_args, predict, resolve_target

# Forward passes on a CPU are fastest while a layer's output stays in the cache of its core: the
# Fashion-MNIST CNN takes 0.14 ms an input in chunks of 64, 0.16 in chunks of 128 and 0.22 in chunks
# of 256; EfficientNet-Lite0 19 ms in chunks of 1 or 2 and 25 to 30 in chunks of 4 to 16.
CPU_CACHE = 6 << 20
# The largest block for which glibc still adapts its threshold.
LARGEST_BLOCK = (32 << 20) - 4096
FOLD = "fold"
# Folding saves a sixth of a forward pass on a CPU, and the check of it costs about four an input.
FOLD_FROM = 64
Evaluators = Callable[[slice], Evaluator]


@contextmanager
def open_model(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    *,
    args: Any = None,
    limit: int | None = None,
    autocast: bool | torch.dtype = False,
    outputs: Tensor | None = None,
    output: str | Output | None = None,
    tick: Callable[[int], None] = lambda count: None,
) -> Iterator[Evaluators]:
    """Borrow the model, ask it about the intact inputs, and give the evaluator of any part of them.

    Args:
        model: a module or callable.
        x: inputs [N, ...].
        target: the class explained, one or one an input; None for the predicted one.
        args: further arguments of the model; tensors with N entries follow x.
        limit: the most inputs in one pass; left out, by memory, and on a CPU by its cache.
        autocast: on a GPU, True for bfloat16 or a floating type.
        outputs: the answer about the intact inputs, if known.
        output: what the model's outputs are; None to find out from that answer.
        tick: told the number of inputs just asked about.
    """
    if limit is not None and limit < 1:
        raise InputError(f"internal_batch_size must be at least 1, got {limit}")
    precision = check_autocast(autocast, x)
    if x.device.type == "cpu":
        keep_freed_memory()
    x, everything = x.detach(), as_args(args)
    nobody = torch.zeros(len(x), dtype=torch.long, device=x.device)
    with torch.inference_mode(False), borrow(model, x, everything) as twin:
        wrapped = TensorModel(twin, check=False)
        first = Evaluator(
            wrapped, x, nobody, x.new_zeros(len(x), 1), everything, autocast=precision
        )
        try:
            footprint = first.footprint()
            if limit is None and x.device.type == "cpu":
                limit = max(1, torch.get_num_threads() * CPU_CACHE // footprint.largest)
            need = (footprint.forward, footprint.elements, x.device, limit)
            size = batching.chunk_size(len(x), *need)
            autocasting = torch.autocast(x.device.type, precision) if precision else nullcontext()
            if outputs is None:
                with autocasting:
                    outputs = predict(wrapped, x, args, batch_size=size)
                tick(len(x))
        except (SEAError, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}: {error}"
            ) from error
        kind = first.find_output(outputs, output)
        if not isinstance(output, Output):
            kind.warn()
        classes = resolve_target(outputs, target, kind)
        answer = outputs.to(x.dtype)
        fold = cache(lambda: forms.fold(first, gradients=False))

        def make(part: slice) -> Evaluator:
            rows = torch.arange(len(x), device=x.device)[part]
            return Evaluator(
                wrapped,
                x[part],
                classes[part],
                answer[part],
                everything,
                (rows, len(x)),
                limit=limit,
                autocast=precision,
                output=kind,
                tick=tick,
                cache={FOLD: fold},
            )

        yield make


def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed tensors for the next ones, up to 64 MiB.

    glibc returns freed blocks to the system above a threshold that follows the largest block freed
    so far. Below it, the pages of every layer's output are fetched and zeroed again in every pass:
    a third of the time of the Fashion-MNIST CNN (0.20 ms an input, 0.13 without). One large block
    that is never touched raises the threshold; where there is no glibc, it does nothing.
    """
    torch.empty(LARGEST_BLOCK, dtype=torch.uint8)


def use_fold(evaluator: Evaluator, passes: int) -> Evaluator:
    """Return the evaluator by folded norms, if that pays and is the model for its inputs.

    Args:
        evaluator: one of `open_model`.
        passes: the number of points to come.
    """
    if FOLD not in evaluator.cache or passes < FOLD_FROM * len(evaluator.x):
        return evaluator

    def find() -> Evaluator:
        fast = forms.run_by(evaluator, evaluator.cache[FOLD]())
        try:
            return fast if fast is evaluator or bool(forms.check(evaluator, fast)) else evaluator
        except Exception:  # no gradient to compare, say
            return evaluator

    return evaluator.share("by fold", find)

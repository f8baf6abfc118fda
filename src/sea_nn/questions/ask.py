"""Questions to a model: what does it say with only some features left?

>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> ask = make_ask_only(model, torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))
>>> left = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
>>> left[..., :4] = True
>>> ask(left).shape
torch.Size([2, 1])
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sea_nn.config import ABSENT
from sea_nn.errors import InputError
from sea_nn.features import Features, Kind
from sea_nn.model.outputs import Output, Target
from sea_nn.model.probe import Perturbation, open_model
from sea_nn.questions.absent import SideBySide, prepare

Ask = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, *shape], to what the model says with only each left, [N, R]."""
LEAST_DRAWS, MOST_DRAWS = 8, 16
QUESTIONS_PER_FEATURE = 10
NEED_NEIGHBOURS = ("blur", "mean", "interpolate")  # ways that columns of a table do not have


def make_ask_only(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    *,
    features: Features | None = None,
    absent: str | None = None,
    baselines: float | Tensor | None = None,
    background: Tensor | None = None,
    draws: int = 1,
    seed: int = 0,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    autocast: bool | torch.dtype = False,
    output: str | Output | None = None,
) -> Ask:
    """Return a function that asks the model about sets of features of ``x``.

    It takes sets, bool [N, R, *shape] over the features of a map (the pixels of an image, the
    single values of a table or series), and returns p(class | only the set is left), [N, R]. The
    model is opened for each call and comes back as it was; ask about many sets at once.

    Args:
        model: a module or callable in the sense of ``TensorModel``.
        x: inputs [N, F], [N, C, T], [N, C, H, W] or [N, C, D, H, W].
        target: the class: one, one an input, or None for the predicted one.
        features: of x; None: found from it.
        absent: what is not left becomes; see ``SEA``.
        baselines: the values of "baseline": None for 0, a number or a tensor.
        background: other inputs, [B, ...]: where ``absent`` is None, absent is by them.
        draws: so many rows of the background at most stand in for what is not left; an answer is
            the mean over them, and costs as many evaluations.
        seed: starts draws.
        additional_forward_args: further arguments of the model; tensors with N entries follow x.
        internal_batch_size: the most inputs in one pass of the model; left out, by memory.
        autocast: on a GPU, a lower precision.
        output: what the model's outputs are, as for ``SEA``. Of "value", p is the value.
    """
    found, known = Features.of(x) if features is None else features, output
    hiding = prepare_absence(
        x, found, absent, baselines=baselines, background=background, draws=draws, seed=seed
    )

    def ask(sets: Tensor) -> Tensor:
        nonlocal known
        with open_model(
            model,
            x,
            target,
            features=found,
            hiding=hiding,
            args=additional_forward_args,
            limit=internal_batch_size,
            autocast=autocast,
            output=known,
        ) as probe:
            known = Output(probe.output.kind)  # so that it is found, and told, once
            probe.begin(ask_empty=False)
            return probe.ask(sets)

    return ask


def prepare_absence(
    x: Tensor,
    features: Features,
    absent: str | None,
    *,
    baselines: float | Tensor | None,
    background: Tensor | None,
    draws: int,
    seed: int,
) -> Perturbation:
    """How what is left out of ``x`` becomes absent; several inputs each in a way of their own."""
    given: dict[str, Any] = {"draws": draws, "seed": seed}
    if not features.parts:
        way = find_way(absent, features.kind, background, draws)
        given |= {"kind": features.kind, "baselines": baselines, "background": background}
        return prepare(x, way, **given)
    inputs, parts = features.split(x), []
    values = torch.as_tensor(0.0 if baselines is None else baselines).to(x).expand_as(x)
    rows = None if background is None else features.split(background)
    for k, (own, start) in enumerate(zip(inputs, features.split(values), strict=True)):
        kind, others = features.parts[k].kind, None if rows is None else rows[k]
        fits = absent not in NEED_NEIGHBOURS or kind.neighbours
        way = find_way(absent if fits else None, kind, others, draws)
        own_given = {"kind": kind, "baselines": start, "background": others, **given}
        parts.append(prepare(own, way, **own_given))
    return SideBySide(tuple(parts), features.split)


def find_way(absent: str | None, kind: Kind, background: Tensor | None, draws: int = 1) -> str:
    """The way to be absent of inputs of a kind: the one that is named, or that of the data.

    Where none is named, a background says what absent means, for every kind: draws from it where
    they are many enough to stand for it, else its mean. Without one it is the kind's own way.
    """
    if absent is None:
        if background is None:
            return kind.absent
        return "background" if draws >= LEAST_DRAWS else "background_mean"
    if absent not in ABSENT:
        raise InputError(f"absent must be one of {', '.join(ABSENT)}; got {absent!r}")
    if absent in NEED_NEIGHBOURS and not kind.neighbours:
        raise InputError(
            f"absent={absent!r} needs neighbours, and inputs of the kind {kind.name!r} have none: "
            'give background=, or choose "baseline"'
        )
    return absent


def choose_draws(questions: int, n: int, absent: str | None, background: Tensor | None) -> int:
    """How many rows of the background each answer is a mean of; 1 where it is of none.

    At equal evaluations more questions order columns better than more draws, until there are about
    ten for each column or every set is asked about, and fewer than eight draws stand for the
    background less well than its mean (docs/results/tables.md).

    >>> rows = torch.zeros(50, 4)
    >>> [choose_draws(q, 4, None, rows) for q in (60, 128, 1024)]
    [1, 8, 16]
    """
    if background is None or absent not in (None, "background"):
        return 1
    enough = min(QUESTIONS_PER_FEATURE * n, 2**n)
    draws = max(1, min(questions // enough, MOST_DRAWS, len(background)))
    return draws if absent or draws >= LEAST_DRAWS else 1

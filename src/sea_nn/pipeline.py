"""The one path of every explanation. Read this first, then ``ensembling/ensemble.py``.

    members -> heatmaps and votes -> questions to the model -> one learned f an input -> map

With a budget, the default, f is learned from the answers (``questions/learn.py``); without one
nothing is asked, and it is learned from heatmaps, as in the paper, by ``learn``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from sea_nn import features as grouping
from sea_nn.config import SEAConfig, check_config
from sea_nn.features import Features
from sea_nn.members.checks import vote
from sea_nn.members.compute import Tally, compute_maps
from sea_nn.members.member_maps import MemberMaps, to_heat, to_heatmaps
from sea_nn.members.registry import Methods, expand_methods
from sea_nn.members.run import Progress
from sea_nn.model.outputs import Target
from sea_nn.model.precision import full_precision
from sea_nn.paper.ensemble import Ensemble, ensemble
from sea_nn.paper.heatmaps import scale
from sea_nn.paper.validation import check_heatmaps, check_weights
from sea_nn.questions.asked import Asked
from sea_nn.questions.budget import count_left, learn_within
from sea_nn.questions.learn import AnswersMap


@dataclass(frozen=True)
class Learned:
    """What was learned about N inputs from heatmaps.

    Attributes:
        ensemble: the learned functions, with order and gains of the features.
        attribution: the maps, [N, *shape].
        features: the feature of each position of the map, int64 [1, *shape], where several
            positions are one feature (a mask's group, a grid's cell); None: one each.
    """

    ensemble: Ensemble
    attribution: Tensor
    features: Tensor | None


@dataclass(frozen=True)
class Explained:
    """Everything that ``explain`` found.

    Attributes:
        members: the members' raw maps, the class explained and the model's answers about x.
        heatmaps: the members' maps, absolute and scaled to [0, 1], [N, m, *shape].
        learned: the learned function and its map; with a budget, one learned from answers.
        config: the settings used.
        features: of the inputs.
        evaluations: model evaluations by member, and of the questions ("sea").
        seconds: time by member, of questions and learning ("sea"), and in all ("total").
    """

    members: MemberMaps
    heatmaps: Tensor
    learned: Learned | AnswersMap
    config: SEAConfig
    features: Features
    evaluations: Mapping[str, int]
    seconds: Mapping[str, float]


def explain(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    *,
    methods: Methods = "paper",
    config: SEAConfig | None = None,
    budget: int | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: Features | None = None,
    background: Tensor | None = None,
    constraints: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    call: Mapping[str, Any] | None = None,
    previous: Asked | None = None,
    earlier: Sequence[MemberMaps] = (),
    on_round: Callable[[Explained], bool | None] | None = None,
    seconds: float | None = None,
    tolerance: float | None = None,
    **running: Any,
) -> Explained:
    """Explain the model's answer about each input of ``x``; arguments as for ``SEA.explain``.

    ``features`` are made of x and a feature mask (``Features.of``); None: of x alone. The others
    come in groups: ``constraints`` are ``required``, ``forbidden`` and ``epsilon``; ``call`` says
    how the model is called, for members and questions alike (``baselines``, ``autocast``,
    ``additional_forward_args``, ``internal_batch_size``); ``running`` are further arguments of
    ``compute_maps`` (``output``, ``seed``, ``compile``, ``on_error``). With a ``budget``, what the
    members leave of it is asked, and f is learned from the answers (``learn_from_answers``):
    those of the ``previous`` questions about the same inputs and, in rounds, of new ones. Members'
    ``earlier`` maps count as paid for in the same way.
    """
    started = time.perf_counter()
    features = Features.of(x) if features is None else features
    entries, shape = expand_methods(methods, options), tuple(x.shape[1:])
    price = sum(entry.member.cost(entry.options, shape) for entry in entries)
    config, questions = check_config(config), 0
    if budget is not None:
        cells = features.to_ask_about(config.grid)
        questions = count_left(budget, price, cells.n, constraints)
    tally = Tally(progress, price * len(x), questions * len(x))
    running |= {"feature_mask": features.mask_input(), "kind": features.kind, **(call or {})}
    running |= {"options": options, "progress": tally.members, "earlier": earlier}
    full = partial(full_precision, x.device, budget is not None and not running.get("autocast"))
    with full():
        found = compute_maps(model, x, target, methods, **running)
    spent = dict.fromkeys(found.evaluations, 0) if found.reused else found.evaluations
    members_done = time.perf_counter()
    heatmaps, weights = to_heatmaps(found), vote(found)

    def finish(learned: Learned | AnswersMap) -> Explained:
        now = time.perf_counter()
        return Explained(
            members=found,
            heatmaps=heatmaps,
            learned=learned,
            config=config,
            features=features,
            evaluations={**spent, "sea": tally.asked},
            seconds={**found.seconds, "sea": now - members_done, "total": now - started},
        )

    if budget is None:
        masks = {"feature_mask": features.groups, **(constraints or {})}
        return finish(learn(heatmaps, config, weights=weights, **masks))
    with full():
        learned = learn_within(
            budget * len(x) - sum(found.evaluations.values()),
            model,
            x,
            found.target,
            to_heat(found, weights),
            grid=config.grid,
            previous=previous,
            on_round=None if on_round is None else lambda learned: on_round(finish(learned)),
            seconds=None if seconds is None else seconds - (members_done - started),
            tolerance=tolerance,
            features=features,
            background=background,
            absent=config.absent,
            seed=running.get("seed", 0),
            outputs=found.outputs,
            output=found.output,
            tick=tally.questions,
            **(call or {}),
        )
    return finish(learned)


def learn(
    heatmaps: Tensor,
    config: SEAConfig | None = None,
    *,
    weights: Tensor | None = None,
    feature_mask: Tensor | None = None,
    required: Tensor | None = None,
    forbidden: Tensor | None = None,
    **options: Any,
) -> Learned:
    """Learn a map for each input from heatmaps: ``ensemble``, with votes and groups of features.

    Heatmaps [N, m, *shape] and weights, [m] or [N, m], are those of ``ensemble``, as are masks and
    further options. With a ``feature_mask``, whole numbers that broadcast to the map, equal numbers
    are one feature.
    """
    config = check_config(config)
    heatmaps, shape, groups = check_heatmaps(heatmaps, quiet=True), heatmaps.shape[2:], None
    if feature_mask is not None:
        groups = grouping.group_features(feature_mask, tuple(shape)).to(heatmaps.device)
        heatmaps = scale(grouping.average_groups(heatmaps, groups), 2)
        config = config.replace(grid=None)
        required = grouping.mark_groups(required, groups, len(heatmaps), "required")
        forbidden = grouping.mark_groups(forbidden, groups, len(heatmaps), "forbidden")
    options |= {"required": required, "forbidden": forbidden}
    weights = check_weights(weights, heatmaps)
    result = ensemble(heatmaps, config, weights=weights, quiet=True, **options)
    painted, cells = result.attribution, groups
    if groups is not None:
        painted = grouping.spread(painted, groups, tuple(shape))
    elif result.feature_shape != tuple(shape):  # pooled onto a grid
        cells = grouping.number_cells(result.feature_shape, shape).unsqueeze(0)
    return Learned(result, painted, cells)

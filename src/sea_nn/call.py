"""One call of ``SEA.explain``, checked: what is explained, by whom, and for how much.

    SEA(model, ...)  -> Settings \
                                   prepare -> Call
    .explain(x, ...) -> Request  /

Everything that can be refused without asking the model is refused here, and so is every argument
that would have no effect beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sea_nn.config import (
    ABSENT,
    SEAConfig,
    check_choice,
    check_config,
    check_grid,
    check_number,
    check_seed,
    check_whole,
)
from sea_nn.errors import InputError, KindError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import SEVERAL, TABLE, Features, Kind, check_input, find_patches
from sea_nn.members.registry import Entry, Methods, choose_budget, count_price
from sea_nn.members.run import choose_entries
from sea_nn.model.adapters import ARRAYS, read_value
from sea_nn.model.outputs import Output, Progress, Target
from sea_nn.model.probe import Perturbation
from sea_nn.questions.absent import NEED_NEIGHBOURS, check_background, choose_absence, choose_draws
from sea_nn.several import Several

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
STARTING: tuple[str, ...] = (
    *("integrated_gradients", "smooth_ig", "deeplift", "occlusion", "rise"),
    *("lime", "kernel_shap", "gradient_shap"),
)
"""Members whose maps depend on the baseline."""
LEAST_QUESTIONS = 3
MOST_QUESTIONS = 100_000
"""An input; the sets of more would not fit into memory."""


@dataclass(frozen=True)
class About:
    """What the inputs are, for people and for features.

    Attributes:
        images: the inputs as pictures, uint8 [N, H, W, 3], for plots and reports; left out, inputs
            of 1 or 3 channels are shown themselves, from their least to their largest value.
        feature_names: names of a table's columns or a series' channels.
        model_name: what to call the model in reports.
        kind: of the inputs, where the number of their axes does not tell it: one of
            ``sea_nn.features.KINDS`` or one of your own.
    """

    images: Tensor | None = None
    feature_names: Sequence[str] | None = None
    model_name: str = ""
    kind: Kind | None = None


@dataclass(frozen=True)
class Constraints:
    """Features that must or must not count, in the paper's form [M8].

    Attributes:
        required: bool mask over the map of features that must count.
        forbidden: bool mask over the map of features that must not.
        epsilon: the least gain of a required feature.
    """

    required: Tensor | None = None
    forbidden: Tensor | None = None
    epsilon: float = 1e-3


@dataclass(frozen=True)
class Running:
    """How an explanation runs: what is told, when it ends, and what an error does.

    Attributes:
        progress: called with (member or "questions", evaluations done, evaluations in all).
        on_round: with a budget, is given the explanation so far after each round of questions, and
            may return False to stop.
        seconds: with a budget, ask no more after this time, the members' included.
        tolerance: with a budget, ask no more once ``predict_error`` is at most this.
        on_error: "skip" goes on without members that fail and reports them.
    """

    progress: Progress | None = None
    on_round: Callable[[Explanation], bool | None] | None = None
    seconds: float | None = None
    tolerance: float | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if self.on_error != "raise":
            check_choice("on_error", self.on_error, ("raise", "skip"))
        for name in ("seconds", "tolerance"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))


@dataclass(frozen=True)
class Settings:
    """The arguments of ``SEA``, by their names there: who explains, and for how much.

    What is wrong with them is heard of at once. Defaults are filled in: the budget where nobody
    says what to do, the paper's settings where there is none.
    """

    model: Callable[..., Any]
    methods: Methods | None = None
    config: SEAConfig | None = None
    budget: int | None = None
    absent: str | None = None
    grid: Sequence[int] | None = None
    output: Any = None
    seed: int = 0
    autocast: bool | torch.dtype = False

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise KindError(
                "a model must be a torch.nn.Module or a callable, got "
                f"{type(self.model).__name__}; {ARRAYS}"
            )
        methods = tuple(self.methods) if isinstance(self.methods, Iterator) else self.methods
        methods, budget = choose_budget(methods, self.config, self.budget)
        if self.budget is not None:
            check_whole("budget", self.budget, 1)
        if budget is not None and self.config is not None:
            raise InputError(
                "config has no effect beside a budget: the paper's form has its settings in "
                "SEAConfig, and absent= and grid= are arguments of SEA; leave out one of the two"
            )
        refuse_without(budget, absent=self.absent, grid=self.grid)
        if self.absent is not None:
            check_choice("absent", self.absent, ABSENT)
        if self.seed is not Settings.seed:
            check_seed(self.seed)
        made: dict[str, Any] = {"methods": methods, "budget": budget}
        made["config"] = check_config(self.config) if budget is None else None
        made["grid"] = None if self.grid is None else check_grid(self.grid)
        if self.output is not None and not isinstance(self.output, Output):
            made["output"] = Output(self.output)
        for name, value in made.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Request:
    """The arguments of ``SEA.explain``, by their names there: what is explained, and how.

    ``args`` are the additional_forward_args, and ``limit`` is the internal_batch_size.
    """

    x: Any
    target: Any = None
    baselines: Any = None
    background: Any = None
    feature_mask: Any = None
    args: Any = None
    limit: int | None = None
    labels: Sequence[str] | None = None
    about: About = field(default_factory=About)
    constraints: Constraints | None = None
    previous: Explanation | None = None
    running: Running = field(default_factory=Running)

    def __post_init__(self) -> None:
        labels = self.labels
        if isinstance(labels, str) or not (labels is None or hasattr(labels, "__getitem__")):
            raise KindError(f"labels must be a list of the classes' names; got {labels!r}")
        if self.previous is not None and getattr(self.previous, "asked", None) is None:
            kind = InputError if isinstance(self.previous, Explanation) else KindError
            raise kind("previous must be an Explanation with a budget, which has answers")


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is explained, by whom, and for how much; made by ``prepare``.

    Attributes:
        settings: who explains.
        request: what is explained, as the caller said it.
        name: of the model.
        model: what is opened: the caller's model, of one input and, for a target that is a
            function, of one number.
        x: the inputs, [N, ...]; of several, their values side by side.
        target: what is explained, as the caller said, or the one number of a function.
        output: what the model's outputs are; None to find out.
        features: of the inputs: a map's positions.
        asked: the features that questions are about; without a budget those of the map.
        hiding: how what is left out becomes absent.
        absent: what that means, in words.
        other: another fill, for the checks, where nobody said what absent means.
        entries: the members.
        named: whether somebody named them: then it is an error that none explains the model.
        price: what the members cost an input.
        baselines: what members take for absent.
        background: other inputs like x.
        labels: names of the model's classes.
        told: what of this goes into the explanation's provenance.
    """

    settings: Settings
    request: Request
    name: str
    model: Callable[..., Any]
    x: Tensor
    target: Target
    output: Output | None
    features: Features
    asked: Features
    hiding: Perturbation
    absent: str
    other: Perturbation | None = None
    entries: tuple[Entry, ...]
    named: bool
    price: int
    baselines: Any = None
    background: Tensor | None = None
    labels: Sequence[str] | None = None
    told: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.settings.budget is None:
            return
        self.check_budget(self.price)
        if self.request.constraints is not None:
            raise InputError('constraints do not go with a budget: say methods="paper"')

    @property
    def looks(self) -> int:
        """Rows an input that are asked before members and questions: the whole, and it again."""
        return 2 if isinstance(self.model, nn.Module) else 1

    def check_budget(self, price: int) -> None:
        """Refuse a budget that leaves no questions after members of this price and first looks."""
        budget, n = self.settings.budget or 0, self.asked.n
        least = price + self.looks + LEAST_QUESTIONS
        if budget < least:
            raise InputError(
                f"the members alone cost {price} evaluations an input, looking at the whole input "
                f"{self.looks}, and at least {LEAST_QUESTIONS} questions are needed: give a budget "
                f"of {least} or more (got {budget}), or cheaper methods"
            )
        questions = min(budget - price - self.looks, 2 ** min(n, 64))
        if questions > MOST_QUESTIONS:
            raise InputError(
                f"the budget leaves {questions:,} questions an input, and at most "
                f"{MOST_QUESTIONS:,} are asked about {n} features: 1,024 are the most measured"
            )


def refuse_without(budget: int | None, **given: Any) -> None:
    """Refuse what is about questions to the model where there is no budget for any."""
    for name, value in given.items():
        if budget is None and value is not None:
            instead = "SEAConfig(grid=)" if name == "grid" else "SEA(model, budget=512)"
            raise InputError(f"{name} is about questions, which need a budget: {instead}")


def prepare(settings: Settings, request: Request) -> Call:
    """The call of these settings and this request, or why there is none."""
    model, x, target, output = settings.model, request.x, request.target, settings.output
    baselines, background, labels = request.baselines, request.background, request.labels
    budget, absent, about = settings.budget, settings.absent, request.about
    running = request.running
    stops = {"on_round": running.on_round, "seconds": running.seconds}
    refuse_without(budget, previous=request.previous, tolerance=running.tolerance, **stops)
    several = not isinstance(x, Tensor)
    if several:
        packed = Several.of(x, request.feature_mask)
        if about.kind is not None or about.feature_names is not None:
            raise InputError("about.kind and about.feature_names are for one input, not several")
        baselines = packed.pack_values("baselines", baselines)
        background = packed.pack_values("background", background)
        model, x, features = packed.wrap(model), packed.rows, packed.features
    else:
        check_input(x)
        features = Features.of(
            x,
            kind=about.kind,
            feature_mask=request.feature_mask,
            names=about.feature_names,
        )
    entries = choose_entries(settings.model, settings.methods, features.kind, budget)
    _refuse_without_effect(settings, request, features, entries)
    told: dict[str, Any] = {"baselines": baselines, "feature_mask": request.feature_mask}
    told |= {"autocast": settings.autocast, "absent": absent, "grid": settings.grid}
    told |= {} if budget is None else {"budget": budget}
    if background is not None:
        told["background"] = background = check_background(background, x)
        baselines = background.mean(0) if baselines is None else baselines
    if callable(target):
        label = getattr(target, "__name__", "<lambda>")
        labels = labels or (None if label == "<lambda>" else [label])
        model, output, target = read_value(model, target), Output("value"), 0
    asked, grid = features, settings.grid
    if budget is not None:
        patched = grid is None and features.kind.view == "picture"
        asked = features.to_ask_about(
            find_patches(settings.model, features.shape) if patched else grid
        )
    price = count_price(entries, tuple(x.shape[1:]))
    before, draws = None if request.previous is None else request.previous.asked, 1
    if before is not None and before.outputs is not None:
        draws = before.outputs.shape[2]
    elif budget is not None and background is not None:
        looks = 2 if isinstance(model, nn.Module) else 1
        draws = choose_draws(budget - price - looks, asked.n, absent, background)
    given: dict[str, Any] = {"baselines": baselines, "background": background}
    hiding, says = choose_absence(x, features, absent, **given, draws=draws, seed=settings.seed)
    other, unsaid = None, budget is not None and absent is None and background is None
    for part in features.parts or (features,):
        if unsaid and other is None and part.kind.neighbours:
            other, _ = choose_absence(x, features, "mean", baselines=baselines)
    return Call(
        settings=settings,
        request=request,
        name=about.model_name or type(settings.model).__name__,
        model=model,
        x=x,
        target=target,
        output=output,
        features=features,
        asked=asked,
        hiding=hiding,
        absent=says,
        other=other,
        entries=entries,
        named=settings.methods is not None,
        price=price,
        baselines=baselines,
        background=None if several else background,
        labels=labels,
        told=told,
    )


def _refuse_without_effect(
    settings: Settings, request: Request, features: Features, entries: Sequence[Entry]
) -> None:
    """Refuse what nothing would take: a grid, a background, baselines, and what names outputs."""
    absent, several, config = settings.absent, features.kind == SEVERAL, settings.config
    if settings.grid is not None or (config is not None and config.grid is not None):
        what = "" if features.kind.neighbours else f"inputs of the kind {features.kind.name!r}"
        what = "a feature_mask" if request.feature_mask is not None else what
        what = "several inputs" if several else what
        if what:
            raise InputError(f"grid has no effect beside {what}: leave it out")
    if callable(request.target):
        many = len(() if request.labels is None else request.labels) > 1
        if many or settings.output is not None:
            raise InputError(
                f"{'labels' if many else 'output'} has no effect beside a target that is a "
                "function: the number that it gives is explained as it is"
            )
    starts, asks = False, settings.budget is not None
    for entry in entries:
        starts |= entry.member.name in STARTING or not entry.member.native
        asks |= entry.member.name == "presence_gradient"
    usual = None if request.background is None else "background"
    ways = set()
    for part in features.parts or (features,) if asks else ():
        fits = not several or absent not in NEED_NEIGHBOURS or part.kind.neighbours
        ways.add((absent if fits else None) or usual or part.kind.absent)
    taken = bool(ways & {"background", "background_mean", "baseline"})
    if not asks:  # members may start from its mean, and a table's values are compared with it
        taken = features.kind == TABLE or (starts and request.baselines is None)
    if request.background is not None and not taken:
        beside = f"beside absent={absent!r}" if asks else "without a budget on these members"
        raise InputError(f"background= has no effect {beside}: leave one of them out")
    if request.baselines is not None and not starts and "baseline" not in ways:
        raise InputError(
            "baselines have no effect here: none of the members starts from them, and absent is "
            'no baseline; leave them out, or say SEA(model, budget=512, absent="baseline")'
        )

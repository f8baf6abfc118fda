"""One call of ``SEA.explain``, checked: what is explained, by whom, and for how much.

Everything that can be refused without asking the model is refused here, and so is every argument
that would have no effect beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError, KindError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import SEVERAL, Features, Kind
from sea_nn.members.registry import Entry, Methods
from sea_nn.members.run import check_input, check_on_error, choose_entries
from sea_nn.model.outputs import Output, PackedModel, Progress, Target, read_value
from sea_nn.model.probe import Perturbation, check_autocast
from sea_nn.questions.absent import WAYS, check_background
from sea_nn.questions.ask import NEED_NEIGHBOURS, choose_draws, find_way, prepare_absence

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
STARTING = {
    *("integrated_gradients", "smooth_ig", "deeplift", "occlusion", "rise", "lime", "kernel_shap"),
    "gradient_shap",
}
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

    def __post_init__(self) -> None:
        if self.required is None and self.forbidden is None:
            raise InputError("constraints need a mask: Constraints(required=) or (forbidden=)")
        if self.required is None and self.epsilon != 1e-3:
            raise InputError("epsilon is the least gain of required features: give required=")


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
        check_on_error(self.on_error)
        if self.progress is not None and not callable(self.progress):
            raise KindError(
                "progress must be a function of (member, evaluations done, evaluations in all); "
                f"got {type(self.progress).__name__}"
            )
        if self.on_round is not None and not callable(self.on_round):
            raise KindError(
                f"on_round must be a function of an explanation; got {type(self.on_round).__name__}"
            )
        for name in ("seconds", "tolerance"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and value >= 0):
                raise InputError(f"{name} must be a number >= 0; got {value!r}")

    def check_budget(self, budget: int | None) -> None:
        """Refuse ways to stop that have nothing to stop."""
        for name in ("on_round", "seconds", "tolerance"):
            if getattr(self, name) is not None and budget is None:
                raise InputError(
                    f"{name} is for explanations with a budget: SEA(model, budget=512)"
                )


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is explained, by whom, and for how much; made by ``check_call``.

    Attributes:
        model: what is opened: the caller's model, of one input and, for a target that is a
            function, of one number.
        x: the inputs, [N, ...]; of several, their values side by side.
        target: what is explained, as the caller said.
        output: what the model's outputs are; None to find out.
        features: of the inputs: a map's positions.
        asked: the features that questions are about; without a budget those of the map.
        hiding: how what is left out becomes absent.
        absent: what that means, in words.
        other: another fill, for the checks, where nobody said what absent means.
        choices: the members, the next ones where the first explain nothing.
        budget: evaluations an input; None: the paper's form.
        config: the paper's settings.
        args: further arguments of the model.
        baselines: what members take for absent.
        background: other inputs like x.
        limit: the most evaluations in one pass.
        autocast: a lower precision.
        seed: starts every draw.
        labels: names of the model's classes.
        about: see ``About``.
        constraints: see ``Constraints``.
        previous: an explanation of the same inputs, whose answers count as asked.
        running: see ``Running``.
        name: of the model.
        told: what of this goes into the explanation's provenance.
    """

    model: Callable[..., Any]
    x: Tensor
    target: Target
    output: Output | None
    features: Features
    asked: Features
    hiding: Perturbation
    absent: str
    other: Perturbation | None = None
    choices: tuple[tuple[Entry, ...], ...]
    budget: int | None
    config: SEAConfig = field(default_factory=SEAConfig)
    args: Any = None
    baselines: Any = None
    background: Tensor | None = None
    limit: int | None = None
    autocast: bool | torch.dtype = False
    seed: int
    labels: Sequence[str] | None = None
    about: About = field(default_factory=About)
    constraints: Constraints | None = None
    previous: Explanation | None = None
    running: Running = field(default_factory=Running)
    name: str
    told: Mapping[str, Any]

    @property
    def price(self) -> int:
        """What the first choice of members costs an input."""
        return count_price(self.choices[0], tuple(self.x.shape[1:]))

    @property
    def looks(self) -> int:
        """Rows an input that are asked before members and questions: the whole, and it again."""
        return 2 if isinstance(self.model, nn.Module) else 1


@dataclass(frozen=True)
class Several:
    """The inputs of a model that takes several, side by side in one row each.

    Attributes:
        rows: all their values, [N, V].
        features: of all of them, part by part.
        keywords: whether they came in a dict.
    """

    rows: Tensor
    features: Features
    keywords: bool

    @classmethod
    def of(cls, inputs: Any, feature_mask: Any = None, limit: int | None = None) -> Several:
        """Put a tuple or dict of tensors, [N, ...] each, side by side."""
        if not isinstance(inputs, tuple | Mapping):
            raise KindError(
                "x must be a torch.Tensor [N, ...], or a tuple or dict of them, got "
                f"{type(inputs).__name__}"
            )
        named = inputs if isinstance(inputs, Mapping) else None
        keywords = named is not None
        names = [f"input {k}" for k in range(len(inputs))] if named is None else list(named)
        values = list(inputs) if named is None else list(named.values())
        if not values:
            raise InputError("x holds no input; give at least one tensor [N, ...]")
        masks = _match("feature_mask", feature_mask, names, keywords) or [None] * len(names)
        parts = []
        for name, x, mask in zip(names, values, masks, strict=True):
            try:
                check_input(x, limit)
            except (InputError, KindError) as error:
                raise type(error)(f"{name}: {error}") from error
            parts.append(Features.of(x, feature_mask=mask))
        counts = {name: len(x) for name, x in zip(names, values, strict=True)}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError(f"all inputs need as many rows, one for each explanation; got {told}")
        first = values[0]
        for name, x in zip(names, values, strict=True):
            if (x.dtype, x.device) != (first.dtype, first.device):
                raise InputError(
                    f"all inputs need one type and device; {names[0]} is {first.dtype} on "
                    f"{first.device}, {name} {x.dtype} on {x.device}"
                )
        rows = torch.cat([x.detach().flatten(1) for x in values], 1)
        return cls(rows, Features.join(parts, names, first.device), keywords)

    def wrap(self, model: Callable[..., Any]) -> PackedModel:
        """The model as one of rows."""
        names = self.features.names if self.keywords else None
        return PackedModel(model, self.features.split, names)

    def pack_values(self, what: str, given: Any) -> Any:
        """Baselines or a background, one for each input, side by side; None and numbers as is."""
        if given is None or isinstance(given, int | float):
            return given
        values = _match(what, given, self.features.names or (), self.keywords)
        rows = []
        for part, own in zip(self.features.parts, values or (), strict=True):
            own = torch.as_tensor(0.0 if own is None else own).to(self.rows)
            if own.ndim <= len(part.input_shape):
                own = own.expand(part.input_shape).unsqueeze(0)
            rows.append(own.flatten(1))
        lengths = {len(own) for own in rows if len(own) > 1}
        if len(lengths) > 1:
            told = ", ".join(map(str, sorted(lengths)))
            raise InputError(
                f"{what} of several inputs need as many rows each, since a row of one goes with "
                f"that of the others; got {told}"
            )
        longest = max(map(len, rows))
        return torch.cat([own.expand(longest, -1) if len(own) == 1 else own for own in rows], 1)


def _match(what: str, given: Any, names: Any, keywords: bool) -> list[Any] | None:
    """What was given for each input, in their order."""
    if given is None:
        return None
    kind = "dict" if keywords else "tuple"
    if keywords and isinstance(given, Mapping) and set(given) <= set(names):
        return [given.get(name) for name in names]
    if not keywords and isinstance(given, tuple) and len(given) == len(names):
        return list(given)
    raise InputError(f"{what} must be a {kind} like the inputs, {', '.join(names)}; got {given!r}")


def count_price(entries: Sequence[Entry], shape: tuple[int, ...]) -> int:
    """The evaluations that members cost for one input of this shape."""
    return sum(entry.member.cost(entry.options, shape) for entry in entries)


def check_budget(budget: int, price: int, looks: int, n: int) -> None:
    """Refuse a budget that leaves no questions after members and first looks."""
    least = price + looks + LEAST_QUESTIONS
    if budget < least:
        raise InputError(
            f"the members alone cost {price} evaluations an input, looking at the whole input "
            f"{looks}, and at least {LEAST_QUESTIONS} questions are needed: give a budget of "
            f"{least} or more (got {budget}), or cheaper methods"
        )
    questions = min(budget - price - looks, 2 ** min(n, 64))
    if questions > MOST_QUESTIONS:
        raise InputError(
            f"the budget leaves {questions:,} questions an input, and at most {MOST_QUESTIONS:,} "
            f"are asked about {n} features: give a smaller budget (1,024 is the most that was "
            "measured)"
        )


def check_previous(previous: Any, budget: int | None) -> None:
    """Refuse an earlier explanation whose questions cannot be used."""
    if previous is None:
        return
    if not isinstance(previous, Explanation):
        raise KindError(f"previous must be an Explanation; got {type(previous).__name__}")
    if budget is None or previous.asked is None:
        raise InputError(
            "previous is for explanations with a budget: SEA(model, budget=512).explain(x, "
            "previous=e), where e has one as well"
        )


def check_labels(labels: Any) -> None:
    """Refuse names of classes that are no list."""
    if isinstance(labels, str) or not (labels is None or hasattr(labels, "__getitem__")):
        raise KindError(f"labels must be a list of the classes' names; got {labels!r}")


def check_kinds(**given: tuple[Any, type]) -> None:
    """Refuse what is not of the class that holds such arguments."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            names = ", ".join(field.name for field in fields(kind))
            raise KindError(
                f"{name} must be sea_nn.{kind.__name__}({names}); got {type(value).__name__}"
            )


def check_call(
    model: Callable[..., Any],
    x: Inputs,
    target: Target | Callable[[Any], Tensor],
    methods: Methods | None,
    *,
    budget: int | None,
    config: SEAConfig,
    absent: str | None,
    grid: tuple[int, ...] | None,
    output: Output | None,
    seed: int,
    autocast: bool | torch.dtype,
    baselines: Any,
    background: Any,
    feature_mask: Any,
    args: Any,
    limit: int | None,
    labels: Sequence[str] | None,
    about: About | None,
    constraints: Constraints | None,
    previous: Explanation | None,
    running: Running | None,
) -> Call:
    """Check the arguments of ``SEA.explain`` beside those of ``SEA``; returns the call."""
    check_kinds(
        about=(about, About), constraints=(constraints, Constraints), running=(running, Running)
    )
    about, running = about or About(), running or Running()
    running.check_budget(budget)
    check_previous(previous, budget)
    check_labels(labels)
    if constraints is not None and budget is not None:
        raise InputError(
            "constraints (required and forbidden) do not go with a budget (512 where nothing else "
            'is said): say methods="paper"'
        )
    own = model
    name, several = about.model_name or type(model).__name__, not isinstance(x, Tensor)
    if isinstance(x, Tensor):
        check_input(x, limit)
        features = Features.of(
            x,
            kind=about.kind,
            feature_mask=feature_mask,
            names=about.feature_names,
            model=model,
        )
    else:
        packed = Several.of(x, feature_mask, limit)
        if about.kind is not None or about.feature_names is not None:
            raise InputError("about.kind and about.feature_names are for one input, not several")
        baselines = packed.pack_values("baselines", baselines)
        background = packed.pack_values("background", background)
        model, x, features = packed.wrap(model), packed.rows, packed.features
    if background is not None:
        background = check_background(background, x)
        if not several and absent not in (None, "background", "background_mean", "baseline"):
            raise InputError(
                f"background= has no effect beside absent={absent!r}: leave one of them out"
            )
    kind = features.kind
    choices = choose_entries(own, methods, kind, budget)
    if grid is not None and (several or feature_mask is not None or not kind.neighbours):
        what = "several inputs" if several else "a feature_mask"
        what = what if several or feature_mask is not None else f"inputs of the kind {kind.name!r}"
        raise InputError(f"grid has no effect beside {what}: leave it out of SEA")
    check_autocast(autocast, x)
    own_ways = [part.kind.absent for part in features.parts or (features,)]
    _check_baselines(baselines, choices, absent or ("baseline" if "baseline" in own_ways else ""))
    told: dict[str, Any] = {"baselines": baselines, "feature_mask": feature_mask}
    told |= {} if background is None else {"background": background}
    told |= {"autocast": autocast, "absent": absent, "grid": grid}
    told |= {} if budget is None else {"budget": budget}
    members_baseline = baselines
    if baselines is None and background is not None:
        members_baseline = background.mean(0)
    if callable(target):
        label = getattr(target, "__name__", "<lambda>")
        labels = labels or (None if label == "<lambda>" else [label])
        model, output, target = read_value(model, target), Output("value"), 0
    asked = features if budget is None else features.to_ask_about(grid, x.device)
    price = count_price(choices[0], tuple(x.shape[1:]))
    draws = 1
    if budget is not None:
        looks = 2 if isinstance(model, nn.Module) else 1
        check_budget(budget, price, looks, asked.n)
        draws = choose_draws(budget - price - looks, asked.n, absent, background)
    if previous is not None and previous.asked is not None and previous.asked.outputs is not None:
        draws = previous.asked.outputs.shape[2]
    hiding = prepare_absence(
        x,
        features,
        absent,
        baselines=members_baseline,
        background=background,
        draws=draws,
        seed=seed,
    )
    other, parts = None, features.parts or (features,)
    unsaid = budget is not None and absent is None and background is None
    if unsaid and any(part.kind.neighbours for part in parts):
        other = prepare_absence(
            x, features, "mean", baselines=baselines, background=None, draws=1, seed=seed
        )
    return Call(
        model=model,
        x=x,
        target=target,
        output=output,
        features=features,
        asked=asked,
        hiding=hiding,
        absent=_say_absent(absent, features, background, draws),
        other=other,
        choices=choices,
        budget=budget,
        config=config,
        args=args,
        baselines=members_baseline,
        background=None if kind == SEVERAL else background,
        limit=limit,
        autocast=autocast,
        seed=seed,
        labels=labels,
        about=about,
        constraints=constraints,
        previous=previous,
        running=running,
        name=name,
        told=told,
    )


def _say_absent(
    absent: str | None, features: Features, background: Tensor | None, draws: int
) -> str:
    """What becomes of features that are left out, in words."""
    ways = []
    for part in features.parts or (features,):
        fits = absent not in NEED_NEIGHBOURS or bool(part.kind.neighbours)
        way = find_way(absent if fits else None, part.kind, background, draws)
        ways.append(WAYS[way].says)
    chosen = "as said by the caller" if absent or background is not None else "nothing was said"
    return f"what is left out becomes {' and '.join(dict.fromkeys(ways))} ({chosen})"


def _check_baselines(baselines: Any, choices: Sequence[Sequence[Entry]], absent: str) -> None:
    """Refuse baselines that neither a member nor an absence takes."""
    members = {entry.member.name for entries in choices for entry in entries}
    foreign = any(not entry.member.native for entries in choices for entry in entries)
    if baselines is not None and not foreign and not members & STARTING and absent != "baseline":
        raise InputError(
            f"baselines have no effect here: none of the members starts from them "
            f"({', '.join(sorted(STARTING))} do), and absent is no baseline; leave them out, or "
            'say SEA(model, absent="baseline")'
        )

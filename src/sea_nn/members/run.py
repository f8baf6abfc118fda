"""Run the members of a call on an opened model: what they said, what it cost, what to know of it.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
>>> result = compute_maps(model, torch.ones(2, 1, 4, 4), methods=("saliency", "occlusion"))
>>> {name: tuple(map.shape) for name, map in result.maps.items()}
{'saliency': (2, 1, 4, 4), 'occlusion': (2, 1, 4, 4)}

Any function `(model, x, target) -> maps` can join, in `methods`.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sea_nn.config import check_seed
from sea_nn.errors import MemberError, SEAError, UnfitError
from sea_nn.features import IMAGE, Features, Kind, attends, check_input
from sea_nn.members.callables import ADVICE, give_model
from sea_nn.members.quick import MISSED
from sea_nn.members.registry import Entry, Methods, count_price, expand_methods
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import Meter, Progress, Target
from sea_nn.model.probe import Probe

CONVOLUTIONAL = ("deeplift", "guided_grad_cam")
TRANSFORMER = ("attention_gradient",)
COLUMNS = ("deeplift",)
ANY = ("saliency",)
PASSES = (16, 8, 4, 2)
"""Passes of the presence gradient: the most that leave half of the budget to questions."""
LOOKS = 2  # rows an input that are neither members' nor questions about parts
FEW = 4  # evaluations of a member that runs the model as it is: folded norms differ by rounding
FLAT = 1e-6
"""Maps whose values differ by less than this share prefer no feature: it is rounding."""
ALIKE = 0.9999
"""The cosine from which two maps are the same."""
COMPLETENESS = 0.05
"""Integrated gradients and DeepLIFT should sum to the change of the output within this share."""
MUCH = 0.25
"""A map whose sum misses more than this share of the change does not count."""
OnError = Literal["raise", "skip"]
Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what was seen, and what to do about it.

    >>> Check("warn", "input 3", "its map is empty").input
    3
    """

    level: Level
    subject: str
    message: str
    advice: str = ""

    @property
    def input(self) -> int | None:
        """The number of the input that it is about; None if it is about all of them."""
        number = self.subject.removeprefix("input ")
        return int(number) if number != self.subject and number.isdecimal() else None


@dataclass(frozen=True)
class MemberMaps:
    """What the members said about N inputs.

    Attributes:
        maps: raw attributions by member, each of the input's shape or, of images by members
            without channels, [N, 1, H, W]. Signed where the member is.
        seconds: the time each member took.
        evaluations: the model evaluations each member made for all N inputs; one evaluation is one
            forward, or forward and backward, pass of one input. Shared work counts once.
        failed: why a member has no map and what to do, with `on_error="skip"`.
        target: the class explained, [N], or a pair (a and not b), [N, 2].
        outputs: the model's answers, [N, classes].
        options: the options that each member ran with, its defaults among them.
        missed: the share of f(x) - f(baseline) by which a map fails to add up to it, [N], for the
            members that should (DeepLIFT).
        given: the inputs and whatever else the maps depend on, beside the model and the target.
        reused: whether they are those of an earlier call, and cost this one nothing.
    """

    maps: dict[str, Tensor]
    seconds: dict[str, float]
    evaluations: dict[str, int]
    failed: dict[str, str]
    target: Tensor
    outputs: Tensor
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missed: dict[str, Tensor] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    reused: bool = False

    def to_heatmaps(self, signed: bool = False) -> Tensor:
        """What members say of each position, from 0 to 1: [N, m, *shape].

        Magnitudes are summed over channels, and scaled from the least to the largest. Or else,
        ``signed``, values are, and divided by their largest magnitude: evidence against is below 0.
        Maps that are the same everywhere are 0.
        """
        x, kind, seen = self.given["x"], self.given["kind"], []
        for raw in self.maps.values():
            values = raw.double() if signed else raw.float().abs()
            seen.append(values if kind.channels is None else values.sum(kind.channels))
        none = x.new_zeros(len(x), 0, *kind.map_shape(x), dtype=torch.float64)
        maps = torch.stack(seen, 1) if seen else none
        low, high = maps.flatten(2).aminmax(dim=2, keepdim=True)
        largest = torch.maximum(low.abs(), high.abs())
        flat = high - low <= FLAT * largest
        if maps.shape[2:].numel() == 1:  # it has no other position to compare with
            low, flat = torch.zeros_like(low), largest == 0
        start, span = (0, largest) if signed else (low, high - low)
        span = torch.where(flat | (span <= 0), torch.inf, span)
        return ((maps.flatten(2) - start) / span).view(maps.shape)

    def find_duplicates(self) -> list[tuple[str, str, Tensor]]:
        """Return pairs of members whose maps point the same way, and for which inputs, bool [N].

        Such a pair has one vote too many: a method may fall back to another on some models.
        """
        found, unit = [], dict[str, Tensor]()
        for name, maps in self.maps.items():
            unit[name] = nn.functional.normalize(maps.abs().flatten(1), dim=1)
        for a, b in combinations(unit, 2):
            if unit[a].shape == unit[b].shape:
                same = (unit[a] * unit[b]).sum(1) >= ALIKE
                if bool(same.any()):
                    found.append((a, b, same))
        return found


def choose_entries(
    model: Callable[..., Any],
    methods: Methods | None = None,
    kind: Kind = IMAGE,
    budget: int | None = 512,
) -> tuple[Entry, ...]:
    """Return the members for a model: those that are named, or a few cheap ones.

    Where none are named, a budget starts with those that cost a few evaluations each and were best
    for such models; they are optional, and none of them may fit the budget.

    Args:
        model: the model.
        methods: the members that are named; None: none.
        kind: of the model's inputs.
        budget: of evaluations an input.

    >>> [entry.label for entry in choose_entries(nn.Conv2d(3, 2, 3))]
    ['presence_gradient', 'deeplift', 'guided_grad_cam']
    >>> choose_entries(nn.Conv2d(3, 2, 3), budget=34)[0].options["passes"]
    8
    """
    if methods is not None:
        return expand_methods(methods)
    others: tuple[str, ...] = CONVOLUTIONAL
    if not isinstance(model, nn.Module):
        others = ANY
    elif kind.channels is None:
        others = COLUMNS
    elif attends(model):
        others = TRANSFORMER
    presence, *entries = expand_methods(("presence_gradient", *others), optional=True)
    left = (budget or 0) // 2 - LOOKS
    for entry in entries:
        left -= entry.member.cost()
    for passes in PASSES:
        if passes <= left:
            presence = replace(presence, options={**presence.options, "passes": passes})
            return presence, *entries
    return tuple(entries) if left >= 0 else ()


def run_members(
    probe: Probe,
    entries: Sequence[Entry],
    on_error: OnError = "raise",
    earlier: Sequence[MemberMaps] = (),
    needed: bool = True,
) -> MemberMaps:
    """Let members explain the inputs of an opened model.

    Args:
        probe: the model.
        entries: the members.
        on_error: "skip" goes on without members that fail, which are reported. Optional ones that
            are not made for the model are always left out.
        earlier: maps that are taken again where they are those that this call would compute.
        needed: whether it is an error that none of them explains the model.
    """
    options: dict[str, Mapping[str, Any]] = {}
    # Whatever decides the maps beside the model and the target.
    given: dict[str, Any] = {"x": probe.x, "args": probe.args, "baselines": probe.baselines}
    given |= {"kind": probe.features.kind, "groups": probe.features.groups, "members": []}
    given |= {"autocast": probe.autocast, "seed": probe.seed}
    for entry in entries:
        options[entry.label] = entry.options
        given["members"].append((entry.member, entry.options))
    given = pytree.tree_map_only(Tensor, torch.detach_copy, given)
    # The model of now says the same, up to rounding.
    near = 1e-4 if probe.autocast is None else 0.02
    for one in earlier:
        known = _alike((one.given, one.target), (given, probe.target))
        if known and torch.allclose(probe.whole, one.outputs, rtol=near, atol=near):
            return replace(one, outputs=probe.whole, reused=True)
    found = MemberMaps({}, {}, {}, {}, probe.target, probe.whole, options, given=given)
    for entry in entries:
        _run_one(probe, entry, found, on_error)
    if found.maps:
        return found
    if not needed:
        return replace(found, failed={}, options={})
    said = "; ".join(f"{label}: {why}" for label, why in found.failed.items())
    raise MemberError(f"no member could explain this model. {said}")


def _run_one(probe: Probe, entry: Entry, found: MemberMaps, on_error: OnError) -> None:
    """Run one member, and put what it gave, or why it gave nothing, into what was found."""
    meter, label, member = probe.meter, entry.label, entry.member
    cost = member.cost(entry.options, tuple(probe.x.shape[1:]))
    # Members that make many passes and do not read the layers themselves run by folded norms.
    many = member.native and "convolution" not in member.needs and cost > FEW
    began, before = time.perf_counter(), meter.rows["members"]
    meter.start("members", label, cost * len(probe.x))
    try:
        maps = _explain(entry, probe.fast or probe if many else probe)
        if not bool(maps.isfinite().all()):
            raise (UnfitError if entry.optional else MemberError)(
                f"{label} returned NaN or infinite values; check the scale of the input and "
                "the baselines, and turn autocast off"
            )
    except Exception as error:
        probe.cache.pop(MISSED, None)
        if on_error == "raise" and not (entry.optional and isinstance(error, UnfitError)):
            raise
        found.failed[label] = str(error).removesuffix(ADVICE)
    else:
        found.maps[label] = maps
        found.seconds[label] = time.perf_counter() - began
        found.evaluations[label] = meter.rows["members"] - before
        if MISSED in probe.cache:
            found.missed[label] = probe.cache.pop(MISSED)
    meter.finish()


def _explain(entry: Entry, probe: Probe) -> Tensor:
    """Run one member, and return maps of the shape of x, or with one channel."""
    member, settings, kind, x = entry.member, dict(entry.options), probe.features.kind, probe.x
    if "image" in member.needs and kind.view != "picture":
        raise UnfitError(
            f"{member.name} explains images [N, C, H, W], and the input is a {kind.name} of shape "
            f"{list(x.shape)}; `sea methods` lists what others need"
        )
    if "module" in member.needs and probe.model.module is None:
        raise UnfitError(
            f"{member.name} looks inside the model, so it needs a torch.nn.Module and not a plain "
            "function; `sea methods` lists what others need"
        )
    if member.native and "baselines" in settings:
        # Shared results never depend on the baselines, so the cache stays.
        probe = replace(probe, baselines=settings.pop("baselines"))
    try:
        if not member.native:
            model, target = give_model(entry, probe)
            maps = member.run(model, x.clone(), target, **settings)
        while member.native:
            try:
                maps = member.run(probe, **settings)
                break
            except torch.cuda.OutOfMemoryError:
                probe = probe.shrink()
    except SEAError:
        raise
    except Exception as error:
        raise MemberError(
            f"{entry.label} failed on this model with {type(error).__name__}: {error}{ADVICE}"
        ) from error
    if not isinstance(maps, Tensor):
        raise MemberError(f"{entry.label} must return a tensor of maps, got {type(maps).__name__}")
    axis = kind.channels or 1  # a series' members may give one map for all channels, too
    if maps.ndim == x.ndim - 1 > 1:
        maps = maps.unsqueeze(axis)
    single = kind.axes > 2 and maps.shape == (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if single and kind.channels is None:
        maps = maps.expand_as(x)  # each channel of a series has features of its own
    elif maps.shape != x.shape and not single:
        raise MemberError(
            f"{entry.label} must return maps of the input's shape {list(x.shape)}, or with one "
            f"channel; got {list(maps.shape)}"
        )
    # A copy where the member gave what others still use.
    own: Tensor = maps.detach().to(x.device, x.dtype).clone(memory_format=torch.contiguous_format)
    return own


def check_probe(probe: Probe) -> Iterator[Check]:
    """What the first answers told: what was assumed of them, and whether they hold a second time.

    Members put points of many inputs into one batch, so that their maps of a model whose answers
    depend on the batch mix inputs.
    """
    for notice in probe.notices:
        what, _, advice = notice.partition(". ")
        yield Check("warn", "model", what, advice)
    if probe.unsteady is not None and bool(probe.unsteady.any()):
        what = "its answer about an input changes with the rest of the batch, or by chance"
        advice = (
            "maps mix inputs: a normalisation by batch statistics, or dropout, runs in eval mode "
            "too; switch it off, or explain inputs with internal_batch_size=1"
        )
        yield Check("warn", "model", what, advice)


def check_members(found: MemberMaps, optional: Collection[str] = ()) -> Iterator[Check]:
    """What members' maps tell of them: failures, empty maps, duplicates, sums that are missed.

    Args:
        found: the maps.
        optional: members that nobody asked for: it is no fault if they do not fit a model.
    """
    for name, why in found.failed.items():
        level: Level = "ok" if name in optional else "fail"
        # Errors name their member, which every reader of checks has before the message.
        yield Check(level, name, why.removeprefix(f"{name} "), "it is left out")
    if not found.maps:
        what = "no member explains this model: the map rests on its answers alone"
        yield Check("ok", "members", what)
        return
    copies = {b: a for a, b, same in found.find_duplicates() if bool(same.all())}
    empty = ~found.to_heatmaps().flatten(2).any(2)
    for k, (name, maps) in enumerate(found.maps.items()):
        flat, level = empty[:, k], "ok"
        what, advice = "its map is finite, not empty, and its own", ""
        if bool(flat.any()):
            which = "for every input" if bool(flat.all()) else f"for {int(flat.sum())} inputs"
            same_value = "the same everywhere" if bool(maps[flat].any()) else "zero"
            what, level = f"its map is {same_value} {which}", "fail"
            advice = "it does not count there"
        elif name in copies:
            what, level = f"its map equals {copies[name]}'s", "warn"
            advice = (
                "they share one vote; leave one out to save its time. A method that hooks modules "
                "it does not know (Captum's GuidedBackprop and ReLU6) falls back to the gradient"
            )
        yield Check("ok" if name in optional else level, name, what, advice)
    for name, missed in found.missed.items():
        what = f"its sum misses the change of the output by {float(missed.median()):.1%} (median)"
        most, advice, level = float(missed.max()), "", "ok"
        if most > COMPLETENESS:
            advice = "its rules do not cover attention, layer norms or products of activations"
            level = "ok" if name in optional else "warn"
        if most > MUCH:
            advice += "; where more than a quarter is missed it does not count beside other members"
        yield Check(level, name, what, f"{advice}. Use integrated_gradients" if advice else "")


def compute_maps(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods = "paper",
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: Features | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    on_error: OnError = "raise",
    earlier: Sequence[MemberMaps] = (),
    **opening: Any,
) -> MemberMaps:
    """Explain every input of `x` with every method; the model and `x` are not changed.

    The arguments are those of `SEA`, `run_members` and, by its names, `open_model`. What should be
    known beyond that:

    - `baselines` is what "absent" means: None for 0, a number, or a tensor that broadcasts to `x`,
      [N, ...] being one an input.
    - With `args` callables cannot take part: they get the model and an input.
    - The groups of `features` are the segments for lime and kernel_shap.
    - Draws are each input's own, decided by `seed` and its content, so its maps do not depend on
      the rest of the batch. A model or callable that draws does so from PyTorch's global generator.

    Raises:
        InputError, KindError: the call is wrong.
        MemberError: a member cannot explain this model or input (all of them, with "skip").
    """
    entries = expand_methods(methods, options)
    check_input(x)
    total, own = len(x) * count_price(entries, tuple(x.shape[1:])), features or Features.of(x)
    meter = Meter(progress=progress, total=total)
    with open_model(
        model, x, target, features=own, seed=check_seed(seed), meter=meter, **opening
    ) as probe:
        return run_members(probe, entries, on_error, earlier)


def _alike(a: Any, b: Any) -> bool:
    """Whether two values are the same, tensors and whatever holds them included."""
    (mine, form), (others, other) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return form == other and all(map(_is_one, mine, others))


def _is_one(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    return a is b or (not isinstance(a, Tensor) and type(a) is type(b) and bool(a == b))

"""Run the members of one call on an opened model: what they returned, and what they cost.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
>>> result = compute_maps(model, torch.ones(2, 1, 4, 4), methods=("saliency", "occlusion"))
>>> {name: tuple(map.shape) for name, map in result.maps.items()}
{'saliency': (2, 1, 4, 4), 'occlusion': (2, 1, 4, 4)}

Any function `(model, x, target) -> maps` can join by `register`, or unnamed in `methods`.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sea_nn.config import check_seed, check_whole
from sea_nn.errors import InputError, KindError, MemberError, SEAError, UnfitError
from sea_nn.features import IMAGE, TABLE, Features, Kind, attends, find_kind
from sea_nn.members.layers import MISSED
from sea_nn.members.registry import Entry, Methods, expand_methods, get, names
from sea_nn.model.borrowing import copy_twin, find_inplace, is_private
from sea_nn.model.evaluator import Evaluator, is_same
from sea_nn.model.outputs import Meter, Output, Progress, Reading, Target, TensorModel, take
from sea_nn.model.probe import Probe, open_model
from sea_nn.paper.heatmaps import FLAT, to_heatmap

CONVOLUTIONAL = ("deeplift", "guided_grad_cam")
TRANSFORMER = ("attention_gradient",)
COLUMNS = ("deeplift",)
ANY = ("saliency",)
PASSES = (16, 8, 4, 2)
"""Passes of the presence gradient: the most that leave half of the budget to questions."""
LOOKS = 2  # rows an input that are neither members' nor questions about parts
FEW = 4  # evaluations of a member that runs the model as it is: folded norms differ by rounding
FOLD_FROM = 32  # evaluations an input from which two more, to prove folded norms, pay
ADVICE = '. Leave it out of methods, or pass on_error="skip" to go on without it'
OnError = Literal["raise", "skip"]


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
        output: what these answers are.
        options: the options that each member ran with, its defaults among them.
        missed: the share of f(x) - f(baseline) by which a map fails to add up to it, [N], for the
            members that should (DeepLIFT).
        kind: of the inputs; it says which axis of the maps is channels.
        given: the inputs and whatever else the maps depend on, beside the model and the target.
        reused: whether they are those of an earlier call, and cost this one nothing.
    """

    maps: dict[str, Tensor]
    seconds: dict[str, float]
    evaluations: dict[str, int]
    failed: dict[str, str]
    target: Tensor
    outputs: Tensor
    output: Output
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kind: Kind = IMAGE
    missed: dict[str, Tensor] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    reused: bool = False

    def is_of(self, given: Mapping[str, Any], target: Tensor, outputs: Tensor) -> bool:
        """Whether these are the maps of this target, of all that is given, of such a model."""
        if not _alike((self.given, self.target), (given, target)):
            return False
        rounding = 1e-4 if given["autocast"] is None else 0.02
        return torch.allclose(outputs, self.outputs, rtol=rounding, atol=rounding)

    def duplicates(self, threshold: float = 0.9999) -> list[tuple[str, str, Tensor]]:
        """Return pairs of members whose maps point the same way, and for which inputs, bool [N].

        Such a pair has one vote too many: a method may fall back to another on some models.
        """
        found = []
        unit = {
            name: nn.functional.normalize(m.abs().flatten(1), dim=1)
            for name, m in self.maps.items()
        }
        for a, b in combinations(unit, 2):
            if unit[a].shape == unit[b].shape:
                same = (unit[a] * unit[b]).sum(1) >= threshold
                if bool(same.any()):
                    found.append((a, b, same))
        return found


def to_heatmaps(found: MemberMaps) -> Tensor:
    """Members' raw maps as heatmaps: |.|, channels summed, scaled to [0, 1]: [N, m, *shape]."""
    if not found.maps:
        x = found.given["x"]
        return torch.zeros(len(x), 0, *found.kind.map_shape(x), dtype=x.dtype, device=x.device)
    return torch.stack([to_heatmap(raw, found.kind.channels) for raw in found.maps.values()], 1)


def to_signed(found: MemberMaps) -> Tensor:
    """What members say of each position, evidence against below 0: [N, m, *shape].

    Channels are summed with their signs, and each map is divided by its largest magnitude. The maps
    of members that are the same everywhere are 0.
    """
    x, channels = found.given["x"], found.kind.channels
    shape = found.kind.map_shape(x)
    if not found.maps:
        return torch.zeros(len(x), 0, *shape, dtype=torch.float64, device=x.device)
    signed = [raw if channels is None else raw.sum(channels) for raw in found.maps.values()]
    maps = torch.stack(signed, 1).double()
    low, high = maps.flatten(2).aminmax(dim=2)
    largest = torch.maximum(low.abs(), high.abs())
    flat = (high - low <= FLAT * largest) & (maps[0, 0].numel() > 1)
    factor = torch.where(flat | (largest == 0), 0.0, 1 / largest)
    return maps * factor.view(*factor.shape, *(1,) * len(shape))


def choose_entries(
    model: Callable[..., Any],
    methods: Methods | None = None,
    kind: Kind = IMAGE,
    budget: int | None = 512,
) -> tuple[tuple[Entry, ...], ...]:
    """Return the members to try for a model, the best first; the last choice may be no members.

    Members that are named are the only choice. Where none are, a budget starts with those that cost
    a few evaluations each and were best for such models (docs/results/members.md).

    Args:
        model: the model.
        methods: the members that are named; None: none.
        kind: of the model's inputs.
        budget: of evaluations an input.

    >>> [entry.label for entry in choose_entries(nn.Conv2d(3, 2, 3))[0]]
    ['presence_gradient', 'deeplift', 'guided_grad_cam']
    >>> choose_entries(nn.Conv2d(3, 2, 3), budget=34)[0][0].options["passes"]
    8
    """
    if methods is not None:
        return (expand_methods(methods),)
    others: tuple[str, ...] = CONVOLUTIONAL
    if not isinstance(model, nn.Module):
        others = ANY
    elif kind.channels is None:
        others = COLUMNS
    elif attends(model):
        others = TRANSFORMER
    price = sum(entry.member.cost() for entry in expand_methods(others))
    left = (budget or 0) // 2 - LOOKS - price
    if left < 0:
        return ((),)
    passes = [(("presence_gradient", {"passes": p}),) for p in PASSES if p <= left]
    return expand_methods((*(passes[0] if passes else ()), *others), optional=True), ()


def run_members(
    probe: Probe,
    choices: Sequence[Sequence[Entry]],
    on_error: OnError = "raise",
    earlier: Sequence[MemberMaps] = (),
) -> MemberMaps:
    """Let the first members that can explain the inputs of an opened model do so.

    Args:
        probe: the model.
        choices: members to run; the next ones are tried where none of these explains the model.
            An empty choice is that of no members.
        on_error: "skip" goes on without members that fail, which are reported. Optional ones that
            are not made for the model are always left out.
        earlier: maps that are taken again where they are those that this call would compute.
    """
    evaluator, reasons = probe.evaluator, dict[str, str]()
    for entries in choices:
        given = copy_tensors(
            {name: getattr(evaluator, name) for name in ("x", "args", "baselines", "autocast")}
            | {"seed": evaluator.seed, "groups": evaluator.features.groups, "kind": evaluator.kind}
            | {"entries": [(entry.member, entry.options) for entry in entries]}
        )
        for one in earlier:
            if one.is_of(given, probe.target, probe.whole):
                return replace(one, outputs=probe.whole, output=probe.output, reused=True)
        found = MemberMaps(
            *({}, {}, {}, {}, probe.target, probe.whole, probe.output),
            options={entry.label: entry.options for entry in entries},
            kind=evaluator.kind,
            given=given,
        )
        for entry in entries:
            _run_one(probe, entry, found, on_error)
        if found.maps or not entries:
            return found
        reasons |= found.failed
    said = "; ".join(f"{label}: {why}" for label, why in reasons.items())
    raise MemberError(f"no member could explain this model. {said}")


def _run_one(probe: Probe, entry: Entry, found: MemberMaps, on_error: OnError) -> None:
    """Run one member, and put what it gave, or why it gave nothing, into what was found."""
    evaluator, meter, label = probe.evaluator, probe.meter, entry.label
    cost = entry.member.cost(entry.options, tuple(evaluator.x.shape[1:]))
    # Members that make many passes and do not read the layers themselves run by folded norms.
    many = entry.member.native and "convolution" not in entry.member.needs and cost > FEW
    began, before = time.perf_counter(), meter.rows["members"]
    meter.start("members", label, cost * len(evaluator.x))
    try:
        maps = _explain(entry, probe.fast if many else evaluator)
        if not bool(maps.isfinite().all()):
            raise (UnfitError if entry.optional else MemberError)(
                f"{label} returned NaN or infinite values; check the scale of the input and "
                "the baselines, and turn autocast off"
            )
    except Exception as error:
        evaluator.cache.pop(MISSED, None)
        if on_error == "raise" and not (entry.optional and isinstance(error, UnfitError)):
            raise
        found.failed[label] = str(error).removesuffix(ADVICE)
    else:
        found.maps[label] = maps
        found.seconds[label] = time.perf_counter() - began
        found.evaluations[label] = meter.rows["members"] - before
        if MISSED in evaluator.cache:
            found.missed[label] = evaluator.cache.pop(MISSED)
    meter.finish()


def _explain(entry: Entry, evaluator: Evaluator) -> Tensor:
    """Run one member and check what it returns."""
    member, settings = entry.member, dict(entry.options)
    check_needs(entry, evaluator)
    if member.native and "baselines" in settings and "baselines" not in member.defaults:
        # Shared results never depend on the baselines, so the cache stays.
        evaluator = replace(evaluator, baselines=settings.pop("baselines"))
    try:
        if not member.native:
            model, target = _give_model(entry, evaluator)
            maps = member.run(model, evaluator.x.clone(), target, **settings)
        while member.native:
            try:
                maps = member.run(evaluator, **settings)
                break
            except torch.cuda.OutOfMemoryError:
                evaluator = evaluator.shrink()
    except SEAError:
        raise
    except Exception as error:
        raise MemberError(
            f"{entry.label} failed on this model with {type(error).__name__}: {error}{ADVICE}"
        ) from error
    return check_maps(entry.label, maps, evaluator.x, evaluator.kind)


def _give_model(entry: Entry, evaluator: Evaluator) -> tuple[TensorModel, Tensor]:
    """Return a model for a callable to do with as it likes, where there is a copy, and the classes.

    Methods that hook activations need layers that do not write in place; they get them where that
    leaves the model what it is, which one more row shows. Of pairs of classes the model has one
    column, their difference.
    """
    if evaluator.args:
        raise MemberError(
            f"{entry.label} is called with the model and its first input alone, and this model "
            "takes additional_forward_args; write them into the model you pass, or leave it out"
        )
    module, meter, target = evaluator.module, evaluator.model.meter, evaluator.target.clone()
    given = evaluator.model
    if module is not None and is_private(module):
        given = TensorModel(copy_twin(module, inplace=False), False, meter)
        if find_inplace(module):
            none = torch.zeros(1, dtype=torch.long, device=evaluator.x.device)
            if meter is not None:
                meter.purpose = "checks"
            with torch.no_grad():
                said = replace(evaluator, model=given).forward(evaluator.x[:1].clone(), none)
            if not is_same(said, evaluator.outputs[:1]):
                given = TensorModel(copy_twin(module), False, meter)
            if meter is not None:
                meter.purpose = "members"
    if target.ndim == 1:
        return given, target
    if bool((target != target[0]).any()):
        raise MemberError(
            f"{entry.label} can explain one pair of classes for all inputs, and here each has its "
            f"own{ADVICE}"
        )
    difference = Reading(given, lambda said: take(said, target[:1].expand(len(said), 2)))
    return TensorModel(difference, check=False), torch.zeros_like(target[:, 0])


def compute_maps(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods = "paper",
    *,
    baselines: float | Tensor | None = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    feature_mask: Tensor | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    output: str | Output | None = None,
    seed: int = 0,
    autocast: bool | torch.dtype = False,
    progress: Progress | None = None,
    on_error: OnError = "raise",
    kind: Kind | None = None,
    earlier: Sequence[MemberMaps] = (),
) -> MemberMaps:
    """Explain every input of `x` with every method; the model and `x` are not changed.

    The arguments are those of `SEA` and `SEA.explain`. What should be known beyond that:

    - `baselines` is what "absent" means: None for 0, a number, or a tensor that broadcasts to `x`,
      [N, ...] being one an input. A pool of them for gradient_shap is an option of its own.
    - With `additional_forward_args` callables cannot take part: they get the model and an input.
    - `feature_mask` has the segments for lime and kernel_shap; `kind` says which axis is channels.
    - Draws are each input's own, decided by `seed` and its content, so its maps do not depend on
      the rest of the batch. A model or callable that draws does so from PyTorch's global generator.

    Raises:
        InputError, KindError: the call is wrong.
        MemberError: a member cannot explain this model or input (all of them, with "skip").
    """
    check_on_error(on_error)
    entries = expand_methods(methods, options)
    check_input(x, internal_batch_size)
    price = len(x) * sum(e.member.cost(e.options, tuple(x.shape[1:])) for e in entries)
    with open_model(
        model,
        x,
        target,
        features=Features.of(x, kind=kind, feature_mask=feature_mask),
        args=additional_forward_args,
        baselines=baselines,
        limit=internal_batch_size,
        autocast=autocast,
        output=output,
        seed=check_seed(seed),
        meter=Meter(progress=progress, total=price),
    ) as probe:
        if price >= FOLD_FROM * len(x) and probe.pairs:
            probe.begin(ask_empty=False)
        return run_members(probe, [entries], on_error, earlier)


def from_captum(attribution: type[Any], **options: Any) -> Callable[..., Tensor]:
    """Return a member from a Captum class, with options for its `attribute`.

    For example `methods=["saliency", from_captum(captum.attr.FeatureAblation)]`.
    """

    def member(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Captum warns of hooks it removes by itself
            maps: Tensor = attribution(model).attribute(x, target=target, **options)
        return maps

    member.__name__ = attribution.__name__
    return member


def check_on_error(on_error: str) -> None:
    """Refuse what is neither "raise" nor "skip"."""
    if on_error not in ("raise", "skip"):
        raise InputError(f'on_error must be "raise" or "skip", got {on_error!r}')


def check_needs(entry: Entry, evaluator: Evaluator) -> None:
    """Refuse inputs and models that a member is not made for, and name the members that are."""
    kind, member = evaluator.kind, entry.member
    if "image" in member.needs and kind.view != "picture":
        others = [n for n in names() if "image" not in get(n).needs]
        raise UnfitError(
            f"{member.name} explains images [N, C, H, W], and the input is a {kind.name} of shape "
            f"{list(evaluator.x.shape)}; members for it: {', '.join(others)}"
        )
    if "module" in member.needs and evaluator.module is None:
        others = [n for n in names() if "module" not in get(n).needs]
        raise UnfitError(
            f"{member.name} looks inside the model, so it needs a torch.nn.Module and not a plain "
            f"function; members that take one: {', '.join(others)}"
        )


def check_maps(label: str, maps: Any, x: Tensor, kind: Kind) -> Tensor:
    """Return what a member gave as maps of the shape of x, or with one channel."""
    if not isinstance(maps, Tensor):
        raise MemberError(f"{label} must return a tensor of maps, got {type(maps).__name__}")
    maps = maps.detach()
    axis = kind.channels or 1  # a series' members may give one map for all channels, too
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if maps.shape == (*x.shape[:axis], *x.shape[axis + 1 :]) != x.shape[:1]:
        maps = maps.unsqueeze(axis)
    single = kind.axes > 2 and maps.shape == one
    if single and kind.channels is None:
        maps = maps.expand_as(x)  # each channel of a series has features of its own
    elif maps.shape != x.shape and not single:
        raise MemberError(
            f"{label} must return maps of the input's shape {list(x.shape)}, or with one channel; "
            f"got {list(maps.shape)}"
        )
    # A copy where the member gave what others still use.
    own: Tensor = maps.to(x.device, x.dtype).clone(memory_format=torch.contiguous_format)
    return own


def check_input(x: Any, limit: int | None = None) -> None:
    """Refuse inputs that no member could explain, and say why.

    Raises:
        InputError, KindError: x is no batch of finite floating-point inputs, or the limit is 0.
    """
    if not isinstance(x, Tensor):
        raise KindError(f"x must be a torch.Tensor [N, ...], got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested:
        raise KindError("x must be a dense tensor [N, ...]; this one is sparse or nested")
    if not x.is_floating_point():
        raise KindError(
            f"x must hold floating-point numbers, got {x.dtype}; for token ids explain the "
            "embeddings instead"
        )
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(
            f"x must hold at least one input: [N, F], [N, C, T] or [N, C, H, W] with N >= 1; got "
            f"shape {list(x.shape)}. For a single input use x.unsqueeze(0)"
        )
    kind = find_kind(x)
    if kind is IMAGE:
        first, second, last = x.shape[1:]  # rows, columns and channels of a picture of usual size?
        if min(first, second) >= 16 and (last == 3 or (last in (1, 4) and first == second)):
            raise InputError(
                f"images are [N, C, H, W], and x {list(x.shape)} looks like [N, H, W, C]: give "
                "x.permute(0, 3, 1, 2); if the model itself wants channels last, wrap it: "
                "lambda x: model(x.permute(0, 2, 3, 1))"
            )
    if x.is_meta:
        raise InputError("x is on the meta device and holds no numbers; move it to cpu or cuda")
    finite = x.isfinite()
    if not bool(finite.all()):
        bad = (~finite).any(0).nonzero().flatten().tolist() if kind is TABLE else []
        more = ", …" if len(bad) > 5 else ""
        where = f" (columns {', '.join(map(str, bad[:5]))}{more})" if bad else ""
        raise InputError(f"x holds NaN or infinite values{where}; clean the input first")
    if limit is not None:
        check_whole("internal_batch_size", limit, 1)


def _alike(a: Any, b: Any) -> bool:
    """Whether two values are the same, tensors and whatever holds them included."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_alike, a, b))
    return a is b or (not isinstance(a, Tensor) and type(a) is type(b) and bool(a == b))


def copy_tensors(value: Any) -> Any:
    """The same with tensors of its own, which nobody changes."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: copy_tensors(part) for key, part in value.items()}
    return type(value)(map(copy_tensors, value)) if type(value) in (tuple, list) else value

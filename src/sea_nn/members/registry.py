"""Names for the members: what each needs, costs and defaults to, and the ready ensembles.

The functions are imported, and PyTorch with them, when a member is run: a name is checked without.

>>> get("integrated_gradients").cost()
50
>>> [entry.label for entry in expand_methods("paper")]
['saliency', 'integrated_gradients', 'smooth_ig']
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from sea_nn.config import BUDGETS, DEFAULT_BUDGET, SEAConfig, check_number, check_whole
from sea_nn.errors import InputError, KindError

Shape = tuple[int, ...]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """An attribution method that can join an ensemble.

    Attributes:
        name: what it is called everywhere.
        function: `(probe, **options) -> maps` for the members of this package, or
            `(model, x, target, **options) -> maps` for the others. Text names a module of this
            room with a function called like the member.
        evaluations: model evaluations for one input: a number, the name of the option that says
            it, or a function of the options and the input's shape, or its name in the same module.
            One evaluation is one forward, or forward and backward, pass.
        signed: whether maps also hold evidence against the class, below zero.
        needs: what it asks for: "gradient" (a differentiable model), "module" (not a plain
            function), "convolution" (or token) layers, "attention", "image" inputs, "superpixels"
            (scikit-image, for images).
        defaults: its options, with the values of the original paper or its authors' code.
        reference: where it comes from.
        native: whether `function` is of this package.
    """

    name: str
    function: str | Callable[..., Any]
    evaluations: int | str | Callable[[Options, Shape], int] = 1
    signed: bool = True
    needs: frozenset[str] = frozenset()
    defaults: Options = field(default_factory=dict)
    reference: str = ""
    native: bool = False

    def run(self, *inputs: Any, **options: Any) -> Any:
        """Call the function, which is imported first where it is named by its module."""
        own = self.function
        return (_load(own, self.name) if isinstance(own, str) else own)(*inputs, **options)

    def cost(self, options: Options | None = None, shape: Shape = (3, 224, 224)) -> int:
        """Return the evaluations for one input of this shape (without the batch axis)."""
        settled, count = {**self.defaults, **(options or {})}, self.evaluations
        if isinstance(count, str):
            known = count in settled
            count = settled[count] if known else _load(str(self.function), count)
        return int(count(settled, shape) if callable(count) else count)

    def settle(self, options: Options) -> dict[str, Any]:
        """Return all options with their values: the defaults, then what was given."""
        for option, value in options.items() if self.native else ():
            if option not in self.defaults and option != "baselines":
                known = ", ".join(self.defaults) or "none but baselines"
                raise InputError(f"{self.name} has no option {option!r}; its options are: {known}")
            left_out = value is None and self.defaults.get(option, 0) is None
            if option in _CHECKS and not left_out:
                _CHECKS[option](f"{self.name}: {option}", value)
        return {**self.defaults, **options}


Named = str | Callable[..., Any] | Member
Method = Named | tuple[Named, Options]
Methods = Method | Iterable[Method]


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"sea_nn.members.{module}"), name)


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false; got {value!r}")


_COUNTS = ("n_steps", "n_samples", "n_masks", "n_segments", "cells", "passes", "window", "stride")
_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(_COUNTS, partial(check_whole, least=1)),
    **dict.fromkeys(("noise", "stdev", "alpha"), check_number),
    **dict.fromkeys(("kernel_width", "keep"), partial(check_number, above=0)),
    "per_point": _check_flag,
}
"""What the package's own members take, by the name of the option."""


@dataclass(frozen=True)
class Entry:
    """A member with its options settled, under the label its maps will have.

    Attributes:
        label: the name of its maps.
        member: the member.
        options: all of its options.
        optional: whether to go on without it where it is not made for the model or the input: it
            was not asked for by name, but came with a ready ensemble.
    """

    label: str
    member: Member
    options: Options
    optional: bool = False


def count_price(entries: Iterable[Entry], shape: Shape) -> int:
    """The evaluations that members cost for one input of this shape."""
    return sum(entry.member.cost(entry.options, shape) for entry in entries)


ENSEMBLES = {"paper": ("saliency", "integrated_gradients", "smooth_ig")}


def names() -> tuple[str, ...]:
    """Return the names of all members."""
    return tuple(_MEMBERS)


def get(name: str) -> Member:
    """Return the member of this name; the error for an unknown one lists the names.

    >>> get("salency")
    Traceback (most recent call last):
        ...
    sea_nn.errors.InputError: there is no member 'salency'; did you mean 'saliency'? Members: ...
    """
    if name in _MEMBERS:
        return _MEMBERS[name]
    near = difflib.get_close_matches(str(name), (*ENSEMBLES, *BUDGETS, *_MEMBERS), 1, 0.4)
    guess = f" did you mean {near[0]!r}?" if near else ""
    raise InputError(
        f"there is no member {name!r};{guess} Members: {', '.join(_MEMBERS)}; a ready ensemble: "
        f"{', '.join(ENSEMBLES)}; budgets of SEA: {', '.join(BUDGETS)}"
    )


def choose_budget(
    methods: Any, config: SEAConfig | None, budget: int | None
) -> tuple[Any, int | None]:
    """The members (None: cheap ones) and the budget (None: the paper's function) that are meant.

    >>> choose_budget(None, None, None), choose_budget("fast", None, None)
    ((None, 512), (None, 34))
    >>> choose_budget("paper", None, None), choose_budget(None, SEAConfig(), None)
    (('paper', None), ('paper', None))
    """
    if isinstance(methods, str) and methods in BUDGETS:
        if budget is not None:
            raise InputError(f"methods={methods!r} is a budget of {BUDGETS[methods]}: say it once")
        return None, BUDGETS[methods]
    if budget is not None or methods is not None:
        return methods, budget
    return (None, DEFAULT_BUDGET) if config is None else ("paper", None)


def expand_methods(
    methods: Methods, options: Mapping[str, Options] | None = None, optional: bool = False
) -> tuple[Entry, ...]:
    """Return the members that `methods` names, in order, with their options settled.

    Args:
        methods: "paper", a member's name, several with commas, or a sequence of names,
            (name, options) pairs, members and callables.
        options: further options by name; they win over those of the pairs.
        optional: whether to go on without those that are not made for the model or the input, as
            with a ready ensemble.
    """
    given = dict(options or {})
    ready = optional or (isinstance(methods, str) and methods in ENSEMBLES)
    if isinstance(methods, str):
        methods = ENSEMBLES.get(methods) or [n.strip() for n in methods.split(",") if n.strip()]
    elif callable(methods) or not isinstance(methods, Iterable):
        methods = [methods]
    entries: dict[str, Entry] = {}
    for method in methods:
        pair: Any = method if isinstance(method, tuple) and len(method) == 2 else (method, {})
        member, own = pair
        if isinstance(member, str):
            member = get(member)
        elif callable(member):
            name = getattr(member, "__name__", type(member).__name__)
            name = f"member_{len(entries) + 1}" if name == "<lambda>" else name
            member = Member(name, member)
        if not isinstance(member, Member) or not isinstance(own, Mapping):
            raise KindError(
                f"a method is a name, a callable, or a pair of one and its options; got {method!r}"
            )
        label, again = member.name, 2
        while label in entries:
            label, again = f"{member.name}_{again}", again + 1
        chosen = {**own, **given.pop(label, {})}
        entries[label] = Entry(label, member, member.settle(chosen), ready)
    if not entries:
        raise InputError(
            f"methods is empty: name at least one member ({', '.join(names())}) or an ensemble "
            f"({', '.join(ENSEMBLES)})"
        )
    if given:
        raise InputError(
            f"options name {next(iter(given))!r}, which is not among the methods: "
            f"{', '.join(entries)}"
        )
    return tuple(entries.values())


_GRADIENT, _MODULE = frozenset({"gradient"}), frozenset({"gradient", "module"})
_LAYER, _SEGMENTS = _MODULE | {"convolution"}, frozenset({"superpixels"})
_ATTENTION, _IMAGE, _NOTHING = _MODULE | {"attention"}, frozenset({"image"}), frozenset[str]()
# Name, function, evaluations, signed, needs, defaults, reference.
_NATIVE: tuple[tuple[str, str, Any, bool, frozenset[str], Options, str], ...] = (
    ("saliency", "gradients", 1, True, _GRADIENT, {}, "Simonyan et al. 2014, arXiv:1312.6034"),
    ("integrated_gradients", "gradients", "n_steps", True, _GRADIENT,
     {"n_steps": 50}, "Sundararajan et al. 2017, arXiv:1703.01365"),
    ("smooth_ig", "gradients", lambda o, _: o["n_samples"] * o["n_steps"], True, _GRADIENT,
     {"n_samples": 5, "noise": 0.15, "stdev": None, "n_steps": 50, "per_point": False},
     "Smilkov et al. 2017, arXiv:1706.03825, over integrated gradients"),
    ("smoothgrad", "gradients", "n_samples", True, _GRADIENT,
     {"n_samples": 50, "noise": 0.15, "stdev": None}, "Smilkov et al. 2017, arXiv:1706.03825"),
    ("input_x_gradient", "gradients", 1, True, _GRADIENT, {},
     "Shrikumar et al. 2016, arXiv:1605.01713"),
    ("deeplift", "quick", 2, True, _MODULE, {},
     "Shrikumar et al. 2017, arXiv:1704.02685, rescale rule"),
    ("guided_backprop", "quick", 1, True, _MODULE, {},
     "Springenberg et al. 2015, arXiv:1412.6806"),
    ("deconvolution", "quick", 1, True, _MODULE, {},
     "Zeiler and Fergus 2014, arXiv:1311.2901"),
    ("grad_cam", "quick", 1, False, _LAYER, {"layer": None, "reshape": None},
     "Selvaraju et al. 2017, arXiv:1610.02391"),
    ("guided_grad_cam", "quick", 2, True, _LAYER, {"layer": None, "reshape": None},
     "Selvaraju et al. 2017, arXiv:1610.02391"),
    ("attention_rollout", "attention", 1, False, _ATTENTION | _IMAGE, {},
     "Abnar and Zuidema 2020, arXiv:2005.00928"),
    ("attention_gradient", "attention", 1, False, _ATTENTION | _IMAGE, {},
     "Chefer et al. 2021, arXiv:2103.15679"),
    ("attention_lrp", "attention", 1, True, _ATTENTION, {},
     "Ali et al. 2022, arXiv:2202.07304"),
    ("occlusion", "masking", "count_windows", True, _NOTHING, {"window": None, "stride": None},
     "Zeiler and Fergus 2014, arXiv:1311.2901"),
    ("rise", "masking", "n_masks", False, _IMAGE,
     {"n_masks": 4000, "cells": 7, "keep": 0.5}, "Petsiuk et al. 2018, arXiv:1806.07421"),
    ("lime", "masking", "n_samples", True, _SEGMENTS,
     {"n_samples": 1000, "kernel_width": 0.25, "alpha": None, "n_segments": 50},
     "Ribeiro et al. 2016, arXiv:1602.04938"),
    ("kernel_shap", "masking", "count_coalitions", True, _SEGMENTS,
     {"n_samples": None, "n_segments": 50}, "Lundberg and Lee 2017, arXiv:1705.07874"),
    ("gradient_shap", "gradients", "n_samples", True, _GRADIENT,
     {"n_samples": 200, "noise": 0.0, "stdev": None},
     "Lundberg and Lee 2017, arXiv:1705.07874; Erion et al. 2021, arXiv:1906.10670"),
    ("presence_gradient", "quick", "passes", True, _GRADIENT,
     {"passes": 16, "cells": 8}, "this library"),
)  # fmt: skip
_MEMBERS: dict[str, Member] = {row[0]: Member(*row, native=True) for row in _NATIVE}

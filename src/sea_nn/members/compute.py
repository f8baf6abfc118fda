"""The members of the ensemble by name, and one call that computes all their maps.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
>>> result = compute_maps(model, torch.ones(2, 1, 4, 4), methods=("saliency", "occlusion"))
>>> {name: tuple(map.shape) for name, map in result.maps.items()}
{'saliency': (2, 1, 4, 4), 'occlusion': (2, 1, 4, 4)}

Any function `(model, x, target) -> maps` can join by `register`, or unnamed in `methods`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sea_nn.config import check_seed, check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.features import Kind, find_kind
from sea_nn.features.kinds import IMAGE, TABLE
from sea_nn.members.member_maps import MemberMaps, copy_tensors
from sea_nn.members.registry import Methods, expand_methods
from sea_nn.members.run import Progress, Work
from sea_nn.model.borrowing import borrow
from sea_nn.model.evaluator import Evaluator, check_autocast
from sea_nn.model.outputs import Output, Target, TensorModel, as_args

GIVEN = ("args", "baselines", "feature_mask", "autocast", "seed", "kind")


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
    compile: bool = False,
    progress: Progress | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    kind: Kind | None = None,
    earlier: Sequence[MemberMaps] = (),
) -> MemberMaps:
    """Explain every input of `x` with every method; the model and `x` are not changed.

    Passes run on a private twin of the model that shares its weights (`sea_nn.model.borrowing`).
    The arguments are those of `SEA` and `SEA.explain`. What should be known beyond that:

    - `baselines` is what "absent" means: None for 0, a number, or a tensor that broadcasts to `x`,
      [N, ...] being one an input. A pool of them for gradient_shap is an option of its own:
      `options={"gradient_shap": {"baselines": pool}}`.
    - With `additional_forward_args` callables cannot take part: they get the model and an input.
    - `feature_mask` has the segments for lime and kernel_shap; `kind` says which axis is channels.
    - Draws are each input's own, decided by `seed` and its content, so its maps do not depend on
      the rest of the batch. A model or callable that draws does so from PyTorch's global generator.
    - `earlier` maps are taken where they are those that this call would compute, and only the
      model's answer about `x` is asked for.
    - `autocast=torch.float16` keeps as many digits as the TF32 that PyTorch's convolutions use by
      default, and moves half the memory. `compile` takes some seconds for the first inputs of a
      model; gradient passes are about 1.4 times as fast on a GPU from then on.

    Raises:
        InputError, KindError: the call is wrong.
        MemberError: a member cannot explain this model or input (all of them, with "skip").
    """
    if on_error not in ("raise", "skip"):
        raise InputError(f'on_error must be "raise" or "skip", got {on_error!r}')
    entries = expand_methods(methods, options)
    check_input(x, internal_batch_size)
    precision = check_autocast(autocast, x)
    if compile and not isinstance(model, nn.Module):
        raise KindError(f"compile=True is for a torch.nn.Module, got {type(model).__name__}")
    args = as_args(additional_forward_args)
    with torch.inference_mode(False), borrow(model, x, args) as twin:
        evaluator = Evaluator(
            # Checked for NaN in a first look only: every further one would make a GPU wait.
            TensorModel(twin, check=False),
            x.detach().clone(),
            target=torch.zeros(len(x), dtype=torch.long, device=x.device),
            outputs=x.new_zeros(len(x), 1),
            args=args,
            baselines=baselines,
            feature_mask=feature_mask,
            limit=internal_batch_size,
            autocast=precision,
            output=Output(output) if isinstance(output, str) else output,
            seed=check_seed(seed),
            kind=find_kind(x) if kind is None else kind,
        )
        given = copy_tensors({name: getattr(evaluator, name) for name in GIVEN})
        given |= {"x": evaluator.x, "compile": compile}
        given["entries"] = [(entry.member, copy_tensors(entry.options)) for entry in entries]
        found = Work(entries, evaluator, target, compile, progress, on_error).do(given, earlier)
    found.output.warn()
    return replace(found, kind=evaluator.kind, given=given)


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


class Tally:
    """Progress of a whole explanation: the members' evaluations, then the questions'."""

    def __init__(self, progress: Progress | None, members: int, questions: int) -> None:
        if progress is not None and not callable(progress):
            raise KindError(
                "progress must be a function of (member, evaluations done, evaluations in all); "
                f"got {type(progress).__name__}"
            )
        self.progress, self.price, self.total = progress, members, members + questions
        self.asked = 0

    def members(self, label: str, done: int, _: int) -> None:
        """Report a member's progress."""
        if self.progress is not None:
            self.progress(label, done, self.total)

    def questions(self, count: int) -> None:
        """Count and report questions just asked."""
        self.asked += count
        if self.progress is not None:
            self.progress("questions", self.price + self.asked, self.total)


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
    if kind is IMAGE and _is_channels_last(*x.shape[1:]):
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


def _is_channels_last(first: int, second: int, last: int) -> bool:
    """Whether three axes can only be height, width and channels of a picture of usual size."""
    return min(first, second) >= 16 and (last == 3 or (last in (1, 4) and first == second))

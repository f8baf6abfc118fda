"""Run the members of one call: what they cost, how their passes may run, what they returned.

On a GPU nothing waits between members: each is sent off while the one before is still at work, and
the maps are looked at once all are.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, MemberError, SEAError, UnfitError
from sea_nn.members.backprop_rules import MISSED
from sea_nn.members.member_maps import MemberMaps
from sea_nn.members.registry import Entry
from sea_nn.members.validation import check_maps, check_needs, find_mismatch
from sea_nn.model import batching, compiled, cuda_graphs, forms
from sea_nn.model.borrowing import copy_twin, is_private
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.norm_folding import Fold
from sea_nn.model.outputs import Target, TensorModel, predict, resolve_target, take
from sea_nn.model.reading import Reading
from sea_nn.model.sameness import same_outputs
from sea_nn.model.tracing import refuse_layers

Progress = Callable[[str, int, int], None]

# Folding norms costs two or three evaluations an input and pays from this many evaluations on.
FOLD_FROM = 32
ADVICE = '. Leave it out of methods, or pass on_error="skip" to go on without it'


class Work:
    """All members of one call: what they cost, and how their passes may run."""

    def __init__(
        self,
        entries: Sequence[Entry],
        evaluator: Evaluator,
        target: Target,
        compiles: bool,
        progress: Progress | None,
        on_error: str,
    ) -> None:
        self.entries, self.evaluator, self.target = entries, evaluator, target
        self.progress, self.on_error = progress, on_error
        n_inputs, shape = len(evaluator.x), tuple(evaluator.x.shape[1:])
        self.costs = {e.label: n_inputs * e.member.cost(e.options, shape) for e in entries}
        # Members that make many passes and do not read the layers themselves. A single gradient is
        # left alone: it would show the rounding of folded weights, which means over many even out.
        self.many = {
            e.label
            for e in entries
            if e.member.native
            and "convolution" not in e.member.needs
            and self.costs[e.label] > n_inputs * 4
        }
        self.compiles = compiles and is_private(evaluator.module)

    def do(self, given: Mapping[str, Any], earlier: Sequence[MemberMaps] = ()) -> MemberMaps:
        """Ask the model about the inputs, then run the members, or take their ``earlier`` maps."""
        try:
            if earlier:
                asked = _ask(self.evaluator, self.target)
                for one in earlier:
                    if one.is_of(given, asked.target, asked.outputs):
                        one = replace(one, outputs=asked.outputs, output=asked.meaning())
                        return replace(one, reused=True)
            options = {entry.label: entry.options for entry in self.entries}
            return replace(self._do(), options=options)
        except _ToldError as told:
            raise told.error from None

    def _do(self) -> MemberMaps:
        fast = sum(self.costs[label] for label in self.many) >= FOLD_FROM
        kept = cuda_graphs.recall(self.evaluator) if fast else None
        most = min(cuda_graphs.FEW, self.evaluator.limit or cuda_graphs.FEW)
        if kept is not None and len(self.evaluator.x) <= most:
            found = self._do_again(kept)
            if found is not None:
                return found
            kept = None
        evaluator = _ask(self.evaluator, self.target)
        if not fast:
            return self._run(evaluator, None).finish()
        if kept is not None and not kept.confirm(evaluator):  # a look folds the weights as well
            cuda_graphs.forget(evaluator)
            kept = None
        if kept is not None:
            return self._finish(replace(evaluator, kept=kept), kept.fold)
        fold = compiled.recall_fold(evaluator.module) if self.compiles else None
        fold = fold or forms.fold(evaluator, gradients=True)
        return self._finish(replace(evaluator, kept=cuda_graphs.keep(evaluator, fold)), fold)

    def _finish(self, evaluator: Evaluator, fold: Fold | None) -> MemberMaps:
        """Run the members by a fold if that is the model, and by the model as it is if not."""
        if self.compiles and evaluator.module is not None:
            compiled.keep_fold(evaluator.module, fold)
        pending = self._run(evaluator, fold)
        if pending.is_true():
            pending.remember()
            return pending.finish()
        self._refuse(evaluator)
        return self._run(replace(evaluator, kept=None), None).finish()

    def _refuse(self, evaluator: Evaluator) -> None:
        cuda_graphs.forget(evaluator)
        if evaluator.module is not None:
            refuse_layers(evaluator.module)

    def _do_again(self, kept: cuda_graphs.Kept) -> MemberMaps | None:
        """Run the members on what a recording says of the inputs; None if the model says other.

        The model itself is asked last, while the GPU still works: for few inputs, launching its
        kernels one by one takes longer than running them.
        """
        # A cache of its own: what members share must not outlive a recording that was wrong.
        evaluator = replace(self.evaluator, kept=kept, cache=dict(self.evaluator.cache))
        if self.target is not None:  # checked before the look, as checking waits for the GPU
            unknown = evaluator.x.new_empty(len(evaluator.x), kept.n_classes)
            evaluator.target = resolve_target(unknown, self.target, evaluator.output)
        try:
            plain, folded = kept.look(evaluator)
        except Exception:  # the model's own error, which asking it explains, or no room
            return None
        evaluator.outputs = plain
        if self.target is None:
            evaluator.target = resolve_target(plain, None, evaluator.output)
        outcome: Pending | Exception
        try:
            outcome = self._run(evaluator, kept.fold, folded)
        except Exception as error:
            outcome = error
        asked = _ask(self.evaluator, self.target)
        alike = same_outputs(plain, asked.outputs, evaluator.autocast)
        if not bool(alike) or not torch.equal(asked.target, evaluator.target):
            cuda_graphs.forget(self.evaluator)
            return None
        if isinstance(outcome, Exception):
            raise outcome
        if not outcome.is_true():
            self._refuse(self.evaluator)
            return None
        outcome.remember()
        return replace(outcome.finish(), outputs=asked.outputs, output=asked.meaning())

    def _run(
        self, evaluator: Evaluator, fold: Fold | None, outputs: Tensor | None = None
    ) -> "Pending":
        """Run the members: those that make many passes by the fold, the others by the model.

        Args:
            evaluator: the model and the inputs.
            fold: the model with its norms folded, or None.
            outputs: what the fold says of the inputs, if known.
        """
        total, done = sum(self.costs.values()), 0
        pending, quick = Pending(evaluator, self.on_error), forms.run_by(evaluator, fold)
        if fold is not None or (
            evaluator.kept is not None and evaluator.kept.find_first(quick) is not None
        ):
            try:
                pending.true = forms.check(evaluator, quick, outputs)
            except Exception:  # no gradient, or a layer that is called as none of ours is
                pending.true = torch.tensor(False)
            # A GPU is not waited for; it is asked when all of the members are done.
            if evaluator.x.device.type != "cuda" and not pending.is_true():
                return pending
        if self.compiles and quick.module is not None:
            quick = replace(quick, compiled=compiled.Compiled(quick.model, quick.module))
        for entry in self.entries:
            label, spent = entry.label, 0

            def tick(count: int, label: str = label, done: int = done) -> None:
                nonlocal spent
                spent += count
                self._tell(label, done + min(spent, self.costs[label]), total)

            began = _mark(evaluator.x.device)
            try:
                maps = _explain(
                    entry, replace(quick if label in self.many else evaluator, tick=tick)
                )
            except Exception as error:
                unfit = entry.optional and isinstance(error, UnfitError)
                if self.on_error == "raise" and not unfit:
                    raise
                pending.failed[label] = str(error).removesuffix(ADVICE)
            else:
                pending.add(label, maps, spent, began)
                if MISSED in evaluator.cache:
                    pending.missed[label] = evaluator.cache.pop(MISSED)
            done += self.costs[label]
            self._tell(label, done, total)
        return pending

    def _tell(self, label: str, done: int, total: int) -> None:
        """Report progress; an error in there is the caller's, and no member's."""
        if self.progress is None:
            return
        try:
            self.progress(label, done, total)
        except Exception as error:
            raise _ToldError(error) from error


class _ToldError(BaseException):
    """What went wrong in the caller's progress function, on its way past everyone."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Pending:
    """Maps that a GPU may still be working on: the next member is sent off without waiting."""

    def __init__(self, evaluator: Evaluator, on_error: str) -> None:
        self.evaluator, self.on_error = evaluator, on_error
        self.true: Tensor | None = None
        self.maps: dict[str, Tensor] = {}
        self.finite: dict[str, Tensor] = {}
        self.evaluations: dict[str, int] = {}
        self.spans: dict[str, tuple[Any, Any]] = {}
        self.failed: dict[str, str] = {}
        self.missed: dict[str, Tensor] = {}

    def is_true(self) -> bool:
        """Whether the passes that made the maps are the model's, for every input."""
        return self.true is None or bool(self.true)

    def remember(self) -> None:
        """Keep with the model that its fast passes are its own."""
        if self.true is not None and self.evaluator.kept is not None:
            self.evaluator.kept.prove(self.evaluator)

    def add(self, label: str, maps: Tensor, spent: int, began: Any) -> None:
        """Take the maps of a member that has made `spent` evaluations since `began`."""
        self.maps[label], self.finite[label] = maps, maps.isfinite().all()
        self.evaluations[label] = spent
        self.spans[label] = began, _mark(maps.device)

    def finish(self) -> MemberMaps:
        """Wait for the maps and look for values that are no numbers."""
        asked = self.evaluator
        result = MemberMaps({}, {}, {}, self.failed, asked.target, asked.outputs, asked.meaning())
        for label, maps in self.maps.items():
            if not bool(self.finite[label]):
                reason = (
                    f"{label} returned NaN or infinite values; check the scale of the input and "
                    "the baselines, and turn autocast off"
                )
                if self.on_error == "raise":
                    raise MemberError(reason)
                result.failed[label] = reason
                continue
            result.maps[label] = maps
            result.evaluations[label] = self.evaluations[label]
            result.seconds[label] = _measure(*self.spans[label])
        missed = {label: self.missed[label] for label in result.maps if label in self.missed}
        result = replace(result, missed=missed)
        if not result.maps:
            reasons = "; ".join(f"{label}: {why}" for label, why in result.failed.items())
            raise MemberError(f"no member could explain this model. {reasons}")
        return result


def _mark(device: torch.device) -> Any:
    """Return the time now: on a GPU, when it gets to this point of its work."""
    if device.type != "cuda":
        return time.perf_counter()
    with torch.cuda.device(device):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    return event


def _measure(began: Any, ended: Any) -> float:
    """Return the seconds between two marks."""
    if isinstance(began, float):
        return float(ended - began)
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


def _explain(entry: Entry, evaluator: Evaluator) -> Tensor:
    """Run one member and check what it returns."""
    member, settings = entry.member, dict(entry.options)
    check_needs(member, evaluator)
    if member.native and "baselines" in settings and "baselines" not in member.defaults:
        # Shared results never depend on the baselines, so the cache stays.
        evaluator = replace(evaluator, baselines=settings.pop("baselines"))
    try:
        if member.native:
            maps = member.run(evaluator, **settings)
        else:
            if evaluator.args:
                raise MemberError(
                    f"{entry.label} is called with the model and its first input alone, and this "
                    "model takes additional_forward_args; write them into the model you pass, or "
                    "leave it out"
                )
            model, target = _give_model(evaluator), evaluator.target.clone()
            if target.ndim == 2:
                model, target = _contrast(entry, model, target)
            maps = member.run(model, evaluator.x.clone(), target, **settings)
            evaluator.tick(
                len(evaluator.x) * member.cost(entry.options, tuple(evaluator.x.shape[1:]))
            )
    except SEAError:
        raise
    except Exception as error:
        raise MemberError(
            f"{entry.label} failed on this model with {type(error).__name__}: {error}{ADVICE}"
        ) from error
    return check_maps(entry.label, maps, evaluator.x, evaluator.kind)


def _give_model(evaluator: Evaluator) -> TensorModel:
    """Return a model for a callable to do with as it likes, where there is a copy to give.

    Methods that hook activations need layers that do not write in place; they get them where that
    leaves the model what it is.
    """
    if evaluator.module is None or not is_private(evaluator.module):
        return evaluator.model
    try:
        own = forms.out_of_place(evaluator, "it")
    except UnfitError:
        own = evaluator
    if own is evaluator:
        return TensorModel(copy_twin(evaluator.module), check=False)
    return own.model


def _contrast(entry: Entry, model: TensorModel, pairs: Tensor) -> tuple[TensorModel, Tensor]:
    """Return a model with one column, the difference of the pair's, for a callable to explain."""
    if bool((pairs != pairs[0]).any()):
        raise MemberError(
            f"{entry.label} can explain one pair of classes for all inputs, and here each has its "
            f"own{ADVICE}"
        )
    pair = pairs[0]
    difference = Reading(model, lambda outputs: take(outputs, pair.expand(len(outputs), 2)))
    return TensorModel(difference, check=False), torch.zeros_like(pairs[:, 0])


def _ask(evaluator: Evaluator, target: Target) -> Evaluator:
    """Ask the model about the inputs once, with the errors that a first call meets explained."""
    x = evaluator.x
    try:
        size = 1
        if len(x) > 1:
            need = replace(evaluator, autocast=None).footprint()
            size = batching.chunk_size(
                len(x), need.forward, need.elements, x.device, evaluator.limit
            )
        outputs = predict(evaluator.model, evaluator.arrange(x), evaluator.args, batch_size=size)
    except (SEAError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}"
            f"{find_mismatch(evaluator.model.model, x)}: {error}"
        ) from error
    output = evaluator.find_output(outputs)
    classes = resolve_target(outputs, target, output)
    return replace(evaluator, outputs=outputs, target=classes, output=output)

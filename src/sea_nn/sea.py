"""SEA: explain a PyTorch model by an ensemble of methods, as a Captum attribution.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> sea = SEA(model, methods=("saliency", "input_x_gradient"))
>>> x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> sea.attribute(x).shape
torch.Size([2, 1, 8, 8])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import captum
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

from sea_nn import pipeline
from sea_nn.config import SEAConfig, check_config, check_seed, check_whole, choose_budget
from sea_nn.errors import KindError, MemberError
from sea_nn.explanation.assemble import (
    assemble,
    check_function,
    check_labels,
    check_range,
    describe_run,
    find_asked,
)
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.parts import show_input
from sea_nn.features import Features, Kind
from sea_nn.members.cheap import cheap_members
from sea_nn.members.checks import Check, check_members, check_rows
from sea_nn.members.compute import check_input
from sea_nn.members.registry import Methods, expand_methods
from sea_nn.members.run import Progress
from sea_nn.members.several import Inputs, Several
from sea_nn.model.outputs import Output, Target
from sea_nn.model.reading import read_value
from sea_nn.questions.absent import check_background
from sea_nn.questions.budget import check_stops
from sea_nn.text.explainer import TextSEA


class SEA(Attribution):  # type: ignore[misc]
    """Submodular ensembled attribution of a model [M1 to M10].

    Args:
        model: a module, or any function from inputs to logits; dict, tuple and Hugging Face
            outputs are understood. It comes back as it was.
        methods: "paper", or names, (name, options) pairs and callables; left out, two cheap ones.
            "fast" and "thorough" are the budgets 34 and 1,024.
        config: how the members' maps are ensembled without a budget; ``SEAConfig.paper`` has the
            paper's settings.
        budget: model evaluations an input, members and questions together. The function is then
            learned from the model's answers about sets, in as many questions as the members leave:
            gains are in log-odds and ``Explanation.predict`` says what the model would. Of
            ``config`` only ``absent`` and ``grid`` count. About 34, 128, 512 and 1,024 were
            measured (docs/results/learned.md). Where neither budget, methods nor config are given,
            it is 512; None beside one of these: the paper's function.
        options: options by member, for example ``{"rise": {"n_masks": 500}}``.
        output: what the model's outputs are: "logits" (a softmax follows), "probabilities",
            "sigmoid" (each column a logit of its own) or "value" (a regression). None: found from
            the first call's answers, with an ``AssumptionWarning`` where something is assumed.
        seed: starts every random draw.
        autocast: on a GPU, compute in this lower precision. Without it, and with a budget, TF32 is
            off while the model is asked: rounded answers give another map on another device.
        compile: compile the members' gradient passes; pays for many inputs on a GPU.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        methods: Methods | None = None,
        config: SEAConfig | None = None,
        *,
        budget: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        output: str | None = None,
        seed: int = 0,
        autocast: bool | torch.dtype = False,
        compile: bool = False,
    ) -> None:
        super().__init__(model)
        if isinstance(methods, Iterator):
            methods = tuple(methods)  # they are gone through more than once
        methods, budget = choose_budget(methods, config, budget)
        self.budget, self.chosen = budget, methods is None and budget is not None
        if methods is None:
            methods = "paper" if budget is None else cheap_members(model)[0]
        # What is wrong with them is best heard of now.
        self.entries = expand_methods(methods, options)
        if budget is not None:
            check_whole("budget", budget, 1)
        self.methods, self.config = methods, check_config(config)
        self.options, self.seed = options, check_seed(seed)
        self.output = None if output is None else Output(output)
        if not isinstance(compile, bool):
            raise KindError(f"compile must be True or False; got {type(compile).__name__}")
        self.autocast, self.compile = autocast, compile

    @staticmethod
    def for_text(model: nn.Module, tokenizer: Any, **options: Any) -> TextSEA:
        """SEA for a Hugging Face classifier or language model; options as for ``TextSEA``.

        ``SEA.for_text(model, tokenizer, budget=128).explain(["a text"])``
        """
        return TextSEA(model, tokenizer, **options)

    @log_usage()  # type: ignore[untyped-decorator]  # NoiseTunnel looks for what it wraps
    def attribute(
        self,
        inputs: Inputs,
        target: Target | Callable[[Any], Tensor] = None,
        baselines: Any = None,
        additional_forward_args: Any = None,
        internal_batch_size: int | None = None,
        feature_mask: Any = None,
    ) -> Inputs:
        """The map of each input, as Captum's methods give it: tensor in, tensor out.

        Args:
            inputs: [N, C, H, W], [N, F], [N, C, T] or [N, C, D, H, W]; or several of them, in a
                tuple for a model's first arguments, or in a dict for its arguments by name.
                Baselines, feature masks and background then are tuples or dicts alike.
            target: the class, one or a list of one an input; None for the predicted one. A tuple
                (a, b), or a list of such, asks why a and not b: the log-odds of a against b, which
                are the difference of their logits. A function from the model's output, of any
                shape, to numbers [N] explains these: a segmentation's sum over a mask, say.
            baselines: what "absent" means: None for 0, a number or a tensor.
            additional_forward_args: further arguments of the model.
            internal_batch_size: the most evaluations in one pass; by default what memory allows.
            feature_mask: whole numbers that broadcast to the map: features with equal numbers
                (a superpixel, the columns of a one-hot code) count as one.

        Returns:
            [N, 1, H, W] for images, [N, 1, D, H, W] for volumes, the inputs' shape otherwise; of
            several inputs a tuple or dict of these, on one scale.
        """
        single = isinstance(inputs, tuple) and len(inputs) == 1
        three = (inputs, baselines, feature_mask)
        given = [v[0] if single and isinstance(v, tuple) else v for v in three]
        e = self.explain(
            given[0],
            target,
            baselines=given[1],
            additional_forward_args=additional_forward_args,
            internal_batch_size=internal_batch_size,
            feature_mask=given[2],
            quiet=True,
        )
        if not e.parts:
            return (e.attribution,) if single else e.attribution
        maps = [e.part(part.name).attribution for part in e.parts]
        return dict(zip(inputs, maps, strict=True)) if isinstance(inputs, dict) else tuple(maps)

    def explain(
        self,
        x: Inputs,
        target: Target | Callable[[Any], Tensor] = None,
        *,
        baselines: Any = None,
        additional_forward_args: Any = None,
        internal_batch_size: int | None = None,
        feature_mask: Any = None,
        background: Any = None,
        kind: Kind | None = None,
        required: Tensor | None = None,
        forbidden: Tensor | None = None,
        epsilon: float = 1e-3,
        images: Tensor | None = None,
        labels: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        model_name: str = "",
        progress: Progress | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        quiet: bool = False,
        previous: Explanation | None = None,
        on_round: Callable[[Explanation], bool | None] | None = None,
        seconds: float | None = None,
        tolerance: float | None = None,
    ) -> Explanation:
        """Everything about the inputs' explanations: all maps, order, gains, checks, provenance.

        Args:
            x: inputs, as for ``attribute``.
            target: as for ``attribute``.
            baselines: as for ``attribute``.
            additional_forward_args: as for ``attribute``.
            internal_batch_size: as for ``attribute``.
            feature_mask: as for ``attribute``.
            background: other inputs like x, [B, ...]: what is left out when the model is asked
                takes their values, unless ``SEAConfig.absent`` names another way, and the members'
                baseline is their mean where none is given.
            kind: of the inputs, where the number of their axes does not tell it: one of
                ``sea_nn.features.KINDS`` or one of your own.
            required: bool mask over the map of features that must count [M8].
            forbidden: bool mask over the map of features that must not.
            epsilon: the least gain of a required feature.
            images: the inputs as pictures, uint8 [N, H, W, 3], for plots and reports; left out,
                inputs of 1 or 3 channels are shown themselves, from their least to their largest
                value.
            labels: names of all the model's classes.
            feature_names: names of a table's columns or a series' channels.
            model_name: what to call the model in reports.
            progress: called with (member, evaluations done, evaluations in all).
            on_error: "skip" goes on without members that fail and reports them.
            quiet: leave out the checks (and the evaluation that one of them costs).
            previous: with a budget, an explanation of the same inputs: what the model answered
                then counts as asked, whatever the target was, and only what the budget has beyond
                it is asked anew. Members' maps of a target explained before are used again.
            on_round: with a budget, is given the explanation so far after each round of questions,
                and may return False to stop.
            seconds: with a budget, ask no more after this time, the members' included.
            tolerance: with a budget, ask no more once ``predict_error`` is at most this.

        With a budget, an interrupt (Ctrl-C) ends the questions: the explanation is of what was
        answered until then, and a check says so.
        """
        model, output = self.forward_func, self.output
        if not isinstance(x, Tensor):
            several = Several.of(x, feature_mask, internal_batch_size)
            feature_mask = None
            baselines = several.pack_values("baselines", baselines)
            background = several.pack_values("background", background)
            model, x, features = several.wrap(model), several.rows, several.features
            kind = features.kind
        else:
            check_input(x, internal_batch_size)
            features = Features.of(
                x, kind=kind, feature_mask=feature_mask, names=feature_names, model=model
            )
        if background is not None:
            background = check_background(background, x)
            baselines = background.mean(0) if baselines is None else baselines
        check_labels(labels)
        check_stops(self.budget, on_round, seconds, tolerance)
        own = model
        if callable(target):
            name = getattr(target, "__name__", "<lambda>")
            labels = labels or (None if name == "<lambda>" else [name])
            model, output, target = read_value(model, target), Output("value"), 0
        call: dict[str, Any] = {
            "baselines": baselines,
            "additional_forward_args": additional_forward_args,
            "internal_batch_size": internal_batch_size,
            "autocast": self.autocast,
        }
        how: dict[str, Any] = {
            "config": self.config,
            "budget": self.budget,
            "options": self.options,
            "features": features,
            "background": background,
            "constraints": {"required": required, "forbidden": forbidden, "epsilon": epsilon},
            "progress": progress,
            "call": call,
            "output": output,
            "seed": self.seed,
            "compile": self.compile,
            "on_error": "skip" if self.chosen else on_error,
            "previous": find_asked(previous, self.budget),
            "earlier": () if previous is None else previous.members,
            "on_round": None if on_round is None else lambda found: on_round(put(found, ())),
            "seconds": seconds,
            "tolerance": tolerance,
        }

        def put(found: pipeline.Explained, checks: Iterable[Check]) -> Explanation:
            return assemble(
                found,
                x,
                images=images,
                labels=labels,
                checks=checks,
                earlier=how["earlier"],
                provenance=describe_run(
                    found,
                    {
                        "baselines": baselines,
                        "feature_mask": feature_mask,
                        **({} if background is None else {"background": background}),
                        "autocast": self.autocast,
                        "compile": self.compile,
                        **({} if self.budget is None else {"budget": self.budget}),
                    },
                    captum=captum.__version__,
                    seed=self.seed,
                    model=model_name or type(self.forward_func).__name__,
                    device=str(x.device),
                ),
            )

        images = show_input(x, features.kind) if images is None and not quiet else images
        columns = features.kind.channels is None
        choices = cheap_members(model, columns) if self.chosen else [self.methods]
        found = self._explain_by(choices, model, x, target, **how)
        if model is own:
            self.output = found.members.output  # one meaning for all calls
        if quiet:
            return put(found, ())
        checks = check_members(found.members, model, x, **call)
        if getattr(found.learned, "stopped", "") != "interrupted":  # then no more is asked
            checks += check_rows(found.members, model, x, additional_forward_args)
        if background is not None and not features.parts:
            checks += check_range(x, background, features)
        return put(found, (*checks, *check_function(found)))

    def _explain_by(
        self, choices: Sequence[Methods], *given: Any, **how: Any
    ) -> pipeline.Explained:
        """Explain by the first members that can; the first one's error where none can."""
        first: MemberError | None = None
        for methods in choices:
            try:
                return pipeline.explain(*given, methods=methods, **how)
            except MemberError as error:
                first = first or error
        raise first or MemberError("no members were given")

"""SEA: explain a PyTorch model by an ensemble of methods, as a Captum attribution.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> sea = SEA(model, methods=("saliency", "input_x_gradient"))
>>> x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> sea.attribute(x).shape
torch.Size([2, 1, 8, 8])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from sea_nn.call import About, Constraints, Inputs, Request, Running, Settings, prepare
from sea_nn.config import SEAConfig
from sea_nn.explain import explain
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import IMAGE
from sea_nn.members.registry import Methods
from sea_nn.members.run import choose_entries
from sea_nn.model.outputs import Target
from sea_nn.text.explainer import TextSEA


class SEA(Attribution):  # type: ignore[misc]
    """Submodular ensembled attribution of a model [M1 to M10].

    Args:
        model: a module, or any function from inputs to logits; dict, tuple and Hugging Face
            outputs are understood. It comes back as it was.
        methods: "paper", or names, (name, options) pairs and callables; left out, a few cheap ones
            that are chosen by the model, or none where it has no gradient. "fast" and "thorough"
            are the budgets 34 and 1,024.
        config: the paper's form: how the members' maps are ensembled without a budget;
            ``SEAConfig.paper`` has the paper's settings.
        budget: the most rows of each input that the model sees: members, questions and checks
            together. The function is then learned from the model's answers about sets: gains are in
            log-odds and ``Explanation.predict`` says what the model would. About 34, 128, 512 and
            1,024 were measured (docs/results/budgets.md). Where neither budget, methods nor config
            are given, it is 512; None beside one of these: the paper's function.
        absent: what becomes of what is left out when the model is asked: "blur", "mean" (its own
            mean colour), "baseline" (the members' baseline), "noise", "interpolate" (series),
            "background" (draws from ``background=``) or "background_mean". None: by the background
            where one is given, else blur, and of tables the baseline.
        grid: with a budget, the cells of images and other inputs with neighbours that are asked
            about: a number for each axis of the map. None: 8 x 8 of images, 4 x 4 x 4 of volumes.
        output: what the model's outputs are: "logits" (a softmax follows), "probabilities",
            "sigmoid" (each column a logit of its own), "labels" (each a probability of its own) or
            "value" (a regression). None: found from each call's answers, with an
            ``AssumptionWarning`` where something is assumed.
        seed: starts every random draw.
        autocast: on a GPU, compute in this lower precision. Without it, and with a budget, TF32 is
            off while the model is asked: rounded answers give another map on another device.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        methods: Methods | None = None,
        config: SEAConfig | None = None,
        *,
        budget: int | None = None,
        absent: str | None = None,
        grid: Sequence[int] | None = None,
        output: str | None = None,
        seed: int = 0,
        autocast: bool | torch.dtype = False,
    ) -> None:
        self.settings = Settings(
            model, methods, config, budget, absent, grid, output, seed, autocast
        )
        super().__init__(model)
        named, budget = self.settings.methods, self.settings.budget
        # What is wrong with them is best heard of now.
        self.entries = choose_entries(model, named, IMAGE, budget)

    @staticmethod
    def for_text(model: Any, tokenizer: Any = None, **options: Any) -> TextSEA:
        """SEA for a Hugging Face classifier or language model; options as for ``TextSEA``.

        ``SEA.for_text(model, tokenizer, budget=128).explain(["a text"])``. Without a tokenizer, for
        a function that answers lists of words.
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
        given = (inputs, baselines, feature_mask)
        x, start, mask = (v[0] if single and isinstance(v, tuple) else v for v in given)
        more = (additional_forward_args, internal_batch_size)
        request = Request(x, target, start, None, mask, *more)
        e = explain(prepare(self.settings, request), quiet=True)
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
        background: Any = None,
        feature_mask: Any = None,
        additional_forward_args: Any = None,
        internal_batch_size: int | None = None,
        labels: Sequence[str] | None = None,
        about: About | None = None,
        constraints: Constraints | None = None,
        previous: Explanation | None = None,
        running: Running | None = None,
    ) -> Explanation:
        """Everything about the inputs' explanations: all maps, order, gains, checks, provenance.

        Args:
            x: inputs, as for ``attribute``.
            target: as for ``attribute``.
            baselines: as for ``attribute``.
            background: other inputs like x, [B, ...]: what is left out when the model is asked
                takes their values, unless ``absent`` names another way, and the members' baseline
                is their mean where none is given.
            feature_mask: as for ``attribute``.
            additional_forward_args: as for ``attribute``.
            internal_batch_size: as for ``attribute``.
            labels: names of all the model's classes.
            about: pictures of the inputs, names of features and of the model, a kind of inputs.
            constraints: features that must or must not count, without a budget.
            previous: with a budget, an explanation of the same inputs: what the model answered
                then counts as asked, whatever the target was, and only what the budget has beyond
                it is asked anew. Members' maps of a target explained before are used again.
            running: progress, rounds, when to stop, and what an error does.

        With a budget, an interrupt (Ctrl-C) ends the questions: the explanation is of what was
        answered until then, and a check says so.
        """
        given = (x, target, baselines, background, feature_mask)
        more = (additional_forward_args, internal_batch_size, labels)
        ways: Any = (about or About(), constraints, previous, running or Running())
        return explain(prepare(self.settings, Request(*given, *more, *ways)))

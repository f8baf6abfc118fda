"""The inputs of a model that takes several, side by side in one row each.

>>> several = Several.of((torch.zeros(2, 3), torch.ones(2, 1, 2, 2)))
>>> several.rows.shape, [part.kind.name for part in several.features.parts]
(torch.Size([2, 7]), ['table', 'image'])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import Features, check_input
from sea_nn.model.adapters import Adapted


@dataclass(frozen=True)
class Several:
    """The inputs of a model that takes several, side by side in one row each.

    Attributes:
        rows: all their values, [N, V].
        features: of all of them, part by part.
        keywords: whether they came in a dict.
    """

    rows: Tensor
    features: Features
    keywords: bool

    @classmethod
    def of(cls, inputs: Any, feature_mask: Any = None) -> Several:
        """Put a tuple or dict of tensors, [N, ...] each, side by side."""
        if not isinstance(inputs, tuple | Mapping):
            raise KindError(
                "x must be a torch.Tensor [N, ...], or a tuple or dict of them, got "
                f"{type(inputs).__name__}"
            )
        keywords = isinstance(inputs, Mapping)
        named: Any = inputs if keywords else {f"input {k}": x for k, x in enumerate(inputs)}
        names, values = list(named), list(named.values())
        if not values:
            raise InputError("x holds no input; give at least one tensor [N, ...]")
        masks = _match("feature_mask", feature_mask, names, keywords)
        parts = []
        for name, x, mask in zip(names, values, masks, strict=True):
            try:
                check_input(x)
            except (InputError, KindError) as error:
                raise type(error)(f"{name}: {error}") from error
            parts.append(Features.of(x, feature_mask=mask))
        if len({(len(x), x.dtype, x.device) for x in values}) > 1:
            pairs = zip(names, values, strict=True)
            told = ", ".join(f"{name} {len(x)} {x.dtype} on {x.device}" for name, x in pairs)
            raise InputError(f"all inputs need as many rows, of one type and device; got {told}")
        rows = torch.cat([x.detach().flatten(1) for x in values], 1)
        return cls(rows, Features.join(parts, names), keywords)

    def wrap(self, model: Callable[..., Any]) -> Adapted:
        """The model as one of rows."""
        names, split = self.features.names or (), self.features.split

        def call(model: Callable[..., Any], rows: Tensor, *args: Any) -> Any:
            if self.keywords:
                return model(*args, **dict(zip(names, split(rows), strict=True)))
            return model(*split(rows), *args)

        return Adapted(model, call)

    def pack_values(self, what: str, given: Any) -> Any:
        """Baselines or a background, one for each input, side by side; None and numbers as is."""
        if given is None or isinstance(given, int | float):
            return given
        values = _match(what, given, self.features.names, self.keywords)
        rows = []
        for part, own in zip(self.features.parts, values, strict=True):
            own = torch.as_tensor(0.0 if own is None else own).to(self.rows)
            if own.ndim <= len(part.input_shape):
                own = own.expand(part.input_shape).unsqueeze(0)
            rows.append(own.flatten(1))
        longest = max(map(len, rows))
        if any(len(own) not in (1, longest) for own in rows):
            told = ", ".join(map(str, map(len, rows)))
            raise InputError(f"{what} of several inputs need as many rows each; got {told}")
        return torch.cat([own.expand(longest, -1) if len(own) == 1 else own for own in rows], 1)


def _match(what: str, given: Any, names: Any, keywords: bool) -> list[Any]:
    """What was given for each input, in their order."""
    if given is None:
        return [None] * len(names)
    kind = "dict" if keywords else "tuple"
    if keywords and isinstance(given, Mapping) and set(given) <= set(names):
        return [given.get(name) for name in names]
    if not keywords and isinstance(given, tuple) and len(given) == len(names):
        return list(given)
    raise InputError(f"{what} must be a {kind} like the inputs, {', '.join(names)}; got {given!r}")

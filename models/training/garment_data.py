"""Pictures of one garment each, for training and for measuring: read once, kept in memory as they were decoded.

A data folder has `classes.txt` (one label a line, in the model's order) and the lists `train.txt`, `val.txt` and
`test.txt` of paths `SPLIT/LABEL/FILE.jpg`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

MEAN, STD = 127 / 255, 128 / 255
"""As EfficientNet-Lite was trained: (pixel - 127) / 128. A quantised input is then the pixel itself."""
ZOOM_OUT = 0.25
"""Share of training pictures that are put small onto an even background: people stand back from a mirror."""


def read_labels(data: Path) -> tuple[str, ...]:
    """Labels in the model's order."""
    return tuple((data / "classes.txt").read_text().split())


class Garments(Dataset):  # type: ignore[type-arg]
    """One split; an item is a float picture [3, PX, PX], normalised, and the index of its label."""

    def __init__(self, data: Path, split: str, *, px: int, augment: bool, limit: int | None = None) -> None:
        """Decodes all pictures of the list, or the first `limit` of a list in a fixed random order."""
        names = (data / f"{split}.txt").read_text().split()
        if limit is not None:
            order = torch.randperm(len(names), generator=torch.Generator().manual_seed(20))
            names = [names[int(i)] for i in order[:limit]]
        labels = read_labels(data)
        self.targets = [labels.index(name.split("/")[1]) for name in names]
        self.pictures = [_decoded(data / name) for name in names]
        self.transform = augmented(px) if augment else whole(px)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.pictures[index]), self.targets[index]


def _decoded(file: Path) -> torch.Tensor:
    """uint8 [3, H, W], RGB."""
    with Image.open(file) as picture:
        return v2.functional.pil_to_tensor(picture.convert("RGB"))


def whole(px: int) -> v2.Compose:
    """The product's own way: all of the picture, stretched, antialiased (`fit: stretch`, `method: antialias`)."""
    return v2.Compose([v2.Resize((px, px), antialias=True), *normalised()])


def augmented(px: int) -> v2.Compose:
    """Crops and stretches, mirror images, light, colour, turns, and covered parts."""
    return v2.Compose(
        [
            v2.RandomApply([v2.RandomZoomOut(fill=127, side_range=(1.1, 2.0), p=1.0)], p=ZOOM_OUT),
            v2.RandomResizedCrop((px, px), scale=(0.4, 1.0), ratio=(0.6, 1.4), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.TrivialAugmentWide(fill=127)], p=0.5),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.03),
            *normalised(),
            v2.RandomErasing(p=0.3, scale=(0.02, 0.2)),
        ]
    )


def normalised() -> list[v2.Transform]:
    """uint8 to what the network takes."""
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize([MEAN] * 3, [STD] * 3)]

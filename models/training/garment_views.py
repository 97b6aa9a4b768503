"""Augmented pictures, made once, with what the frozen layers make of them: a training on them costs a third."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

import torch
from garment_data import Garments
from garment_networks import EfficientNetLite2, Fast, Told
from torch.nn import functional
from torch.utils.data import DataLoader

PX = 224


class Batch(NamedTuple):
    """Shares of labels [N, C]; what the frozen layers, and a teacher, say; pictures [N, 3, H, W], normalised."""

    wanted: torch.Tensor
    middle: torch.Tensor
    taught: Told | None
    pictures: torch.Tensor | None
    """For a network that begins at pictures."""

    def mixed(self, other: Batch, share: float) -> Batch:
        """With a share of another batch in it, answers too (mixup)."""
        wanted, middle = self.wanted.lerp(other.wanted, share), self.middle.lerp(other.middle, share)
        taught = pictures = None
        if self.taught is not None and other.taught is not None:
            taught = Told(*[a.lerp(b, share) for a, b in zip(self.taught, other.taught, strict=True)])
        if self.pictures is not None and other.pictures is not None:
            pictures = self.pictures.lerp(other.pictures, share)
        return Batch(wanted, middle, taught, pictures)


class Views:
    """Several views of each of a list's pictures, in bytes; the frozen layers' outputs in float16."""

    def __init__(self, kept: dict[str, torch.Tensor], classes: int, frozen_blocks: int) -> None:
        self._kept, self._classes, self.frozen_blocks = kept, classes, frozen_blocks

    @classmethod
    def made(cls, file: Path, train: Garments, classes: int, *, each: int, frozen_blocks: int, threads: int) -> Self:
        """Read from a file as they were made; else made, `each` of every picture, and written there."""
        if not file.exists():
            found: dict[str, list[torch.Tensor]] = {"pictures": [], "targets": [], "middle": []}
            frozen = Fast(EfficientNetLite2(classes, frozen_blocks).frozen, threads)
            for turn in range(each):
                for pictures, targets in DataLoader(train, 32, num_workers=1):
                    found["pictures"].append((pictures * 128 + 127).round().clamp(0, 255).byte())
                    found["targets"].append(targets)
                    found["middle"].append(frozen(pictures)[0].half())
                print(f"views: {turn + 1} of {each}", flush=True)
            partial = file.with_suffix(".partial")
            kept = {name: torch.cat(parts) for name, parts in found.items()}
            torch.save(kept | {"frozen_blocks": torch.tensor(frozen_blocks)}, partial)
            partial.replace(file)
        kept = torch.load(file, weights_only=True, mmap=True)
        return cls(kept, classes, int(kept.pop("frozen_blocks")))

    @property
    def targets(self) -> torch.Tensor:
        """[N] index of each view's label."""
        return self._kept["targets"]

    def ask(self, teacher: Fast) -> list[torch.Tensor]:
        """What a network that begins where the frozen layers end says about all views, output by output."""
        answers = [teacher(middle.float()) for middle in self._kept["middle"].split(64)]
        return [torch.cat(parts) for parts in zip(*answers, strict=True)]

    def keep_answers(self, teachers: list[Fast]) -> None:
        """The mean of teachers' logits comes with each batch from now on, and what the first one's last layer gets."""
        told = [self.ask(teacher) for teacher in teachers]
        self._kept["pooled"], self._kept["logits"] = told[0][0], torch.stack([logits for _, logits in told]).mean(0)

    def drawn(self, count: int, mix: float, *, pictures: bool) -> Batch:
        """`count` views at random, mirrored or not; a share `mix` of batches is mixed. Without pictures: faster."""
        one = self._some(count, pictures)
        if torch.rand(()) >= mix:
            return one
        return one.mixed(self._some(count, pictures), float(torch.distributions.Beta(0.4, 0.4).sample()))

    def _some(self, count: int, pictures: bool) -> Batch:
        chosen = torch.randint(len(self.targets), (count,))
        mirrored = (torch.rand(count) < 0.5)[:, None, None, None]

        def views(name: str) -> torch.Tensor:
            values = self._kept[name][chosen].float()
            return torch.where(mirrored, values.flip(3), values)

        wanted, middle = functional.one_hot(self.targets[chosen], self._classes).float(), views("middle")
        taught = None
        if "pooled" in self._kept:
            taught = Told(middle, self._kept["pooled"][chosen], self._kept["logits"][chosen])
        return Batch(wanted, middle, taught, (views("pictures") - 127) / 128 if pictures else None)

"""Augmented pictures, made once, with what the frozen layers make of them: a training on them costs a third."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

import torch
from garment_data import Garments
from garment_networks import Fast, Told
from torch.nn import functional
from torch.utils.data import DataLoader

PX = 224
EACH = 4
"""Augmented views of every picture; mirror images come on top."""


class Batch(NamedTuple):
    """Pictures [N, 3, PX, PX], normalised; shares of labels [N, C]; what the frozen layers, and a teacher, say."""

    pictures: torch.Tensor
    wanted: torch.Tensor
    middle: torch.Tensor
    taught: Told | None


class Views:
    """EACH views of a list's pictures, in bytes; the frozen layers' outputs in float16."""

    def __init__(self, kept: dict[str, torch.Tensor], classes: int) -> None:
        self._kept, self._classes = kept, classes

    @classmethod
    def made(cls, file: Path, frozen: Fast, train: Garments, classes: int) -> Self:
        """Read from a file, or made and written there."""
        if not file.exists():
            found: dict[str, list[torch.Tensor]] = {"pictures": [], "targets": [], "middle": []}
            for turn in range(EACH):
                for pictures, targets in DataLoader(train, 32, num_workers=1):
                    found["pictures"].append((pictures * 128 + 127).round().clamp(0, 255).byte())
                    found["targets"].append(targets)
                    found["middle"].append(frozen(pictures)[0].half())
                print(f"views: {turn + 1} of {EACH}", flush=True)
            partial = file.with_suffix(".partial")
            torch.save({name: torch.cat(parts) for name, parts in found.items()}, partial)
            partial.replace(file)
        return cls(torch.load(file, weights_only=True), classes)

    @property
    def targets(self) -> torch.Tensor:
        """[N] index of each view's label."""
        return self._kept["targets"]

    def ask(self, teacher: Fast) -> list[torch.Tensor]:
        """What a network that begins where the frozen layers end says about all views, output by output."""
        answers = [teacher(middle.float()) for middle in self._kept["middle"].split(64)]
        return [torch.cat(parts) for parts in zip(*answers, strict=True)]

    def keep_answers(self, teacher: Fast) -> None:
        """A teacher's answers come with each batch from now on."""
        self._kept["pooled"], self._kept["logits"] = self.ask(teacher)

    def drawn(self, count: int, mix: float) -> Batch:
        """`count` views at random, mirrored or not; a share `mix` of batches is mixed, answers too (mixup)."""
        one = self._some(count)
        if torch.rand(()) >= mix:
            return one
        other, share = self._some(count), float(torch.distributions.Beta(0.4, 0.4).sample())
        taught = None
        if one.taught is not None and other.taught is not None:
            taught = Told(*[a.lerp(b, share) for a, b in zip(one.taught, other.taught, strict=True)])
        return Batch(*[a.lerp(b, share) for a, b in zip(one[:3], other[:3], strict=True)], taught)

    def _some(self, count: int) -> Batch:
        chosen = torch.randint(len(self.targets), (count,))
        mirrored = (torch.rand(count) < 0.5)[:, None, None, None]
        pictures, middle = (self._kept[name][chosen].float() for name in ("pictures", "middle"))
        pictures, middle = (torch.where(mirrored, values.flip(3), values) for values in (pictures, middle))
        taught = None
        if "pooled" in self._kept:
            taught = Told(middle, self._kept["pooled"][chosen], self._kept["logits"][chosen])
        wanted = functional.one_hot(self.targets[chosen], self._classes).float()
        return Batch((pictures - 127) / 128, wanted, middle, taught)

"""Train the garment classifier on a CPU: EfficientNet-Lite0 from its ImageNet weights, or a small ResNet from scratch.

    python models/training/garment.py --data DIR --out RUN --hours 0.5
    python models/training/garment.py --data DIR --out RUN2 --hours 4 --network resnet --teacher RUN/best.pt

Every epoch leaves RUN/last.pt behind; the same command goes on from there, so a run may be cut at any time. The
learning rate follows the time that was trained, so that it is at its end when the hours are over, however busy the
machine was. RUN/best.pt is the epoch with the best accuracy on the val list (equal: the lower loss); the test list is
not read here.

What is trained is in float32 with bfloat16 arithmetic (twice as fast on a CPU with AVX512-BF16). What is kept is a
moving average of the weights. Batch statistics of the ImageNet network stay as they were: a batch of 32 garments
says less about them than ImageNet did.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from garment_data import Garments, read_labels
from garment_networks import efficientnet_lite0, freeze_statistics, layer_groups, small_resnet
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torchvision.transforms import v2

SMOOTHING = 0.1
DISTILL_TEMPERATURE, DISTILL_SHARE = 3.0, 0.8


@dataclass(frozen=True)
class Recipe:
    """What differs between the two networks."""

    lr: float
    depth_decay: float
    """Learning rate of each earlier group of layers, as a share of the next one's."""
    weight_decay: float
    mix: float
    """Share of batches that are mixed (mixup or cutmix)."""
    average: float
    """Moving average of the weights: what is kept of it at each step."""


RECIPES = {
    "efficientnet": Recipe(lr=1e-3, depth_decay=0.7, weight_decay=0.02, mix=0.3, average=0.99),
    "resnet": Recipe(lr=3e-3, depth_decay=1.0, weight_decay=0.05, mix=0.8, average=0.998),
}


def network_named(kind: str, classes: int) -> nn.Module:
    """A network before its training here."""
    return efficientnet_lite0(classes) if kind == "efficientnet" else small_resnet(classes)


class Run:
    """One training, from its folder's last checkpoint on."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.recipe = args, RECIPES[args.network]
        self.labels = read_labels(args.data)
        self.model = network_named(args.network, len(self.labels)).to(memory_format=torch.channels_last)
        self.average = network_named(args.network, len(self.labels)).to(memory_format=torch.channels_last)
        self.average.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.AdamW(self._groups(), weight_decay=self.recipe.weight_decay)
        self.teacher = load_network(args.teacher)[0] if args.teacher else None
        self.train = Garments(args.data, "train", augment=True, limit=args.limit)
        self.val = Garments(args.data, "val", augment=False, limit=args.limit)
        self.loader = DataLoader(
            self.train, args.batch, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True,
            worker_init_fn=lambda _: torch.set_num_threads(1),
        )  # fmt: skip
        self.mixes = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=len(self.labels)),
                                      v2.CutMix(alpha=1.0, num_classes=len(self.labels))])  # fmt: skip
        self.epoch = self.step = 0
        self.trained_s = 0.0
        self.best: dict[str, float] = {"accuracy": 0.0, "loss": math.inf}
        self.history: list[dict[str, float]] = []

    def _groups(self) -> list[dict[str, Any]]:
        """What is trained, by depth, each group with its own learning rate; norms and biases do not decay."""
        groups: list[dict[str, Any]] = []
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for depth, layers in enumerate(layer_groups(self.model)):
            scale = self.recipe.depth_decay**depth
            parameters = [p.requires_grad_() for layer in layers for p in layer.parameters()]
            groups.append({"params": [p for p in parameters if p.ndim > 1], "scale": scale})
            groups.append({"params": [p for p in parameters if p.ndim <= 1], "scale": scale, "weight_decay": 0.0})
        return groups

    def resume(self) -> None:
        """Goes on from RUN/last.pt, if there is one."""
        file = self.args.out / "last.pt"
        if not file.exists():
            return
        saved = torch.load(file, weights_only=True)
        if saved["network"] != self.args.network:
            raise SystemExit(f"{file} is a {saved['network']}: wanted {self.args.network}; take another --out")
        for name in ("model", "average", "optimizer"):
            getattr(self, name).load_state_dict(saved[name])
        for name in ("epoch", "step", "trained_s", "best", "history"):
            setattr(self, name, saved[name])
        print(f"going on after epoch {self.epoch}, {self.trained_s / 60:.1f} min trained", flush=True)

    def save(self) -> None:
        """Writes RUN/last.pt whole or not at all."""
        saved = {name: getattr(self, name).state_dict() for name in ("model", "average", "optimizer")}
        saved |= {name: getattr(self, name) for name in ("epoch", "step", "trained_s", "best", "history")}
        _write(self.args.out / "last.pt", saved | self._kind())

    def _kind(self) -> dict[str, Any]:
        return {"network": self.args.network, "labels": list(self.labels)}

    def run(self) -> None:
        """Until the hours are over; the last epoch may be a part of one."""
        while self.trained_s < self.args.hours * 3600:
            started = time.time()
            torch.manual_seed(self.args.seed + self.epoch)
            loss = self._train_epoch()
            self.epoch += 1
            measured = measure(self.average, self.val)
            self.history.append({"epoch": self.epoch, "train_loss": loss, **measured})
            if (measured["accuracy"], -measured["loss"]) > (self.best["accuracy"], -self.best["loss"]):
                self.best = measured
                _write(self.args.out / "best.pt", {"average": self.average.state_dict(), **self._kind(),
                                                   "epoch": self.epoch, "val": measured})  # fmt: skip
            self.save()
            told = {"epoch": self.epoch, "seconds": round(time.time() - started), "train_loss": round(loss, 4)}
            told |= {f"val_{key}": round(value, 4) for key, value in measured.items()}
            print(json.dumps(told | {"best": round(self.best["accuracy"], 4)}), flush=True)

    def _train_epoch(self) -> float:
        self.model.train()
        if self.args.network == "efficientnet":
            freeze_statistics(self.model)
        losses, before_s, started = [], self.trained_s, time.monotonic()
        for pictures, targets in self.loader:
            self.trained_s = before_s + time.monotonic() - started
            if self.trained_s >= self.args.hours * 3600:
                break
            self._set_rates(self.trained_s / (self.args.hours * 3600))
            mixed, wanted = (
                self.mixes(pictures, targets)
                if torch.rand(()) < self.recipe.mix
                else (pictures, functional.one_hot(targets, len(self.labels)).float())
            )
            loss = self._loss(mixed.contiguous(memory_format=torch.channels_last), wanted)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.step += 1
            self._follow()
            losses.append(loss.item())
        self.trained_s = before_s + time.monotonic() - started
        return sum(losses) / max(len(losses), 1)

    def _set_rates(self, progress: float) -> None:
        """Up over the first 5 % of the time, then down a cosine."""
        factor = min(progress / 0.05, 1.0) * (0.5 + 0.5 * math.cos(math.pi * progress))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * group["scale"] * max(factor, 1e-3)

    def _loss(self, pictures: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(pictures)
        loss = functional.cross_entropy(logits.float(), wanted, label_smoothing=SMOOTHING)
        if self.teacher is None:
            return loss
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            taught = self.teacher(pictures).float() / DISTILL_TEMPERATURE
        distance = functional.kl_div(
            functional.log_softmax(logits.float() / DISTILL_TEMPERATURE, 1),
            functional.log_softmax(taught, 1), reduction="batchmean", log_target=True,
        )  # fmt: skip
        return (1 - DISTILL_SHARE) * loss + DISTILL_SHARE * DISTILL_TEMPERATURE**2 * distance

    @torch.no_grad()
    def _follow(self) -> None:
        """The average follows the trained weights, faster in the beginning."""
        keep = min(self.recipe.average, (1 + self.step) / (10 + self.step))
        theirs = self.model.state_dict()
        for name, mine in self.average.state_dict().items():
            if mine.is_floating_point():
                mine.lerp_(theirs[name], 1 - keep)
            else:
                mine.copy_(theirs[name])


@torch.no_grad()
def logits_of(model: nn.Module, pictures: Garments, *, half: bool = True) -> torch.Tensor:
    """[N, C] of all pictures, in their order; in bfloat16 (half) while training, in float32 when it counts."""
    model.eval()
    found = []
    for batch, _ in DataLoader(pictures, 64):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found.append(model(batch.contiguous(memory_format=torch.channels_last)).float())
    return torch.cat(found)


def measure(model: nn.Module, pictures: Garments) -> dict[str, float]:
    """Accuracy and cross entropy."""
    logits, targets = logits_of(model, pictures), torch.tensor(pictures.targets)
    return {
        "accuracy": (logits.argmax(1) == targets).float().mean().item(),
        "loss": functional.cross_entropy(logits, targets).item(),
    }


def load_network(file: Path) -> tuple[nn.Module, dict[str, Any]]:
    """A trained network (best.pt), ready to run, and what was saved beside it."""
    saved = torch.load(file, weights_only=True)
    model = network_named(saved["network"], len(saved["labels"]))
    model.load_state_dict(saved["average"])
    return model.eval().to(memory_format=torch.channels_last), saved


def _write(file: Path, content: dict[str, Any]) -> None:
    partial = file.with_suffix(".partial")
    torch.save(content, partial)
    partial.replace(file)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with classes.txt, train.txt, val.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of this run")
    parser.add_argument("--network", choices=sorted(RECIPES), default="efficientnet")
    parser.add_argument("--teacher", type=Path, help="best.pt of a trained network to learn from as well")
    parser.add_argument("--hours", type=float, required=True, help="to train altogether, cut runs included")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--limit", type=int, help="so many pictures of each list only, to try it out")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    run.resume()
    run.run()


if __name__ == "__main__":
    main()

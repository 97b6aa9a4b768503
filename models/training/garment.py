"""Train the garment classifier on a CPU: EfficientNet-Lite2 from its ImageNet weights, or a small ResNet from scratch.

    python models/training/garment.py --data DIR --out RUN --views VIEWS.pt --epochs 13
    python models/training/garment.py --data DIR --out RUN2 --views MORE.pt --each 12 --frozen-blocks 11 \\
        --epochs 70 --network resnet --teacher RUN/best.pt

Every epoch leaves RUN/last.pt behind; the same command goes on from there, so a run may be cut at any time. With other
--epochs the learning rate's cosine is stretched to them. RUN/best.pt is the epoch with the best accuracy on the val
list (equal: the lower loss); the test list is not read here.

Both networks train on augmented views that are made once (VIEWS.pt). They are smaller than the network's input
later: crops show garments larger than whole pictures do (Touvron et al. 2019, Fixing the train-test resolution
discrepancy). What is kept is a moving average of the weights. The last layer of EfficientNet begins as the best linear
one on its ImageNet features.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from garment_data import Garments, read_labels
from garment_networks import FROZEN_BLOCKS, INPUT_PX, EfficientNetLite2, Fast, Hints, Tail, layer_groups, network_named
from garment_views import PX, Batch, Views
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

SMOOTHING = 0.1
LINEAR_DECAY = 0.05
SIZES_AFTER = (0.0, 0.4, 0.8)
"""Shares of the epochs. Small pictures first: a network from scratch needs many epochs, and those cost least."""
DISTILL_TEMPERATURE, DISTILL_SHARE, HINTS_SHARE = 2.0, 0.8, 1.0


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
    sizes_px: tuple[int, ...] = (PX,)
    """Of training pictures; the next one begins after each of SIZES_AFTER."""


RECIPES = {
    "efficientnet": Recipe(lr=4e-4, depth_decay=0.8, weight_decay=0.02, mix=0.3, average=0.99),
    "resnet": Recipe(
        lr=2e-3, depth_decay=1.0, weight_decay=0.05, mix=0.3, average=0.995, sizes_px=(80, 96, 128)
    ),
}


class Run:
    """One training, from its folder's last checkpoint on."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.recipe = args, RECIPES[args.network]
        self.labels = read_labels(args.data)
        train = Garments(args.data, "train", px=args.px, augment=True, limit=args.limit)
        self.views = Views.made(args.views, train, len(self.labels), each=args.each, frozen_blocks=args.frozen_blocks,
                                threads=args.threads)  # fmt: skip
        self.model, self.average = (
            network_named(args.network, len(self.labels), self.views.frozen_blocks) for _ in range(2)
        )
        for network in (self.model, self.average):
            network.to(memory_format=torch.channels_last)
        self.average.load_state_dict(self.model.state_dict())
        self.steps_per_epoch = len(train) // args.batch
        self.hints: nn.Module = nn.Identity()
        if args.teacher:
            teachers = [load_network(file, self.views.frozen_blocks)[0] for file in args.teacher]
            if args.network == "resnet":
                self.hints = Hints(teachers[0])
            self.views.keep_answers([Fast(Tail(each), args.threads, each.middle_shape) for each in teachers])
        self.optimizer = torch.optim.AdamW(self._groups(), weight_decay=self.recipe.weight_decay)
        self.val = Garments(args.data, "val", px=INPUT_PX[args.network], augment=False, limit=args.limit)
        self.epoch = self.step = 0
        self.best: dict[str, float] = {"accuracy": 0.0, "loss": math.inf}
        self.history: list[dict[str, float]] = []

    def _groups(self) -> list[dict[str, Any]]:
        """What is trained, by depth, each group with its own learning rate; norms and biases do not decay."""
        groups: list[dict[str, Any]] = []
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for depth, layers in enumerate([*layer_groups(self.model), [self.hints]]):
            scale = self.recipe.depth_decay**depth
            parameters = [p.requires_grad_() for layer in layers for p in layer.parameters()]
            groups.append({"params": [p for p in parameters if p.ndim > 1], "scale": scale})
            groups.append({"params": [p for p in parameters if p.ndim <= 1], "scale": scale, "weight_decay": 0.0})
        return groups

    def resume(self) -> None:
        """Goes on from RUN/last.pt, if there is one."""
        file = self.args.out / "last.pt"
        if not file.exists():
            self._begin()
            return
        saved = torch.load(file, weights_only=True)
        if saved["network"] != self.args.network:
            raise SystemExit(f"{file} is a {saved['network']}: wanted {self.args.network}; take another --out")
        for name in ("model", "average", "hints", "optimizer"):
            getattr(self, name).load_state_dict(saved[name])
        for name in ("epoch", "step", "best", "history"):
            setattr(self, name, saved[name])
        print(f"going on after epoch {self.epoch}", flush=True)

    def _begin(self) -> None:
        """Takes over weights; without any, the last layer becomes the linear one that fits the frozen features best."""
        if self.args.start:
            for network in (self.model, self.average):
                network.load_state_dict(torch.load(self.args.start, weights_only=True)["average"])
            print(f"going on from {self.args.start}: {measure(self.average, self.val)} on val", flush=True)
            return
        if not isinstance(self.model, EfficientNetLite2):
            return
        features = self.views.ask(Fast(Tail(self.model), self.args.threads, self.model.middle_shape))[0]
        layer = best_linear(features, self.views.targets, len(self.labels))
        for network in (self.model, self.average):
            network.head[-1].load_state_dict(layer)
        print(f"linear layer on frozen features: {measure(self.average, self.val)} on val", flush=True)

    def save(self) -> None:
        """Writes RUN/last.pt whole or not at all."""
        saved = {name: getattr(self, name).state_dict() for name in ("model", "average", "hints", "optimizer")}
        saved |= {name: getattr(self, name) for name in ("epoch", "step", "best", "history")}
        _write(self.args.out / "last.pt", saved | self._kind())

    def _kind(self) -> dict[str, Any]:
        return {"network": self.args.network, "labels": list(self.labels)}

    def run(self) -> None:
        """Until the epochs are over."""
        while self.epoch < self.args.epochs:
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

    def _batches(self) -> Iterator[Batch]:
        """Of one epoch; the size of its pictures goes with the progress."""
        sizes_px, progress = self.args.sizes or self.recipe.sizes_px, self.epoch / self.args.epochs
        px = [px for after, px in zip(SIZES_AFTER, sizes_px, strict=False) if after <= progress][-1]
        from_pictures = not isinstance(self.model, EfficientNetLite2)
        for _ in range(self.steps_per_epoch):
            batch = self.views.drawn(self.args.batch, self.recipe.mix, pictures=from_pictures)
            if batch.pictures is None or px == batch.pictures.shape[3]:
                yield batch
            else:
                small = functional.interpolate(batch.pictures, (px, px), mode="bilinear", antialias=True)
                yield batch._replace(pictures=small)

    def _train_epoch(self) -> float:
        self.model.train()
        losses = []
        for batch in self._batches():
            self._set_rates(self.step / (self.args.epochs * self.steps_per_epoch))
            with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
                loss = self._loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.step += 1
            self._follow()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def _set_rates(self, progress: float) -> None:
        """Up over the first 5 % of the steps, then down a cosine."""
        factor = min(progress / 0.05, 1.0) * (0.5 + 0.5 * math.cos(math.pi * progress))
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.rate * self.recipe.lr * group["scale"] * max(factor, 1e-3)

    def _loss(self, batch: Batch) -> torch.Tensor:
        if isinstance(self.model, EfficientNetLite2):
            logits = self.model.trained(batch.middle.contiguous(memory_format=torch.channels_last))
            return answers_loss(logits, batch)
        assert batch.pictures is not None
        student = self.model.told(batch.pictures.contiguous(memory_format=torch.channels_last))
        answers = answers_loss(student.logits, batch)
        return answers if batch.taught is None else answers + HINTS_SHARE * self.hints(student, batch.taught)

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


def answers_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """How far answers are from the labels, and from the teachers' where there are any (Hinton et al. 2015)."""
    logits = logits.float()
    if batch.taught is None:
        return functional.cross_entropy(logits, batch.wanted, label_smoothing=SMOOTHING)
    distance = functional.kl_div(
        functional.log_softmax(logits / DISTILL_TEMPERATURE, 1),
        functional.log_softmax(batch.taught.logits / DISTILL_TEMPERATURE, 1), reduction="batchmean", log_target=True,
    )  # fmt: skip
    plain = functional.cross_entropy(logits, batch.wanted)
    return (1 - DISTILL_SHARE) * plain + DISTILL_SHARE * DISTILL_TEMPERATURE**2 * distance


@torch.no_grad()
def logits_of(model: nn.Module, pictures: Garments, threads: int = 2) -> torch.Tensor:
    """[N, C] of all pictures, in their order."""
    network = Fast(model, threads)
    return torch.cat([network(batch)[0] for batch, _ in DataLoader(pictures, 32)])


def best_linear(features: torch.Tensor, targets: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
    """Weight and bias of the regularised linear layer with the lowest loss."""
    mean, deviation = features.mean(0), features.std(0) + 1e-5
    scaled = (features - mean) / deviation
    weight, bias = torch.zeros(classes, scaled.shape[1], requires_grad=True), torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = functional.cross_entropy(scaled @ weight.T + bias, targets) + LINEAR_DECAY / 2 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    weight, bias = weight.detach() / deviation, bias.detach()
    return {"weight": weight, "bias": bias - weight @ mean}


def measure(model: nn.Module, pictures: Garments) -> dict[str, float]:
    """Accuracy and cross entropy."""
    logits, targets = logits_of(model, pictures), torch.tensor(pictures.targets)
    return {
        "accuracy": (logits.argmax(1) == targets).float().mean().item(),
        "loss": functional.cross_entropy(logits, targets).item(),
    }


def load_network(file: Path, frozen_blocks: int = FROZEN_BLOCKS) -> tuple[nn.Module, dict[str, Any]]:
    """A trained network (best.pt), ready to run, and what was saved beside it."""
    saved = torch.load(file, weights_only=True)
    model = network_named(saved["network"], len(saved["labels"]), frozen_blocks)
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
    parser.add_argument("--teacher", type=Path, nargs="+",
                        help="best.pt of EfficientNets, the mean of whose answers is learnt too")  # fmt: skip
    parser.add_argument("--views", type=Path, required=True, help="file of augmented views; made if it is not there")
    parser.add_argument("--each", type=int, default=4, help="views of each picture, when they are made (4)")
    parser.add_argument("--px", type=int, default=PX, help=f"size of views, when they are made ({PX})")
    parser.add_argument("--frozen-blocks", type=int, default=FROZEN_BLOCKS, metavar="N",
                        help=f"of EfficientNet's 21 blocks, when views are made ({FROZEN_BLOCKS})")  # fmt: skip
    parser.add_argument("--sizes", type=int, nargs="+", metavar="PX", help="of pictures, rising; up to three")
    parser.add_argument("--start", type=Path, help="best.pt of a network of this kind whose training goes on here")
    parser.add_argument("--epochs", type=int, required=True, help="to train altogether, cut runs included")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the recipe's learning rate (1)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16: a ResNet gains on CPUs with AMX")
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

"""Train pcb-defect: YOLOv8n at 512 x 512 with Ultralytics, on a CPU or a GPU, until a given time.

    python models/training/train.py --data DIR/data.yaml --weights START.pt --runs RUNS --hours 1.5
    python models/training/train.py --resume RUNS/pcb-defect/weights/last.pt --hours 0.5

Every epoch leaves `RUNS/pcb-defect/weights/last.pt` behind, from which the run can be taken up again or exported.
The schedule follows the clock, not a number of epochs: after each epoch the number of epochs that still fit is
worked out afresh and the cosine is stretched to it, so that the learning rate is at its end when the time is up,
however busy the machine was. Validation is left to `edge_app eval`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import ultralytics.engine.trainer as engine
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import LOGGER

INPUT_PX = 512
MOSAIC_FREE_SHARE = 0.3
"""The last share of the run sees whole pictures: what the product will see."""


class UntilTrainer(DetectionTrainer):  # type: ignore[misc]
    """Ultralytics' trainer with an end by the clock, and with transposed batches among the flipped ones."""

    until_s: float = float("inf")
    loader_processes: int = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback("on_train_epoch_start", _note_epoch_start)
        self.add_callback("on_fit_epoch_end", _fit_schedule)

    def get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """Ultralytics gives a CPU run no loader process, and the network then waits for every batch."""
        self.args.workers = self.loader_processes
        return super().get_dataloader(*args, **kwargs)

    def preprocess_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Half of the batches are transposed: with both flips, a board is seen in all eight ways to lay it down."""
        batch = super().preprocess_batch(batch)
        if torch.rand(()) < 0.5:
            batch["img"] = batch["img"].transpose(2, 3)
            batch["bboxes"] = batch["bboxes"][:, [1, 0, 3, 2]]
        batch["img"] = batch["img"].contiguous(memory_format=torch.channels_last)
        return batch


def _note_epoch_start(trainer: UntilTrainer) -> None:
    trainer.epoch_started_s = time.time()


def _fit_schedule(trainer: UntilTrainer) -> None:
    """Set the number of epochs to what still fits before `until_s`, and stretch the cosine to it."""
    if not hasattr(trainer, "epoch_started_s"):
        return  # the final validation calls back too
    now_s = time.time()
    took_s = now_s - trainer.epoch_started_s
    known_s = getattr(trainer, "epoch_s", took_s)
    trainer.epoch_s = 0.7 * known_s + 0.3 * took_s
    left = int((trainer.until_s - now_s) / trainer.epoch_s)
    trainer.epochs = trainer.args.epochs = trainer.epoch + 1 + max(left, 0)
    trainer.args.close_mosaic = max(int(MOSAIC_FREE_SHARE * trainer.epochs), 1)
    trainer._setup_scheduler()
    trainer.scheduler.last_epoch = trainer.epoch
    trainer.stop |= left < 1
    LOGGER.info(f"epoch {trainer.epoch} took {took_s:.0f} s; {left} more until {time.ctime(trainer.until_s)}")


def use_bfloat16_on_cpu() -> None:
    """Run the network in bfloat16 and its loss in float32 (Ultralytics does so on CUDA only).

    On a CPU with AVX512-BF16 an iteration then takes half the time. Strided convolutions stay in float32: oneDNN's
    bfloat16 backward pass of those is slower than its float32 one (torch 2.14).
    """
    float_loss = DetectionModel.loss
    mixed_convolution = torch.nn.Conv2d.forward

    def convolution(layer: torch.nn.Conv2d, features: torch.Tensor) -> torch.Tensor:
        if layer.stride[0] == 1:
            return mixed_convolution(layer, features)
        with torch.autocast("cpu", enabled=False):
            return mixed_convolution(layer, features.to(layer.weight.dtype))

    def loss(model: DetectionModel, batch: dict[str, Any], preds: Any = None) -> Any:
        preds = model.forward(batch["img"]) if preds is None else preds
        with torch.autocast("cpu", enabled=False):
            return float_loss(model, batch, _to_float32(preds))

    DetectionModel.loss = loss
    torch.nn.Conv2d.forward = convolution
    engine.autocast = lambda enabled, device: torch.autocast("cpu", dtype=torch.bfloat16)


def _to_float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float()
    if isinstance(value, dict):
        return {key: _to_float32(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_float32(item) for item in value)
    return value


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Ultralytics' overrides for this run."""
    if args.resume:
        return {"resume": str(args.resume)}
    return {
        "model": str(args.weights),
        "data": str(args.data),
        "project": str(args.runs.resolve()),
        "name": args.name,
        "exist_ok": True,
        "imgsz": INPUT_PX,
        "epochs": args.epochs,
        "batch": 16,
        "nbs": 16,  # a step per batch: gathering 64 pictures for one, as is the default, takes four times the epochs
        "cache": "ram",
        "val": False,
        "plots": False,
        "patience": 0,
        "amp": False,
        "device": args.device,
        "channels_last": True,
        "seed": 20,
        "optimizer": "AdamW",
        "lr0": args.lr0,
        "lrf": args.lrf,
        "cos_lr": True,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "warmup_epochs": 0.2,
        "warmup_bias_lr": 0.0,
        "close_mosaic": 1,
        "mosaic": args.mosaic,
        "scale": 0.3,
        "translate": 0.1,
        "fliplr": 0.5,
        "flipud": 0.5,
        "hsv_h": 0.02,
        "hsv_s": 0.4,
        "hsv_v": 0.3,
        "erasing": 0.0,
    }


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="data.yaml made by dataset.py")
    parser.add_argument("--weights", type=Path, default=Path("yolov8n.yaml"), help="checkpoint to start from")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--name", default="pcb-defect")
    parser.add_argument("--resume", type=Path, help="last.pt of a run that was cut")
    parser.add_argument("--hours", type=float, required=True, help="how long to train")
    parser.add_argument("--epochs", type=int, default=50, help="guess for the first epoch's learning rate")
    parser.add_argument("--lr0", type=float, default=1e-3)
    parser.add_argument("--lrf", type=float, default=0.01)
    parser.add_argument("--mosaic", type=float, default=0.8, help="share of pictures that are mosaics of four")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    UntilTrainer.loader_processes = args.workers
    UntilTrainer.until_s = time.time() + args.hours * 3600
    if args.device == "cpu":
        engine.NUM_THREADS = args.threads
        use_bfloat16_on_cpu()
    trainer = UntilTrainer(overrides=settings(args))
    trainer.add_callback("on_train_start", lambda _: torch.set_num_threads(args.threads))
    trainer.train()


if __name__ == "__main__":
    main()

"""Calibrate a trained garment network, measure it, and export it to ONNX as the product loads it.

    python models/training/garment_export.py --run RUN --data DIR --out OUT

Writes OUT/model.onnx (opset 17, one picture [1, 3, PX, PX], RGB, (pixel - 127) / 128; output: logits [1, C]) and
OUT/report.json with what was measured. The temperature is chosen on val and divided into the last layer, so that the
softmax of the outputs is a probability that means what it says; the labels stand in the file's metadata.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import onnx
import onnxslim
import torch
from garment import load_network, logits_of
from garment_data import Garments
from garment_networks import INPUT_PX
from torch import nn
from torch.nn import functional

OPSET = 17
BINS = 15


def best_temperature(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """The divisor of logits with the lowest cross entropy (Guo et al. 2017, On Calibration of Modern Neural Networks).

    Searched on a logarithmic grid and once more around its best: the loss has a single minimum.
    """
    found, width = 0.0, math.log(20)
    for _ in range(4):
        grid = torch.linspace(found - width, found + width, 81)
        losses = [float(functional.cross_entropy(logits / math.exp(value), targets)) for value in grid]
        found, width = float(grid[losses.index(min(losses))]), width / 30
    return math.exp(found)


def calibration_error(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Expected calibration error over 15 bins of confidence: mean gap between confidence and accuracy."""
    confidence, found = logits.softmax(1).max(1)
    right = (found == targets).float()
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = [(confidence[bins == b] - right[bins == b]).sum().abs() for b in range(BINS)]
    return float(sum(gaps) / len(targets))


def interval(right: int, of: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson)."""
    z, share = 1.96, right / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return middle - half, middle + half


def report(logits: torch.Tensor, targets: torch.Tensor, labels: list[str]) -> dict[str, Any]:
    """What one list says."""
    found = logits.argmax(1)
    right = int((found == targets).sum())
    confusion = torch.zeros(len(labels), len(labels), dtype=torch.long)
    confusion.index_put_((targets, found), torch.ones_like(targets), accumulate=True)
    return {
        "pictures": len(targets),
        "top1": right / len(targets),
        "top1_95": interval(right, len(targets)),
        "cross_entropy": float(functional.cross_entropy(logits, targets)),
        "ece": calibration_error(logits, targets),
        "confusion_true_by_found": {label: row.tolist() for label, row in zip(labels, confusion, strict=True)},
    }


def divide_last_layer(model: nn.Module, temperature: float) -> None:
    """Logits are divided by the temperature from now on."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.div_(temperature)
        last.bias.div_(temperature)


def export(model: nn.Module, labels: list[str], px: int, file: Path) -> None:
    """Writes the ONNX file: norms folded into convolutions, padding too (the HTP would copy for it)."""
    model = model.to(memory_format=torch.contiguous_format)
    picture = torch.zeros(1, 3, px, px)
    torch.onnx.export(
        model, (picture,), file, input_names=["image"], output_names=["logits"], opset_version=OPSET, dynamo=False
    )
    slim = onnxslim.slim(onnx.load(file))
    slim.metadata_props.add(key="names", value=str(dict(enumerate(labels))))
    onnx.checker.check_model(slim)
    onnx.save(slim, file)
    if pads := [node.name for node in slim.graph.node if node.op_type == "Pad"]:
        raise SystemExit(f"{file}: {len(pads)} Pad nodes are left; onnxslim did not join them with their convolutions")


def main() -> None:
    """Parse the command line, calibrate, measure, export."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder with best.pt")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="so many pictures of each list only, to try it out")
    args = parser.parse_args()
    model, saved = load_network(args.run / "best.pt")
    labels, px = saved["labels"], INPUT_PX[saved["network"]]
    found = {}
    for split in ("val", "test"):
        pictures = Garments(args.data, split, px=px, augment=False, limit=args.limit)
        found[split] = logits_of(model, pictures), torch.tensor(pictures.targets)
    temperature = best_temperature(*found["val"])
    divide_last_layer(model, temperature)
    args.out.mkdir(parents=True, exist_ok=True)
    export(model, labels, px, args.out / "model.onnx")
    measured: dict[str, Any] = {"network": saved["network"], "epoch": saved["epoch"], "temperature": temperature}
    measured["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    for split, (logits, targets) in found.items():
        measured[split] = report(logits / temperature, targets, labels)
        measured[split]["ece_before"] = calibration_error(logits, targets)
    (args.out / "report.json").write_text(json.dumps(measured, indent=1) + "\n")
    for split in ("val", "test"):
        told = measured[split]
        low, high = told["top1_95"]
        print(f"{split}: top-1 {told['top1']:.4f} ({low:.3f}..{high:.3f}), ECE {told['ece']:.4f}")


if __name__ == "__main__":
    main()

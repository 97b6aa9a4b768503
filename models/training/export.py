"""Export a trained checkpoint to ONNX, as the product loads it.

    python models/training/export.py --weights RUNS/pcb-defect/weights/last.pt --out DIR

Writes DIR/model.onnx: opset 17, one picture a time [1, 3, 512, 512] (RGB, 0..1), the raw head [1, 10, 5376] (box
centre x, y, width, height in px, then six scores), no NMS, and Ultralytics' metadata with the licence.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from train import INPUT_PX
from ultralytics import YOLO

OPSET = 17


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = YOLO(args.weights)
    written = model.export(format="onnx", imgsz=INPUT_PX, opset=OPSET, batch=1, dynamic=False, nms=False, simplify=True)
    args.out.mkdir(parents=True, exist_ok=True)
    print(shutil.move(written, args.out / "model.onnx"))


if __name__ == "__main__":
    main()

"""Make the data set that pcb-defect is trained on: DeepPCB and the synthetic line, in YOLO's format.

    python models/training/dataset.py --deeppcb DIR --out DATA

`DIR` holds images/*.jpg, labels/*.txt (YOLO), templates/*.png and train.txt, val.txt. Only names in train.txt are
trained on; val.txt is for choosing scores; test.txt is not read. Written: DATA/images, DATA/labels and DATA/data.yaml
with three lists: train, val (DeepPCB's) and val_line (synthetic).

Every training picture also gives its defect-free template, as a picture without boxes. Synthetic frames come from even
products and even seeds only: each product once, and none of them in two lists. To learn from, one frame in four is of
an intact part, and the others have five defects: a line's own share of one or two defects on some parts would drown in
DeepPCB's seven on each. To choose scores on, they are as a line has them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import cv2
import numpy as np

from edge_app.camera.pcb import LABELS, SIZE_PX, PcbPicture, draw, training_seed

INTACT_STEP = 4
DEFECTS_PER_PART = 5
SHARES = {"open": 0.2, "short": 0.1, "mousebite": 0.25, "spur": 0.25, "copper": 0.1, "pin-hole": 0.1}
"""How often each defect is drawn: those that change the least copper are the hardest to learn."""


def add_deeppcb(source: Path, split: str, out: Path) -> list[str]:
    """Copy one split's pictures and boxes; returns the pictures' paths relative to `out`."""
    listed = []
    for line in (source / f"{split}.txt").read_text().split():
        picture = Path(line)
        shutil.copyfile(source / picture, out / "images" / picture.name)
        shutil.copyfile(source / "labels" / f"{picture.stem}.txt", out / "labels" / f"{picture.stem}.txt")
        listed.append(f"./images/{picture.name}")
    return listed


def add_templates(source: Path, listed: list[str], out: Path) -> list[str]:
    """Copy the defect-free templates of the listed pictures, with empty label files."""
    added = []
    for line in listed:
        stem = Path(line).stem
        shutil.copyfile(source / "templates" / f"{stem}.png", out / "images" / f"template_{stem}.png")
        (out / "labels" / f"template_{stem}.txt").write_text("")
        added.append(f"./images/template_{stem}.png")
    return added


def add_line(first: int, count: int, out: Path, *, to_learn_from: bool) -> list[str]:
    """Draw `count` parts of as many training products, from the `first`-th training product on."""
    added = []
    for index in range(first, first + count):
        picture = draw(2 * index, training_seed(index), defects=training_defects(index) if to_learn_from else None)
        name = f"line_{picture.product:05d}"
        cv2.imwrite(str(out / "images" / f"{name}.png"), picture.image)
        (out / "labels" / f"{name}.txt").write_text(yolo_rows(picture))
        added.append(f"./images/{name}.png")
    return added


def training_defects(index: int) -> tuple[str, ...]:
    """Labels of the defects on the index-th part: none, or five."""
    if index % INTACT_STEP == 0:
        return ()
    rng = np.random.Generator(np.random.PCG64(index))
    return tuple(str(label) for label in rng.choice(list(SHARES), DEFECTS_PER_PART, p=list(SHARES.values())))


def yolo_rows(picture: PcbPicture) -> str:
    """One row per defect: class, then centre x, centre y, width, height as shares of the picture."""
    rows = []
    for defect in picture.defects:
        x0, y0, x1, y1 = (edge / SIZE_PX for edge in defect.box_px)
        shares = ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0)
        rows.append(" ".join([str(LABELS.index(defect.label)), *(f"{share:.6f}" for share in shares)]) + "\n")
    return "".join(rows)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and write the data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deeppcb", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--line", type=int, default=520, help="synthetic frames to train on")
    parser.add_argument("--line-val", type=int, default=1000, help="synthetic frames to choose scores on")
    args = parser.parse_args(arguments)
    for folder in ("images", "labels"):
        (args.out / folder).mkdir(parents=True, exist_ok=True)
    train = add_deeppcb(args.deeppcb, "train", args.out)
    lists = {
        "train": [
            *train, *add_templates(args.deeppcb, train, args.out), *add_line(1, args.line, args.out, to_learn_from=True)
        ],
        "val": add_deeppcb(args.deeppcb, "val", args.out),
        "val_line": add_line(args.line + 1, args.line_val, args.out, to_learn_from=False),
    }
    for name, listed in lists.items():
        (args.out / f"{name}.txt").write_text("\n".join(listed) + "\n")
        print(f"{name}: {len(listed)} pictures")
    files = {name: f"{name}.txt" for name in lists}
    data = {"path": str(args.out.resolve()), **files, "names": list(LABELS)}
    (args.out / "data.yaml").write_text(json.dumps(data, indent=2) + "\n")  # JSON is YAML


if __name__ == "__main__":
    main()

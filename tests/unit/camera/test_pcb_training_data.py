"""The data set that pcb-defect is trained on: what is in which list, and that nothing examined is in it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

from edge_app.camera import pcb

RECIPE = Path(__file__).parents[3] / "models" / "training" / "dataset.py"


def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pcb_dataset_recipe", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, out = tmp_path_factory.mktemp("deeppcb"), tmp_path_factory.mktemp("out")
    for folder in ("images", "labels", "templates"):
        (source / folder).mkdir()
    names = {"train": ["a", "b", "c", "d"], "val": ["e"], "test": ["f"]}
    for split, stems in names.items():
        (source / f"{split}.txt").write_text("".join(f"./images/{stem}.jpg\n" for stem in stems))
        for stem in stems:
            cv2.imwrite(str(source / "images" / f"{stem}.jpg"), np.full((64, 64), 255, np.uint8))
            cv2.imwrite(str(source / "templates" / f"{stem}.png"), np.full((64, 64), 255, np.uint8))
            (source / "labels" / f"{stem}.txt").write_text("2 0.5 0.5 0.1 0.1\n")
    recipe().main(["--deeppcb", str(source), "--out", str(out), "--line", "6", "--line-val", "3"])
    return out


def listed(out: Path, name: str) -> list[str]:
    return [Path(line).name for line in (out / f"{name}.txt").read_text().split()]


def test_lists(made: Path) -> None:
    line = [f"line_{product:05d}.png" for product in (2, 4, 6, 8, 10, 12, 14, 16, 18)]
    templates = [f"template_{stem}.png" for stem in "abcd"]
    assert listed(made, "train") == ["a.jpg", "b.jpg", "c.jpg", "d.jpg", *templates, *line[:6]]
    assert listed(made, "val") == ["e.jpg"]
    assert listed(made, "val_line") == line[6:]
    assert all(pcb.is_training_product(int(name[5:10])) for name in line)
    assert not (made / "images" / "f.jpg").exists()  # test is not read


def test_every_picture_has_its_boxes(made: Path) -> None:
    data = json.loads((made / "data.yaml").read_text())
    assert data["names"] == list(pcb.LABELS)
    assert (made / "labels" / "a.txt").read_text() == "2 0.5 0.5 0.1 0.1\n"
    assert (made / "labels" / "template_a.txt").read_text() == ""
    for index in range(1, 10):
        to_learn_from = index <= 6
        labels = recipe().training_defects(index) if to_learn_from else None  # None: as a line has them
        assert labels is None or len(labels) == (0 if index % 4 == 0 else 5)
        picture = pcb.draw(2 * index, pcb.training_seed(index), defects=labels)
        rows = (made / "labels" / f"line_{2 * index:05d}.txt").read_text().splitlines()
        assert len(rows) == len(picture.defects)
        for row, defect in zip(rows, picture.defects, strict=True):
            kind, x, y, width, height = (float(value) for value in row.split())
            assert pcb.LABELS[int(kind)] == defect.label
            x0, y0, x1, y1 = defect.box_px
            assert (x * 640, y * 640) == pytest.approx(((x0 + x1) / 2, (y0 + y1) / 2), abs=0.01)
            assert (width * 640, height * 640) == pytest.approx((x1 - x0, y1 - y0), abs=0.01)
        stored = cv2.imread(str(made / "images" / f"line_{2 * index:05d}.png"))
        np.testing.assert_array_equal(stored, picture.image)

"""The YAML of the READMEs is what a pipeline may be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from edge_app.config.load import load_pipeline

ROOT = Path(__file__).parents[3]
BASE: dict[str, Any] = {
    "camera": {"type": "synthetic"}, "model": {"path": "models/pcb-defect"},
    "limits": {"pacing": "realtime", "deadline_ms": 50},
}  # fmt: skip
BLOCKS = [
    pytest.param(block, id=f"{name}: {block.split()[0]}")
    for name in ("README.md", "systemd/README.md")
    if (ROOT / name).is_file()
    for block in re.findall(r"^```yaml\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if "scrape_configs" not in block
]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_is_a_part_of_a_pipeline(block: str, tmp_path: Path) -> None:
    yaml = YAML(typ="safe")
    file = tmp_path / "line.yaml"
    yaml.dump({**BASE, **yaml.load(block)}, file)
    load_pipeline(file)


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 6 or not (ROOT / "README.md").is_file()

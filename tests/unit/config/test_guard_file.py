from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_app.config.guard import load_guard_file, packed, packed_values, unpacked, unpacked_values
from edge_app.errors import ConfigError
from edge_app.frame_guard import load_products, product_of, section_of, write_guard_file
from edge_app.guard import SAMPLES, Limits, Product

RNG = np.random.default_rng(1)
LIMITS = Limits((20.0, 200.5), 80.0, 0.02, 0.5, 7.25, 3.5, 0.6, 6.0, 0.8)


def product(name: str, references: int = 3) -> Product:
    def profiles() -> np.ndarray:
        return RNG.uniform(-0.5, 0.5, (references, SAMPLES)).astype(np.float32)

    return Product(name, 640, 480, LIMITS, profiles(), profiles(), RNG.random(references).astype(np.float32))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.guard.json"
    write_guard_file(path, [section_of(product("many", 9), "9 frames"), section_of(product("few"), "3 frames")])
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    original = product("a")
    write_guard_file(tmp_path / "g.json", [section_of(original, "3 frames of x")])
    (read,) = load_products(tmp_path / "g.json")
    assert (read.name, read.width, read.height, read.limits) == ("a", 640, 480, LIMITS)
    np.testing.assert_allclose(read.columns, original.columns, atol=0.5 / 127)
    np.testing.assert_allclose(read.rows, original.rows, atol=0.5 / 127)
    np.testing.assert_array_equal(read.detail, original.detail)
    assert load_guard_file(tmp_path / "g.json").products[0].learnt_from == "3 frames of x"


def test_products_with_few_references_are_looked_at_first(file: Path) -> None:
    assert [p.name for p in load_products(file)] == ["few", "many"]


def test_packing() -> None:
    values = np.array([[-3, -1, 0, 0.5, 1, 3]], np.float32)
    np.testing.assert_allclose(unpacked(packed(values), 1), [[-1, -1, 0, 64 / 127, 1, 1]], atol=1e-6)
    np.testing.assert_array_equal(unpacked_values(packed_values(values[0])), values[0])


def first(data: Any) -> Any:
    return data["products"][0]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: first(d)["limits"].update(least_macth=1), "least_macth"),
        (lambda d: first(d)["limits"].update(most_dark=1.5), "most_dark"),
        (lambda d: first(d)["limits"].pop("luma"), "luma"),
        (lambda d: first(d)["references"].update(count=8), "wanted 1280"),
        (lambda d: first(d)["references"].update(columns="%%%"), "columns is no base64"),
        (lambda d: first(d)["references"].update(detail=""), "detail holds 0 bytes, wanted 36"),
        (
            lambda d: first(d)["references"].update(detail=packed_values(np.full(9, np.nan, np.float32))),
            "no number",
        ),
        (lambda d: first(d).update(name="few"), "products of the same name: few"),
        (lambda d: d.update(products=[]), "at least 1"),
        (lambda d: d.update(version=2), "version"),
    ],
)
def test_a_spoilt_file_is_one_error(spoil: Callable[[Any], Any], words: str, file: Path) -> None:
    data = json.loads(file.read_text())
    spoil(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        load_products(file)
    assert words in str(caught.value)
    assert str(file) in (caught.value.where or "")
    assert "calibration guard" in (caught.value.remedy or "")


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_products(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("limits: 3")
    with pytest.raises(ConfigError, match="not a guard file"):
        load_products(tmp_path / "text.json")


def test_profiles_of_another_length_are_another_releases(file: Path) -> None:
    data = json.loads(file.read_text())
    for entry in data["products"]:
        entry["references"].update(count=1, samples=80, detail=packed_values(np.ones(1, np.float32)))
        entry["references"].update({axis: packed(np.zeros((1, 80), np.float32)) for axis in ("columns", "rows")})
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="learnt by another release"):
        load_products(file)


def test_a_folder_that_can_not_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't write the guard file"):
        write_guard_file(tmp_path / "file" / "g.json", [section_of(product("a"), "")])


def test_sections_and_products_are_two_forms_of_one_thing() -> None:
    section = section_of(product("a"), "x")
    assert section_of(product_of(section), "x") == section

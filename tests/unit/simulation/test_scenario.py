"""Scenario files: shipped ones load, bad ones name the line."""

from __future__ import annotations

import pytest

from edge_app.errors import ConfigError
from edge_app.simulation.scenario import NAMES, SHIPPED, Point, Scenario, load_scenario


def test_every_shipped_scenario_loads_by_its_name() -> None:
    assert {file.stem for file in SHIPPED.glob("*.yaml")} == set(NAMES)
    for name in NAMES:
        assert load_scenario(name).name == name


def test_air_is_a_line_between_points_and_a_fan_goes_in_steps() -> None:
    scenario = Scenario(
        name="x",
        minutes=30,
        air_c=(Point(at_min=0, value=10), Point(at_min=10, value=30), Point(at_min=20, value=20)),
        fan=(Point(at_min=5, value=0.5), Point(at_min=15, value=1.0)),
    )
    assert [scenario.air_at(m) for m in (0, 5, 10, 15, 20, 29)] == [10, 20, 30, 25, 20, 20]
    assert [scenario.fan_at(m) for m in (0, 5, 14.9, 15)] == [1.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: x\nminutes: 5\nair_c: [{at_min: 0, value: 1}]\nfann: []\n", 4, "unknown key fann"),
        ("name: x\nminutes: 0\nair_c: [{at_min: 0, value: 1}]\n", 2, "minutes"),
        ("name: x\nminutes: 0.001\nair_c: [{at_min: 0, value: 1}]\n", 2, "one trigger at least"),
        ("name: x\nminutes: 5\nair_c: [{at_min: 0, value: .nan}]\n", 3, "finite number"),
        ("name: x\nminutes: 5\nair_c: [{at_min: 3, value: 1}, {at_min: 3, value: 2}]\n", 3, "rising at_min"),
        ("name: x\nminutes: 5\nair_c: [{at_min: 0, value: 1}]\nfan: [{at_min: 0, value: 0}]\n", 4, "above 0"),
        ("name: x\nminutes: 5\nair_c: [{at_min: 0, value: 1000}]\n", 3, "-60 to 120 C"),
        (
            "name: x\nminutes: 5\nair_c: [{at_min: 0, value: 1}]\nnpu: [{fault: hang, from_min: 2, to_min: 1}]\n",
            4,
            "to_min after from_min",
        ),
        ("name: x\nminutes: 5\nair_c: [{at_min: 0, value: 1}]\nnpu: [{fault: melts, from_min: 1}]\n", 4, "npu"),
    ],
)
def test_a_bad_file_names_its_line(tmp_path, text, line, message) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_scenario(str(file))
    assert f"{file}:{line}" in error.value.text()
    assert message in error.value.text()


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(ConfigError) as error:
        load_scenario("hot-hal")
    assert "hot-hall" in error.value.text()

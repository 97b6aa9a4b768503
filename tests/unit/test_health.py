"""What doctor makes of what it finds: grades and remedies for boards that this machine is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sysfs import SysfsTree

from edge_app.health import (
    DspNode,
    Grade,
    ZoneReport,
    cooling_findings,
    dsp_findings,
    dsp_nodes,
    dsp_state,
    library_findings,
    machine_findings,
    provider_findings,
    release_of,
    soc_findings,
    transport_findings,
    zone_findings,
)
from edge_app.thermal import CoolingDevice
from edge_app.zones import Trip, Zone, ZoneGroup, ZoneReading, ZoneState

GOOD = {"onnxruntime": "1.32.0", "onnxruntime-qnn": "2.7.0", "numpy": "2.4.6", "opencv-python-headless": "4.10.0"}
OPEN = DspNode("/dev/fastrpc-cdsp", True, True)


def grades(findings) -> list[Grade]:
    return [finding.grade for finding in findings]


@pytest.fixture
def board(tmp_path):
    """A tree of a board whose compute DSP runs."""
    tree = SysfsTree(tmp_path)
    for name, text in {
        "class/remoteproc/remoteproc0/name": "adsp", "class/remoteproc/remoteproc0/state": "offline",
        "class/remoteproc/remoteproc1/name": "cdsp", "class/remoteproc/remoteproc1/state": "running",
        "devices/soc0/machine": "QCS6490", "devices/soc0/soc_id": "497",
    }.items():  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return tree


def test_a_board_as_it_should_be(board) -> None:
    findings = dsp_findings(board.root, [OPEN], simulator=False)
    assert grades(findings) == [Grade.OK, Grade.OK]
    assert grades(transport_findings("libcdsprpc.so.1")) == [Grade.OK]
    assert "QCS6490, soc_id 497" in machine_findings(board.root)[-1].text


@pytest.mark.parametrize(
    ("state", "nodes", "failing", "remedy"),
    [
        ("offline", [OPEN], "the compute DSP is offline", "dmesg"),
        ("running", [], "no device node", "FastRPC driver"),
        ("running", [DspNode("/dev/fastrpc-cdsp", True, False)], "can't be written", "group"),
        ("running", [DspNode("/dev/fastrpc-cdsp", False, False)], "can't be read and written", "udev"),
    ],
)
def test_what_keeps_the_npu_away_is_a_failure_with_a_remedy(board, state, nodes, failing, remedy) -> None:
    (board.root / "class/remoteproc/remoteproc1/state").write_text(state)
    bad = [f for f in dsp_findings(board.root, nodes, simulator=False) if f.grade is Grade.FAIL]
    assert len(bad) == 1
    assert failing in bad[0].text
    assert remedy in bad[0].remedy


def test_a_secure_node_that_is_closed_is_no_failure(board) -> None:
    nodes = [OPEN, DspNode("/dev/fastrpc-cdsp-secure", False, False)]
    assert Grade.FAIL not in grades(dsp_findings(board.root, nodes, simulator=False))


def test_a_machine_without_a_dsp_is_not_broken(tmp_path) -> None:
    assert grades(dsp_findings(tmp_path, [], simulator=False)) == [Grade.WARN]
    assert grades(dsp_findings(tmp_path, [], simulator=True)) == [Grade.NOTE]
    assert dsp_state(tmp_path) is None


def test_device_nodes_are_found_and_tried(tmp_path) -> None:
    (tmp_path / "fastrpc-cdsp").touch(mode=0o600)
    (tmp_path / "fastrpc-adsp").touch()
    (node,) = dsp_nodes(tmp_path)
    assert (node.path, node.readable, node.writable) == (str(tmp_path / "fastrpc-cdsp"), True, True)


def test_a_board_with_a_name_of_control_characters_does_not_write_on_the_terminal(tmp_path) -> None:
    (tmp_path / "devices/soc0").mkdir(parents=True)
    (tmp_path / "devices/soc0/machine").write_bytes(b"\x1b[31mQCS\xff8550\n")
    board = next(finding for finding in machine_findings(tmp_path) if finding.check == "board")
    assert board.text.isprintable()
    assert "QCS" in board.text


def test_a_board_whose_pipeline_names_no_soc_does_not_use_its_npu(tmp_path) -> None:
    (tmp_path / "devices/soc0").mkdir(parents=True)
    (tmp_path / "devices/soc0/machine").write_text("QCS8550\n")
    (finding,) = soc_findings("auto", None, True, tmp_path)
    assert finding.grade is Grade.FAIL
    assert "this board's is qcs8550" in (finding.remedy or "")
    assert soc_findings("auto", "qcs8550", True, tmp_path) == soc_findings("cpu", None, True, tmp_path) == []
    assert soc_findings("auto", None, False, tmp_path) == []


def test_libraries_that_are_absent_or_too_old_fail() -> None:
    assert set(grades(library_findings(GOOD))) == {Grade.OK}
    absent = library_findings(GOOD | {"onnxruntime": None})
    assert (absent[0].grade, absent[0].remedy) == (Grade.FAIL, "pip install 'onnxruntime>=1.32'")
    old = library_findings(GOOD | {"onnxruntime-qnn": "1.24.1"})
    assert (old[1].grade, old[1].text) == (Grade.FAIL, "onnxruntime-qnn 1.24.1 is older than 2.7")


@pytest.mark.parametrize(("version", "release"), [("2.7.0", (2, 7, 0)), ("1.32.0rc1", (1, 32)), ("5", (5,)), ("x", ())])
def test_release_numbers(version, release) -> None:
    assert release_of(version) == release


def test_the_provider_on_a_board_and_beside_it() -> None:
    assert grades(provider_findings(["Qualcomm NPU"], None, True, False)) == [Grade.OK]
    assert "HTP simulator" in provider_findings(["AMD CPU"], None, False, True)[0].text
    assert grades(provider_findings([], None, True, False)) == [Grade.FAIL]
    assert grades(provider_findings([], None, False, False)) == [Grade.NOTE]
    broken = provider_findings(None, "GLIBC_2.35 not found", True, False)[0]
    assert (broken.grade, "GLIBC_2.35" in broken.text) == (Grade.FAIL, True)
    assert grades(transport_findings(None)) == [Grade.FAIL]


def report(group: ZoneGroup, state: ZoneState = ZoneState.OK, temp_c: float | None = 40.0, trips=True) -> ZoneReport:
    zone = Zone(f"{group}0", group, group, (Trip("hot", 95.0),) if trips else ())
    return ZoneReport(zone, ZoneReading(zone.name, state, temp_c, 0.0, "EIO"), 83.0, 92.0, 95.0)


ALL_GROUPS = {ZoneGroup.NSP: True, ZoneGroup.CPU: True, ZoneGroup.SKIN: False}


def test_zones_that_are_well_hot_lost_or_missing() -> None:
    well = [report(group) for group in ZoneGroup]
    assert grades(zone_findings(well, ALL_GROUPS, on_npu=True)) == [Grade.OK] * 3
    hot = zone_findings([*well[:2], report(ZoneGroup.SKIN, temp_c=93.0)], ALL_GROUPS, on_npu=True)[-1]
    assert (hot.grade, "fan" in hot.remedy) == (Grade.WARN, True)
    lost = zone_findings([*well[1:], report(ZoneGroup.NSP, ZoneState.UNREADABLE, None)], ALL_GROUPS, on_npu=True)[-1]
    assert (lost.grade, "unreadable: EIO" in lost.text) == (Grade.FAIL, True)
    lost = zone_findings([report(ZoneGroup.NSP, ZoneState.UNREADABLE, None)], ALL_GROUPS, on_npu=False)[-1]
    assert lost.grade is Grade.WARN
    insane = replace(report(ZoneGroup.NSP), zone=replace(report(ZoneGroup.NSP).zone, trips=(Trip("passive", 0.0),)))
    assert zone_findings([*well[1:], insane], ALL_GROUPS, on_npu=True)[-1].grade is Grade.NOTE
    untripped = zone_findings([*well[1:], report(ZoneGroup.NSP, trips=False)], ALL_GROUPS, on_npu=True)[-1]
    assert untripped.grade is Grade.NOTE
    missing = zone_findings(well[1:2], ALL_GROUPS, on_npu=True)
    assert grades(missing) == [Grade.FAIL, Grade.NOTE, Grade.OK]
    assert "scheduler.zones.nsp" in missing[0].remedy
    assert grades(zone_findings([], ALL_GROUPS, on_npu=False)) == [Grade.NOTE] * 3


def test_a_board_that_is_being_cooled_is_told() -> None:
    active = cooling_findings([CoolingDevice("cpufreq-cpu0", 3, 15), CoolingDevice("fan", 0, 1)], on_npu=True)
    assert (active[0].grade, "cpufreq-cpu0 3/15" in active[0].text) == (Grade.WARN, True)
    idle = cooling_findings([CoolingDevice("fan", 0, 1), CoolingDevice("odd", None, None)], on_npu=True)
    assert (idle[0].grade, "throttles without saying so" in idle[0].remedy) == (Grade.NOTE, True)
    assert cooling_findings([], on_npu=False) == []

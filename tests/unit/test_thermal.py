"""Zones found and read; every value that can't be believed by its own name."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from sysfs import SysfsTree

from edge_app.config.scheduler import Scheduler
from edge_app.scheduler import build_policy, group_of
from edge_app.scheduler.policy import own_trip_c, zone_limits
from edge_app.thermal import (
    GRACE_US,
    Sampler,
    ZoneFile,
    ZoneHistory,
    ZoneReader,
    cooling_devices,
    find_zones,
    rate_c_per_s,
    with_late_ones,
)
from edge_app.verdict import PlanKind
from edge_app.zones import Trip, Zone, ZoneGroup, ZoneState

S = 1_000_000
CONFIG = Scheduler()


def classify(kind: str) -> ZoneGroup | None:
    return group_of(CONFIG, kind)


@pytest.fixture
def tree(tmp_path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_zones_are_found_by_glob_on_their_type(tree) -> None:
    found = [file.zone for file in find_zones(tree.root, classify)]
    assert [(zone.name, zone.group) for zone in found] == [
        ("nspss0", "nsp"), ("nspss1", "nsp"), ("cpu0", "cpu"), ("cpu4", "cpu"), ("msm-skin", "skin"),
    ]  # fmt: skip
    assert found[0].trips == (Trip("hot", 95.0), Trip("critical", 110.0))


def test_zones_of_the_same_type_keep_different_names(tmp_path) -> None:
    for number in range(12):
        folder = tmp_path / "class/thermal" / f"thermal_zone{number}"
        folder.mkdir(parents=True)
        (folder / "type").write_text("nsp\n" if number in (2, 10) else f"cpu{number}\n")
    found = find_zones(tmp_path, classify)
    assert [(f.zone.name, f.folder.name) for f in found if f.zone.group == "nsp"] == [
        ("nsp.0", "thermal_zone2"), ("nsp.1", "thermal_zone10"),
    ]  # fmt: skip


def test_a_board_without_zones_has_none(tmp_path) -> None:
    assert find_zones(tmp_path, classify) == []


def test_limits_come_from_the_zones_own_trip_points(tree) -> None:
    policy = build_policy(CONFIG, [PlanKind.CPU], (), [f.zone for f in find_zones(tree.root, classify)])
    assert {name: (x.warm_c, x.hot_c, x.trip_c) for name, x in policy.limits.items()} == {
        "nspss0": (83.0, 92.0, 95.0),
        "nspss1": (83.0, 92.0, 95.0),
        "cpu0": (78.0, 87.0, 90.0),
        "cpu4": (78.0, 87.0, 90.0),
        "msm-skin": (63.0, 72.0, 75.0),
    }


@pytest.mark.parametrize(
    ("trips", "expected"),
    [
        ((), None),
        ((Trip("critical", 110.0),), 95.0),
        ((Trip("hot", 95.0), Trip("passive", 85.0), Trip("active", 60.0)), 85.0),
        ((Trip("passive", -274.0), Trip("passive", 0.0), Trip("hot", 250.0)), None),
    ],
)
def test_trip_points_that_are_switched_off_do_not_count(trips, expected) -> None:
    assert own_trip_c(Zone("z", "z", ZoneGroup.NSP, trips)) == expected


def test_a_zone_without_trip_points_takes_the_pipelines_default() -> None:
    limits = zone_limits(Zone("z", "skin", ZoneGroup.SKIN), CONFIG.zones.skin)
    assert (limits.warm_c, limits.hot_c, limits.trip_c) == (73.0, 82.0, 85.0)


# -- single readings ---------------------------------------------------------------------------------------------------


def read(history: ZoneHistory, *values: object, from_s: int = 0):
    """One value a second; the last reading."""
    return [history.judge((from_s + k) * S, value) for k, value in enumerate(values)][-1]  # type: ignore[arg-type]


def test_a_good_reading_has_temperature_and_rate() -> None:
    reading = read(ZoneHistory("z"), *(40_000 + 500 * k for k in range(8)))
    assert (reading.state, reading.temp_c) == (ZoneState.OK, 43.5)
    assert reading.rate_c_per_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "state", "note"),
    [
        (OSError(5, "Input/output error"), ZoneState.UNREADABLE, "Input/output error"),
        (PermissionError(13, "Permission denied"), ZoneState.UNREADABLE, "Permission denied"),
        (FileNotFoundError(2, "No such file"), ZoneState.ABSENT, "the zone is gone"),
        (ValueError("x"), ZoneState.UNREADABLE, "not a whole number"),
        (-273_000, ZoneState.IMPOSSIBLE, "-273 C"),
        (255_000, ZoneState.IMPOSSIBLE, "255 C"),
        (0, ZoneState.IMPOSSIBLE, "exactly 0 C"),
    ],
)
def test_what_can_not_be_believed_is_no_temperature(value, state, note) -> None:
    reading = ZoneHistory("z").judge(0, value)
    assert (reading.state, reading.temp_c, reading.known_c, reading.note) == (state, None, None, note)


def test_a_single_failed_read_is_no_lost_sensor_but_a_lasting_one_is() -> None:
    history = ZoneHistory("z")
    read(history, 50_000, 50_100)
    error = OSError(11, "try again")
    assert history.judge(2 * S, error).temp_c == 50.1
    assert history.judge(1 * S + GRACE_US, error).temp_c == 50.1
    assert history.judge(1 * S + GRACE_US + 1, error).state is ZoneState.UNREADABLE
    assert history.judge(10 * S, 50_300).temp_c == 50.3


def test_a_real_zero_is_believed_on_the_way_through_it() -> None:
    assert read(ZoneHistory("z"), 900, 400, 0).temp_c == 0.0


def test_a_hot_sensor_that_turns_cool_at_once_is_broken() -> None:
    history = ZoneHistory("z")
    read(history, 85_000, 85_100)
    states = [history.judge((2 + k) * S, 20_000).state for k in range(600)]
    assert set(states[3:]) == {ZoneState.IMPOSSIBLE}  # within GRACE_US the last good value still stands


def test_a_disturbance_that_went_by_makes_no_dead_sensor_believable_later() -> None:
    history = ZoneHistory("z")
    read(history, 85_000, 85_100, 20_000, 20_100, 85_000, 85_100)
    states = [history.judge((6 + k) * S, 20_000).state for k in range(600)]
    assert set(states[3:]) == {ZoneState.IMPOSSIBLE}


def test_a_jump_that_lasts_and_lives_is_believed_in_the_end() -> None:
    history = ZoneHistory("z")
    read(history, 85_000, 85_100)
    states = [history.judge((2 + k) * S, 20_000 + 100 * (k % 3)).state for k in range(90)]
    assert states[30] is ZoneState.IMPOSSIBLE
    assert states[-1] is ZoneState.OK


def test_a_jump_up_is_believed_sooner() -> None:
    history = ZoneHistory("z")
    read(history, 30_000)
    states = [history.judge((1 + k) * S, 90_000).state for k in range(14)]
    assert states[5] is ZoneState.IMPOSSIBLE
    assert states[-1] is ZoneState.OK


def test_a_rate_needs_time() -> None:
    assert rate_c_per_s([(0, 1.0), (S, 9.0)]) == 0.0
    assert rate_c_per_s([(0, 40.0), (2 * S, 39.0), (4 * S, 38.0)]) == pytest.approx(-0.5)


# -- all zones together ------------------------------------------------------------------------------------------------


def watch(tree: SysfsTree, seconds: int, moving: dict[str, float], reader: ZoneReader | None = None, from_s: int = 0):
    """Reads once a second while some zones move by so many degrees in all."""
    reader = reader or ZoneReader(find_zones(tree.root, classify), frozen_s=300.0)
    snapshot = None
    for k in range(seconds + 1):
        for kind, by in moving.items():
            tree.set_c(kind, 50.0 + by * k / seconds)
        snapshot = reader.read((from_s + k) * S)
    assert snapshot is not None
    return {reading.name: reading.state for reading in snapshot.readings}


def test_a_zone_that_stands_still_while_others_move_is_frozen(tree) -> None:
    states = watch(tree, 400, {"cpu0-thermal": 10.0, "msm-skin-thermal": 3.0})
    assert states["nspss0"] is ZoneState.FROZEN
    assert states["cpu0"] is ZoneState.OK
    assert states["msm-skin"] is ZoneState.OK


def test_a_steady_board_is_not_frozen(tree) -> None:
    states = watch(tree, 2000, {"cpu0-thermal": 2.0})
    assert set(states.values()) == {ZoneState.OK}


def test_the_only_zone_of_a_board_is_given_ten_times_the_patience(tmp_path) -> None:
    tree = SysfsTree(tmp_path, {"nsp": (45_000, ())})
    reader = ZoneReader(find_zones(tree.root, classify), frozen_s=30.0)
    states = [reader.read(k * S).readings[0].state for k in range(302)]
    assert states.index(ZoneState.FROZEN) == 300


def test_a_zone_that_vanishes_is_absent_and_comes_back(tree) -> None:
    reader = ZoneReader(find_zones(tree.root, classify), 300.0)
    reader.read(0)
    folder = tree.folders["nspss0-thermal"]
    shutil.move(folder, tree.root / "aside")
    reading = reader.read(60 * S).readings[0]
    assert (reading.name, reading.state) == ("nspss0", ZoneState.ABSENT)
    shutil.move(tree.root / "aside", folder)
    assert reader.read(120 * S).readings[0].temp_c == 41.2


def test_a_folder_that_has_become_another_zones_is_not_read_for_the_one_before(tree) -> None:
    reader = ZoneReader(find_zones(tree.root, classify), 300.0)
    assert reader.read(0).state_of("nspss0") is ZoneState.OK
    tree.write(tree.folders["nspss0-thermal"] / "type", "battery")
    tree.set_c("nspss0-thermal", 25.0)
    assert reader.read(10 * S).state_of("nspss0") is ZoneState.ABSENT
    tree.write(tree.folders["nspss0-thermal"] / "type", "nspss0-thermal")
    assert reader.read(20 * S).known["nspss0"].temp_c == 25.0


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_zone_without_permission_is_unreadable(tree) -> None:
    (tree.folders["nspss0-thermal"] / "temp").chmod(0)
    assert ZoneReader(find_zones(tree.root, classify), 300.0).read(0).readings[0].state is ZoneState.UNREADABLE


@pytest.mark.parametrize("held_open", [False, True])
def test_a_pipe_in_place_of_the_file_is_unreadable_and_holds_nobody_up(tree, held_open) -> None:
    file = tree.folders["nspss0-thermal"] / "temp"
    reader = ZoneReader(find_zones(tree.root, classify), 300.0)
    file.unlink()
    os.mkfifo(file)
    writer = os.open(file, os.O_RDWR) if held_open else None
    readings = reader.read(0).readings
    assert readings[0].state is ZoneState.UNREADABLE
    assert readings[1].state is ZoneState.OK
    if writer is not None:
        os.close(writer)


@pytest.mark.parametrize("garbage", ["9" * 400, "-" + "9" * 4000, "x", "", "41.2", "0x10", "\x00\x01"])
def test_garbage_in_any_file_of_a_zone_is_no_number_and_stops_nothing(tree, garbage) -> None:
    folder = tree.folders["nspss0-thermal"]
    tree.write(folder / "temp", garbage)
    tree.write(folder / "trip_point_0_temp", garbage)
    zones = find_zones(tree.root, classify)
    assert zones[0].zone.trips == (Trip("critical", 110.0),)
    first, second, *_ = ZoneReader(zones, 300.0).read(0).readings
    assert (first.state, second.temp_c) == (ZoneState.UNREADABLE, 40.9)


def test_a_folder_in_place_of_the_file_is_unreadable(tree) -> None:
    (tree.folders["nspss0-thermal"] / "temp").unlink()
    (tree.folders["nspss0-thermal"] / "temp").mkdir()
    assert ZoneReader(find_zones(tree.root, classify), 300.0).read(0).readings[0].state is ZoneState.UNREADABLE


def test_cooling_devices_are_read(tree) -> None:
    folder = tree.root / "class/thermal/cooling_device0"
    folder.mkdir()
    for name, text in (("type", "cpufreq-cpu0"), ("cur_state", "3"), ("max_state", "15")):
        tree.write(folder / name, text)
    (device,) = cooling_devices(tree.root)
    assert (device.type, device.state, device.most) == ("cpufreq-cpu0", 3, 15)


def test_the_sampler_reads_at_once_and_again_by_itself(tree) -> None:
    sampler = Sampler(lambda: find_zones(tree.root, classify), sample_s=0.005, frozen_s=300.0)
    first = sampler.latest
    assert first.readings[0].temp_c == 41.2
    sampler.start()
    tree.set_c("nspss0-thermal", 47.5)
    for _ in range(2000):
        if sampler.latest.readings[0].temp_c == 47.5:
            break
        sampler._stopped.wait(0.001)
    sampler.stop()
    assert sampler.latest.readings[0].temp_c == 47.5
    assert sampler.latest.t_us > first.t_us


def test_a_sampler_that_failed_once_reads_on(tree, monkeypatch, caplog) -> None:
    """Without its thread zones counted as hot until a restart."""
    sampler = Sampler(lambda: find_zones(tree.root, classify), sample_s=0.005, frozen_s=300.0)
    real, troubles = sampler._reader.read, iter([MemoryError()])

    def read(t_us: int):
        for error in troubles:
            raise error
        return real(t_us)

    monkeypatch.setattr(sampler._reader, "read", read)
    first = sampler.latest
    sampler.start()
    for _ in range(2000):
        if sampler.latest is not first:
            break
        sampler._stopped.wait(0.001)
    sampler.stop()
    assert sampler.latest.t_us > first.t_us
    assert "thermal zones could not be read" in caplog.text


def test_zones_of_late_drivers_get_names_of_their_own(tree) -> None:
    known = find_zones(tree.root, classify)
    more = SysfsTree(tree.root.parent / "more", {"nspss0-thermal": (50_000, ()), "cpu9-thermal": (40_000, ())})
    late = find_zones(more.root, classify)
    zones = with_late_ones(known, [*known, *late])
    assert zones[: len(known)] == known
    assert [(file.zone.name, file.folder) for file in zones[len(known) :]] == [
        ("nspss0.0", more.folders["nspss0-thermal"]), ("cpu9", more.folders["cpu9-thermal"]),
    ]  # fmt: skip
    assert with_late_ones(zones, [*known, *late]) == zones


def test_a_zone_that_was_registered_anew_is_read_where_it_is_now(tree) -> None:
    known = find_zones(tree.root, classify)
    tree.folders["nspss0-thermal"].rename(tree.root / "class" / "thermal" / "thermal_zone99")
    found = with_late_ones(known, find_zones(tree.root, classify))
    assert [file.zone for file in found] == [file.zone for file in known]
    (moved,) = [file.folder for file in found if file not in known]
    assert moved.name == "thermal_zone99"
    reader = ZoneReader(known, 300.0)
    reader.read(0)
    assert reader.read(5_000_000).state_of("nspss0") is ZoneState.ABSENT
    reader.take(found)
    assert reader.read(6_000_000).state_of("nspss0") is ZoneState.OK


class HangingFolder(type(Path())):
    """A zone whose driver does not answer any more once `hangs` is set."""

    hangs, held, released = threading.Event(), threading.Event(), threading.Event()

    def __truediv__(self, name: str) -> Path:
        if self.hangs.is_set():
            self.held.set()
            self.released.wait()
        return Path(self) / name


def test_a_driver_that_does_not_answer_does_not_keep_the_line_from_ending(tree) -> None:
    (zone, *_) = find_zones(tree.root, classify)
    sampler = Sampler(lambda: [ZoneFile(zone.zone, HangingFolder(zone.folder))], sample_s=0.005, frozen_s=300.0)
    HangingFolder.hangs.set()
    sampler.start()
    assert HangingFolder.held.wait(60)
    try:
        sampler.stop()
        assert sampler._thread.is_alive()
    finally:
        HangingFolder.released.set()
    sampler._thread.join()

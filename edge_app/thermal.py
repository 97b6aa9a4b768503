"""Thermal zones of Linux: found by the globs of the pipeline, read once a second by a thread of their own.

A reading that can't be believed is never a number: unreadable, absent, frozen, impossible, each by its name, and the
scheduler takes all of them as hot. What can't be believed:

- a file that can't be read or holds no whole number (millidegrees C);
- below -55 or above 150 C (-273 and 255 are what drivers give for "no sensor"), and exactly 0 where no reading near it
  came before (what many drivers give for the same);
- a jump that no silicon makes, until it has lasted: a sensor that says 20 C a second after 85 C is broken, not cool;
- the same value for too long while other zones moved, or for ten times as long where there are none to compare with.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from edge_app import threads
from edge_app.clock import monotonic_us
from edge_app.errors import ConfigError
from edge_app.zones import Trip, Zone, ZoneGroup, ZoneReading, ZoneSnapshot, ZoneState

log = logging.getLogger(__name__)
SYSFS = Path("/sys")
ATTRIBUTE_BYTES = 4096
"""No file of sysfs gives more."""
POSSIBLE_C = (-55.0, 150.0)
ZERO_NEAR_C = 5.0
"""Exactly 0 is believed only if the last reading was so near."""
JUMP_C_PER_S = 25.0
JUMP_UP_SETTLES_US = 10_000_000
JUMP_DOWN_SETTLES_US = 60_000_000
"""A jump is believed after it has lasted so long; one to a cooler value only if that value also moves."""
RATE_OVER_US = 10_000_000
"""The rate of change is taken over this time."""
LEAST_RATE_SPAN_US = 3_000_000
FROZEN_OTHERS_MOVED_C = 4.0
FROZEN_ALONE = 10
"""Times the patience with a zone that has no others to be compared with."""
GRACE_US = 2_500_000
MOST_MC = 10**9
"""A number beyond this is garbage, and may be too long to be made a float."""
STOP_S = 1.0
FIND_EVERY = 10
"""Samples, between two looks for zones that came late."""
Classify = Callable[[str], ZoneGroup | None]


@dataclass(frozen=True, slots=True)
class ZoneFile:
    """A zone and the folder where it is read."""

    zone: Zone
    folder: Path


@dataclass(frozen=True, slots=True)
class CoolingDevice:
    """A fan or a clock limit of the kernel: its state of how many; 0 is no cooling."""

    type: str
    state: int | None
    most: int | None


def thermal_root(root: Path | None, where: str) -> Path:
    """The folder to look below: /sys, or the recorded tree that was given.

    Raises:
        ConfigError: it is no folder. (One without zones is a board without them.)
    """
    if root is not None and not os.path.isdir(root):  # pathlib's raises where a folder above is closed
        raise ConfigError(
            "no such folder", where=where, got=str(root), wanted="/sys, or a folder with class/thermal below it"
        )
    return SYSFS if root is None else root


def find_zones(root: Path, group_of: Classify) -> list[ZoneFile]:
    """The zones below `root`/class/thermal whose type belongs to a group, in the kernel's order.

    Args:
        root: /sys, or a recorded tree.
        group_of: the group of a zone's type; None: it is not wanted.

    A zone whose type can't be read is passed over: nobody can tell which it is. Names are the types without
    `-thermal`, numbered where several zones have the same.
    """
    found: list[tuple[str, ZoneGroup, Path]] = []
    for folder in sorted(root.glob("class/thermal/thermal_zone*"), key=_number):
        kind = _text(folder / "type")
        group = group_of(kind) if kind else None
        if kind and group is not None:
            found.append((kind, group, folder))
    names = [kind.removesuffix("-thermal") for kind, _, _ in found]
    result = []
    for place, (kind, group, folder) in enumerate(found):
        name = names[place]
        if names.count(name) > 1:
            name = f"{name}.{names[:place].count(name)}"
        result.append(ZoneFile(Zone(name, kind, group, read_trips(folder)), folder))
    return result


def with_late_ones(known: Sequence[ZoneFile], found: Sequence[ZoneFile]) -> list[ZoneFile]:
    """The zones that were known, and those that a driver has registered since, which may be the same anew elsewhere."""
    places = {(file.zone.type, file.folder) for file in found}
    late = [file for file in found if all((file.zone.type, file.folder) != (k.zone.type, k.folder) for k in known)]
    zones = []
    for file in known:
        again = None
        if (file.zone.type, file.folder) not in places:
            again = next((one for one in late if one.zone.type == file.zone.type), None)
        if again is not None:
            late.remove(again)
        zones.append(file if again is None else ZoneFile(file.zone, again.folder))
    for file in late:
        taken = {one.zone.name for one in zones}
        names = (name for n in count() if (name := f"{file.zone.type.removesuffix('-thermal')}.{n}") not in taken)
        name = file.zone.name if file.zone.name not in taken else next(names)
        zones.append(ZoneFile(replace(file.zone, name=name), file.folder))
    return zones


def nameless_zones(root: Path) -> list[OSError]:
    """Why zones below `root`, or all of them, can't be told by their type."""
    thermal = root / "class" / "thermal"
    try:
        folders = sorted(name for name in os.listdir(thermal) if name.startswith("thermal_zone"))
    except OSError as error:
        return [error]
    errors = []
    for folder in folders:
        try:
            _read(thermal / folder / "type")
        except OSError as error:
            errors.append(error)
    return errors


def read_trips(folder: Path) -> tuple[Trip, ...]:
    """The trip points of a zone, those that can be read."""
    trips = []
    for file in sorted(folder.glob("trip_point_*_temp"), key=_number):
        kind = _text(file.with_name(file.name.removesuffix("_temp") + "_type"))
        value = _integer(file)
        if kind and isinstance(value, int):
            trips.append(Trip(kind, value / 1000))
    return tuple(trips)


def cooling_devices(root: Path) -> list[CoolingDevice]:
    """Cooling devices below `root`/class/thermal."""
    devices = []
    for folder in sorted(root.glob("class/thermal/cooling_device*"), key=_number):
        state, most = _integer(folder / "cur_state"), _integer(folder / "max_state")
        devices.append(
            CoolingDevice(
                _text(folder / "type") or folder.name,
                state if isinstance(state, int) else None,
                most if isinstance(most, int) else None,
            )
        )
    return devices


def _number(path: Path) -> tuple[int, str]:
    digits = "".join(c for c in path.name if c.isdecimal())
    return int(digits) if digits else -1, path.name


def _text(file: Path) -> str | None:
    try:
        return _read(file)
    except OSError:
        return None


def _integer(file: Path) -> int | OSError | ValueError:
    """The whole number in a file, or why there is none."""
    try:
        number = int(_read(file))
    except OSError as error:
        return error
    except ValueError as error:
        return error
    return number if abs(number) <= MOST_MC else ValueError("far too large")


def _millidegrees(file: ZoneFile) -> int | OSError | ValueError:
    """What a zone says. Zones that were registered anew have other numbers: the folder may be another zone's now."""
    kind = _text(file.folder / "type")
    if kind is not None and kind != file.zone.type:
        return FileNotFoundError(f"{file.folder} is {kind} now")
    return _integer(file.folder / "temp")


def _read(file: Path) -> str:
    """What a file says, in characters that can be shown: firmware has been seen to give bytes that are no text.

    Waits for nobody: a pipe in a recorded tree gives nothing, and other zones are read on.
    """
    with open(file, "rb", opener=_without_waiting) as opened:
        text = (opened.read(ATTRIBUTE_BYTES) or b"").decode("ascii", errors="replace").strip()
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)


@dataclass(slots=True)
class ZoneHistory:
    """What one zone said lately: judges each new value by those before it."""

    name: str
    same_since_us: int | None = None
    """Since when the value has not changed at all; None: there is none."""
    _same_c: float | None = None
    _believed: deque[tuple[int, float]] = field(default_factory=deque)
    _jumped: tuple[int, float] | None = None
    """When a value that is too far from the last one came first, and which."""
    _jump_lives: bool = False
    """Whether it has changed since: a dead sensor gives one value for ever."""

    def judge(self, t_us: int, value: int | OSError | ValueError) -> ZoneReading:
        """The reading of one attempt: millidegrees C, or the error.

        For GRACE_US after a good reading that one still stands: a single failed read is no lost sensor.
        """
        if isinstance(value, FileNotFoundError):
            return self._bad(t_us, ZoneState.ABSENT, "the zone is gone")
        if isinstance(value, OSError):
            return self._bad(t_us, ZoneState.UNREADABLE, value.strerror or str(value))
        if isinstance(value, ValueError):
            return self._bad(t_us, ZoneState.UNREADABLE, "not a whole number")
        temp_c = value / 1000
        problem = self._impossible(t_us, temp_c)
        if problem is not None:
            return self._bad(t_us, ZoneState.IMPOSSIBLE, problem)
        if self.same_since_us is None or temp_c != self._same_c:
            self.same_since_us, self._same_c = t_us, temp_c
        self._believed.append((t_us, temp_c))
        while t_us - self._believed[0][0] > RATE_OVER_US:
            self._believed.popleft()
        return self._good()

    def _good(self) -> ZoneReading:
        return ZoneReading(self.name, ZoneState.OK, self._believed[-1][1], rate_c_per_s(self._believed))

    def _bad(self, t_us: int, state: ZoneState, note: str) -> ZoneReading:
        if self._believed and t_us - self._believed[-1][0] <= GRACE_US:
            return self._good()
        self.same_since_us = self._same_c = None
        return ZoneReading(self.name, state, None, 0.0, note)

    def _impossible(self, t_us: int, temp_c: float) -> str | None:
        low, high = POSSIBLE_C
        if not low <= temp_c <= high:
            return f"{temp_c:g} C"
        last = self._believed[-1] if self._believed else None
        if temp_c == 0.0 and (last is None or abs(last[1]) > ZERO_NEAR_C):
            return "exactly 0 C"
        return None if last is None else self._jump(t_us, temp_c, *last)

    def _jump(self, t_us: int, temp_c: float, last_us: int, last_c: float) -> str | None:
        """Why a value too far from the last one is not believed yet."""
        since_us, first_c = self._jumped or (t_us, temp_c)
        seconds = max((since_us - last_us) / 1e6, 1.0)
        if abs(temp_c - last_c) <= JUMP_C_PER_S * seconds:
            self._jumped, self._jump_lives = None, False
            return None
        self._jumped = (since_us, first_c)
        self._jump_lives = self._jump_lives or temp_c != first_c
        settled = t_us - since_us >= (JUMP_UP_SETTLES_US if temp_c > last_c else JUMP_DOWN_SETTLES_US)
        if not settled or (temp_c < last_c and not self._jump_lives):
            return f"{temp_c:g} C after {last_c:g} C"
        self._jumped, self._jump_lives = None, False
        self._believed.clear()
        return None


def rate_c_per_s(points: Sequence[tuple[int, float]]) -> float:
    """The slope of a zone, degrees C per second: least squares over (microseconds, C); 0 for too short a time."""
    if len(points) < 3 or points[-1][0] - points[0][0] < LEAST_RATE_SPAN_US:
        return 0.0
    first_us = points[0][0]
    seconds, temps_c = [(t - first_us) / 1e6 for t, _ in points], [c for _, c in points]
    mean_t, mean_c = sum(seconds) / len(points), sum(temps_c) / len(points)
    spread = along = 0.0
    for t, c in zip(seconds, temps_c, strict=True):
        t -= mean_t
        spread += t * t
        along += t * (c - mean_c)
    return along / spread


class ZoneReader:
    """Reads all zones at once, and tells those that stand still from those that are steady."""

    def __init__(self, zones: list[ZoneFile], frozen_s: float) -> None:
        self._frozen_us = round(frozen_s * 1e6)
        self._histories: dict[str, ZoneHistory] = {}
        self._all_c: dict[str, tuple[int, dict[str, float]]] = {}
        self.take(zones)

    def take(self, zones: list[ZoneFile]) -> None:
        """From now on these are read; what is known of those before stays known."""
        self._zones = zones
        for file in zones:
            self._histories.setdefault(file.zone.name, ZoneHistory(file.zone.name))

    def read(self, t_us: int) -> ZoneSnapshot:
        """Every zone, now."""
        return self.judge(t_us, {file.zone.name: _millidegrees(file) for file in self._zones})

    def judge(self, t_us: int, values: dict[str, int | OSError | ValueError]) -> ZoneSnapshot:
        """Every zone, by what was read of it: millidegrees C or an error."""
        readings = [self._histories[name].judge(t_us, value) for name, value in values.items()]
        temps_c = {r.name: r.temp_c for r in readings if r.temp_c is not None}
        return ZoneSnapshot(t_us, tuple(self._unless_frozen(t_us, reading, temps_c) for reading in readings))

    def _unless_frozen(self, t_us: int, reading: ZoneReading, temps_c: dict[str, float]) -> ZoneReading:
        since_us = self._histories[reading.name].same_since_us
        if reading.state is not ZoneState.OK or since_us is None:
            return reading
        then_us, then_c = self._all_c.get(reading.name, (-1, {}))
        if then_us != since_us:  # the value is new: what the others say now is what they are compared with later
            self._all_c[reading.name] = (since_us, temps_c)
            return reading
        others = [name for name in then_c if name in temps_c and name != reading.name]
        moved = [abs(temps_c[name] - then_c[name]) >= FROZEN_OTHERS_MOVED_C for name in others]
        patience = self._frozen_us if any(moved) else FROZEN_ALONE * self._frozen_us
        if t_us - since_us < patience or (moved and not any(moved)):
            return reading
        note = f"{reading.temp_c:g} C for {(t_us - since_us) // 1_000_000} s"
        return ZoneReading(reading.name, ZoneState.FROZEN, None, 0.0, note)


class Sampler:
    """The thread that reads the zones; `latest` is the newest snapshot, to be had at any time without waiting.

    At boot a driver may come after the line: `find` is asked for the zones again and again.
    """

    def __init__(self, find: Callable[[], list[ZoneFile]], sample_s: float, frozen_s: float) -> None:
        self._find, self._files = find, find()
        self.zones = tuple(file.zone for file in self._files)
        """Replaced as a whole when zones come."""
        self._reader = ZoneReader(self._files, frozen_s)
        self._sample_s = sample_s
        self._stopped = threading.Event()
        self._thread = threads.daemon(self._work, "thermal")
        self.latest = self._reader.read(monotonic_us())

    def start(self) -> None:
        """Starts reading."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; one that a driver holds in a read is not waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _work(self) -> None:
        for number in count(1):
            if self._stopped.wait(self._sample_s):
                return
            try:
                self._sample(number)
            except Exception:  # without this thread zones count as hot until a restart
                log.exception("thermal zones could not be read; there is another try in %g s", self._sample_s)

    def _sample(self, number: int) -> None:
        if number % FIND_EVERY == 0:
            self._find_late_ones()
        self.latest = self._reader.read(monotonic_us())
        if len(self._files) != len(self.zones):
            self.zones = tuple(file.zone for file in self._files)

    def _find_late_ones(self) -> None:
        try:
            files = with_late_ones(self._files, self._find())
        except OSError as error:
            log.warning("thermal zones can't be looked for: %s", error)
            return
        if files != self._files:
            come = [f"{file.zone.name} ({file.folder})" for file in files if file not in self._files]
            log.warning("thermal zones that came after the start are watched from now on: %s", ", ".join(come))
            self._files = files
            self._reader.take(files)

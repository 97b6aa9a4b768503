"""All lines of this process: one owner of the NPU, and else nothing in common.

A line that dies does not take the others with it: it is closed, and built again after a pause, while they go on. The
only line of a process is not: the process ends with its error, and its supervisor starts it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from edge_app import clock, threads
from edge_app.app import App, build, failure_of, recipe_name
from edge_app.config.lines import Named
from edge_app.errors import EdgeAppError, RuntimeFault
from edge_app.npu_gate import NpuGate

log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""Before a line that died is built again: the first, twice as long each time, the longest."""
HELD_S = 300.0
"""A line that ran for so long begins with the first pause again."""
STOP_S = 5.0
"""After a stop, for the frames in flight."""
CLOSE_S = 12.0
"""After a stop, for all lines to end and be closed; a driver that hangs is left behind."""


class Station:
    """One line of the board, from its first start to its last end."""

    def __init__(self, make: Callable[[], App], node: str, *, alone: bool) -> None:
        """Builds it; raises what building raises. `make` builds it again, unless it is `alone`."""
        self.node = node
        self._make, self._alone = make, alone
        self._name = "" if alone else node
        self.trouble: str | None = None
        """Why it is down; None: it runs, or has ended as it should."""
        self.started = False
        self.restarts = 0
        self.error: Exception | None = None
        """What it ended with."""
        self.ended = threading.Event()
        self._stopping = threading.Event()
        with threads.working_for(self._name):
            self.app = make()
            self._thread = threads.daemon(self._run, f"line-{node}")

    def start(self) -> None:
        """Opens the wire and starts; raises BusError."""
        with threads.working_for(self._name):
            self.app.start()
        self.started = True
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end; returns at once."""
        self._stopping.set()
        self.app.stop()

    def stuck(self) -> str | None:
        """What does not go round any more; a line that is down is not stuck, and the others need the watchdog."""
        found = None if self.trouble is not None or self.ended.is_set() else self.app.stuck()
        return found if found is None or self._alone else f"{self.node}: {found}"

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                started_us = clock.monotonic_us()
                self.error = self._until_closed()
                if self.error is None or self._alone or self._stopping.is_set():
                    return
                if clock.monotonic_us() - started_us > HELD_S * 1e6:
                    pause_s = FIRST_PAUSE_S
                pause_s = self._build_again(pause_s)
        finally:
            self.ended.set()

    def _until_closed(self) -> Exception | None:
        app = self.app
        while not app.wait(0.5):
            if self._stopping.is_set():
                app.stop()  # it may have been built again after the others were told
                app.wait(STOP_S)
                break
        return failure_of(app.close)

    def _build_again(self, pause_s: float) -> float:
        """Until it runs, or is not wanted any more; the pause to begin with the next time."""
        while True:
            self.trouble = told(self.error)
            log.error("%s is down: %s; built again in %g s, the other lines go on", self.node, self.trouble, pause_s)
            if self._stopping.wait(pause_s):
                return pause_s
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self.error = failure_of(self._rebuild)
            if self.error is None:
                self.trouble = None
                self.restarts += 1
                return pause_s

    def _rebuild(self) -> None:
        app = self._make()
        try:
            app.start()
        except Exception:
            app.stop()
            failure_of(app.close)
            raise
        self.app = app


def told(error: Exception | None) -> str:
    """An error in one line."""
    return error.what if isinstance(error, EdgeAppError) else repr(error)


class Board:
    """The lines of this process."""

    def __init__(self, lines: Sequence[Named], max_frames: int | None = None) -> None:
        """Builds all of them; nothing runs yet. Raises what the first raises that can't be built."""
        self.gate = NpuGate()
        self.stations: list[Station] = []
        for file, pipeline in lines:

            def make(file=file, pipeline=pipeline) -> App:  # type: ignore[no-untyped-def]
                return build(pipeline, recipe_name(file), max_frames, self.gate)

            self.stations.append(Station(make, pipeline.station.node, alone=len(lines) == 1))

    def start(self) -> None:
        """Starts all, or none. Raises BusError."""
        try:
            for station in self.stations:
                station.start()
        except BaseException:
            self.stop()
            started = [station for station in self.stations if station.started]
            for station in started:
                station.ended.wait(CLOSE_S)
            raise

    def stop(self) -> None:
        """Asks all for the end; returns at once."""
        for station in self.stations:
            station.stop()

    def reload(self) -> None:
        """SIGHUP: each line reads its list of clients again."""
        for station in self.stations:
            if station.trouble is None and not station.ended.is_set():
                station.app.reload()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end of all; True if it has come."""
        until_us = clock.monotonic_us() + timeout_s * 1e6
        return all(station.ended.wait(max(0.0, until_us - clock.monotonic_us()) / 1e6) for station in self.stations)

    def stuck(self) -> str | None:
        """What does not go round any more, for the watchdog; None: all does."""
        return next((found for station in self.stations if (found := station.stuck()) is not None), None)

    @property
    def status(self) -> str:
        """For the service manager: what is inspected, and what is down."""
        running = [one.node for one in self.stations if one.trouble is None]
        down = [f"{one.node} is down: {one.trouble}" for one in self.stations if one.trouble is not None]
        return "; ".join([*([f"inspecting as {', '.join(running)}"] if running else []), *down])

    def close(self) -> None:
        """Waits until all lines are closed; raises what the first ended with, the others' errors are in the log."""
        if not self.wait(CLOSE_S):
            hung = [station.node for station in self.stations if not station.ended.is_set()]
            raise RuntimeFault(f"{', '.join(hung)} did not end", got=f"nothing in {CLOSE_S:g} s", remedy="see the log")
        errors = [station.error for station in self.stations if station.error is not None]
        for error in errors[1:]:
            log.error("%s", error)
        if errors:
            raise errors[0]

"""What was turned away: counted, and an alarm when it goes on."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

import zmq

from edge_app import clock

ALARM_AFTER = 5
WINDOW_US = 60_000_000
HANDSHAKE_US = 3_000_000
COMMANDS_A_SECOND = 500
MAX_BUCKETS = 1024

FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
WATCHED = sum((zmq.EVENT_ACCEPTED, zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED, *FAILED))


class Refusals:
    """A count, and an alarm while there were ALARM_AFTER or more in the last minute.

    Args:
        alarm: raises (True) or clears (False) the alarm.
    """

    def __init__(self, alarm: Callable[[bool], None]) -> None:
        self._alarm = alarm
        self._times_us: deque[int] = deque(maxlen=ALARM_AFTER)
        self._raised = False
        self._expected = 0
        self.count = 0

    def expect(self, count: int) -> None:
        """So many are the node's own doing, and no concern of anybody."""
        self._expected = count

    def add(self, count: int, now_us: int) -> None:
        """Counts; raises the alarm when it is due."""
        own = min(count, self._expected)
        self._expected -= own
        count -= own
        self.count += count
        self._times_us.extend([now_us] * min(count, ALARM_AFTER))
        self.look(now_us)

    def look(self, now_us: int) -> None:
        """Clears the alarm when a minute has brought none."""
        many = len(self._times_us) == ALARM_AFTER and now_us - self._times_us[0] < WINDOW_US
        quiet = not self._times_us or now_us - self._times_us[-1] >= WINDOW_US
        if many and not self._raised:
            self._raised = True
            self._alarm(True)
        elif quiet and self._raised:
            self._raised = False
            self._alarm(False)


class Connections:
    """Connections that ended before their handshake succeeded, from a socket's monitor.

    libzmq tells some failures by an event, and cuts other peers (plain garbage) without one. Those show as connections
    that were accepted, never succeeded, and are not under way any more.
    """

    def __init__(self) -> None:
        self._accepted = self._succeeded = self._failed = 0
        self._since_us: dict[int, int] = {}
        self._told = 0

    def event(self, event: int, fd: int, now_us: int) -> None:
        """One event of the monitor."""
        if event == zmq.EVENT_ACCEPTED:
            self._accepted += 1
            self._since_us[fd] = now_us
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._succeeded += 1
        elif event == zmq.EVENT_DISCONNECTED:
            self._since_us.pop(fd, None)
        elif event in FAILED:
            self._failed += 1

    @property
    def established(self) -> int:
        """Connections that stand now, those in their handshake (HANDSHAKE_US at most) included."""
        return len(self._since_us)

    def newly_refused(self, now_us: int) -> int:
        """How many more have been refused since the last call. What is still under way is not counted yet."""
        under_way = sum(now_us - since_us < HANDSHAKE_US for since_us in self._since_us.values())
        refused = max(self._failed, self._accepted - self._succeeded - under_way)
        new = max(0, refused - self._told)
        self._told += new
        return new


class RateLimit:
    """COMMANDS_A_SECOND for each client, with a second's worth at once."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[object, tuple[float, int]] = OrderedDict()

    def admits(self, client: object) -> bool:
        """False: this client has had its share for now."""
        now_us = clock.monotonic_us()
        left, then_us = self._buckets.pop(client, (float(COMMANDS_A_SECOND), now_us))
        left = min(COMMANDS_A_SECOND, left + (now_us - then_us) * COMMANDS_A_SECOND / 1e6)
        self._buckets[client] = (left - 1 if left >= 1 else left, now_us)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return left >= 1

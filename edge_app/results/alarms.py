"""Alarms: raised, acknowledged, cleared; each change goes out once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from edge_app import clock
from edge_app.results.identity import NodeIdentity
from edge_app.results.wire import VERSION


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm as it stands."""

    name: str
    active: bool
    since_us: int
    text: str
    """What happened."""
    remedy: str
    """What to do."""
    acked: bool = False


class Alarms:
    """All alarms of a node. `publish` is called with every change, on the thread that made it."""

    def __init__(self, publish: Callable[[Alarm], None]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._alarms: dict[str, Alarm] = {}

    def set(self, name: str, active: bool, text: str, remedy: str) -> None:
        """Raises or clears. What is known already is not sent again; a new text is, and wants a new acknowledgement."""
        with self._lock:
            known = self._alarms.get(name)
            stands = known is not None and known.active
            if not stands and not active:
                return
            if known is not None and (known.active, known.text) == (active, text):
                return
            since = known.since_us if known is not None and stands and active else clock.utc_us()
            alarm = Alarm(name, active, since, text, remedy)
            self._alarms[name] = alarm
            self._publish(alarm)  # under the lock: changes go out in the order in which they were made

    def acknowledge(self, name: str) -> bool:
        """True if there is such an alarm; a second acknowledgement changes nothing."""
        with self._lock:
            known = self._alarms.get(name)
            if known is None or not known.active:
                return False
            if known.acked:
                return True
            alarm = self._alarms[name] = replace(known, acked=True)
            self._publish(alarm)
        return True

    def active(self) -> list[Alarm]:
        """Those that stand now, oldest first."""
        with self._lock:
            return sorted((a for a in self._alarms.values() if a.active), key=lambda a: a.since_us)


def alarm_fields(alarm: Alarm) -> dict[str, Any]:
    """An alarm without its envelope, as `status` lists it."""
    return {
        "alarm": alarm.name,
        "active": alarm.active,
        "since_us": alarm.since_us,
        "text": alarm.text,
        "remedy": alarm.remedy,
        "acked": alarm.acked,
    }


def alarm_message(node: NodeIdentity, t_us: int, alarm: Alarm) -> dict[str, Any]:
    """The `alarm` message."""
    return {
        "v": VERSION,
        "kind": "alarm",
        "node": node.node,
        "epoch": node.epoch,
        "t_us": t_us,
        **alarm_fields(alarm),
    }

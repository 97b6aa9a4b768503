"""Signals, taken care of by a thread.

Python runs a handler between any two steps of the main thread. That thread may be inside a lock that the handler needs
(`Event.set` while it is in `Event.wait` of the same event: seen to hang), and then neither goes on. So a handler here
does no more than put the signal's number into the one queue that is made for that; a thread does the rest.
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


def on_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> None:
    """From now on carries out the action of each signal that comes, one after the other, on a thread of its own.

    Called on the main thread. An action that raises is told in the log; later signals are still taken care of.
    """
    came: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in actions:
        signal.signal(number, lambda got, _frame: came.put(got))
    threading.Thread(target=_carry_out, args=(came, dict(actions)), name="signals", daemon=True).start()


def _carry_out(came: queue.SimpleQueue[int], actions: Mapping[signal.Signals, Callable[[], None]]) -> None:
    while True:
        number = signal.Signals(came.get())
        log.info("%s", number.name)
        try:
            actions[number]()
        except Exception:
            log.exception("what was to be done at %s failed", number.name)

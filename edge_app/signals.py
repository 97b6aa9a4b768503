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
_ctrl_c: list[int] = []
"""Not an Event: a handler may come between any two steps, also of itself."""


def keep_ctrl_c_in_mind() -> None:
    """From now on a Ctrl-C can't get lost: see `was_interrupted`.

    A KeyboardInterrupt that comes while modules are imported may be turned into another exception (`__set_name__`), or
    swallowed (by the start of onnxruntime's extension: seen).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell ignores it in what runs behind
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    _ctrl_c.append(number)
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether Ctrl-C came, whatever became of it."""
    return bool(_ctrl_c)


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

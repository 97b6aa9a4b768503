"""Processes beside the one that measures."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def start_aside(work: Callable[..., None], *arguments: object) -> BaseProcess:
    """Does `work` in a process of its own, which ends with this one: at its closed pipe. It takes no Ctrl-C."""
    process = multiprocessing.get_context("spawn").Process(target=_until_closed, args=(work, *arguments), daemon=True)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the new process then does from its first step on
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    return process


def _until_closed(work: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        work(*arguments)

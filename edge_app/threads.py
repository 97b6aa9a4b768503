"""Threads that know for which line they work, so that a log line tells it where there are several in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

LINE: ContextVar[str] = ContextVar("line", default="")
"""Of the present thread: the node of its line; empty where there is only one."""


def daemon(target: Callable[..., None], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """A daemon thread, not started yet, that works for the line whose thread makes it."""
    return threading.Thread(target=copy_context().run, args=(target, *args), name=name, daemon=True)


@contextmanager
def working_for(line: str) -> Iterator[None]:
    """What is done within is that line's; so are the threads that it makes."""
    token = LINE.set(line)
    try:
        yield
    finally:
        LINE.reset(token)

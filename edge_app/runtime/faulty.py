"""A session that fails on purpose: wraps a real one, to try what the line does about it.

    script = FaultScript({3: Trouble.ERROR, 10: Trouble.HANG})
    session = FaultySession(open_cpu(file), script)

Runs are counted by the script, from 1, over every session that is wrapped with it, so a plan that was built again
after a fault goes on in the same script. Nothing is faked between the faults: every other run is the real session's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from edge_app.errors import ModelError, RuntimeFault
from edge_app.runtime.base import Binding, Session, TensorInfo
from edge_app.verdict import PlanKind, PowerMode


class Trouble(StrEnum):
    """What a run does instead of ending well."""

    ERROR = "error"
    """Raises once; the session lives on."""
    CRASH = "crash"
    """Raises as after a crash of the DSP, and from then on at every run: the session is dead."""
    WRONG_OUTPUT = "wrong_output"
    """Runs, then writes NaN into every float output."""
    STALE = "stale"
    """Ends as if all were well, and has written nothing: the outputs are those of a frame before."""
    BLIND = "blind"
    """Runs, then clears every output, as does each run after it: plausible numbers in which nothing is found."""
    LATE = "late"
    """Runs, and returns only after `late_s`."""
    HANG = "hang"
    """Does not return until the script is released, and nor does any run after it: the processor is held."""


class FaultScript:
    """Which runs of a plan fail, and how. May be used by several threads."""

    def __init__(
        self, troubles: Mapping[int, Trouble] | None = None, *, failing_loads: int = 0, late_s: float = 0.2
    ) -> None:
        """`troubles` by the number of the run; the first `failing_loads` attempts to open a session fail."""
        self._troubles = dict(troubles or {})
        self._failing_loads = failing_loads
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._hangs = False
        self.late_s = late_s
        self.runs = 0
        self.loads = 0
        self.met: list[tuple[int, Trouble]] = []
        """Troubles that came, with their run."""

    def arm(self, trouble: Trouble) -> None:
        """The next run fails so."""
        with self._lock:
            self._troubles[self.runs + 1] = trouble

    def next(self) -> Trouble | None:
        """Counts a run; what is to happen to it."""
        with self._lock:
            self.runs += 1
            trouble = Trouble.HANG if self._hangs else self._troubles.get(self.runs)
            self._hangs = trouble is Trouble.HANG and not self._released.is_set()
            if trouble is not None:
                self.met.append((self.runs, trouble))
            return trouble

    def load(self) -> None:
        """Counts an attempt to open a session.

        Raises:
            ModelError: this one is to fail.
        """
        with self._lock:
            self.loads += 1
            if self.loads <= self._failing_loads:
                raise ModelError(
                    "the plan can't be loaded (on purpose)", got="Failed to create device. Error: 14001", remedy="none"
                )

    def wait(self, seconds: float | None) -> None:
        """Until released, or so long."""
        self._released.wait(seconds)

    def release(self) -> None:
        """Lets every run that hangs return."""
        self._released.set()


class FaultySession:
    """A Session; see Trouble for what it does besides."""

    def __init__(self, session: Session, script: FaultScript, plan: PlanKind | None = None) -> None:
        """Wraps a loaded session; `plan`: what it says it is, if not what it is."""
        self._session, self._script = session, script
        self._plan = session.plan if plan is None else plan
        self._dead = self._blind = False

    @property
    def plan(self) -> PlanKind:
        """See Session."""
        return self._plan

    @property
    def provider(self) -> str:
        """See Session."""
        return self._session.provider

    @property
    def simulated(self) -> bool:
        """Always: a line with faults on purpose inspects no parts."""
        return True

    @property
    def input(self) -> TensorInfo:
        """See Session."""
        return self._session.input

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """See Session."""
        return self._session.outputs

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """See Session."""
        return self._session.host_nodes

    def bind(self) -> Binding:
        """See Session."""
        return self._session.bind()

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        """See Session."""
        trouble = self._script.next()
        if self._dead or trouble is Trouble.CRASH:
            self._dead = True
            raise RuntimeFault("inference failed (on purpose)", got="ENGINE_ERROR : NPU crashed. SSR detected")
        if trouble is Trouble.ERROR:
            raise RuntimeFault(
                "inference failed (on purpose)", got="EP_FAIL : QNN graph execute error. Error code: 1100"
            )
        if trouble is Trouble.HANG:
            self._script.wait(None)
            return
        if trouble is Trouble.STALE:
            return
        self._session.run(binding, self._mode(power_mode))
        if trouble is Trouble.LATE:
            self._script.wait(self._script.late_s)
        elif trouble is Trouble.WRONG_OUTPUT:
            _spoil(binding)
        self._blind = self._blind or trouble is Trouble.BLIND
        if self._blind:
            for output in binding.outputs:
                output.fill(0)

    def _mode(self, power_mode: PowerMode) -> PowerMode:
        return power_mode if self._session.provider == "qnn" else PowerMode.NONE

    def close(self) -> None:
        """See Session."""
        self._session.close()


def _spoil(binding: Binding) -> None:
    floats: list[Any] = [array for array in binding.outputs if np.issubdtype(array.dtype, np.floating)]
    if not floats:
        raise RuntimeFault("a wrong output can't be shown in integers", wanted="a plan with float outputs")
    for array in floats:
        array.fill(np.nan)


def opener(open_session: Callable[[], Session], script: FaultScript) -> Callable[[], Session]:
    """Opens sessions that fail by a script, loading included."""

    def opened() -> Session:
        script.load()
        return FaultySession(open_session(), script)

    return opened

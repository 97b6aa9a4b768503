"""The mechanic: builds, warms and proves plans off the hot path, as the scheduler asks, and tells it how it went."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial

from edge_app import threads
from edge_app.clock import monotonic_us
from edge_app.engine import Engine, Work
from edge_app.errors import EdgeAppError, RuntimeFault, scarcity
from edge_app.governor import Governor
from edge_app.loading import Loading
from edge_app.placing import Fault
from edge_app.scheduler import Action, ActionKind, Decision, Event, EventKind
from edge_app.scheduler.policy import NPU_PLANS
from edge_app.verdict import PlanKind, PowerMode

log = logging.getLogger(__name__)
TICK_S = 0.25
MEASURED_RUNS = 3
STUCK_US = 120_000_000
"""What takes so long, and longer than all the runs of a load may hang, is stuck."""

Opener = Callable[[], Engine]
Prove = Callable[[Engine], str | None]
"""Runs the canary on an engine; None if it gave what was stored, else what was wrong."""


class Mechanic:
    """Carries out the scheduler's actions: first all at start, then on a thread of its own."""

    def __init__(
        self,
        governor: Governor,
        openers: Mapping[PlanKind, Opener],
        prove: Prove,
        warmup_runs: int,
        on_decision: Callable[[Decision], None] = lambda _decision: None,
        npu_turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        stuck_us: int = STUCK_US,
        self_test_s: float | None = None,
    ) -> None:
        """`openers` load each plan of this pipeline; `on_decision` is called at every tick.

        Each run on the NPU is made within an `npu_turn`, so that frames come between two of them. What takes longer
        than `stuck_us` hangs. The plan in use proves itself every `self_test_s`; None: when asked.
        """
        self._governor, self._openers, self._prove = governor, openers, prove
        self._stuck_us = stuck_us
        self._warmup_runs = max(warmup_runs, 1)
        self._npu_turn = npu_turn
        self._self_test_s, self._tested_us = self_test_s, monotonic_us()
        self.on_decision = on_decision
        self.install: Callable[[Engine], None] = lambda _engine: None
        """Given every engine that is loaded after the start: the line puts it into its slots."""
        self.idle: Callable[[], bool] = lambda: True
        """Whether no frame is in flight: the line tells."""
        self.engines: dict[PlanKind, Engine] = {}
        self.errors: dict[PlanKind, EdgeAppError] = {}
        """Why a plan can't be loaded."""
        self.busy: tuple[int, PlanKind | None] | None = None
        """Since when (monotonic us) it has been at one thing, and at which plan; None: it waits for its next turn."""
        self.longest_us = 0
        """That one thing has taken so far."""
        self._stopped = threading.Event()
        self._thread = threads.daemon(self._work, "mechanic")

    def prepare(self) -> None:
        """Loads, warms and proves what the scheduler wants at start, here and now.

        An NPU that hangs at it is left behind, as after a run that never returned: the line starts on the CPU.
        """
        while True:
            self._governor.place()
            actions = self._governor.take_actions()
            if not actions:
                return
            for action in actions:
                if action.plan not in NPU_PLANS:
                    self._carry_out(action)
                elif self._governor.npu_hung is None:
                    self._carry_out_unless_it_hangs(action)

    def _carry_out_unless_it_hangs(self, action: Action) -> None:
        what = f"{action.kind} of plan {action.plan}"
        since_us = monotonic_us()
        beside = Loading(partial(self._try, action), lambda _nothing: None, what)
        try:
            beside.result(self._stuck_us / 1e6)
        except RuntimeFault as error:  # its own errors are told as events
            text = f"{error.what} within {self._stuck_us / 1e6:g} s at the start"
            log.error("%s: the NPU is left alone", text)
            self._governor.fault(action.plan, Fault.TIMEOUT, text)
        else:
            self.longest_us = max(self.longest_us, monotonic_us() - since_us)

    def self_test(self) -> str | None:
        """Runs the canary on the plan in use, now: None if it held, else what was wrong. Raises EdgeAppError.

        A plan that fails it, by an exception too, gets no further part until it was built again and proven.
        """
        plan, before_us, self._tested_us = self._governor.last.plan, self._tested_us, monotonic_us()
        try:
            wrong = self._proven(plan)
        except Exception as error:
            self._failed(Action(ActionKind.CANARY, plan), error)
            raise
        if wrong is not None:
            age_s = (self._tested_us - before_us) / 1e6
            wrong = f"{wrong}; verdicts of the last {age_s:.0f} s, since the self-test before, may be wrong"
            self._governor.tell(Event(EventKind.CANARY_FAILED, plan, wrong))
            log.error("plan %s: self-test: %s", plan, wrong)
        return wrong

    @property
    def plans(self) -> tuple[PlanKind, ...]:
        """That this pipeline has on this machine, loaded or not."""
        return tuple(self._openers)

    def prove_all(self) -> None:
        """Runs the canary on every plan that is loaded, here and now; raises RuntimeFault at the first that fails."""
        for plan in self.engines:
            wrong = self._proven(plan)
            if wrong is not None:
                raise RuntimeFault(f"plan {plan}: the canary did not give what was stored", got=wrong)

    def start(self) -> None:
        """From here on actions are carried out on the mechanic's own thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; one that is stuck in a driver is not waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def forget(self) -> None:
        """Lets go of the sessions and of whoever listens: they end with their last frame, not some time later."""
        self.engines.clear()
        self.install, self.on_decision, self.idle = (lambda _engine: None), (lambda _decision: None), (lambda: True)

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._stopped.wait(TICK_S):
                    self._tick()
            except Exception:  # of waiting too, which takes memory: without this thread no plan comes back
                log.exception("the mechanic's turn failed; there is another one in %g s", TICK_S)

    def _tick(self) -> None:
        with self._at(None):
            self._governor.place()
            self.on_decision(self._governor.decision)
        for action in self._governor.take_actions():
            self._carry_out(action)
        if self._self_test_due():
            plan = self._governor.last.plan
            with self._at(plan), suppress(Exception):  # it was told as an event
                self.self_test()

    def _self_test_due(self) -> bool:
        """In a gap between two frames; after twice the time without any, beside them."""
        if self._self_test_s is None or self._governor.last.plan not in self.engines:
            return False
        since_s = (monotonic_us() - self._tested_us) / 1e6
        return since_s >= self._self_test_s and (self.idle() or since_s >= 2 * self._self_test_s)

    @contextmanager
    def _at(self, plan: PlanKind | None) -> Iterator[None]:
        since_us = monotonic_us()
        self.busy = since_us, plan
        try:
            yield
        finally:
            self.busy = None
            self.longest_us = max(self.longest_us, monotonic_us() - since_us)

    def _carry_out(self, action: Action) -> None:
        with self._at(action.plan):
            self._try(action)

    def _try(self, action: Action) -> None:
        plan = action.plan
        try:
            if action.kind is ActionKind.LOAD:
                self._load(plan)
            else:
                wrong = self._proven(plan)
                kind = EventKind.CANARY_PASSED if wrong is None else EventKind.CANARY_FAILED
                self._governor.tell(Event(kind, plan, wrong or "the canary gave what was stored"))
                log.log(
                    logging.INFO if wrong is None else logging.ERROR, "plan %s: canary: %s", plan, wrong or "as stored"
                )
        except Exception as error:
            self._failed(action, error)

    def _load(self, plan: PlanKind) -> None:
        engine = self._openers[plan]()
        work = engine.bind()
        times = self._warm_up(engine, work, self._warmup_runs)
        latencies_us = self._measure(engine, work)
        self.engines[plan] = engine
        self.errors.pop(plan, None)
        self.install(engine)
        log.info("plan %s: loaded and warm, %.1f ms a run", plan, times[-1] / 1000)
        self._governor.tell(Event(EventKind.LOADED, plan, latency_us=times[-1], latencies_us=latencies_us))

    def _measure(self, engine: Engine, work: Work) -> dict[PowerMode, int]:
        """What a run takes in each power mode of the ladder, the slowest of a few; nothing where time is simulated."""
        modes = self._governor.power_modes(engine.plan)
        if engine.session.simulated or len(modes) < 2:
            return {}
        # The first run of each still changes the clocks.
        return {mode: max(self._warm_up(engine, work, MEASURED_RUNS + 1, mode)[1:]) for mode in modes}

    def _turn(self, plan: PlanKind) -> AbstractContextManager[None]:
        return self._npu_turn() if plan in NPU_PLANS else nullcontext()

    def _proven(self, plan: PlanKind) -> str | None:
        with self._turn(plan):
            return self._prove(self.engines[plan])

    def _warm_up(self, engine: Engine, work: Work, runs: int, power_mode: PowerMode | None = None) -> list[int]:
        times = []
        for _ in range(runs):
            with self._turn(engine.plan):
                times += engine.warm_up(work, 1, power_mode)
        return times

    def _failed(self, action: Action, error: Exception) -> None:
        if not isinstance(error, EdgeAppError):
            scarce = scarcity(error)
            if scarce is None:
                log.error("the mechanic failed at %s of plan %s", action.kind, action.plan, exc_info=error)
            error = scarce or EdgeAppError(f"{type(error).__name__}: {error}")
        log.error("plan %s: %s failed: %s", action.plan, action.kind, error)
        self.errors[action.plan] = error
        kind = EventKind.LOAD_FAILED if action.kind is ActionKind.LOAD else EventKind.CANARY_FAILED
        self._governor.tell(Event(kind, action.plan, error.brief))

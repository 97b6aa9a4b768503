"""The board: three thermal masses (NPU, CPU, board) to the air around it, and clocks that the chip throttles by itself.

It is a model, not a board: its constants are chosen so that a board without a scheduler does what was measured on
boards by others (tests/unit/simulation/test_plant.py): 112 ms at 25 C and 189 ms at 45 C without any error, 1.5 to
0.9 GHz after 3 minutes of load, 37 % failed NPU starts at -20 C. The scheduler knows none of them; tests vary each by
+-50 %.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from edge_app.verdict import PlanKind, PowerMode

FULL_CLOCK_GHZ = 1.5
HALL_C = 50.0
"""Trip points are given as distances above it."""
COLD_C = -20.0
MODE_SHARE = {
    PowerMode.BURST: 1.0,
    PowerMode.SUSTAINED_HIGH_PERFORMANCE: 0.98,
    PowerMode.HIGH_PERFORMANCE: 0.9,
    PowerMode.BALANCED: 0.8,
    PowerMode.LOW_BALANCED: 0.7,
    PowerMode.POWER_SAVER: 0.6,
    PowerMode.LOW_POWER_SAVER: 0.4,
    PowerMode.NONE: 1.0,
}
"""Clock of each power mode, as a share of the full one."""


@dataclass(frozen=True, slots=True)
class Constants:
    """All numbers of the board. K: kelvin, J: joule, W: watt."""

    board_to_air_k_per_w: float = 7.0
    nsp_to_board_k_per_w: float = 11.0
    cpu_to_board_k_per_w: float = 7.0
    nsp_to_cpu_k_per_w: float = 40.0
    """Both are on one die, so each warms the other."""
    nsp_j_per_k: float = 7.0
    cpu_j_per_k: float = 9.0
    board_j_per_k: float = 80.0

    base_w: float = 0.5
    """Regulators, memory, camera: into the board, whatever is inspected."""
    host_j: float = 0.08
    """Of a frame that is inspected, besides the run: capture, preprocess, decode; on the CPU."""
    nsp_busy_w: float = 5.6
    """While a run is on the NPU, at full clock."""
    cpu_busy_w: float = 4.5
    power_exponent: float = 2.5
    """Power over clock: voltage falls with the clock."""

    htp_ms: float = 112.0
    hybrid_nsp_ms: float = 70.0
    hybrid_cpu_ms: float = 55.0
    cpu_ms: float = 140.0
    host_ms: float = 8.0
    latency_noise: float = 0.02
    mode_spread: float = 1.0
    """How far the power modes are apart: 0 would make them all alike."""

    nsp_trip_k: float = 22.0
    cpu_trip_k: float = 32.0
    skin_trip_k: float = 20.0
    throttled_share: float = 0.5926
    """Clock after the first step of throttling (0.889 of 1.5 GHz), as a share."""
    deep_share: float = 0.4
    """After the second step."""
    throttle_poll_s: float = 5.0
    throttle_hysteresis_k: float = 9.0

    sensor_noise_k: float = 0.15
    sensor_lag_s: float = 1.5

    start_failure: float = 0.37
    """Of the htp plan at -20 C; falls in a line to none at `start_span_k` above that."""
    start_span_k: float = 25.0
    hybrid_start_failure: float = 0.01
    load_s: float = 2.0
    canary_s: float = 0.4
    fault_ms: float = 40.0
    """A run that ends in an error takes so long."""
    restart_s: float = 10.0
    """An application that gave up is started again by its supervisor after this."""


ZONES = ("nsp", "cpu", "skin")
Temps = tuple[float, float, float]
Clocks = tuple[PlanKind, PowerMode, int, int]
"""A plan in a power mode, and how far NPU and CPU are throttled."""
Phases = tuple[float, float, float, float]
"""Of a run: milliseconds on the NPU, its share of full power, milliseconds on the CPU, its share."""


@dataclass(slots=True)
class Throttle:
    """The chip's own governor of one clock: a step down while too hot and rising, a step up when cool again."""

    trip_c: float
    hysteresis_k: float
    shares: tuple[float, float, float]
    level: int = 0
    _last_c: float = -math.inf

    def poll(self, temp_c: float) -> None:
        """Looks at the temperature once."""
        if temp_c >= self.trip_c and temp_c > self._last_c:
            self.level = min(self.level + 1, 2)
        elif temp_c < self.trip_c - self.hysteresis_k:
            self.level = max(self.level - 1, 0)
        self._last_c = temp_c

    @property
    def share(self) -> float:
        """The clock that is allowed, as a share of the full one."""
        return self.shares[self.level]


@dataclass(slots=True)
class Plant:
    """One board at one moment. `step` moves it on."""

    constants: Constants
    air_c: float
    random: random.Random
    fan: float = 1.0
    """1: as built; less: less air, so more kelvin per watt."""
    temps_c: list[float] = field(default_factory=list)
    sensed_c: list[float] = field(default_factory=list)
    nsp: Throttle = field(init=False)
    cpu: Throttle = field(init=False)
    _poll_in_s: float = 0.0
    _runs: dict[Clocks, Phases] = field(default_factory=dict)
    """What a run takes before noise, by what decides it: worked out once."""

    def __post_init__(self) -> None:
        k = self.constants
        if not self.temps_c:  # soaked: on for a long time, nothing inspected yet
            board = self.air_c + k.base_w * k.board_to_air_k_per_w / self.fan
            self.temps_c = [board, board, board]
        self.sensed_c = list(self.temps_c)
        shares = (1.0, k.throttled_share, min(k.deep_share, k.throttled_share))
        trips = self.trips_c
        self.nsp = Throttle(trips[0], k.throttle_hysteresis_k, shares)
        self.cpu = Throttle(trips[1], k.throttle_hysteresis_k, shares)

    @property
    def trips_c(self) -> Temps:
        """Trip points of NPU, CPU and skin."""
        k = self.constants
        return HALL_C + k.nsp_trip_k, HALL_C + k.cpu_trip_k, HALL_C + k.skin_trip_k

    def clock_share(self, mode: PowerMode) -> float:
        """The NPU's clock in a power mode: the mode's own, or what throttling leaves."""
        own = 1.0 - (1.0 - MODE_SHARE[mode]) * self.constants.mode_spread
        return min(max(own, 0.05), self.nsp.share)

    def run(self, plan: PlanKind, mode: PowerMode) -> tuple[float, float, float]:
        """One inference: its milliseconds, and the joules that it puts into NPU and CPU."""
        clocks = plan, mode, self.nsp.level, self.cpu.level
        known = self._runs.get(clocks)
        if known is None:
            known = self._runs[clocks] = self._noiseless(plan, mode)
        nsp_ms, nsp_share, cpu_ms, cpu_share = known
        k = self.constants
        noise = 1.0 + self.random.gauss(0.0, k.latency_noise)
        nsp_ms, cpu_ms = nsp_ms * noise, cpu_ms * noise
        nsp_j = nsp_ms / 1000 * k.nsp_busy_w * nsp_share
        cpu_j = cpu_ms / 1000 * k.cpu_busy_w * cpu_share
        return nsp_ms + cpu_ms, nsp_j, cpu_j

    def _noiseless(self, plan: PlanKind, mode: PowerMode) -> Phases:
        k = self.constants
        nsp_ms = {PlanKind.HTP: k.htp_ms, PlanKind.HYBRID: k.hybrid_nsp_ms}.get(plan, 0.0)
        cpu_ms = {PlanKind.HYBRID: k.hybrid_cpu_ms, PlanKind.CPU: k.cpu_ms}.get(plan, 0.0)
        nsp_share, cpu_share = self.clock_share(mode), self.cpu.share
        return (nsp_ms / nsp_share, nsp_share**k.power_exponent, cpu_ms / cpu_share, cpu_share**k.power_exponent)

    def starts(self, plan: PlanKind) -> bool:
        """Whether a session of this plan comes up at the present temperature."""
        k = self.constants
        if plan is PlanKind.CPU:
            return True
        worst = k.start_failure if plan is PlanKind.HTP else k.hybrid_start_failure
        cold = min(max((COLD_C + k.start_span_k - self.temps_c[0]) / k.start_span_k, 0.0), 1.0)
        return self.random.random() >= worst * cold

    def step(self, dt_s: float, nsp_j: float, cpu_j: float) -> None:
        """Moves on by `dt_s`, in which so much heat came into NPU and CPU.

        Explicit Euler in steps of at most a fifth of the fastest time constant.
        """
        k = self.constants
        nsp, cpu, board = self.temps_c
        fastest = min(k.nsp_j_per_k * k.nsp_to_board_k_per_w, k.cpu_j_per_k * k.cpu_to_board_k_per_w)
        steps = max(1, math.ceil(dt_s / (0.2 * fastest)))
        dt = dt_s / steps
        nsp_w, cpu_w = nsp_j / dt_s, cpu_j / dt_s
        for _ in range(steps):
            nsp_out = (nsp - board) / k.nsp_to_board_k_per_w
            cpu_out = (cpu - board) / k.cpu_to_board_k_per_w
            across = (nsp - cpu) / k.nsp_to_cpu_k_per_w
            out = (board - self.air_c) / k.board_to_air_k_per_w * self.fan
            nsp += dt * (nsp_w - nsp_out - across) / k.nsp_j_per_k
            cpu += dt * (cpu_w - cpu_out + across) / k.cpu_j_per_k
            board += dt * (k.base_w + nsp_out + cpu_out - out) / k.board_j_per_k
        self.temps_c = [nsp, cpu, board]
        lag = 1.0 - math.exp(-dt_s / k.sensor_lag_s)
        self.sensed_c = [s + lag * (t - s) for s, t in zip(self.sensed_c, self.temps_c, strict=True)]
        self._poll_in_s -= dt_s
        if self._poll_in_s <= 0.0:
            self._poll_in_s += k.throttle_poll_s
            self.nsp.poll(nsp)
            self.cpu.poll(cpu)

    def sensor_mc(self, zone: int) -> int:
        """What the kernel shows: millidegrees, in tenths of a degree, with noise."""
        noisy = self.sensed_c[zone] + self.random.gauss(0.0, self.constants.sensor_noise_k)
        return round(noisy * 10) * 100

"""What holds of every decision, whatever the board, the ladder and the day."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from boards import ALL, CPU, HTP, HYBRID, NAMES, START_US, Driver, all_well, board_policy
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.config.scheduler import Dwell, LadderStep, Scheduler, Trial, Watts
from edge_app.scheduler import Action, Event, EventKind, Inputs, Policy, State, admit, decide
from edge_app.scheduler.faults import Phase
from edge_app.scheduler.policy import GROUPS, Heat
from edge_app.scheduler.state import initial_state
from edge_app.verdict import PlanKind, PowerMode, SchedReason
from edge_app.zones import ZoneReading, ZoneSnapshot, ZoneState

MODES = [mode for mode in PowerMode if mode is not PowerMode.NONE]
watts = st.builds(Watts, nsp=st.floats(0, 8), cpu=st.floats(0, 8), skin=st.none() | st.floats(0, 12))
npu_steps = st.builds(
    LadderStep,
    plan=st.sampled_from([HTP, HYBRID]),
    power_mode=st.sampled_from(MODES),
    watts=watts,
    latency=st.floats(0.5, 3),
)
cpu_steps = st.builds(LadderStep, plan=st.just(CPU), power_mode=st.just(PowerMode.NONE), watts=watts)
ladders = st.lists(npu_steps, max_size=6, unique_by=lambda s: (s.plan, s.power_mode)).flatmap(
    lambda steps: cpu_steps.map(lambda cpu: (*sorted(steps, key=lambda s: s.plan is HYBRID), cpu))
)
configs = st.builds(
    Scheduler,
    ladder=ladders | st.just(Scheduler().ladder),
    trigger=st.sampled_from(["external", "free"]),
    hysteresis_k=st.floats(0, 10),
    lookahead_s=st.floats(0, 20),
    dwell=st.tuples(st.floats(0.5, 20), st.floats(0, 60)).map(lambda t: Dwell(down_s=t[0], up_s=t[0] + t[1])),
    trial=st.builds(
        Trial, below=st.floats(0, 1), after_s=st.floats(0.5, 60), for_s=st.floats(0.5, 60), keep_s=st.floats(0.5, 120)
    ),
)
pairs = st.frozensets(st.sampled_from([(HTP, HYBRID), (HTP, CPU), (HYBRID, CPU)]))
policies = st.builds(
    board_policy, configs, st.just(ALL), pairs | st.just(frozenset({(HTP, HYBRID), (HTP, CPU), (HYBRID, CPU)}))
)

temps = st.floats(6, 120)  # above the cold start's threshold: that one sends work to the NPU when it becomes warmer
readings = st.tuples(temps | st.none(), st.floats(-3, 3))
boards = st.tuples(readings, readings, readings)
kinds = st.sampled_from(list(EventKind))
events = st.lists(
    st.builds(Event, kinds, st.sampled_from(ALL), st.just("x"), st.none() | st.integers(1, 400_000)), max_size=2
)
moments = st.lists(st.tuples(st.floats(0.05, 40), boards, events), min_size=1, max_size=12)


def zones_at(t_us: int, board: tuple[tuple[float | None, float], ...]) -> ZoneSnapshot:
    return ZoneSnapshot(
        t_us,
        tuple(
            ZoneReading(name, ZoneState.FROZEN) if temp is None else ZoneReading(name, ZoneState.OK, temp, rate)
            for name, (temp, rate) in zip(NAMES, board, strict=True)
        ),
    )


def history(policy: Policy, days: list[tuple[float, object, list[Event]]], answer=all_well) -> tuple[Driver, list]:
    """Plays moments; returns the driver and every (time, state before, inputs' events, decision)."""
    driver = Driver(policy, answer, deadline_us=240_000)
    driver.state, _ = admit(driver.state, driver.now_us)  # before the first trigger nothing dwells or must agree
    seen = []
    for after_s, board, happened in days:
        before = driver.state
        zones = zones_at(driver.now_us + round(after_s * 1e6), board)
        seen.append((before, zones, driver.step(zones, *happened, after_s=after_s)))
    return driver, seen


def heat_of(policy: Policy, state: State) -> Heat:
    assert state.held.rung is not None
    return state.held.rung.heat


@settings(max_examples=200, deadline=None)
@given(policies, moments, boards, st.integers(0, 2), st.floats(0, 60), st.floats(0.01, 60))
def test_a_hotter_zone_never_gets_more_heat_into_that_zone(policy, days, board, which, hotter_by, after_s) -> None:
    driver, _ = history(policy, days)
    now = driver.now_us + round(after_s * 1e6)
    temp, rate = board[which]
    hotter = list(board)
    # An unreadable zone counts as `unknown_c`: it may stand for the cooler of the two only from there on.
    base = temp if temp is not None else policy.limits[NAMES[which]].unknown_c
    hotter[which] = (base + hotter_by, rate)
    cool_state, cool = decide(policy, driver.state, Inputs(now, zones_at(now, board), deadline_us=240_000))
    hot_state, hot = decide(policy, driver.state, Inputs(now, zones_at(now, tuple(hotter)), deadline_us=240_000))
    assert (cool.placement is None) == (hot.placement is None)
    if cool.placement is not None:
        assert heat_of(policy, hot_state)[which] <= heat_of(policy, cool_state)[which] + 1e-9


@settings(max_examples=200, deadline=None)
@given(policies, moments, boards, st.integers(0, 2), st.sampled_from([s for s in ZoneState if s is not ZoneState.OK]))
def test_unknown_is_never_cooler_than_hot(policy, days, board, which, state) -> None:
    driver, _ = history(policy, days)
    now = driver.now_us + 50_000_000
    limits = policy.limits[NAMES[which]]
    temp, rate = board[which]
    known = list(board)
    known[which] = (min(limits.hot_c if temp is None else temp, limits.hot_c), min(rate, 0.0))
    lost = zones_at(now, tuple(known))
    lost = replace(
        lost,
        readings=tuple(ZoneReading(r.name, state) if index == which else r for index, r in enumerate(lost.readings)),
    )
    known_state, as_known = decide(policy, driver.state, Inputs(now, zones_at(now, tuple(known)), deadline_us=240_000))
    lost_state, as_lost = decide(policy, driver.state, Inputs(now, lost, deadline_us=240_000))
    if as_known.placement is not None:
        assert as_lost.placement is not None
        assert heat_of(policy, lost_state)[which] <= heat_of(policy, known_state)[which] + 1e-9


@settings(max_examples=150, deadline=None)
@given(policies, st.lists(st.tuples(st.floats(0.05, 10), boards), min_size=5, max_size=30))
def test_without_faults_it_never_flaps_faster_than_its_dwell_times(policy, days) -> None:
    driver = Driver(policy)
    driver.started()
    changes = [(driver.state.held.changed_us, driver.state.held.rung)]
    for after_s, board in days:
        driver.step(zones_at(driver.now_us + round(after_s * 1e6), board), after_s=after_s)
        rung = driver.state.held.rung
        if rung is not changes[-1][1]:
            changes.append((driver.now_us, rung))
    order = {id(rung): place for place, rung in enumerate(policy.rungs)}
    for (before_us, was), (after_us, now) in pairwise(changes):
        assert after_us - before_us >= policy.dwell_down_us
        less_heat = any(n < w for n, w in zip(now.heat, was.heat, strict=True))
        if order[id(now)] < order[id(was)] and not less_heat:
            assert after_us - before_us >= policy.dwell_up_us


@settings(max_examples=200, deadline=None)
@given(policies, moments)
def test_a_plan_is_reached_whenever_one_is_left(policy, days) -> None:
    _, seen = history(policy, days)
    came_from: PlanKind | None = None
    for index, (_, _, decision) in enumerate(seen):
        after = seen[index + 1][0] if index + 1 < len(seen) else None
        if after is None:
            continue
        left = {
            plan
            for plan, health in after.health.items()
            if health.phase is Phase.READY and (came_from is None or policy.may_switch(came_from, plan))
        }
        assert (decision.placement is not None) == bool(left)
        if decision.placement is not None:
            assert decision.placement.plan in left
            came_from = decision.placement.plan


@settings(max_examples=200, deadline=None)
@given(policies, moments)
def test_every_decision_has_a_reason_and_says_what_is_wrong(policy, days) -> None:
    _, seen = history(policy, days)
    home = policy.rungs[0]
    for _, _, decision in seen:
        assert decision.detail
        if decision.placement is None:
            assert "NO_PLAN" in {alarm.name for alarm in decision.alarms}
            continue
        placement = decision.placement
        at_home = (placement.plan, placement.power_mode, placement.rate) == (home.plan, home.power_mode, 1.0)
        assert (placement.reason is SchedReason.NORMAL) == at_home
        assert (placement.rate < 1.0) == ("rate_reduced" in decision.degraded)
        assert all(alarm.text and alarm.remedy for alarm in decision.alarms)


@settings(max_examples=200, deadline=None)
@given(policies, moments)
def test_the_same_past_gives_the_same_decisions(policy, days) -> None:
    assert history(policy, days)[0].decisions == history(policy, days)[0].decisions


@settings(max_examples=200, deadline=None)
@given(policies, moments)
def test_a_time_out_on_the_npu_keeps_it_out_for_good(policy, days) -> None:
    driver, _ = history(policy, days)
    driver.step(None, Event(EventKind.TIMEOUT, HTP, "hung"))
    for after_s, board, happened in days:
        decision = driver.step(zones_at(driver.now_us + round(after_s * 1e6), board), *happened, after_s=after_s)
        assert decision.placement is None or decision.placement.plan is CPU
        assert not [action for action in decision.actions if action.plan is not CPU]


@settings(max_examples=200, deadline=None)
@given(policies, moments)
def test_no_plan_on_the_npu_takes_over_before_its_canary_passed(policy, days) -> None:
    """Answers come only for what was asked; canaries are never answered, so no NPU plan may ever be used."""

    def only_loads(action: Action) -> Event | None:
        return Event(EventKind.LOADED, action.plan) if action.kind == "load" else None

    unforged = [(s, b, [e for e in h if e.kind is not EventKind.CANARY_PASSED]) for s, b, h in days]
    _, seen = history(policy, unforged, only_loads)
    assert all(d.placement is None or d.placement.plan is CPU for _, _, d in seen)


@settings(deadline=None)
@given(st.floats(0.01, 1.0), st.integers(1, 400))
def test_admission_is_an_even_pattern_of_the_rate(rate, triggers) -> None:
    policy = board_policy(Scheduler(rates=(1.0, rate) if rate < 1.0 else (1.0,)))
    state = initial_state(policy)
    rung = next(r for r in policy.rungs if r.rate == rate)
    state = state._replace(held=state.held._replace(rung=rung))
    pattern = []
    for k in range(triggers):
        state, admitted = admit(state, START_US + k * 1000)
        pattern.append(admitted)
    assert pattern[0]
    for end in range(1, triggers + 1):  # never more than one trigger away from the exact share
        assert abs(sum(pattern[:end]) - rate * end) <= 1.0 + 1e-6


def test_groups_are_in_the_order_of_heat() -> None:
    assert tuple(GROUPS) == ("nsp", "cpu", "skin")

"""The scheduler by example: a ladder that is wrong for its board is found out, for most parts would stay refused."""

from __future__ import annotations

from boards import CPU, HTP, HYBRID, Driver, board_policy, settled, snapshot

from edge_app.config.scheduler import Scheduler, Trial
from edge_app.scheduler.heat import Cause, Level, allowance
from edge_app.scheduler.policy import Rung
from edge_app.scheduler.trial import NO_TRIAL, leeway, next_trial
from edge_app.scheduler.trial import Trial as Turn
from edge_app.verdict import PlanKind, PowerMode

S = 1_000_000
CONFIG = Trial(below=0.5, after_s=300, for_s=300, keep_s=3600)
PLANS = (HTP, HYBRID, CPU)


def on(plan: PlanKind, rate: float) -> Rung:
    return Rung(0, plan, PowerMode.BURST, rate, (0.0, 0.0, 0.0))


def play(rates: dict[PlanKind, float], seconds: int, usable=PLANS) -> list[tuple[int, PlanKind | None]]:
    """Which plan goes first, and when that changes, if each reaches such a rate; by the ladder's order htp runs."""
    turn, changes = NO_TRIAL, [(0, None)]
    for second in range(1, seconds):
        plan = turn.first or HTP
        turn = next_trial(CONFIG, turn, usable, on(plan, rates[plan]), second * S)
        if turn.first is not changes[-1][1]:
            changes.append((second, turn.first))
    return changes


def test_each_plan_has_its_turn_and_the_best_goes_first() -> None:
    rates = {HTP: 0.3, HYBRID: 0.4, CPU: 0.7}
    assert play(rates, 1200) == [(0, None), (301, HYBRID), (601, CPU)]
    assert play({HTP: 0.3, HYBRID: 0.55, CPU: 0.2}, 1200) == [(0, None), (301, HYBRID), (601, CPU), (901, HYBRID)]
    assert play(rates, 1200 + 3600)[3] == (4501, None), "after keep_s it is the ladder's turn again"


def test_where_no_plan_does_better_the_ladder_s_order_stays_and_is_left_alone_for_long() -> None:
    changes = play({HTP: 0.4, HYBRID: 0.4, CPU: 0.2}, 901 + 3600 + 302)
    assert changes == [(0, None), (301, HYBRID), (601, CPU), (901, None), (901 + 3600 + 300, HYBRID)]


def test_a_rate_that_is_low_for_a_moment_or_a_plan_that_is_out_is_no_reason() -> None:
    turn = next_trial(CONFIG, NO_TRIAL, PLANS, on(HTP, 0.3), 1 * S)
    assert turn == Turn(since_us=1 * S)
    assert next_trial(CONFIG, turn, PLANS, on(HTP, 0.55), 200 * S) == NO_TRIAL
    assert play({HTP: 0.3, CPU: 0.2}, 700, usable=(HTP, CPU)) == [(0, None), (301, CPU), (601, None)]
    assert play({HTP: 0.3}, 700, usable=(HTP,)) == [(0, None)]


def test_leeway_grows_with_the_turn_and_ends_where_a_zone_is_hot_or_unknown() -> None:
    turn = Turn(CPU, 100 * S, ((HTP, 0.3),))
    assert [leeway(CONFIG, turn, at_s * S) for at_s in (100, 250, 400, 9000)] == [1.0, 1.5, 2.0, 2.0]
    assert leeway(CONFIG, Turn(since_us=100 * S), 9000 * S) == 1.0
    policy = board_policy()
    warm = Level(0.45, 0.3, Cause.MEASURED, False, "nspss0")
    hot = Level(0.4, 0.1, Cause.MEASURED, True, "cpu0")
    lost = Level(0.6, 0.5, Cause.UNKNOWN, False, "nsp can't be read, and by the board's temperature may be hot")
    allowed = allowance(policy, (warm, hot, lost), (0.0, 0.0, 0.0), 2.0)
    assert [round(watts / peak, 6) for watts, peak in zip(allowed.same, policy.peak, strict=True)] == [0.9, 0.4, 0.6]
    assert [round(watts / peak, 6) for watts, peak in zip(allowed.more, policy.peak, strict=True)] == [0.3, 0.1, 0.5]


def test_a_trial_is_told_and_can_be_switched_off() -> None:
    driver = Driver(board_policy()).started()
    seen = set()
    for _ in range(80):
        driver.step(snapshot(driver.now_us + 15 * S, 94.5, 93.5, 40), after_s=15.0)
        seen.add((driver.decision.placement.plan, driver.decision.detail.partition("; ")[2]))
    assert (HTP, "plan htp is tried, since less than 50% of the parts were inspected") in seen
    blind = Driver(board_policy()).started()
    assert settled(blind, 94.5, None, 84.5, minutes=20).placement.rate < 0.5
    assert blind.state.held.trial == NO_TRIAL
    off = Driver(board_policy(Scheduler(trial=Trial(below=0)))).started()
    assert settled(off, 94.5, 93.5, 40, minutes=20).placement.plan is HYBRID
    assert off.state.held.trial == NO_TRIAL

"""Where a frame goes whose run did not end well."""

from __future__ import annotations

from edge_app.scheduler.faults import Phase
from edge_app.scheduler.fit import Fit
from edge_app.scheduler.policy import Policy
from edge_app.scheduler.state import State
from edge_app.verdict import Placement, PlanKind, SchedReason


def retry_plan(
    policy: Policy, state: State, tried: tuple[PlanKind, ...], time_left_us: int | None, now_us: int
) -> Placement | str:
    """The next plan for the same frame after a fault.

    Args:
        policy: see `build_policy`.
        state: the latest; the fault itself need not be in it yet.
        tried: plans that this frame was run on, in order; at least one.
        time_left_us: until its deadline; None: it has none.
        now_us: now.

    Returns:
        The placement, or why there is none: no plan left that is ready, agrees, and is fast enough.
    """
    fit = Fit(policy, state, now_us)
    refused: dict[PlanKind, str] = {}
    for rung in policy.rungs:
        plan = rung.plan
        if plan in tried or rung.rate < 1.0:
            continue
        if state.health[plan].phase is not Phase.READY:
            refused[plan] = f"{plan} is {state.health[plan].phase}"
        elif not policy.may_switch(tried[0], plan):
            refused[plan] = f"{plan} was not found to agree with {tried[0]} when the model was built"
        elif time_left_us is not None and fit.expected_us(rung.step) >= time_left_us:
            needed = fit.expected_us(rung.step) / 1000
            refused.setdefault(plan, f"{plan} takes {needed:.1f} ms, {max(time_left_us, 0) / 1000:.1f} ms are left")
        elif time_left_us is not None and time_left_us <= 0:
            refused[plan] = "the deadline is past"
        else:
            known = state.held.decision.placement
            return Placement(
                plan,
                rung.power_mode,
                1.0 if state.held.rung is None else state.held.rung.rate,
                SchedReason.FAULT,
                {} if known is None else known.zones_c,
            )
    return "; ".join(refused.values()) or "there is no other plan"

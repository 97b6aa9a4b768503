"""Why a rung was chosen: the closed list's word for machines, a sentence for people, alarms with remedies."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from edge_app.qnn_errors import explain_qnn
from edge_app.scheduler.faults import Health, Phase
from edge_app.scheduler.fit import Fit
from edge_app.scheduler.heat import Allowance, Cause, Levels
from edge_app.scheduler.policy import GROUPS, LEAST_SHARE, NPU_PLANS, Policy, Rung
from edge_app.scheduler.state import State
from edge_app.scheduler.words import Alarm, Decision, Inputs
from edge_app.verdict import Placement, PlanKind, SchedReason

Why = tuple[SchedReason, str]
ON_THE_WAY = (Phase.LOADING, Phase.UNPROVEN, Phase.TESTING)
OUT = (Phase.OPEN, Phase.BARRED)
THROTTLED = Alarm(
    "THROTTLED",
    "runs have become slower than their own baseline",
    "the chip throttles without saying so: check cooling and what else runs on the board",
)


class Picture(NamedTuple):
    """Everything a decision was made of."""

    policy: Policy
    state: State
    inputs: Inputs
    rung: Rung | None
    """What is decided."""
    levels: Levels
    allowed: Allowance
    fit: Fit
    drifted: tuple[bool, bool, bool]

    @property
    def home(self) -> Rung:
        """What would be decided on a cool and healthy board; of the plan that was asked for, where it is used."""
        operator = self.state.held.operator
        if self.rung is not None and self.rung.plan is operator:
            return next(rung for rung in self.policy.rungs if rung.plan is operator)
        return self.policy.rungs[0]


def explain(picture: Picture) -> Decision:
    """The decision with its reason, alarms and what is not as configured."""
    reason, detail = why(picture)
    detail += _asked_in_vain(picture)
    rung = picture.rung
    placement = None
    if rung is not None:
        zones_c = {} if picture.inputs.zones is None else picture.inputs.zones.temps_c
        placement = Placement(rung.plan, rung.power_mode, rung.rate, reason, zones_c)
    return Decision(placement, detail, (), alarms(picture), degraded(picture))


def why(picture: Picture) -> Why:
    """The reason for the decided rung."""
    rung, home, state = picture.rung, picture.home, picture.state
    if rung is None:
        return SchedReason.FAULT, f"no plan is left: {_no_plan(picture)}"
    if rung is home and rung.plan is state.held.operator:
        return SchedReason.OPERATOR, f"plan {rung.plan} was asked for by the operator"
    if rung is home:
        return SchedReason.NORMAL, f"plan {home.plan} in {home.power_mode}, nothing holds it back"
    if rung.plan is not home.plan and (out := _home_is_out(picture)) is not None:
        return out
    if (held := _held_back(picture)) is not None:
        return held[0], held[1] + _tried(picture)
    if rung.plan is not home.plan and not picture.policy.may_switch(rung.plan, home.plan):
        return SchedReason.CONFIGURED, f"{home.plan} was not found to agree with {rung.plan} when the model was built"
    return SchedReason.RECOVERING, f"plan {rung.plan} stays until its dwell time is over{_tried(picture)}"


def _tried(picture: Picture) -> str:
    """What a trial of plans has to do with it."""
    trial, rung = picture.state.held.trial, picture.rung
    if rung is None or trial.first is not rung.plan:
        return ""
    low = picture.policy.config.trial.below
    if trial.reached:
        return f"; plan {rung.plan} is tried, since less than {low:.0%} of the parts were inspected"
    return f"; plan {rung.plan} goes first, since it inspected more of the parts than others"


def _asked_in_vain(picture: Picture) -> str:
    """Why a plan that the operator asked for is not used."""
    asked, rung = picture.state.held.operator, picture.rung
    if asked is None or rung is None or rung.plan is asked:
        return ""
    health = picture.state.health.get(asked)
    if health is None:
        return f"; plan {asked} was asked for, but this model has none"
    if health.phase is not Phase.READY:
        return f"; plan {asked} was asked for, but is {health.phase}"
    return f"; plan {asked} was asked for, but was not found to agree with {rung.plan} when the model was built"


def _home_is_out(picture: Picture) -> Why | None:
    """Why the first plan of the ladder can't be used at all."""
    home = picture.home.plan
    health = picture.state.health[home]
    if health.phase is Phase.READY:
        return None
    if health.phase is Phase.BARRED:
        return SchedReason.NO_NPU, f"plan {home} is out for this process: {health.text}"
    if health.phase is Phase.OPEN:
        return SchedReason.FAULT, f"plan {home} failed: {health.text}"
    if picture.state.held.cold and health.phase in (Phase.OFFLINE, Phase.UNPROVEN):
        return SchedReason.COLD, f"plan {home} waits until the chip is {picture.policy.config.cold.until_c:g} C warm"
    return SchedReason.RECOVERING, f"plan {home} is {health.phase}"


def _held_back(picture: Picture) -> Why | None:
    """What keeps a healthy board from its first rung: latency or heat."""
    home = picture.home
    if any(picture.drifted) and (picture.drifted[0] or home.plan is PlanKind.CPU):
        return SchedReason.DRIFT, "runs have become slower than their own baseline: throttling that no zone shows"
    if not picture.fit.is_in_time(home.step):
        expected, budget = picture.fit.expected_us(home.step), picture.fit.budget_us or 0
        return SchedReason.CONFIGURED, f"{home.plan} would take {expected / 1000:.1f} ms of {budget / 1000:.1f} ms"
    if picture.fit.sustained_rate(home.step) < home.rate:
        return (
            SchedReason.CONFIGURED,
            f"a trigger every {picture.fit.interval_us / 1000:.1f} ms is more than {home.plan} runs",
        )
    if picture.allowed.fits(home.heat):
        return None
    overloads = picture.allowed.overloads(home.heat)
    g = overloads.index(max(overloads))
    level = picture.levels[g]
    if level.cause is Cause.UNKNOWN:
        return SchedReason.SENSOR_LOST, f"{GROUPS[g]} counts as hot: {level.zone}"
    word = SchedReason.HOT if level.hot else SchedReason.WARM
    return word, f"{GROUPS[g]} is {word.lower()}: zone {level.zone} may take {level.share:.0%} of its heat"


def _no_plan(picture: Picture) -> str:
    state, policy = picture.state, picture.policy
    parts = []
    for plan, health in state.health.items():
        if health.phase is not Phase.READY:
            parts.append(f"{plan} is {health.phase}" + (f" ({health.text})" if health.text else ""))
        elif state.held.rung is not None:
            parts.append(f"{plan} was not found to agree with {state.held.rung.plan} when the model was built")
    return "; ".join(parts) or f"none of {', '.join(policy.plans)}"


def degraded(picture: Picture) -> tuple[str, ...]:
    """What results list as not as configured."""
    words = []
    rung = picture.rung
    if rung is not None and rung.plan is not picture.policy.rungs[0].plan:
        words.append(f"{rung.plan}_fallback")
    if rung is not None and rung.rate < 1.0:
        words.append("rate_reduced")
    words += [f"{plan}_fault" for plan, health in picture.state.health.items() if _is_faulty(health)]
    if Cause.UNKNOWN in [level.cause for level in picture.levels]:
        words.append("sensor_lost")
    if any(picture.drifted):
        words.append("throttled")
    return tuple(words)


def alarms(picture: Picture) -> tuple[Alarm, ...]:
    """The alarms that stand now."""
    found = [_fault_alarm(plan, health) for plan, health in picture.state.health.items() if _is_faulty(health)]
    if picture.rung is None:
        found.append(
            Alarm("NO_PLAN", f"no plan is left: {_no_plan(picture)}", "every part is UNKNOWN; restart the service")
        )
    for g, level in enumerate(picture.levels):
        if level.cause is Cause.UNKNOWN:
            found.append(
                Alarm(
                    "SENSOR_LOST",
                    f"{GROUPS[g]} counts as hot: {level.zone}",
                    "run `edge_app doctor`; see scheduler.zones in the pipeline",
                )
            )
        elif level.share <= LEAST_SHARE:
            found.append(_overheat(level.zone))
    if any(picture.drifted):
        found.append(THROTTLED)
    if picture.rung is not None and picture.rung.rate < 1.0:
        found.append(_rate_reduced(picture.rung.rate))
    return _one_of_each(found) if len(found) > 1 else tuple(found)


@cache
def _overheat(zone: str) -> Alarm:
    remedy = "check fan, dust and the cabinet's temperature"
    return Alarm("OVERHEAT", f"zone {zone} is at its trip point or will be soon", remedy)


@cache
def _rate_reduced(rate: float) -> Alarm:
    remedy = "the others are UNKNOWN/OVERLOAD; see the reason in the results' sched"
    return Alarm("RATE_REDUCED", f"only {rate:.0%} of triggers are inspected", remedy)


def _one_of_each(alarms_found: list[Alarm]) -> tuple[Alarm, ...]:
    """Alarms are known by their names: two lost zones are one SENSOR_LOST that tells of both."""
    by_name: dict[str, Alarm] = {}
    for alarm in alarms_found:
        first = by_name.get(alarm.name)
        if first is not None:
            alarm = Alarm(alarm.name, f"{first.text}; {alarm.text}", first.remedy)
        by_name[alarm.name] = alarm
    return tuple(by_name.values())


def _is_faulty(health: Health) -> bool:
    return health.phase in OUT or (health.failures > 0 and health.phase in ON_THE_WAY)


def _fault_alarm(plan: PlanKind, health: Health) -> Alarm:
    name = "CPU_FAULT" if plan not in NPU_PLANS else "NPU_LOST" if health.phase is Phase.BARRED else "NPU_FAULT"
    known = explain_qnn(health.text)
    remedy = known.remedy if known is not None else "the line goes on with another plan; run `edge_app doctor`"
    return Alarm(name, f"plan {plan} is out: {health.text}", remedy)

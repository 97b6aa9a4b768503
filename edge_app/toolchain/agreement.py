"""Which plans of a model give the same verdicts: between those alone may a running line switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge_app.config.manifest import Agreement, Plan
from edge_app.toolchain.measure import Sample, contradict
from edge_app.toolchain.verify import Rung
from edge_app.verdict import PlanKind

ENOUGH_PARTS = 100
"""Without a disagreement on n parts, up to 3 / n of all parts may still get another verdict (at 95 %, the rule of
three): 3 % with 100. Agreements on fewer count, and are marked."""


def agreements_of(plan: Plan, rungs: Sequence[Rung], samples: Sequence[Sample], on: str) -> Iterator[Agreement]:
    """A measured plan beside the other plans of its SoC and the float model on the CPU, verdict by verdict.

    A rung that did not hold its gates agrees with nobody: it is told as a disagreement on no part.
    """
    own = next(rung for rung in rungs if (rung.plan, rung.soc) == (str(plan.plan), plan.soc))
    for other in rungs:
        if other.plan is None or other is own or other.soc not in (plan.soc, None):
            continue
        if not (own.ok and other.ok):
            failed = ", ".join(rung.name for rung in (own, other) if not rung.ok)
            disagreed: tuple[str, ...] = (f"{failed}: a gate was not held",)
        else:
            disagreed = tuple(
                f"{sample.name}: {mine}, {theirs} by {other.plan}"
                for sample, mine, theirs in zip(samples, own.verdicts, other.verdicts, strict=True)
                if contradict(mine, theirs)
            )
        yield Agreement(plan=PlanKind(other.plan), on=on, parts=len(samples), disagreed=disagreed)


def with_agreements(plan: Plan, new: Sequence[Agreement]) -> Plan:
    """The plan with new agreements in place of those with the same plan on the same pictures.

    It agrees with the plans with which it was compared and never differed.
    """
    replaced = {(one.plan, one.on) for one in new}
    kept = [old for old in plan.agreements if (old.plan, old.on) not in replaced]
    together = (*kept, *new)
    differing = {one.plan for one in together if one.disagreed}
    agreeing = sorted({one.plan for one in together} - differing)
    return plan.model_copy(update={"agreements": together, "agrees_with": tuple(agreeing)})


def enough(agreement: Agreement) -> bool:
    """Whether it rests on enough parts to speak for those of a line."""
    return agreement.parts >= ENOUGH_PARTS

"""Plans of a model as tables that fit 100 columns: what the compiler made of them, how they were verified."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from edge_app.commands.report import WIDTH_IN_PIPES, print_table
from edge_app.config.manifest import Plan, Verified

MADE = ("plan", "MB", "parts", "cross", "kB", "M cycles", "float", "fused", "M MACs 8/16")
VERIFIED = ("plan", "on", "parts", "cosine", "plan / float", "loss, 95 %", "flips", "held")
AGREED = ("plan", "with", "on", "parts", "differ")
LISTED = 6


def show_plans(title: str, folder: Path, plans: Sequence[Plan]) -> None:
    """Size, NPU parts, tensors and kB that cross a frame, cycles, ops in float; those are named below the table."""
    print_table(title, MADE, [_made(folder, plan) for plan in plans])
    for plan in plans:
        named = plan.report.float_ops if plan.report is not None else ()
        if named:
            more = f" and {len(named) - LISTED} more" if len(named) > LISTED else ""
            text = f"{plan.plan} {plan.soc}, in float on the NPU: {', '.join(named[:LISTED])}{more}"
            print(textwrap.fill(text, WIDTH_IN_PIPES, subsequent_indent="  ", break_on_hyphens=False))


def _made(folder: Path, plan: Plan) -> tuple[object, ...]:
    file = folder / plan.artifacts[0].file
    name, size = f"{plan.plan} {plan.soc}", f"{file.stat().st_size / 1e6:.1f}" if file.is_file() else "not made"
    r = plan.report
    if r is None:
        return (name, size, *(None,) * (len(MADE) - 2))
    return (
        name,
        size,
        r.segments,
        r.crossings,
        f"{r.crossing_bytes / 1e3:.0f}",
        None if r.simulated_cycles is None else f"{r.simulated_cycles / 1e6:.0f}",
        len(r.float_ops) or "none",
        ", ".join(f"{count} {kind}" for kind, count in r.fused_ops.items()) or "none",
        f"{r.macs_a8 / 1e6:.4g} / {r.macs_a16 / 1e6:.4g}",
    )


def show_verified(plans: Sequence[Plan]) -> None:
    """Each plan beside the float model, a table per metric; and which plans give the same verdicts."""
    entries = [(plan, verified) for plan in plans for verified in plan.verified]
    for metric in dict.fromkeys(_metric(verified) for _, verified in entries):
        rows = [_verified(plan, one, metric) for plan, one in entries if _metric(one) == metric]
        print_table(f"Verified: {metric}", VERIFIED, rows)
    agreed = [
        (f"{plan.plan} {plan.soc}", one.plan, one.on, one.parts, len(one.disagreed) or "none")
        for plan in plans
        for one in plan.agreements
    ]
    if agreed:
        print_table("Verdicts of plans beside one another", AGREED, agreed)


def _verified(plan: Plan, verified: Verified, metric: str) -> tuple[object, ...]:
    own, of_float = (values.get(metric) for values in (verified.metrics, verified.float_metrics))
    return (
        f"{plan.plan} {plan.soc}",
        verified.on + ("" if verified.simulated else ", board"),
        verified.images,
        f"{verified.cosine_min:.4f}",
        f"{own} / {of_float}",
        verified.loss_95 and "{:+.1f}..{:+.1f}".format(*(100 * edge for edge in verified.loss_95)),
        len(verified.verdicts_flipped) or "none",
        "yes" if verified.ok else "NO",
    )


def _metric(verified: Verified) -> str:
    return next(iter(verified.metrics), "")

"""Look at this machine as a node would: libraries, NPU, permissions, thermal zones; and what to do about each finding.

`--pipeline FILE --record` loads, proves and times every plan of its model here, and notes that in the model's table
(`edge_app model show`). `--pipeline FILE --allow-npu` takes away the note that keeps the NPU out of a pipeline since a
run that never returned.

Exit code 0: nothing is broken (notes and warnings may be there). 1: something is; see the lines marked `fail`.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from edge_app.app import recipe_name
from edge_app.clock import monotonic_us
from edge_app.commands.report import add_json_argument, print_json
from edge_app.config.load import load_pipeline
from edge_app.config.pipeline import Pipeline
from edge_app.config.scheduler import Scheduler
from edge_app.errors import ConfigError, EdgeAppError, ExitCode
from edge_app.health import (
    Finding,
    Grade,
    ZoneReport,
    cooling_findings,
    dsp_findings,
    dsp_nodes,
    installed_libraries,
    library_findings,
    machine_findings,
    nameless_findings,
    npu_out_findings,
    provider_findings,
    soc_findings,
    transport_findings,
    transport_library,
    zone_findings,
)
from edge_app.npu_out import note_file, remove_note, standing_note
from edge_app.qnn_errors import QNN_ERRORS, explain_qnn
from edge_app.scheduler import build_policy, group_of
from edge_app.thermal import SYSFS, ZoneReader, cooling_devices, find_zones, nameless_zones, thermal_root
from edge_app.verdict import PlanKind
from edge_app.zones import ZoneGroup

COLORS = {Grade.OK: "green", Grade.NOTE: "cyan", Grade.WARN: "yellow", Grade.FAIL: "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--pipeline", metavar="FILE", type=Path, help="go by its `scheduler:` and `runtime:`")
    parser.add_argument(
        "--sysfs-root", metavar="DIR", type=Path, help="a recorded tree instead of the pipeline's, or /sys"
    )
    parser.add_argument(
        "--allow-npu", action="store_true", help="let the pipeline's next start use the NPU, though a run hung on it"
    )
    parser.add_argument(
        "--record", action="store_true", help="try the pipeline's plans here, and note it in the model's manifest"
    )
    parser.add_argument("--explain", metavar="TEXT", help="only tell what a QNN error (text or number) means")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Looks at everything; CHECK_FAILED if anything is broken."""
    if args.explain is not None:
        return explain_error(args.explain, args.json)
    pipeline = None if args.pipeline is None else load_pipeline(args.pipeline)
    scheduler = Scheduler() if pipeline is None else pipeline.scheduler
    simulator, devices, error = ask_provider()
    nodes = dsp_nodes()
    on_npu = bool(nodes)
    root = thermal_root(args.sysfs_root or scheduler.sysfs_root, "--sysfs-root" if args.sysfs_root else "sysfs_root")
    zones = zone_reports(root, scheduler)
    rules = {
        ZoneGroup.NSP: scheduler.zones.nsp,
        ZoneGroup.CPU: scheduler.zones.cpu,
        ZoneGroup.SKIN: scheduler.zones.skin,
    }
    watched = on_npu or root != SYSFS or scheduler.thermal == "always"
    findings = [
        *machine_findings(root),
        *library_findings(installed_libraries()),
        *dsp_findings(root, nodes, simulator),
        *(transport_findings(transport_library()) if on_npu else ()),
        *(() if pipeline is None else soc_findings(pipeline.runtime.provider, pipeline.runtime.soc, on_npu, root)),
        *note_findings(pipeline, args),
        *provider_findings(devices, error, on_npu, simulator),
        *nameless_findings(nameless_zones(root), watched),
        *zone_findings(zones, {group: rule.required for group, rule in rules.items()}, watched),
        *cooling_findings(cooling_devices(root), on_npu),
    ]
    findings += record_findings(pipeline, findings, args.record)
    ok = not any(finding.grade is Grade.FAIL for finding in findings)
    if args.json:
        print_json(
            {
                "ok": ok,
                "npu": on_npu,
                "simulator": simulator,
                "devices": devices or [],
                "zones": [as_json(report) for report in zones],
                "findings": [asdict(f) for f in findings],
            }
        )
    else:
        print_findings(findings)
    return int(ExitCode.OK if ok else ExitCode.CHECK_FAILED)


def note_findings(pipeline: Pipeline | None, args: argparse.Namespace) -> list[Finding]:
    """Whether the pipeline's next start keeps the NPU out. Raises ConfigError if the note can't be taken away."""
    if pipeline is None:
        if args.allow_npu:
            raise ConfigError("which pipeline may use the NPU?", where="--allow-npu", wanted="--pipeline FILE too")
        return []
    file = note_file(pipeline, recipe_name(args.pipeline))
    removed = args.allow_npu and remove_note(file)
    return npu_out_findings(standing_note(file), file, removed, args.allow_npu)


def record_findings(pipeline: Pipeline | None, findings: list[Finding], record: bool) -> list[Finding]:
    """What `--record` noted. Raises ConfigError: of which model?"""
    if not record:
        return []
    if pipeline is None:
        raise ConfigError("of which model?", where="--record", wanted="--pipeline FILE too")
    from edge_app.commands.doctor_record import record_plans

    libraries = (f"{name} {release}" for name, release in installed_libraries().items() if release is not None)
    return record_plans(pipeline, findings, ", ".join(libraries))


def ask_provider() -> tuple[bool, list[str] | None, str | None]:
    """Whether this machine has the simulator, the names of onnxruntime-qnn's devices, and why they can't be had."""
    try:
        from edge_app.runtime import qnn

        return qnn.is_simulator(), [device_name(d) for d in qnn.devices()], None
    except (ImportError, EdgeAppError) as error:
        return False, None, error.text() if isinstance(error, EdgeAppError) else str(error)


def device_name(device: Any) -> str:
    """A device as a person would name it: vendor and type of the hardware behind it."""
    hardware = device.device
    return f"{hardware.vendor or device.ep_vendor} {str(hardware.type).rpartition('.')[2]}".strip()


def zone_reports(root: Path, scheduler: Scheduler) -> list[ZoneReport]:
    """Every zone of the pipeline's groups with its reading and limits."""
    files = find_zones(root, partial(group_of, scheduler))
    policy = build_policy(scheduler, list(PlanKind), (), [file.zone for file in files])
    snapshot = ZoneReader(files, scheduler.frozen_s).read(monotonic_us())
    return [
        ZoneReport(file.zone, reading, (limits := policy.limits[file.zone.name]).warm_c, limits.hot_c, limits.trip_c)
        for file, reading in zip(files, snapshot.readings, strict=True)
    ]


def as_json(report: ZoneReport) -> dict[str, Any]:
    """Stable keys of one zone."""
    return {
        "name": report.zone.name, "type": report.zone.type, "group": report.zone.group,
        "state": report.reading.state, "temp_c": report.reading.temp_c, "note": report.reading.note,
        "warm_c": report.warm_c, "hot_c": report.hot_c, "trip_c": report.trip_c,
        "trips": [asdict(trip) for trip in report.zone.trips],
    }  # fmt: skip


def print_findings(findings: list[Finding]) -> None:
    """One line a finding, and what to do below it."""
    console = Console(highlight=False)
    for finding in findings:
        mark = f"[{COLORS[finding.grade]}]{finding.grade:<5}[/]"
        console.print(f"{mark} {finding.check:<10} {escape(finding.text)}", soft_wrap=True)
        if finding.remedy is not None:
            console.print(f"      {'':<10} -> {escape(finding.remedy)}", soft_wrap=True, style="dim")


def explain_error(text: str, json: bool) -> int:
    """Tells what an error means; CHECK_FAILED if it is not known."""
    code = re.fullmatch(r"\s*(?:(\d+)|(0x[0-9a-f]+))\s*", text, re.ASCII | re.IGNORECASE)
    if code is not None:
        text = f"error code: {int(code[1]) if code[1] else int(code[2], 16)}"
    known = explain_qnn(text)
    if json:
        print_json({"known": known is not None, **(asdict(known) if known is not None else {})})
    elif known is None:
        names = ", ".join(e.name if e.code is None else f"{e.name} ({e.code})" for e in QNN_ERRORS)
        print(f"not known: {text}\n  do: give the whole message, or its number; known are {names}")
    else:
        number = "" if known.code is None else f" ({known.code})"
        print(f"{known.name}{number}: {known.meaning}\n  do: {known.remedy}")
    return int(ExitCode.OK if known is not None else ExitCode.CHECK_FAILED)

"""`edge_app model show`, `list`, `record` and `socs`."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from edge_app.commands.plan_tables import show_plans, show_verified
from edge_app.commands.report import print_json, print_table
from edge_app.config.load import load_manifest
from edge_app.config.manifest import BoardRecord, Manifest
from edge_app.config.save import add_board
from edge_app.errors import ConfigError, EdgeAppError, ExitCode
from edge_app.model import model_folder
from edge_app.runtime import qnn
from edge_app.toolchain.compile import plain
from edge_app.toolchain.socs import SOCS, soc_named
from edge_app.verdict import PlanKind


def run_show(args: argparse.Namespace) -> int:
    """Everything about a model in a few tables."""
    folder = model_folder(args.name)
    manifest = load_manifest(folder)
    if args.json:
        print_json(manifest.model_dump(mode="json"))
        return int(ExitCode.OK)
    print_table(f"{manifest.name} {manifest.version}", ("", ""), _facts(manifest))
    npu = [plan for plan in manifest.plans if plan.soc]
    if npu:
        show_plans("Plans", folder, npu)
        show_verified(npu)
    if manifest.boards:
        print_table(
            "Seen on boards",
            ("board", "plan", "loads", "ms", "firmware", "versions", "date", "note"),
            [
                (
                    b.board,
                    f"{b.plan} {b.soc}",
                    "yes" if b.loads else "NO",
                    b.latency_ms,
                    b.firmware,
                    b.versions,
                    b.date,
                    b.note,
                )
                for b in manifest.boards
            ],
        )
    return int(ExitCode.OK)


def _facts(manifest: Manifest) -> list[tuple[str, object]]:
    image, q = manifest.input, manifest.quantized
    facts: list[tuple[str, object]] = [
        ("task", manifest.task),
        ("labels", ", ".join(manifest.labels[:12])),
        ("head", manifest.head.kind),
        ("input", f"{image.width} x {image.height} {image.color} {image.layout} {image.dtype}, {image.fit}"),
    ]
    if q is not None:
        facts += [
            ("quantised", f"{q.activations}, {q.style}, {len(q.raised)} layers raised, head {q.head.kind}"),
            ("calibrated", f"{q.calibration.pictures} pictures, {q.calibration.method}, {q.calibration.sha256[:12]}"),
        ]
    facts += [
        (f"measured ({m.runtime})", f"{m.on}: " + ", ".join(f"{k} {v}" for k, v in m.metrics.items()))
        for m in manifest.measured
    ]
    return facts


def run_list(args: argparse.Namespace) -> int:
    """All model folders; one that can't be read is said so."""
    if not args.models.is_dir():
        raise ConfigError(
            "no such folder of models",
            where=str(args.models),
            remedy="run it in the project's folder, or give --models",
        )
    models: list[dict[str, Any]] = []
    for file in sorted([*args.models.glob("*/manifest.yaml"), *args.models.glob("*/*x*/manifest.yaml")]):
        try:
            manifest = load_manifest(file.parent)
            socs = sorted({plan.soc for plan in manifest.plans if plan.soc})
            models.append(
                {
                    "name": manifest.name,
                    "task": manifest.task,
                    "head": manifest.head.kind,
                    "socs": socs,
                    "quantized": manifest.quantized is not None,
                    "error": None,
                }
            )
        except EdgeAppError as error:
            models.append(
                {
                    "name": str(file.parent.relative_to(args.models)),
                    "task": None,
                    "head": None,
                    "socs": [],
                    "quantized": False,
                    "error": error.what,
                }
            )
    broken = [model for model in models if model["error"]]
    if args.json:
        print_json({"ok": not broken, "models": models})
    else:
        print_table(
            f"Models in {args.models}",
            ("name", "task", "head", "quantised", "SoCs", "error"),
            [
                (m["name"], m["task"], m["head"], "yes" if m["quantized"] else "no", ", ".join(m["socs"]), m["error"])
                for m in models
            ],
        )
    return int(ExitCode.CHECK_FAILED if broken else ExitCode.OK)


def run_record(args: argparse.Namespace) -> int:
    """Appends to the compatibility table."""
    folder = model_folder(args.name)
    manifest = load_manifest(folder)
    versions = args.versions or ", ".join(f"{name} {version}" for name, version in qnn.versions().items())
    record = BoardRecord(
        board=args.board,
        soc=soc_named(args.soc).name,
        plan=PlanKind(args.plan),
        loads=args.loads == "yes",
        date=_date(args.date),
        firmware=args.firmware,
        driver=args.driver,
        versions=versions,
        latency_ms=args.latency_ms,
        note=args.note,
    )
    add_board(folder, record)
    if args.json:
        print_json({"model": manifest.name, "record": record.model_dump(mode="json")})
    else:
        print_table(f"Recorded for {manifest.name}", ("", ""), list(plain(record).items()))
    return int(ExitCode.OK)


def _date(text: str | None) -> str:
    try:
        return (datetime.date.today() if text is None else datetime.date.fromisoformat(text)).isoformat()
    except ValueError as error:
        raise ConfigError("not a date", where=f"--date {text}", wanted="YYYY-MM-DD", got=str(text)) from error


def run_socs(args: argparse.Namespace) -> int:
    """The SoC table."""
    if args.json:
        print_json(
            {
                "socs": [
                    {
                        "name": s.name,
                        "soc_model": s.soc_model,
                        "htp_arch": s.htp_arch,
                        "vtcm_mb": s.vtcm_mb,
                        "float": s.float_support,
                        "source": s.source,
                    }
                    for s in SOCS.values()
                ]
            }
        )
    else:
        print_table(
            "SoCs ([E], [L]: see edge_app/toolchain/socs.py)",
            ("name", "number", "HTP", "VTCM, MB", "float", "chip", "source"),
            [
                (s.name, s.soc_model, f"v{s.htp_arch}", s.vtcm_mb, s.float_support, s.marketing, s.source)
                for s in SOCS.values()
            ],
        )
    return int(ExitCode.OK)

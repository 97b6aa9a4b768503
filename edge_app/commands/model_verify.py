"""`edge_app model verify`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_app.commands.model_make import bars, plan_kinds, say
from edge_app.commands.report import print_json, print_table
from edge_app.config.load import load_manifest, read_yaml
from edge_app.config.manifest import Manifest, Plan
from edge_app.errors import ConfigError, ExitCode, ModelError
from edge_app.model import model_folder
from edge_app.runtime.qnn import is_simulator
from edge_app.toolchain import agreement, compile, drift, graph, measure, remake, verify
from edge_app.toolchain.dataset import pictures_in, read_dataset, spread
from edge_app.toolchain.golden import golden_samples
from edge_app.toolchain.measure import Sample, Side
from edge_app.toolchain.quantize import prepare
from edge_app.toolchain.socs import soc_named, socs_named

DRIFT_PICTURES = 2


def run_verify(args: argparse.Namespace) -> int:
    """Climbs the ladder; exit 1 if a gate did not hold or something was not measured."""
    folder = model_folder(args.name)
    card = measure.read_card(folder)
    manifest = load_manifest(folder)
    samples, on = _samples(args, manifest)
    plans = _plans(manifest, args)
    gates = verify.Gates(args.cosine, args.loss)
    with bars() as progress:
        ladder = verify.Ladder(folder, card, manifest, samples, gates, args.cache or _cache(manifest.name), progress)
        rungs = ladder.climb(plans)
    for rung in rungs:
        if args.drift or not rung.ok:
            rung.drift = _drift(folder, manifest, ladder.side, rung, samples[:DRIFT_PICTURES])
    ok = all(rung.ok for rung in rungs)
    if args.write:
        _write(folder, manifest, rungs, samples, on)
    document = {
        "ok": ok, "model": manifest.name, "on": on, "images": len(samples), "simulated": is_simulator(),
        "gates": {"cosine": gates.cosine, "loss": gates.loss}, "rungs": [rung.document() for rung in rungs],
        "agreements": _agreements(plans, rungs, samples, on),
    }  # fmt: skip
    if args.json:
        print_json(document)
    else:
        _show(document)
    return int(ExitCode.OK if ok else ExitCode.CHECK_FAILED)


def _plans(manifest: Manifest, args: argparse.Namespace) -> list[Plan]:
    kinds = plan_kinds(args.plans)
    wanted = None if args.soc is None else {soc.name for soc in socs_named(args.soc)}
    plans = [p for p in manifest.plans if p.soc and p.plan in kinds and (wanted is None or p.soc in wanted)]
    lacking = sorted((wanted or set()) - {p.soc for p in plans})
    if not plans or lacking:
        raise ModelError(
            f"{manifest.name} has no plan to verify" + (f" for {', '.join(lacking)}" if lacking else ""),
            remedy=f"edge_app model compile {manifest.name}" + (f" --soc {','.join(lacking)}" if lacking else ""),
        )
    return plans


def _samples(args: argparse.Namespace, manifest: Manifest) -> tuple[list[Sample], str]:
    """The pictures, and what they are called."""
    if args.data is None:
        return golden_samples(manifest, args.limit)
    if not args.data.exists():
        raise ConfigError(
            "no such data set",
            where=f"--data {args.data}",
            wanted="a folder with data.yaml, or of pictures",
            got="nothing there",
        )
    if args.data.is_dir() and not (args.data / "data.yaml").is_file():
        files = spread(pictures_in(args.data), args.limit)
        classes = manifest.labels if manifest.task == "classify" else ()
        samples = measure.in_folders(files, classes)
        return samples, args.data.name + " (no labels)" * (samples[0].label is None)
    split = args.split or _default_split(args.data)
    dataset = read_dataset(args.data, split)
    return measure.labelled(dataset, manifest.labels, args.limit), f"{dataset.root.resolve().name} {split}"


def _default_split(data: Path) -> str:
    keys = read_yaml(data / "data.yaml" if data.is_dir() else data).data
    return "test" if "test" in keys else "val"


def _cache(name: str) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "edge_app" / "verify" / name


def _drift(folder: Path, manifest: Manifest, side: Side, rung: verify.Rung, samples: Sequence[Sample]) -> str | None:
    """Where this rung's error begins; the float rung has none."""
    if rung.name == "float" or rung.images == 0:
        return None
    say(f"{rung.name}: looking for the layer where the drift starts")
    file = folder / manifest.float_model.file
    cut = manifest.quantized is not None and manifest.quantized.head.kind == "yolov8_cut"
    prepared = prepare(graph.load(file), manifest.head, manifest.input, str(file), cut=cut)
    qdq = compile.with_shapes(remake.quantized_of(folder, manifest)[0])
    float_side = Side(manifest.input, manifest.head, tuple(manifest.outputs))
    soc = None if rung.soc is None else soc_named(rung.soc)
    layers = drift.drift_by_layer(prepared.model, qdq, side, float_side, samples, soc)
    start = drift.drift_start(layers)
    worst = min(layers, key=lambda layer: layer.cosine)
    return start or f"nowhere steeply; lowest at {worst.layer} (cosine {worst.cosine:.4f})"


def _agreements(
    plans: Sequence[Plan], rungs: Sequence[verify.Rung], samples: Sequence[Sample], on: str
) -> list[dict[str, Any]]:
    """For --json: each plan beside the others, and whether that was enough parts."""
    return [
        {
            "soc": plan.soc, "plan": str(plan.plan), "with": str(one.plan), "parts": one.parts,
            "enough_parts": agreement.enough(one), "disagreed": list(one.disagreed),
        }
        for plan in plans
        for one in agreement.agreements_of(plan, rungs, samples, on)
    ]  # fmt: skip


def _write(folder: Path, manifest: Manifest, rungs: Sequence[verify.Rung], samples: Sequence[Sample], on: str) -> None:
    """Puts the rungs into the plans, and notes which plans agree in every verdict."""
    float_value = next(rung.value or 0.0 for rung in rungs if rung.name == "float")
    by_plan = {(rung.plan, rung.soc): rung for rung in rungs}
    changed = []
    for plan in manifest.plans:
        rung = by_plan.get((str(plan.plan), plan.soc)) if plan.soc else None
        if rung is None:
            continue
        kept = tuple(old for old in plan.verified if old.on != on)
        entry = verify.verified(rung, float_value, on, is_simulator())
        agreed = tuple(agreement.agreements_of(plan, rungs, samples, on))
        changed.append(agreement.with_agreements(plan.model_copy(update={"verified": (*kept, entry)}), agreed))
    compile.record_plans(folder, changed)


def _show(document: dict[str, Any]) -> None:
    rows = [
        (
            r["rung"], "yes" if r["ok"] else "NO", r["images"], r["cosine"], r["max_error"], r["value"],
            None if r["loss"] is None else f"{100 * r['loss']:+.2f}",
            None if r["loss_low"] is None else f"{100 * r['loss_low']:+.1f}..{100 * r['loss_high']:+.1f}",
            len(r["verdicts_flipped"]),
        )
        for r in document["rungs"]
    ]  # fmt: skip
    metric = next((r["metric"] for r in document["rungs"] if r["metric"]), "metric")
    where = "simulated HTP, " if document["simulated"] else ""
    title = f"{document['model']} on {document['on']} ({where}loss in points)"
    print_table(title, ("rung", "held", "images", "cosine", "max error", metric, "loss", "95 %", "flipped"), rows)
    for rung in document["rungs"]:
        for text in (*rung["problems"], *rung["verdicts_flipped"]):
            say(f"{rung['rung']}: {text}")
        if rung["drift_starts_at"]:
            say(f"{rung['rung']}: drift starts at {rung['drift_starts_at']}")
    for one in document["agreements"]:
        pair = f"{one['plan']} and {one['with']} on {one['soc']}"
        for text in one["disagreed"]:
            say(f"{pair} differ: {text}; a line will not switch between them")
    if document["images"] < agreement.ENOUGH_PARTS:
        say(
            f"agreement of plans rests on {document['images']} parts: too few to speak for a line"
            f" ({agreement.ENOUGH_PARTS} or more do)"
        )

"""`edge_app model import`, `quantize` and `compile`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from edge_app.commands.plan_tables import show_plans
from edge_app.commands.report import check_plot, people, print_json, print_table, save_plot
from edge_app.config.load import load_manifest
from edge_app.config.manifest import NAME, Manifest, Plan, manifest_path
from edge_app.errors import ConfigError, ExitCode, ModelError
from edge_app.listing import read_lines
from edge_app.model import model_folder
from edge_app.toolchain import (
    calibration,
    compile,
    described,
    hostnodes,
    htp,
    import_,
    measure,
    opsupport,
    plots,
    quantize_model,
    remake,
)
from edge_app.toolchain.dataset import read_dataset
from edge_app.toolchain.quantize import Activations, Recipe, Style
from edge_app.toolchain.socs import SHIPPED, Soc, socs_named
from edge_app.verdict import PlanKind


@contextmanager
def bars() -> Iterator[quantize_model.Progress]:
    """Progress bars on stderr; on no terminal they say nothing."""
    console = people()
    with Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:

        def opened(name: str) -> measure.Step:
            task: TaskID = progress.add_task(name, total=None)

            def step(done: int, of: int) -> None:
                progress.update(task, completed=done, total=of, visible=done < of)

            return step

        yield opened


def say(text: str) -> None:
    """A line for people."""
    people().print(text)


def run_import(args: argparse.Namespace) -> int:
    """Makes a model folder; of several sizes, a folder of them."""
    if not re.fullmatch(NAME, args.name):
        raise ConfigError("not a name for a model", where="--name", got=ascii(args.name),
                          wanted="a-z, 0-9, - and _, and neither of these two at its beginning")  # fmt: skip
    sizes = [None] if args.size is None else [_size(text) for text in args.size.split(",")]
    if len(sizes) == 1:
        document = _import_one(args, _given(args, args.name, sizes[0]), args.models / args.name)
    else:
        folder = args.models / args.name
        if manifest_path(folder).is_file():
            raise ModelError("there is a model of this name already, of one size", where=str(folder))
        names = [f"{size[0]}x{size[1]}" for size in sizes if size is not None]
        members = [
            _import_one(args, _given(args, f"{args.name}-{name}", size), folder / name)
            for name, size in zip(names, sizes, strict=True)
        ]
        document = {"model": args.name, "folder": str(folder), "sizes": members}
    if args.json:
        print_json(document)
    return int(ExitCode.OK)


def _given(args: argparse.Namespace, name: str, size: tuple[int, int] | None) -> described.Given:
    return described.Given(
        name=name,
        task=args.task,
        labels=None if args.labels is None else tuple(read_lines(args.labels, "the labels")),
        head=args.head,
        size=size,
        color=args.color,
        fit=args.fit,
        method=args.method,
        pad_value=args.pad_value,
        shorter_side=args.shorter_side,
        scale=args.scale,
        mean=None if args.mean is None else tuple(args.mean),
        std=None if args.std is None else tuple(args.std),
    )


def _import_one(args: argparse.Namespace, given: described.Given, folder: Path) -> dict[str, Any]:
    """Imports at one size; its document, and without --json the tables."""
    socs = socs_named(args.soc or ",".join(SHIPPED))
    imported = import_.import_model(import_.read_source(args.file, given.size), given, str(args.file))
    ops: list[opsupport.OpSupport] = []
    if not args.no_ops:
        with bars() as progress:
            ops = opsupport.op_support(
                imported.model, imported.head, imported.image, socs, progress("asking the compiler")
            )
    import_.write_folder(imported, given, folder, args.file)
    if not args.json:
        _show_imported(imported, folder, ops, socs)
    return {
        "model": given.name,
        "folder": str(folder),
        "head": imported.head.kind,
        "input": imported.image.model_dump(mode="json"),
        "labels": list(imported.labels),
        "fixed": imported.fixes,
        "notes": imported.notes,
        "metadata": imported.metadata,
        "ops": [op.document() for op in ops],
    }


def _show_imported(
    imported: import_.Imported, folder: Path, ops: Sequence[opsupport.OpSupport], socs: Sequence[Soc]
) -> None:
    more = len(imported.labels) - 12
    print_table(
        str(folder),
        ("", ""),
        [
            ("head", imported.head.kind),
            ("input", f"{imported.image.width} x {imported.image.height} {imported.image.layout}"),
            ("labels", ", ".join(imported.labels[:12]) + (f" and {more} more" if more > 0 else "")),
            *(("fixed", fix) for fix in imported.fixes),
            *(("note", note) for note in imported.notes),
        ],
    )
    if ops:
        print_table(
            "Ops on the HTP (asked of the compiler, node by node)",
            ("op", "nodes", *(s.name for s in socs)),
            [(op.op_type, op.count, *(op.words[s.name] for s in socs)) for op in ops],
        )


def run_quantize(args: argparse.Namespace) -> int:
    """Makes the QDQ model, or makes it again and compares."""
    folder = model_folder(args.name)
    if args.from_encodings:
        return _remake_quantized(folder, args.json)
    _check_quantize(args)
    manifest = load_manifest(folder)
    files = _calibration_files(args)
    chosen = calibration.examine(files, manifest.input)
    for warning in chosen.warnings:
        say(f"warning: {warning}")
    samples = _samples(args, manifest, files)
    with bars() as progress:
        options = _options(args, manifest, files)
        report = quantize_model.quantize_model(folder, chosen, options, samples, say, progress)
    if args.plot is not None:
        save_plot(plots.error_by_layer(report.errors), args.plot)
    document = _quantized_document(manifest.name, report)
    if args.json:
        print_json(document)
    else:
        _show_quantized(document, report)
    return int(ExitCode.CHECK_FAILED if report.within_target is False else ExitCode.OK)


def _check_quantize(args: argparse.Namespace) -> None:
    """What would fail only after minutes of work."""
    if args.activations == "mixed" and not args.raised and args.target_loss is None:
        raise ConfigError(
            "mixed needs to know which layers run at 16 bits",
            where="--activations mixed",
            wanted="--target-loss 0.5%, or --raise LAYER,LAYER",
            got="neither",
        )
    if args.raised and args.activations != "mixed":
        raise ConfigError("only mixed activations have layers at 16 bits", where="--raise",
                          wanted="--activations mixed as well", got=args.activations or "no --activations")  # fmt: skip
    if args.plot is None:
        return
    if args.target_loss is None:
        raise ConfigError("there is no error by layer to draw", where="--plot", wanted="--target-loss as well")
    check_plot(args.plot)


def _options(args: argparse.Namespace, manifest: Manifest, files: Sequence[Path]) -> quantize_model.Options:
    raised = tuple(filter(None, args.raised.split(",")))
    return quantize_model.Options(
        recipe=Recipe(args.activations or _default_activations(manifest, args), Style.parse(args.style), raised),
        method=args.method,
        recipe_folder=args.recipes / manifest.name,
        recipe_text=_recipe_text(args, files),
        target_loss=args.target_loss,
        rescue=args.rescue,
        cut=not args.no_cut,
    )


def _quantized_document(name: str, report: quantize_model.Report) -> dict[str, Any]:
    return {
        "model": name,
        "sha256": report.sha256,
        "warnings": report.warnings,
        "cosine": report.cosine,
        "metric": report.metric,
        "float": report.float_metric,
        "quantized": report.metric_value,
        "within_target": report.within_target,
        "raised": list(report.raised),
        "rescue": report.rescued,
        "cost_to_a8": report.cost_to_a8,
        "tries": report.tries,
        "layers": [{"layer": e.layer, "error": e.error, "mac_share": e.mac_share} for e in report.errors],
    }


def _default_activations(manifest: Manifest, args: argparse.Namespace) -> Activations:
    """Detectors need 16 bits unless their head is cut off, or layers are raised as needed; classifiers do not."""
    cut = manifest.head.kind == "yolov8" and not args.no_cut
    return "a8" if cut or manifest.task == "classify" or args.target_loss is not None else "a16"


def _remake_quantized(folder: Path, as_json: bool) -> int:
    made, bound = quantize_model.remake(folder)
    if as_json:
        print_json({"ok": made == bound, "made": made, "bound": bound})
    else:
        print_table(
            "QDQ model made again from the encodings",
            ("", ""),
            [
                ("made", made),
                ("manifest", bound),
                ("the same bytes", "yes" if made == bound else "NO"),
            ],
        )
    return int(ExitCode.OK if made == bound else ExitCode.CHECK_FAILED)


def _show_quantized(document: dict[str, Any], report: quantize_model.Report) -> None:
    keys = ("sha256", "cosine", "metric", "float", "quantized", "within_target", "rescue", "cost_to_a8")
    shown = {key: document[key] for key in keys if document[key] not in ("", None)}
    print_table(
        document["model"], ("", ""), [(key, round(v, 5) if isinstance(v, float) else v) for key, v in shown.items()]
    )
    worst = sorted(report.errors, key=lambda e: -e.error)[:12]
    if worst:
        print_table(
            "Layers that lose most at 8 bits",
            ("layer", "noise / signal", "share of MACs", "at 16 bits"),
            [
                (e.layer, f"{e.error:.5f}", f"{100 * e.mac_share:.1f} %", "yes" if e.layer in report.raised else "")
                for e in worst
            ],
        )


def run_compile(args: argparse.Namespace) -> int:
    """Makes plans, or makes them again and compares."""
    folder = model_folder(args.name)
    manifest = load_manifest(folder)
    socs = socs_named(args.soc or ",".join(sorted({p.soc for p in manifest.plans if p.soc})) or ",".join(SHIPPED))
    kinds = plan_kinds(args.plans)
    if args.check:
        return _check_plans(folder, manifest, socs, kinds, args.json)
    source, quantized = remake.quantized_of(folder, manifest)
    qdq = compile.with_shapes(source)
    host_ops = None if args.host_ops is None else [op for op in args.host_ops.split(",") if op]
    host_nodes = tuple(filter(None, (args.host_nodes or "").split(",")))
    wanted = compile.wanted_plans(manifest, qdq, socs, kinds, host_ops, host_nodes)
    if {one.kind for one in wanted} < set(kinds):
        say("no hybrid plan: no activation or norm of its own; --host-ops Gemm leaves the last layer to the CPU")
    kinds_on_host = next((one.host_ops for one in wanted if one.host_ops), ())
    if args.most_crossings is not None and kinds_on_host:
        with bars() as progress:
            host_nodes = hostnodes.most_sensitive(
                folder, qdq, kinds_on_host, args.most_crossings, args.pictures, progress("sensitivity of host nodes")
            )
        wanted = compile.wanted_plans(manifest, qdq, socs, kinds, host_ops, host_nodes)
    plans: list[Plan] = []
    with bars() as progress:
        step = progress("compiling")
        for done, one in enumerate(wanted, 1):
            plan = compile.make_plan(folder, quantized, source, qdq, one)
            _refuse_many_crossings(plan, args.most_crossings)
            plans.append(plan)
            step(done, len(wanted))
        if args.dlc is not None:
            for soc in socs:
                say(f"{soc.name}: {', '.join(htp.write_dlc(source, soc, args.dlc / soc.name))}")
    compile.record_compiled(folder, manifest.plans, plans)
    if args.json:
        print_json({"model": manifest.name, "plans": [plan.model_dump(mode="json") for plan in plans]})
    else:
        show_plans(f"Plans of {manifest.name}", folder, plans)
    return int(ExitCode.OK)


def plan_kinds(text: str) -> list[PlanKind]:
    """`htp,hybrid` as plan kinds."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not set(words) <= {"htp", "hybrid"}:
        raise ConfigError("unknown kind of plan", where=f"--plans {text}", wanted="htp, hybrid", got=text)
    return [PlanKind(word) for word in dict.fromkeys(words)]


def _check_plans(
    folder: Path, manifest: Manifest, socs: Sequence[Soc], kinds: Sequence[PlanKind], as_json: bool
) -> int:
    names = {soc.name for soc in socs}
    plans = [plan for plan in manifest.plans if plan.soc in names and plan.plan in kinds]
    if not plans:
        raise ModelError(
            "the manifest has no such plan to check", where=manifest.name, got=f"{kinds} for {sorted(names)}"
        )
    same = [(plan, remake.remake(folder, manifest, plan)) for plan in plans]
    ok = all(equal for _, equal in same)
    if as_json:
        print_json({"ok": ok, "plans": [{"plan": str(p.plan), "soc": p.soc, "same_bytes": equal} for p, equal in same]})
    else:
        print_table(
            "Made again", ("plan", "SoC", "the same bytes"), [(p.plan, p.soc, "yes" if e else "NO") for p, e in same]
        )
    return int(ExitCode.OK if ok else ExitCode.CHECK_FAILED)


def _refuse_many_crossings(plan: Plan, most: int | None) -> None:
    crossings = plan.report.crossings if plan.report is not None else 0
    if most is not None and crossings > most:
        raise ModelError(
            f"plan {plan.plan} for {plan.soc} crosses too often between NPU and CPU",
            wanted=f"at most {most}",
            got=str(crossings),
            remedy="leave fewer op kinds to the CPU: --host-ops",
        )


def _calibration_files(args: argparse.Namespace) -> list[Path]:
    if args.list_file is not None:
        return calibration.listed(args.list_file, args.calibration)
    return calibration.choose(args.calibration, args.count, args.seed)


def _recipe_text(args: argparse.Namespace, files: Sequence[Path]) -> dict[str, Any]:
    root = args.calibration.resolve()
    return {
        "source": args.calibration.name,
        "chosen": f"drawn by seed {args.seed}" if args.count is not None else "a list" if args.list_file else "all",
        "files": [
            file.resolve().relative_to(root).as_posix() if file.resolve().is_relative_to(root) else file.name
            for file in files
        ],
    }


def _samples(args: argparse.Namespace, manifest: Manifest, files: Sequence[Path]) -> list[measure.Sample]:
    """Pictures for the loss; none where no target was given."""
    if args.target_loss is None:
        return []
    if args.data is not None:
        return measure.labelled(read_dataset(args.data, args.split), manifest.labels, args.limit)
    return measure.samples_of(list(files)[: args.limit])


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise ConfigError("not a size", where=f"--size {text}", wanted="WIDTHxHEIGHT, e.g. 640x640", got=text)
    return int(width), int(height)

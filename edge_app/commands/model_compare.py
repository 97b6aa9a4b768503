"""`edge_app model compare`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from edge_app.commands.model_make import bars
from edge_app.commands.report import print_json, print_table
from edge_app.config.load import load_manifest
from edge_app.errors import ExitCode
from edge_app.model import model_folder
from edge_app.toolchain import calibration, measure
from edge_app.toolchain.compare import compare
from edge_app.toolchain.dataset import read_dataset
from edge_app.toolchain.socs import socs_named


def run_compare(args: argparse.Namespace) -> int:
    """Prints the recipes side by side."""
    folder = model_folder(args.name)
    manifest = load_manifest(folder)
    socs = socs_named(args.soc)
    files = (
        calibration.choose(args.calibration, None, 0)
        if args.list_file is None
        else calibration.listed(args.list_file, args.calibration)
    )
    samples = measure.labelled(read_dataset(args.data, args.split), manifest.labels, args.limit)
    with bars() as progress:
        rows = compare(folder, manifest, samples, files, socs, progress)
    if args.json:
        print_json({"model": manifest.name, "images": len(samples), "rows": [asdict(row) for row in rows]})
        return int(ExitCode.OK)
    columns = ("recipe", rows[0].metric, "loss, points", "MACs 8/16 bit, M", "cost to cut A8", "kB in and out")
    print_table(
        f"{manifest.name}, {len(samples)} pictures (metric: QDQ on the CPU; cycles: simulated HTP)",
        (*columns, *(f"M cycles {soc.name}" for soc in socs), *(f"transposes {soc.name}" for soc in socs)),
        [
            (
                row.recipe,
                f"{row.value:.4f}",
                f"{100 * row.loss:+.2f}",
                f"{row.macs.a8 / 1e6:.4g} / {row.macs.a16 / 1e6:.4g}",
                row.cost_to_cut_a8,
                f"{row.io_bytes / 1e3:.0f}",
                *(f"{row.cycles[s.name] / 1e6:.0f}" for s in socs),
                *(row.transposes[s.name] for s in socs),
            )
            for row in rows
        ],
    )
    return int(ExitCode.OK)

"""The shipped model beside what it has to beat: onnxruntime's default recipe, and the head cut at 8 and at 16 bits."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from edge_app.config.manifest import Manifest
from edge_app.config.tensor import InputSpec, OutputSpec
from edge_app.errors import ConfigError
from edge_app.model import check_digest
from edge_app.toolchain import audit, calibration, graph, htp, measure
from edge_app.toolchain.measure import Sample, Side
from edge_app.toolchain.quantize import Prepared, Recipe, Style, prepare, quantized
from edge_app.toolchain.quantize_model import integer_model
from edge_app.toolchain.remake import quantized_of
from edge_app.toolchain.socs import Soc

Progress = Callable[[str], measure.Step]
ROUNDS = 3
CYCLE_RUNS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One recipe of the same network."""

    recipe: str
    metric: str
    value: float
    loss: float
    macs: audit.Macs
    io_bytes: int
    cost_to_cut_a8: float
    """Static: MACs at 8 bits, with 16 bits counted twice and float four times."""
    transposes: dict[str, int]
    cycles: dict[str, int]
    """By SoC, of the simulated HTP, median."""


@dataclass(frozen=True, slots=True)
class _Version:
    name: str
    model: onnx.ModelProto
    side: Side


def compare(
    folder: Path,
    manifest: Manifest,
    samples: Sequence[Sample],
    files: Sequence[Path],
    socs: Sequence[Soc],
    progress: Progress,
) -> list[Row]:
    """Measures every recipe on the same pictures: the metric on the CPU's QDQ, cycles on the simulated HTP.

    Args:
        folder: of the model.
        manifest: of the model.
        samples: pictures for the metric.
        files: calibration pictures for the recipes that are only compared with.
        socs: on which cycles are counted.
        progress: opens a progress bar.
    """
    card = measure.read_card(folder)
    whole = measure.run_cpu(card.file, card.input, samples, progress("float"))
    float_found = measure.decoded(card, Side(card.input, card.head, tuple(manifest.outputs)), whole, samples)
    metric, float_value = measure.metric(card, float_found, float_found, samples)
    versions = _versions(folder, manifest, files, progress)
    base = audit.count_macs(graph.inferred(versions[1].model, "head-cut A8W8")).cost
    cycles = _cycles(
        [version.model for version in versions], [v.side.image for v in versions], samples[0], socs, progress
    )
    rows = []
    for number, version in enumerate(versions):
        outputs = measure.run_cpu(
            version.model.SerializeToString(), version.side.image, samples, progress(version.name)
        )
        found = measure.decoded(card, version.side, outputs, samples)
        _, value = measure.metric(card, found, float_found, samples)
        shaped = graph.inferred(version.model, version.name)
        macs = audit.count_macs(shaped)
        profiles = cycles[number]
        rows.append(Row(
            version.name, metric, value, float_value - value, macs, audit.io_bytes(shaped), round(macs.cost / base, 4),
            {soc: p[0].transposes for soc, p in profiles.items()},
            {soc: int(statistics.median(p.cycles for p in ps)) for soc, ps in profiles.items()},
        ))  # fmt: skip
    return rows


def _cycles(
    models: Sequence[onnx.ModelProto],
    images: Sequence[InputSpec],
    sample: Sample,
    socs: Sequence[Soc],
    progress: Progress,
) -> list[dict[str, list[audit.Profile]]]:
    """By model and SoC, a profile a round. The rounds interleave the models, so that a busy machine slows all alike."""
    found: list[dict[str, list[audit.Profile]]] = [{soc.name: [] for soc in socs} for _ in models]
    step = progress("cycles")
    for done in range(ROUNDS):
        for soc in socs:
            for number, model in enumerate(models):
                found[number][soc.name].append(_profile(model, images[number], sample, soc))
        step(done + 1, ROUNDS)
    return found


def _versions(folder: Path, manifest: Manifest, files: Sequence[Path], progress: Progress) -> list[_Version]:
    shipped_file, shipped = quantized_of(folder, manifest)
    if shipped.head.kind != "yolov8_cut":
        raise ConfigError("only a model whose head was cut off is compared with itself uncut", got=shipped.head.kind)
    source = graph.load(check_digest(folder, manifest.float_model))
    result = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        whole = prepare(source, manifest.head, manifest.input, manifest.name, cut=False)
        cut = prepare(source, manifest.head, manifest.input, manifest.name)
        result.append(_default_recipe(whole, files, work, progress))
        onnx.save(cut.model, work / "cut.onnx")
        ranges = calibration.ranges_of(
            work / "cut.onnx", files, cut.image, "minmax", work, progress("calibrating, head cut")
        )
        for label, recipe in (("head-cut A8W8", Recipe("a8", Style())), ("head-cut A16W8", Recipe("a16", Style()))):
            model, image, outputs = integer_model(quantized(cut, ranges, recipe, work), cut)
            result.append(_Version(label, model, Side(image, cut.head, outputs)))
    side = Side(shipped.input, shipped.head, tuple(shipped.outputs))
    return [*result, _Version("shipped", graph.load(shipped_file), side)]


def _default_recipe(whole: Prepared, files: Sequence[Path], work: Path, progress: Progress) -> _Version:
    """onnxruntime's QNN configuration as it comes: one scale a tensor, everything at 8 bits, the head inside."""
    from onnxruntime.quantization import quantize
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    onnx.save(whole.model, work / "whole.onnx")
    reader = calibration.Pictures(whole.image.name, list(calibration.tensors(files, whole.image)))
    progress("onnxruntime's default")(0, 1)
    with calibration.quiet():
        quantize(work / "whole.onnx", work / "default.onnx", get_qnn_qdq_config(work / "whole.onnx", reader))
    model = onnx.load(work / "default.onnx")
    outputs = tuple(
        OutputSpec(name=o.name, shape=graph.Index(whole.model).shape(o.name) or ()) for o in model.graph.output
    )
    return _Version("onnxruntime's default A8W8", model, Side(whole.image, whole.head, outputs))


def _profile(model: onnx.ModelProto, image: InputSpec, sample: Sample, soc: Soc) -> audit.Profile:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        np.save(folder / "in.npy", calibration.tensor(sample.picture, image)[0])
        ran = htp.run_plan(
            folder / "model.onnx", soc, [folder / "in.npy"] * CYCLE_RUNS,
            [folder / f"out{n}.npz" for n in range(CYCLE_RUNS)], profile=True,
        )  # fmt: skip
        return audit.read_profile(ran.rows, model)

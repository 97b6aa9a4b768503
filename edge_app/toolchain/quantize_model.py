"""The whole of `edge_app model quantize`: pictures in; a QDQ model, its encodings, a recipe and a report out."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from edge_app.config.load import load_manifest
from edge_app.config.manifest import Artifact, Calibration, Manifest, Quantized
from edge_app.config.save import edit_manifest
from edge_app.durable import write_whole
from edge_app.errors import ModelError
from edge_app.model import check_digest, sha256_of
from edge_app.toolchain import calibration, graph, measure, rescue, sensitivity
from edge_app.toolchain.audit import count_macs
from edge_app.toolchain.calibration import CalibrationSet, Ranges
from edge_app.toolchain.compile import plain
from edge_app.toolchain.dataset import spread
from edge_app.toolchain.quantize import (
    Prepared,
    Recipe,
    encodings_document,
    prepare,
    quantized,
    read_encodings,
    with_integer_io,
)

Say = Callable[[str], None]
Progress = Callable[[str], measure.Step]
"""Opens a progress bar of a name; the step moves it."""
QDQ_FILE = "quantized.onnx"
COMPARED_PICTURES = 6
RESCUED_BELOW = 0.99
"""Cosine of the outputs to float's, on the CPU: the floor that `verify` holds every rung to."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `quantize` was asked for."""

    recipe: Recipe
    method: str
    recipe_folder: Path
    """Where the recipe and the encodings go: calibration/<name>."""
    recipe_text: dict[str, Any]
    """How the pictures were chosen, for the recipe file."""
    target_loss: float | None = None
    rescue: bool = False
    cut: bool = True


@dataclass(slots=True)
class Report:
    """What came out, for people and for --json."""

    warnings: list[str] = field(default_factory=list)
    errors: list[sensitivity.LayerError] = field(default_factory=list)
    tries: list[dict[str, Any]] = field(default_factory=list)
    metric: str = ""
    float_metric: float | None = None
    metric_value: float | None = None
    raised: tuple[str, ...] = ()
    cosine: float | None = None
    """Of the worst output to float's, on a few calibration pictures, on the CPU."""
    rescued: str = ""
    within_target: bool | None = None
    cost_to_a8: float = 1.0
    sha256: str = ""


def quantize_model(
    folder: Path,
    chosen: CalibrationSet,
    options: Options,
    samples: Sequence[measure.Sample],
    say: Say,
    progress: Progress,
) -> Report:
    """Quantises a model of a folder; the manifest is changed last.

    Args:
        folder: of the model.
        chosen: the calibration pictures.
        options: how.
        samples: pictures on which the loss is measured; used with a target only.
        say: tells a person what is going on.
        progress: opens a progress bar.
    """
    manifest = load_manifest(folder)
    float_file = check_digest(folder, manifest.float_model)
    report = Report(warnings=list(chosen.warnings))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prepared = prepare(graph.load(float_file), manifest.head, manifest.input, str(float_file), cut=options.cut)
        ranges = _calibrated(prepared, chosen.files, options, work, progress)
        recipe = options.recipe
        if options.target_loss is not None:
            search = _Search(folder, prepared, ranges, samples, work, report, say, progress)
            recipe = search.within(options.target_loss, recipe)
            if report.within_target is False and options.rescue:
                prepared, ranges, recipe = _rescued(search, chosen.files, options, recipe, work, progress)
        else:
            start = _Made(prepared, ranges, recipe)
            prepared, ranges, recipe = _rescued_if_needed(start, chosen.files, options, work, report, progress)
        model = quantized(prepared, ranges, recipe, work)
        all_a8 = quantized(prepared, ranges, replace(recipe, activations="a8", raised=()), work)
    whole = graph.inferred(model, QDQ_FILE)
    report.cost_to_a8 = round(count_macs(whole).cost / max(1, count_macs(graph.inferred(all_a8, QDQ_FILE)).cost), 4)
    report.raised = recipe.raised
    _write(folder, prepared, model, ranges, recipe, chosen, options, report)
    return report


def remake(folder: Path) -> tuple[str, str]:
    """Makes the QDQ model again from the float model and the committed encodings, without a picture.

    Returns:
        (sha256 that was made, sha256 that the manifest binds).
    """
    manifest = load_manifest(folder)
    prepared, ranges, recipe = from_encodings(folder, manifest)
    with tempfile.TemporaryDirectory() as name:
        model, _, _ = integer_model(quantized(prepared, ranges, recipe, Path(name)), prepared)
        graph.save(model, Path(name, QDQ_FILE))
        bound = manifest.quantized.model.sha256 if manifest.quantized is not None else ""
        return sha256_of(Path(name, QDQ_FILE)), bound


def from_encodings(folder: Path, manifest: Manifest) -> tuple[Prepared, Ranges, Recipe]:
    """All that a QDQ model is made of, without a picture.

    Raises:
        ModelError: the model is not quantised yet, or a file is not the one that its manifest binds.
    """
    if manifest.quantized is None:
        raise ModelError(
            "the model is not quantised yet",
            where=str(folder),
            remedy=f"edge_app model quantize {manifest.name} --calibration DIR",
        )
    encodings = check_digest(folder, manifest.quantized.encodings)
    ranges, recipe = read_encodings(json.loads(encodings.read_text(encoding="utf-8")), str(encodings))
    float_file = check_digest(folder, manifest.float_model)
    cut = manifest.quantized.head.kind == "yolov8_cut"
    prepared = prepare(graph.load(float_file), manifest.head, manifest.input, str(float_file), cut=cut)
    return replace(prepared, model=with_recipe(prepared.model, recipe)), ranges, recipe


def with_recipe(model: onnx.ModelProto, recipe: Recipe) -> onnx.ModelProto:
    """The float model with a recipe's rescue applied."""
    if recipe.equalised:
        model, _ = rescue.equalise(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for bias, values in recipe.biases.items():
        rescue.replace_constant(result, bias, rescue.as_float32(values))
    return result


def integer_model(model: onnx.ModelProto, prepared: Prepared) -> tuple[onnx.ModelProto, Any, Any]:
    """The QDQ model as it is shipped: integers in, and out where the C decode takes them."""
    return with_integer_io(model, prepared.image, integer_outputs=prepared.head.kind in ("yolov8_cut", "classify"))


def _calibrated(prepared: Prepared, files: Sequence[Path], options: Options, work: Path, progress: Progress) -> Ranges:
    onnx.save(prepared.model, work / "prepared.onnx")
    ranges = calibration.ranges_of(
        work / "prepared.onnx", files, prepared.image, options.method, work, progress("calibrating")
    )
    return rescue.clip_before_silu(prepared.model, ranges, 16 if options.recipe.activations == "a16" else 8)


@dataclass
class _Search:
    """Looks for the fewest raised layers with which the loss is within a target."""

    folder: Path
    prepared: Prepared
    ranges: Ranges
    samples: Sequence[measure.Sample]
    work: Path
    report: Report
    say: Say
    progress: Progress

    def __post_init__(self) -> None:
        self.card = measure.read_card(self.folder)
        outputs = tuple(self.card.manifest.outputs) if self.card.manifest else ()
        whole = measure.run_cpu(self.card.file, self.card.input, self.samples, self.progress("float model"))
        side = measure.Side(self.card.input, self.card.head, outputs)
        self.reference = measure.decoded(self.card, side, whole, self.samples)
        self.report.metric, self.report.float_metric = measure.metric(
            self.card, self.reference, self.reference, self.samples
        )

    def within(self, target: float, recipe: Recipe) -> Recipe:
        """The recipe with as many layers raised as the target takes."""
        count = min(8, len(self.samples))
        self.report.errors = sensitivity.layer_errors(
            self.prepared, self.ranges, self.samples[:count], self.progress("sensitivity")
        )

        def loss_of(raised: tuple[str, ...]) -> float:
            return self.loss(replace(recipe, activations="mixed" if raised else "a8", raised=raised))

        tries = sensitivity.fewest_raised(self.report.errors, loss_of, target)
        best = tries[-1]
        self.choose(best.loss, target)
        return replace(recipe, activations="mixed" if best.raised else "a8", raised=best.raised)

    def choose(self, loss: float, target: float | None) -> None:
        """What is told of the recipe that is taken, which need not be the one that was measured last."""
        self.report.metric_value = (self.report.float_metric or 0.0) - loss
        self.report.within_target = target is not None and loss <= target

    def loss(self, recipe: Recipe) -> float:
        """Loss of a recipe in the task's metric, on the CPU's QDQ."""
        model, image, outputs = integer_model(quantized(self.prepared, self.ranges, recipe, self.work), self.prepared)
        results = measure.run_cpu(model.SerializeToString(), image, self.samples, self.progress("loss"))
        found = measure.decoded(self.card, measure.Side(image, self.prepared.head, outputs), results, self.samples)
        name, value = measure.metric(self.card, found, self.reference, self.samples)
        loss = (self.report.float_metric or 0.0) - value
        self.report.tries.append({"raised": len(recipe.raised), name: round(value, 4), "loss": round(loss, 4)})
        self.say(f"{len(recipe.raised)} layers at 16 bits: {name} {value:.4f}, loss {100 * loss:+.2f} points")
        return loss


@dataclass(frozen=True, slots=True)
class _Made:
    """What a QDQ model is made of."""

    prepared: Prepared
    ranges: Ranges
    recipe: Recipe


def _rescued_if_needed(
    made: _Made, files: Sequence[Path], options: Options, work: Path, report: Report, progress: Progress
) -> tuple[Prepared, Ranges, Recipe]:
    """Tries the rescue where it is asked for or the outputs are too far from float, and keeps what is nearer."""
    samples = measure.samples_of(spread(files, COMPARED_PICTURES))
    float_model = made.prepared.model.SerializeToString()
    wanted = measure.run_cpu(float_model, made.prepared.image, samples)

    def cosine_of(one: _Made) -> float:
        model, image, outputs = integer_model(quantized(one.prepared, one.ranges, one.recipe, work), one.prepared)
        got = measure.run_cpu(model.SerializeToString(), image, samples)
        pairs = zip(got, wanted, strict=True)
        return sum(min(measure.cosine(measure.real(a, outputs), b)) for a, b in pairs) / len(samples)

    report.cosine = cosine_of(made)
    if options.rescue or report.cosine < RESCUED_BELOW:
        other = _Made(*_rescue(made.prepared, made.ranges, files, options, made.recipe, work, progress))
        after = cosine_of(other)
        kept = after > report.cosine
        report.rescued = f"{'kept' if kept else 'tried, not kept'}: cosine {after:.4f} instead of {report.cosine:.4f}"
        if kept:
            made, report.cosine = other, after
    return made.prepared, made.ranges, made.recipe


def _rescue(
    prepared: Prepared,
    ranges: Ranges,
    files: Sequence[Path],
    options: Options,
    recipe: Recipe,
    work: Path,
    progress: Progress,
) -> tuple[Prepared, Ranges, Recipe]:
    """Equalises and corrects biases; the recipe says so, so that it can be done again without pictures."""
    model, pairs = rescue.equalise(prepared.model)
    if pairs:
        ranges = _calibrated(replace(prepared, model=model), files, options, work, progress)
    corrected, _ = rescue.correct_biases(model, files, prepared.image, progress("bias correction"))
    biases = rescue.changed_biases(model, corrected)
    return replace(prepared, model=corrected), ranges, replace(recipe, equalised=bool(pairs), biases=biases)


def _rescued(
    search: _Search, files: Sequence[Path], options: Options, recipe: Recipe, work: Path, progress: Progress
) -> tuple[Prepared, Ranges, Recipe]:
    """The rescue, kept only if the loss with it is lower."""
    before = (search.report.float_metric or 0.0) - (search.report.metric_value or 0.0)
    plain_prepared, plain_ranges = search.prepared, search.ranges
    search.prepared, search.ranges, new = _rescue(
        search.prepared, search.ranges, files, options, recipe, work, progress
    )
    after = search.loss(new)
    if after >= before:
        search.report.rescued = f"tried, not kept: loss {100 * after:+.2f} points instead of {100 * before:+.2f}"
        return plain_prepared, plain_ranges, recipe
    search.report.rescued = f"kept: loss {100 * after:+.2f} points instead of {100 * before:+.2f}"
    search.choose(after, options.target_loss)
    return search.prepared, search.ranges, new


def _write(
    folder: Path,
    prepared: Prepared,
    model: onnx.ModelProto,
    ranges: Ranges,
    recipe: Recipe,
    chosen: CalibrationSet,
    options: Options,
    report: Report,
) -> None:
    shipped, image, outputs = integer_model(model, prepared)
    graph.save(shipped, folder / QDQ_FILE)
    tensors = {name for node in prepared.model.graph.node for name in (*node.input, *node.output)}
    encodings = options.recipe_folder / "encodings.json"
    text = json.dumps(encodings_document(ranges, recipe, tensors), indent=1) + "\n"
    write_whole(encodings, text, "the encodings", ModelError)
    write_recipe(options.recipe_folder / "recipe.yaml", {
        **options.recipe_text, "pictures": len(chosen.files), "sha256": chosen.sha256, "method": options.method,
    })  # fmt: skip
    report.sha256 = sha256_of(folder / QDQ_FILE)
    section = Quantized(
        model=Artifact(file=QDQ_FILE, sha256=report.sha256),
        encodings=Artifact(file=_relative(encodings, folder), sha256=sha256_of(encodings)),
        calibration=Calibration(
            recipe=_relative(options.recipe_folder / "recipe.yaml", folder), pictures=len(chosen.files),
            sha256=chosen.sha256, method=options.method,  # type: ignore[arg-type]
        ),
        activations=recipe.activations, style=str(recipe.style), raised=recipe.raised, input=image, head=prepared.head,
        outputs=outputs, tools=f"onnx {onnx.__version__}, onnxruntime {ort.__version__}",
    )  # fmt: skip

    def edit(tree: Any) -> None:
        tree["quantized"] = plain(section)

    edit_manifest(folder, edit)
    load_manifest(folder)


def _relative(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()


def write_recipe(file: Path, data: dict[str, Any]) -> None:
    """Writes a calibration recipe. Raises ModelError."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(data, stream)
    write_whole(file, stream.getvalue(), "the calibration recipe", ModelError)

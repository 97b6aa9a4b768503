"""The ladder: the same pictures through float, QDQ on the CPU, and each plan on each SoC's HTP, rung by rung.

Every rung is compared with the float model: outputs (cosine, largest error), the task's metric, and the verdicts. A
rung that was not measured has not passed. Outputs are kept by artifact and picture, so that a run goes on where one
was broken off.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_app.config.manifest import Manifest, Plan, Verified
from edge_app.config.tensor import InputSpec, OutputSpec
from edge_app.detections import Detections
from edge_app.errors import EdgeAppError
from edge_app.model import ModelCard
from edge_app.runtime.qnn import is_simulator
from edge_app.toolchain import audit, graph, htp, measure
from edge_app.toolchain.calibration import tensor
from edge_app.toolchain.compile import with_shapes
from edge_app.toolchain.measure import Found, Outputs, Sample, Side
from edge_app.toolchain.metrics import Interval, bootstrap_map50_95
from edge_app.toolchain.quantize import prepare
from edge_app.toolchain.remake import affinity_of, make_missing, quantized_of
from edge_app.toolchain.socs import Soc, soc_named

Progress = Callable[[str], measure.Step]
COMPARED_INPUTS = 4
SATURATED_SHARE = 0.02
"""Of an integer output's values at the top of its encoding, at most."""
MOST_PROCESSES = 4
"""Of the simulator at a time: each holds a plan of its own, about 250 MB for pcb-defect."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Floors that every rung has to hold.

    The loss is held to its gate as it was measured. On few pictures mAP moves by whole points either way: the
    bootstrap interval beside it says how much of the loss may be chance, and more pictures narrow it.
    """

    cosine: float = 0.99
    loss: float = 0.015


@dataclass(slots=True)
class Rung:
    """One version of the model beside the float model."""

    name: str
    plan: str | None
    soc: str | None
    images: int = 0
    cosine: float | None = None
    """Mean over pictures of the worst output."""
    max_error: float | None = None
    metric: str = ""
    value: float | None = None
    loss: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None
    verdicts: tuple[str, ...] = ()
    """Of each picture."""
    flipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    drift: str | None = None
    """Layer where the drift starts, once it was looked for."""

    @property
    def ok(self) -> bool:
        """Measured, and no gate broken."""
        return self.images > 0 and self.cosine is not None and self.value is not None and not self.problems

    def document(self) -> dict[str, Any]:
        """For --json: stable keys."""
        return {
            "rung": self.name, "plan": self.plan, "soc": self.soc, "ok": self.ok, "images": self.images,
            "cosine": _rounded(self.cosine, 5), "max_error": _rounded(self.max_error, 4), "metric": self.metric,
            "value": _rounded(self.value, 4), "loss": _rounded(self.loss, 4), "loss_low": _rounded(self.loss_low, 4),
            "loss_high": _rounded(self.loss_high, 4), "verdicts_flipped": self.flipped, "problems": self.problems,
            "drift_starts_at": self.drift,
        }  # fmt: skip


@dataclass
class Ladder:
    """A verification under way."""

    folder: Path
    card: ModelCard
    manifest: Manifest
    samples: list[Sample]
    gates: Gates
    cache: Path
    progress: Progress
    rungs: list[Rung] = field(default_factory=list)

    def climb(self, plans: Sequence[Plan]) -> list[Rung]:
        """All rungs, float first."""
        quantized_file, quantized = quantized_of(self.folder, self.manifest)
        self.qdq_file = quantized_file
        self.side = Side(quantized.input, quantized.head, tuple(quantized.outputs))
        self._float(quantized.head.kind == "yolov8_cut")
        self._add("qdq on cpu", None, None, self._outputs_cpu(quantized_file, quantized.model.sha256))
        for plan in plans:
            self._plan(plan)
        return self.rungs

    def _float(self, cut: bool) -> None:
        file, manifest = self.card.file, self.manifest
        whole = measure.run_cpu(file, self.card.input, self.samples, self.progress("float"))
        self.float_side = Side(self.card.input, self.card.head, tuple(manifest.outputs))
        self.float_found = measure.decoded(self.card, self.float_side, whole, self.samples)
        name, value = measure.metric(self.card, self.float_found, self.float_found, self.samples)
        self.metric, self.float_value = name, value
        self.float_verdicts = measure.verdicts(self.card, self.float_found)
        if cut:
            prepared = prepare(graph.load(file), manifest.head, manifest.input, str(file))
            self.reference = measure.run_cpu(
                prepared.model.SerializeToString(), self.card.input, self.samples, self.progress("float, head cut")
            )
        else:
            self.reference = whole
        rung = Rung("float", "cpu", None, len(self.samples), 1.0, 0.0, name, value, 0.0)
        rung.verdicts = tuple(self.float_verdicts)
        rung.problems += stuck_outputs(self.reference, self.samples)
        self.rungs.append(rung)

    def _plan(self, plan: Plan) -> None:
        name = f"{plan.plan} {plan.soc}"
        try:
            file = make_missing(self.folder, self.manifest, plan)
            outputs, problems = self._outputs_htp(plan, file)
        except EdgeAppError as error:
            self.rungs.append(
                Rung(
                    name,
                    str(plan.plan),
                    plan.soc,
                    problems=[error.brief],
                )
            )
            return
        self._add(name, str(plan.plan), plan.soc, outputs, problems)

    def _add(
        self, name: str, plan: str | None, soc: str | None, outputs: list[Outputs], problems: Sequence[str] = ()
    ) -> None:
        specs = self.side.outputs
        real = [measure.real(one, specs) for one in outputs]
        cosines = [min(measure.cosine(a, b)) for a, b in zip(real, self.reference, strict=True)]
        found = measure.decoded(self.card, self.side, outputs, self.samples)
        metric, value = measure.metric(self.card, found, self.float_found, self.samples)
        rung = Rung(
            name, plan, soc, len(outputs), float(np.mean(cosines)), _max_error(real, self.reference), metric, value
        )
        rung.loss = self.float_value - value
        interval = self._interval(found)
        if interval is not None:
            rung.loss_low, rung.loss_high = -interval.high, -interval.low
        rung.verdicts = tuple(measure.verdicts(self.card, found))
        rung.flipped = [
            f"{sample.name}: {before} -> {after}"
            for sample, before, after in zip(self.samples, self.float_verdicts, rung.verdicts, strict=True)
            if measure.contradict(before, after)
        ]
        rung.problems += [
            *problems,
            *input_problems(self.side, self.float_side, self.samples),
            *stuck_outputs(real, self.samples),
            *saturated(outputs, specs),
        ]
        rung.problems += [*cosine_problems(rung, self.gates), *loss_problems(rung, self.gates)]
        self.rungs.append(rung)

    def _interval(self, found: Sequence[Found]) -> Interval | None:
        """Of the metric's difference to float; None for classifiers."""
        boxes = [one for one in found if isinstance(one, Detections)]
        before = [one for one in self.float_found if isinstance(one, Detections)]
        if len(boxes) != len(self.samples):
            return None
        truth = [sample.truth for sample in self.samples if sample.truth is not None]
        if len(truth) != len(self.samples):
            truth = measure.pseudo_truth(self.float_found)
        return bootstrap_map50_95(boxes, truth, self.card.labels, reference=before, resamples=200)

    def _outputs_cpu(self, file: Path, sha256: str) -> list[Outputs]:
        image = self.side.image
        todo = [s for s in self.samples if not self._kept(sha256, "cpu", s).is_file()]
        if todo:
            for sample, outputs in zip(
                todo, measure.run_cpu(file, image, todo, self.progress("qdq on cpu")), strict=True
            ):
                _keep(self._kept(sha256, "cpu", sample), outputs)
        return [_read(self._kept(sha256, "cpu", sample)) for sample in self.samples]

    def _outputs_htp(self, plan: Plan, file: Path) -> tuple[list[Outputs], list[str]]:
        """Outputs of a plan, and what its placement and profile say against it."""
        sha256, soc = plan.artifacts[0].sha256, soc_named(plan.soc or "")
        todo = [s for s in self.samples if not self._kept(sha256, soc.name, s).is_file()] or self.samples[:1]
        inputs = [self._input(sample) for sample in todo]
        kept = [self._kept(sha256, soc.name, sample) for sample in todo]
        kept[0].parent.mkdir(parents=True, exist_ok=True)
        bar = self.progress(f"{plan.plan} {soc.name}")
        first = htp.run_plan(file, soc, inputs[:1], kept[:1], profile=True)
        bar(1, len(todo))
        _run_side_by_side(file, soc, inputs[1:], kept[1:], lambda done: bar(done + 1, len(todo)))
        return [_read(self._kept(sha256, soc.name, s)) for s in self.samples], self._audited(plan, first)

    def _audited(self, plan: Plan, ran: htp.Ran) -> list[str]:
        qdq = with_shapes(self.qdq_file if plan.source is None else self.folder / plan.source.file)
        names, kinds = {name for name, _ in ran.host_nodes}, {op for _, op in ran.host_nodes}
        profile = audit.read_profile(ran.rows, qdq, names)
        planned = [op for op in affinity_of(plan) if op not in kinds] + [n for n in plan.host_nodes if n not in names]
        problems = [f"{what} was planned for the CPU and ran on the NPU" for what in planned]
        problems += [
            f"{name} ({op}) ran on the CPU, which was not planned"
            for name, op in ran.host_nodes
            if op not in plan.host_ops and name not in plan.host_nodes
        ]
        problems += [f"{op} runs in float on the NPU although it is quantised" for op in profile.float_ops]
        claimed = plan.report.fused_ops if plan.report is not None else {}
        problems += [
            f"{count} {kind} are claimed fused, but only {profile.fused_ops.get(kind, 0)} have no cycles of their own"
            for kind, count in claimed.items()
            if profile.fused_ops.get(kind, 0) < count
        ]
        return problems

    def _input(self, sample: Sample) -> Path:
        key = hashlib.sha256(repr(self.side.image).encode()).hexdigest()[:12]
        file = self.cache / "inputs" / f"{key}-{sample.sha256[:16]}.npy"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".partial.npy")
            np.save(partial, tensor(sample.picture, self.side.image)[0])
            partial.replace(file)
        return file

    def _kept(self, sha256: str, where: str, sample: Sample) -> Path:
        return self.cache / f"{where}-{sha256[:16]}" / f"{sample.sha256[:16]}.npz"


def cosine_problems(rung: Rung, gates: Gates) -> list[str]:
    """Whether a rung's outputs are too far from float's; those that are no numbers are."""
    if rung.cosine is None or rung.cosine >= gates.cosine:
        return []
    if np.isnan(rung.cosine):
        return ["outputs that are no numbers"]
    return [f"cosine {rung.cosine:.4f} is below {gates.cosine}"]


def _run_side_by_side(
    file: Path, soc: Soc, inputs: Sequence[Path], outputs: Sequence[Path], done: Callable[[int], None]
) -> None:
    """Runs a plan; on the simulator, which computes on one core, in a process for each core."""
    if not inputs:
        return
    count = min(len(inputs), os.cpu_count() or 1, MOST_PROCESSES) if is_simulator() else 1
    ran = [0] * count

    def part(number: int) -> None:
        def step(of_part: int, _of: int) -> None:
            ran[number] = of_part
            done(sum(ran))

        htp.run_plan(file, soc, inputs[number::count], outputs[number::count], step=step)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(part, range(count)))


def loss_problems(rung: Rung, gates: Gates) -> list[str]:
    """Whether a rung lost more than it may."""
    if rung.loss is None or rung.loss <= gates.loss:
        return []
    text = f"{rung.metric} lost {100 * rung.loss:.2f} points, more than {100 * gates.loss:.2f}"
    if rung.loss_low is not None and rung.loss_high is not None:
        text += f" (95 % interval {100 * rung.loss_low:+.2f} .. {100 * rung.loss_high:+.2f}, {rung.images} pictures)"
    return [text]


def input_problems(side: Side, float_side: Side, samples: Sequence[Sample]) -> list[str]:
    """Whether a version of the model is fed the same pictures as the float model: the exact tensors, compared.

    An integer input stands for (q - zero_point) * scale; it must be the float input to within half a step. Swapped
    channels and another normalisation are named.
    """
    for sample in samples[:COMPARED_INPUTS]:
        wanted = _planes(tensor(sample.picture, float_side.image)[0], float_side.image)
        got = _planes(tensor(sample.picture, side.image)[0], side.image)
        allowed = 0.51 * (side.image.quant_scale or 0.0) + 1e-5
        if wanted.shape != got.shape:
            return [f"the input has another shape than the float model's: {got.shape}, {wanted.shape}"]
        error = float(np.abs(got - wanted).max())
        if error > allowed:
            swapped = float(np.abs(got[::-1] - wanted).max()) <= allowed
            cause = "the channels are swapped" if swapped else f"mean {got.mean():.4f} instead of {wanted.mean():.4f}"
            return [f"the input is not the float model's for {sample.name}: off by {error:.4f}; {cause}"]
    return []


def _planes(data: measure.Array, image: InputSpec) -> measure.Array:
    """An input tensor as real numbers, [C, H, W]."""
    real: measure.Array = data.astype(np.float32)
    if image.dtype != "float32":
        real = (real - (image.quant_zero_point or 0)) * np.float32(image.quant_scale or 1.0)
    planes: measure.Array = real[0] if image.layout == "NCHW" else real[0].transpose(2, 0, 1)
    return planes


def _keep(file: Path, outputs: Outputs) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.part.npz")
    arrays: dict[str, Any] = {f"o{number}": value for number, value in enumerate(outputs)}
    np.savez(partial, **arrays)
    partial.replace(file)


def _read(file: Path) -> Outputs:
    with np.load(file) as arrays:
        return tuple(arrays[f"o{number}"] for number in range(len(arrays.files)))


def stuck_outputs(outputs: Sequence[Sequence[measure.Array]], samples: Sequence[Sample]) -> list[str]:
    """Outputs that are the same for pictures that differ: a model that does not look."""
    if len({sample.sha256 for sample in samples}) < 2:
        return []
    return [
        f"output {number} is the same for every picture"
        for number in range(len(outputs[0]))
        if all(np.array_equal(outputs[0][number], one[number]) for one in outputs[1:])
    ]


def saturated(outputs: Sequence[Outputs], specs: Sequence[OutputSpec]) -> list[str]:
    """Integer outputs that stand at the end of their encoding too often: the range was calibrated too narrow."""
    found = []
    for number, spec in enumerate(specs):
        if spec.quant_scale is None:
            continue
        top = np.iinfo(outputs[0][number].dtype).max
        share = float(np.mean([np.mean(one[number] == top) for one in outputs]))
        if share > SATURATED_SHARE:
            found.append(f"{100 * share:.1f} % of output {spec.name} stand at the top of their encoding: saturated")
    return found


def _max_error(measured: Sequence[Sequence[measure.Array]], wanted: Sequence[Outputs]) -> float:
    return max(
        float(np.abs(a - b).max())
        for one, other in zip(measured, wanted, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def verified(rung: Rung, float_value: float, on: str, simulated: bool) -> Verified:
    """A rung as the manifest keeps it."""
    low, high = _rounded(rung.loss_low, 4), _rounded(rung.loss_high, 4)
    return Verified(
        on=on, images=rung.images, simulated=simulated, cosine_min=round(rung.cosine or 0.0, 5),
        metrics={rung.metric: round(rung.value or 0.0, 4)}, float_metrics={rung.metric: round(float_value, 4)},
        loss_95=None if low is None or high is None else (low, high), verdicts_flipped=tuple(rung.flipped), ok=rung.ok,
    )  # fmt: skip


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)

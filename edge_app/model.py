"""A model as the rest of the product sees it: what goes in, what comes out, and which files run it where.

`resolve` reads a model folder's manifest or a bare ONNX file.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from edge_app import decode
from edge_app.camera import frame_px
from edge_app.config.load import load_manifest
from edge_app.config.manifest import Artifact, Manifest, Plan
from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.tensor import HeadSpec, InputSpec, OutputSpec, Preprocess, make_input
from edge_app.engine import Decode
from edge_app.errors import ConfigError, ModelError
from edge_app.family import member, members, waits_for_frame_size
from edge_app.listing import read_lines
from edge_app.runtime.base import TensorInfo
from edge_app.runtime.cpu import open_cpu

if TYPE_CHECKING:
    from edge_app.runtime.ort import OrtSession

DEFAULT_IOU = 0.6
DEFAULT_SCORE = 0.25


@dataclass(frozen=True)
class ModelCard:
    """A model, resolved: from its manifest, or from a bare ONNX file and the pipeline that names it."""

    name: str
    task: Literal["detect", "classify"]
    file: Path
    """The float model: the cpu plan's file, unless the manifest has another."""
    sha256: str
    input: InputSpec
    head: HeadSpec
    labels: tuple[str, ...]
    iou: float
    manifest: Manifest | None = None
    folder: Path | None = None
    class_agnostic_nms: bool = False
    max_detections: int = 300

    @property
    def score(self) -> dict[str, float]:
        """Operating scores by label, as far as the manifest has them."""
        return dict(self.manifest.operating.score) if self.manifest and self.manifest.operating else {}

    @property
    def marginal(self) -> dict[str, float]:
        """Lower edges of the grey band by label, likewise."""
        return dict(self.manifest.operating.marginal) if self.manifest and self.manifest.operating else {}

    def decoder(self, outputs: tuple[TensorInfo, ...], thresholds: npt.NDArray[np.float32], head: HeadSpec) -> Decode:
        """The C decode of this model's outputs.

        Args:
            outputs: as the session has them.
            thresholds: [C] float32; detections at or above are returned.
            head: the plan's head.
        """
        spec = decode.HeadSpec(
            kind=head.kind,
            classes=len(self.labels),
            input_width=self.input.width,
            input_height=self.input.height,
            # The decoder keeps scores strictly above its thresholds, the judge those at or above.
            score=tuple(float(np.nextafter(score, np.float32(0))) for score in thresholds.astype(np.float32)),
            iou=self.iou,
            agnostic=self.class_agnostic_nms,
            max_detections=self.max_detections,
            strides=head.strides,
            softmax=head.apply_softmax,
            temperature=head.temperature,
        )
        if head.kind == "classify":
            return _decode_classes(decode.ClassifyDecoder(spec, outputs))
        return _decode_boxes(decode.YoloDecoder(spec, outputs))


def _decode_boxes(decoder: decode.YoloDecoder) -> Decode:
    return lambda outputs, geometry: decoder(outputs, geometry.to_source_px)


def _decode_classes(decoder: decode.ClassifyDecoder) -> Decode:
    return lambda outputs, _geometry: decoder(outputs)


def resolve(model: Model, preprocess: Preprocess, frame: tuple[int, int] | None = None) -> ModelCard:
    """Reads what a pipeline's `model:` names and cross-checks it with its `preprocess:`.

    `frame`: width, height of the camera's frames; a family of models without a `size` or region is chosen by it.

    Raises:
        ModelError: absent, damaged, or another file than its manifest binds.
        ConfigError: the pipeline contradicts the manifest, or a bare ONNX lacks what nobody can guess.
    """
    region = preprocess.region_px
    looked_at = frame if region is None else (region[2] - region[0], region[3] - region[1])
    model = model.model_copy(update={"path": member(model.path, model.size, looked_at)})
    card = _from_onnx(model, preprocess) if model.path.suffix == ".onnx" else _from_folder(model, preprocess)
    if model.size not in (None, (card.input.width, card.input.height)):
        raise ConfigError(
            "model.size is not the size of this model's input",
            where=str(model.path),
            wanted=f"{card.input.width}x{card.input.height}, or null",
            got=str(model.size),
        )
    return replace(
        card,
        iou=model.iou if model.iou is not None else card.iou,
        class_agnostic_nms=model.class_agnostic_nms,
        max_detections=model.max_detections,
    )


def resolve_for(pipeline: Pipeline) -> ModelCard:
    """The model that a line takes; of a family, if nothing else says which, the one for the camera's frames.

    Raises:
        EdgeAppError: as `resolve`, or CameraError: the camera can't be asked.
    """
    waits = waits_for_frame_size(pipeline.model.path, pipeline.model.size, pipeline.preprocess.region_px)
    return resolve(pipeline.model, pipeline.preprocess, frame_px(pipeline.camera) if waits else None)


def _from_folder(model: Model, preprocess: Preprocess) -> ModelCard:
    manifest = load_manifest(model.path)
    for key in ("task", "head", "labels", "labels_file"):
        if getattr(model, key) is not None:
            raise ConfigError(
                f"model.{key} is for bare ONNX files; this model's manifest says it already",
                where=str(model.path),
                got=str(getattr(model, key)),
                remedy=f"remove model.{key}",
            )
    file = model.path / manifest.float_model.file
    check_digest(model.path, manifest.float_model)
    _cross_check(manifest.input, preprocess, model.path)
    return ModelCard(
        name=manifest.name, task=manifest.task, file=file, sha256=manifest.float_model.sha256, input=manifest.input,
        head=manifest.head, labels=manifest.labels,
        iou=manifest.operating.iou if manifest.operating else DEFAULT_IOU, manifest=manifest, folder=model.path,
    )  # fmt: skip


def _cross_check(image: InputSpec, preprocess: Preprocess, where: Path) -> None:
    """What the pipeline says of the input must be what the manifest says."""
    for key in ("color", "layout", "fit", "method", "pad_value", "shorter_side", "scale", "mean", "std"):
        said, known = getattr(preprocess, key), getattr(image, key)
        if said is not None and said != known:
            raise ConfigError(
                f"preprocess.{key} contradicts the model's manifest",
                where=str(where),
                wanted=str(known),
                got=str(said),
                remedy=f"remove preprocess.{key}; the model was trained with the manifest's value",
            )


def _from_onnx(model: Model, preprocess: Preprocess) -> ModelCard:
    session = open_cpu(model.path)
    try:
        metadata = session.metadata
        labels = _labels(model, metadata, session)
        card = ModelCard(
            name=model.path.stem, task=model.task or "detect", file=model.path, sha256=sha256_of(model.path),
            input=_input_of(session, preprocess, metadata, model.path), head=_head_of(model, session, labels),
            labels=labels, iou=DEFAULT_IOU,
        )  # fmt: skip
    finally:
        session.close()
    return card


def _labels(model: Model, metadata: dict[str, str], session: OrtSession) -> tuple[str, ...]:
    if model.labels is not None:
        return model.labels
    if model.labels_file is not None:
        return tuple(read_lines(model.labels_file, "the labels"))
    if "names" in metadata:  # Ultralytics writes a dict literal
        try:
            names = ast.literal_eval(metadata["names"])
            return tuple(str(names[index]) for index in range(len(names)))
        except (ValueError, SyntaxError, KeyError, TypeError) as error:
            raise ModelError(
                "the model's own `names` can't be read",
                where=str(model.path),
                got=metadata["names"][:80],
                remedy="set model.labels",
            ) from error
    raise ConfigError(
        "the labels of this model are not known",
        where=str(model.path),
        wanted="model.labels or model.labels_file",
        got=", ".join(f"output {o.name} {list(o.shape)}" for o in session.outputs),
        remedy="name them in the model's order; a file with one label a line will do",
    )


def _head_of(model: Model, session: OrtSession, labels: tuple[str, ...]) -> HeadSpec:
    if model.head is not None:
        return HeadSpec(kind=model.head)
    if model.task == "classify":
        return HeadSpec(kind="classify")
    shapes = [output.shape for output in session.outputs]
    try:
        return HeadSpec(kind=decode.recognise(shapes, len(labels), _size_of(session)))
    except ConfigError as error:
        raise _no_head(model, shapes, labels, _size_of(session), error) from error


def _no_head(
    model: Model, shapes: list[tuple[int, ...]], labels: tuple[str, ...], size: tuple[int, int], error: ConfigError
) -> ConfigError:
    """Labels that are too many or too few are the usual reason why no head fits."""
    try:
        kind = decode.recognise(shapes, None, size)
        classes = decode.classes_of(kind, shapes)
    except ConfigError:
        classes = None
    if classes is None:
        error.where, error.remedy = str(model.path), "set model.head, and name all labels"
        return error
    return ConfigError(
        "there are not as many labels as the model has classes",
        where=str(model.path),
        wanted=f"{classes} labels, in the model's order: its outputs {[list(s) for s in shapes]} are those of {kind}",
        got=f"{len(labels)}: {', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''}",
        remedy="give model.labels_file one line for each class; judge says which of them are defects",
    )


def _size_of(session: OrtSession) -> tuple[int, int]:
    """Width and height of the session's input."""
    shape = session.input.shape
    if len(shape) != 4 or (shape[1] not in (1, 3) and shape[3] not in (1, 3)):
        raise ModelError(
            "the input is no picture",
            wanted="[1, 3, H, W] or [1, H, W, 3] (or 1 channel)",
            got=str(list(shape)),
            remedy="export the model with one picture as input",
        )
    return (shape[3], shape[2]) if shape[1] in (1, 3) else (shape[2], shape[1])


def _input_of(session: OrtSession, preprocess: Preprocess, metadata: dict[str, str], file: Path) -> InputSpec:
    width, height = _size_of(session)
    shape = session.input.shape
    layout: Literal["NCHW", "NHWC"] = "NCHW" if shape[1] in (1, 3) else "NHWC"
    channels = shape[1] if layout == "NCHW" else shape[3]
    ultralytics = "ultralytics" in metadata.get("author", "").lower()
    if preprocess.layout not in (None, layout):
        raise ConfigError(
            "preprocess.layout contradicts the model", where=str(file), wanted=layout, got=str(preprocess.layout)
        )
    missing = [key for key in ("color", "fit", "scale") if getattr(preprocess, key) is None]
    if missing and not ultralytics:
        raise ConfigError(
            "a bare ONNX does not say how its input is made",
            where=str(file),
            wanted=", ".join(f"preprocess.{key}" for key in missing),
            got="no manifest and no Ultralytics metadata",
            remedy="state them as in training, e.g. color: BGR, fit: letterbox, scale: 1.0",
        )
    dtype: Literal["float32", "uint8", "uint16"] = session.input.dtype.name  # type: ignore[assignment]
    keys = ("color", "fit", "method", "pad_value", "shorter_side", "scale", "mean", "std")
    given = {key: getattr(preprocess, key) for key in keys}
    known = {key: value for key, value in given.items() if value is not None}
    if channels == 1:
        known.setdefault("color", "GRAY")
    if dtype != "float32":
        # An integer input of a bare model takes the pixels as they are.
        known |= {"quant_scale": known.get("scale", 1 / 255), "quant_zero_point": 0}
    return make_input(
        str(file), name=session.input.name, width=width, height=height, layout=layout, dtype=dtype, **known
    )


def model_folder(name: str) -> Path:
    """A model's folder by its path, or by its name below `models/`.

    Raises:
        ModelError: neither is there.
    """
    for folder in (Path(name), Path("models") / name):
        if sizes := members(folder):
            raise ModelError(
                f"{name} is a family of models; name one of them",
                wanted=", ".join(f"{name}/{path.name}" for path in sizes.values()),
                got=name,
            )
        if folder.is_dir():
            return folder
    known = sorted(path.parent.name for path in Path("models").glob("*/manifest.yaml"))
    raise ModelError(
        f"there is no model {name!r}",
        wanted="a folder, or a name below models/ of the folder you are in",
        got=", ".join(known) or "no models/ here",
        remedy="run it in the project's folder, or give a path",
    )


def sha256_of(file: Path) -> str:
    """Digest of a file, as manifests write it."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_digest(folder: Path, artifact: Artifact) -> Path:
    """The artifact's file, if it is the one that the manifest binds.

    Raises:
        ModelError: absent, or other bytes.
    """
    file = folder / artifact.file
    if not file.is_file():
        raise ModelError(
            "a file of the model is not there",
            where=str(file),
            wanted=f"sha256 {artifact.sha256[:12]}...",
            got="no such file",
            remedy="make it: edge_app model compile",
        )
    try:
        digest = sha256_of(file)
    except OSError as error:
        raise ModelError(
            "a file of the model can't be read", where=str(file), wanted=f"sha256 {artifact.sha256[:12]}...",
            got=error.strerror or str(error), remedy="see its permissions, and the disk",
        ) from error  # fmt: skip
    if digest != artifact.sha256:
        raise ModelError(
            "a file of the model is not the one that its manifest binds",
            where=str(file),
            wanted=f"sha256 {artifact.sha256}",
            got=f"sha256 {digest} ({file.stat().st_size} bytes)",
            remedy="restore it, or compile the model again",
        )
    return file


def plan_head(card: ModelCard, plan: Plan | None) -> HeadSpec:
    """The head of one plan: its own where it differs from the model's."""
    return plan.head if plan is not None and plan.head is not None else card.head


def plan_input(card: ModelCard, plan: Plan | None) -> InputSpec:
    """The input of one plan: its own where it differs from the model's."""
    return plan.input if plan is not None and plan.input is not None else card.input


def with_encodings(outputs: tuple[TensorInfo, ...], declared: tuple[OutputSpec, ...] | None) -> tuple[TensorInfo, ...]:
    """Output tensors with the encodings that the manifest declares for them, matched by name.

    Raises:
        ModelError: a session has an output that the manifest does not know, or of another shape or type.
    """
    if declared is None:
        return outputs
    known = {spec.name: spec for spec in declared}
    result = []
    for output in outputs:
        spec = known.get(output.name)
        if spec is None or spec.shape != output.shape or np.dtype(spec.dtype) != output.dtype:
            raise ModelError(
                "the model's outputs are not those of its manifest",
                wanted=f"one of {[s.name for s in declared]}",
                got=f"{output.name} {output.dtype} {list(output.shape)}",
                remedy="compile the model again",
            )
        result.append(replace(output, scale=spec.quant_scale, zero_point=spec.quant_zero_point))
    return tuple(result)

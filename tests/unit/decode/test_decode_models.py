"""Heads of real models (with --data): detections equal those of a plain reading of the outputs."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import onnxruntime

from edge_app.decode import HeadSpec, Output, make_decoder, recognise
from edge_app.frame import PixelFormat
from edge_app.preprocess import Fit, Plan, Source, Tensor


def run(model: Path, tensor: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: tensor})


def test_pcb_yolov8n_finds_the_labelled_defects(data_folder):
    picture = cv2.imread(str(next((data_folder / "deeppcb" / "images").rglob("*.jpg"))))
    height, width = picture.shape[:2]
    plan = Plan(Source(width, height, PixelFormat.BGR8), Tensor(416, 416))
    tensor = plan.tensor.empty()
    plan.prepare(tensor)
    plan.run(picture, tensor)
    outputs = run(data_folder / "models" / "pcb-yolov8n" / "model.onnx", tensor)
    assert recognise([o.shape for o in outputs], 6) == "yolov8"
    spec = HeadSpec("yolov8", 6, score=0.25, iou=0.6)
    found = make_decoder(spec, [Output("out", outputs[0].shape)])(outputs, plan.geometry.to_source_px)
    rows = outputs[0][0].T
    rows = rows[rows[:, 4:].max(axis=1) > 0.25]
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], axis=1).tolist()
    kept = cv2.dnn.NMSBoxesBatched(
        boxes, rows[:, 4:].max(axis=1).tolist(), rows[:, 4:].argmax(axis=1).tolist(), 0.25, 0.6
    )
    assert len(found) == len(kept) > 0
    np.testing.assert_allclose(np.sort(found.scores), np.sort(rows[kept, 4:].max(axis=1)))


def test_yolox_nano_finds_bottles(data_folder):
    video = cv2.VideoCapture(str(data_folder / "video" / "intel_bottle-detection.mp4"))
    video.set(cv2.CAP_PROP_POS_FRAMES, 400)
    read, picture = video.read()
    assert read
    height, width = picture.shape[:2]
    tensor_spec = Tensor(416, 416, color="BGR", scale=1.0)
    plan = Plan(Source(width, height, PixelFormat.BGR8), tensor_spec, Fit("letterbox_topleft"))
    tensor = tensor_spec.empty()
    plan.prepare(tensor)
    plan.run(picture, tensor)
    outputs = run(data_folder / "models" / "yolox-nano-coco" / "yolox_nano.onnx", tensor)
    spec = HeadSpec("yolox", 80, 416, 416, score=0.4)
    found = make_decoder(spec, [Output("out", outputs[0].shape)])(outputs, plan.geometry.to_source_px)
    bottle = 39
    assert (found.labels == bottle).any()
    sides = found.boxes_px[found.labels == bottle][:, 2:] - found.boxes_px[found.labels == bottle][:, :2]
    assert (sides[:, 1] > sides[:, 0]).all()  # bottles stand

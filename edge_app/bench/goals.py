"""The goals that figures are shown beside, by `key.name`. Nothing asserts them: a busy machine is no defect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound."""

    at_least: bool
    bound: float

    def reached(self, value: float) -> bool:
        """Whether a figure keeps it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def _least(bound: float) -> Goal:
    return Goal(True, bound)


def _most(bound: float) -> Goal:
    return Goal(False, bound)


GENERAL_SIZES = ("2448x2048", "1600x1200", "4096x3000")

GOALS = {
    "w1_1080p_f32.ratio_tuned_cv2": _least(4),
    "w1_1080p_f32.ratio_ultralytics": _least(7),
    "w1_1080p_f32.ratio_blob": _least(7),
    "w1_1080p_f32.ratio_floor": _most(1.1),
    **{f"w1_{size}_f32.ratio_tuned_cv2": _least(2) for size in GENERAL_SIZES},
    "w2_1080p_u8.ratio_tuned_cv2": _least(3.5),
    "w2_1080p_u8.ratio_blob": _least(5),
    "w2_1080p_u8.ratio_floor": _most(1.1),
    "w2_1080p_u8.ratio_frame_memcpy": _least(1),
    **{f"w2_{size}_u8.ratio_tuned_cv2": _least(1.8) for size in GENERAL_SIZES},
    "w3_nv12_1080p.ratio_tuned_cv2": _least(8),
    "w3_nv12_1080p.ratio_libyuv": _least(2),
    "w3_nv12_720p.ratio_libyuv": _least(1),
    "w4_crop224.ratio_tuned_cv2": _least(2.2),
    "w4_crop224_antialias.ratio_torchvision": _least(5),
    "w5_mono_12mp.ratio_cv2": _least(1.7),
    "w5_area_12mp.ratio_inter_area": _least(20),
    "w5_area_12mp.ratio_libyuv_box": _least(1.6),
    "w5_bayer_12mp.ratio_tuned_cv2": _least(6),
    "w6_conf25.ratio_numpy_cv2": _least(2),
    "w6_conf25.ratio_ultralytics": _least(3.5),
    "w6_conf25.ratio_edgefirst": _least(3.5),
    "w6_conf001.ratio_torchvision": _least(25),
    "w6_conf001.ratio_edgefirst": _least(6),
    "host_null_1080p.cpu_ms_beyond_kernels": _most(0.6),
    "host_null_1080p.p99_to_p50": _most(2),
    "host_stubbed.ratio_ultralytics": _least(10),
    "host_cpu.ratio_ultralytics": _least(3),
    "pipelined_1_camera.line_to_slowest_stage": _least(0.95),
    "pipelined_4_cameras.line_to_slowest_stage": _least(0.95),
    "pipelined_1_camera.latency_to_sum_of_stages": _most(1.1),
    "bus_seal_200.p50_us": _most(20),
    "bus_seal_1000.p50_us": _most(20),
    **{
        f"bus_latency_{rate}_{count}.publish_to_bare_{share}": _most(1.2)
        for rate in (200, 2000)
        for count in (1, 10, 100)
        for share in ("p50", "p99")
    },
    "model.ratio_cycles": _least(1),
    "model.ratio_bytes": _least(1),
    "memory_cpu_plan.resident_mb": _most(180),
    "start_help.wall_ms": _most(150),
    "start_null.first_result_ms": _most(500),
    "start_cpu.first_result_ms": _most(1000),
}

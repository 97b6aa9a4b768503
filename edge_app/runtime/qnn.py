"""The htp and hybrid plans: onnxruntime-qnn on a board's HTP, or on the simulator that its x86_64 wheel carries.

onnxruntime-qnn swallows bad options, runs damaged contexts and lets a later session's SoC leak into an earlier one
(measured), so names are checked here, digests by the caller, and one process keeps to one SoC.
"""

from __future__ import annotations

import glob
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnxruntime as ort
import onnxruntime_qnn

from edge_app.errors import RuntimeFault
from edge_app.runtime.ort import FaultExplainer, OrtSession, load, placed_on_cpu, session_options
from edge_app.verdict import PlanKind

PROVIDER = "QNNExecutionProvider"
FASTRPC = "/dev/fastrpc-cdsp*"


@dataclass(frozen=True, slots=True)
class HtpTarget:
    """The HTP that a plan was compiled for, in the compiler's numbers."""

    soc: str
    soc_model: int
    htp_arch: int


_target_of_process: HtpTarget | None = None
_greeted = False


@cache
def devices() -> tuple[ort.OrtEpDevice, ...]:
    """The QNN devices of this machine; registers the provider's library on first use. Empty: none.

    Raises:
        RuntimeFault: the library can't be loaded.
    """
    try:
        ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    except Exception as error:  # onnxruntime raises a dozen unrelated classes
        raise RuntimeFault(
            "onnxruntime-qnn's library can't be loaded",
            got=str(error)[:300],
            remedy="run `edge_app doctor`; the wheel must fit this machine and its glibc",
        ) from error
    return tuple(device for device in ort.get_ep_devices() if device.ep_name == PROVIDER)


def is_simulator() -> bool:
    """Whether QNN sessions of this machine run on the simulated HTP."""
    return platform.machine() == "x86_64"


def dsp_nodes() -> list[str]:
    """Device nodes of the compute DSP, e.g. /dev/fastrpc-cdsp."""
    return sorted(glob.glob(FASTRPC))


def npu_missing() -> str | None:
    """Why there is no real NPU to use here; None if there is one."""
    if is_simulator():
        return "no DSP: an x86_64 machine has only the HTP simulator (ask for it with runtime.provider: qnn)"
    if not dsp_nodes():
        return f"no DSP: there is no {FASTRPC}"
    try:
        found = devices()
    except RuntimeFault as error:
        return error.brief
    return None if found else "onnxruntime-qnn lists no NPU although there is a DSP device node; see `edge_app doctor`"


def provider_options(target: HtpTarget) -> dict[str, str]:
    """The provider's options that say which HTP: the same for compiling and for running."""
    return {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "soc_model": str(target.soc_model),
        "htp_arch": str(target.htp_arch),
    }


def versions() -> dict[str, str]:
    """Versions that bind a compiled plan: onnxruntime and its QNN provider."""
    return {"onnxruntime": ort.__version__, "onnxruntime_qnn": onnxruntime_qnn.__version__}


def open_qnn(
    file: Path,
    plan: PlanKind,
    target: HtpTarget,
    *,
    host_ops: frozenset[str] = frozenset(),
    host_nodes: frozenset[str] = frozenset(),
    threads: int | None = None,
    explain: FaultExplainer = lambda _text: None,
) -> OrtSession:
    """Loads a compiled plan (or compiles a QDQ model in memory) and reads its placement back.

    Args:
        file: the plan's ONNX file.
        plan: htp or hybrid.
        target: the HTP to run on; the first one of a process binds all later ones.
        host_ops: op kinds that are planned to run on the CPU.
        host_nodes: names of single nodes planned to run on the CPU.
        threads: CPU threads of the host nodes.
        explain: meaning and remedy of a QNN error, by its text.

    Raises:
        RuntimeFault: no QNN device, another SoC is in use, or a node fell to the CPU that was not planned there.
        ModelError: the file can't be loaded.
    """
    _claim(target)
    if not devices():
        raise RuntimeFault(
            "there is no QNN device on this machine",
            where=str(file),
            got=npu_missing(),
            remedy="run `edge_app doctor`, or set runtime.fallback: cpu",
        )
    options = session_options(threads)
    options.add_provider_for_devices(list(devices()), provider_options(target))
    with _greeting_on_stderr():
        session = load(file, options)
    unplanned = [
        f"{name} ({op})" for name, op in placed_on_cpu(session) if op not in host_ops and name not in host_nodes
    ]
    if unplanned:
        raise RuntimeFault(
            f"{len(unplanned)} nodes of plan {plan} fell to the CPU that were not planned there",
            where=str(file),
            wanted=f"on the CPU only: {', '.join(sorted(host_ops | host_nodes)) or 'nothing'}",
            got=", ".join(unplanned[:8]) + (" ..." if len(unplanned) > 8 else ""),
            remedy="compile the plan again for this SoC and release, or list the op kinds as host ops",
        )
    return OrtSession(session, file, plan, provider="qnn", simulated=is_simulator(), explain=explain)


@contextmanager
def _greeting_on_stderr() -> Iterator[None]:
    """The HTP library prints a line to stdout when it is first used; only the product's own output belongs there."""
    global _greeted
    if _greeted:
        yield
        return
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)
        _greeted = True


def _claim(target: HtpTarget) -> None:
    global _target_of_process  # device options leak between sessions of a process, so the process has one target
    if _target_of_process is None:
        _target_of_process = target
    if _target_of_process != target:
        raise RuntimeFault(
            "this process already runs another SoC's plans",
            wanted=_target_of_process.soc,
            got=target.soc,
            remedy="one SoC per process: start another one",
        )

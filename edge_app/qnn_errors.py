"""Errors of QNN and its onnxruntime provider: what they mean, and what to do.

Names and numbers are those of the QNN headers (QnnCommon.h, QnnBackend.h, QnnContext.h, QnnGraph.h, QnnMem.h,
QnnDevice.h, QnnSystemContext.h); an error handle carries its number in the low 16 bits. ENGINE_ERROR and EP_FAIL are
onnxruntime's status names. Remedies come from what users and maintainers reported for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QnnError:
    """One error: its number (None for onnxruntime's), its name, what happened, what to do."""

    code: int | None
    name: str
    meaning: str
    remedy: str
    session_lost: bool = False
    """The session can't be used again and has to be built anew."""


_SPACE = "close other users of the NPU; check free memory and /dev/dma_heap; a float graph may be too big: quantize it"
_RECOMPILE = "compile the plan again for this SoC with the installed release: `edge_app model compile NAME --soc SOC`"
_TRANSPORT = (
    "see that the DSP runs (/sys/class/remoteproc), that this user may open /dev/fastrpc-cdsp*, and that libcdsprpc"
    " and the wheel's skel libraries are found; `edge_app doctor` looks at each"
)
_REBOOT = "restart the service; if it comes back, restart the board and update its DSP firmware"

QNN_ERRORS = (
    QnnError(
        1000,
        "QNN_COMMON_ERROR_NOT_SUPPORTED",
        "the NPU's driver does not have this function",
        "update QAIRT and the DSP firmware to matching releases",
    ),
    QnnError(
        1002, "QNN_COMMON_ERROR_MEM_ALLOC", "no memory on the NPU, or an op that the NPU has not in that type", _SPACE
    ),
    QnnError(1003, "QNN_COMMON_ERROR_SYSTEM", "an operating system service failed", _TRANSPORT),
    QnnError(1004, "QNN_COMMON_ERROR_INVALID_ARGUMENT", "the driver was given what it does not accept", _RECOMPILE),
    QnnError(
        1005,
        "QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED",
        "a call came in an order that is not allowed",
        "restart the service; if it comes back, report it with the log",
    ),
    QnnError(
        1006,
        "QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED",
        "this machine is not one the driver knows",
        "use a plan for this SoC; `edge_app doctor` shows which SoC the board says it has",
    ),
    QnnError(
        1007,
        "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION",
        "the link to the DSP broke; it can recover",
        "the session is built again by itself; if it repeats, look at dmesg for cdsp",
        session_lost=True,
    ),
    QnnError(
        1008,
        "QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES",
        "libraries of different releases came together",
        "remove other QNN libraries from the library path; the wheel brings its own",
    ),
    QnnError(
        1009, "QNN_COMMON_ERROR_LOADING_BINARIES", "a library was loaded twice in this process", "restart the service"
    ),
    QnnError(
        1010,
        "QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE",
        "a resource of the NPU is in use",
        "close other programs that use the NPU",
        session_lost=True,
    ),
    QnnError(
        1011,
        "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION_FATAL",
        "the link to the DSP broke for the rest of this process",
        _REBOOT,
        session_lost=True,
    ),
    QnnError(
        1100,
        "QNN_COMMON_ERROR_GENERAL",
        "the NPU failed without saying why",
        "load a compiled context instead of a QDQ model; the DSP's log (dmesg) tells more",
        session_lost=True,
    ),
    QnnError(
        4000,
        "QNN_BACKEND_ERROR_CANNOT_INITIALIZE",
        "the HTP back end did not start, or no skel was found",
        _TRANSPORT,
        session_lost=True,
    ),
    QnnError(
        5000, "QNN_CONTEXT_ERROR_INVALID_ARGUMENT", "the context is damaged, or of another SoC or release", _RECOMPILE
    ),
    QnnError(
        5001,
        "QNN_CONTEXT_ERROR_CTX_DOES_NOT_EXIST",
        "the context is gone",
        "the session is built again by itself",
        session_lost=True,
    ),
    QnnError(
        5002,
        "QNN_CONTEXT_ERROR_INVALID_HANDLE",
        "the context is gone",
        "the session is built again by itself",
        session_lost=True,
    ),
    QnnError(5004, "QNN_CONTEXT_ERROR_BINARY_VERSION", "compiled by a release that this one can't read", _RECOMPILE),
    QnnError(
        5005,
        "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY",
        "the NPU can't take the context: other architecture or release, or too big",
        _RECOMPILE,
    ),
    QnnError(
        5008, "QNN_CONTEXT_ERROR_BINARY_CONFIGURATION", "compiled for another configuration of the NPU", _RECOMPILE
    ),
    QnnError(5011, "QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL", "compiled for a smaller or older NPU", _RECOMPILE),
    QnnError(6000, "QNN_GRAPH_ERROR_INVALID_ARGUMENT", "a run was given tensors that do not fit the graph", _RECOMPILE),
    QnnError(
        6001,
        "QNN_GRAPH_ERROR_INVALID_HANDLE",
        "the graph is gone, or was never finished",
        "compile the model to a context; the session is built again by itself",
        session_lost=True,
    ),
    QnnError(6020, "QNN_GRAPH_ERROR_CREATE_FAILED", "the graph could not be made with these options", _RECOMPILE),
    QnnError(
        6021,
        "QNN_GRAPH_ERROR_OPTIMIZATION_FAILED",
        "an op or its types can't be compiled for this HTP",
        "`edge_app model import` lists the ops that the HTP does not take; put them on the CPU (hybrid)",
    ),
    QnnError(
        6022,
        "QNN_GRAPH_ERROR_FINALIZE_FAILED",
        "the graph could not be compiled for this HTP",
        "`edge_app model import` lists the ops that the HTP does not take; put them on the CPU (hybrid)",
    ),
    QnnError(6031, "QNN_GRAPH_ERROR_ABORTED", "the run was ended from outside", "the frame is run again by itself"),
    QnnError(
        6033,
        "QNN_GRAPH_ERROR_TIMED_OUT",
        "the run took longer than the driver allows",
        "look at temperature and power mode: the chip may be throttled",
        session_lost=True,
    ),
    QnnError(
        8000,
        "QNN_MEM_ERROR_INVALID_HANDLE",
        "shared memory is gone",
        "the session is built again by itself",
        session_lost=True,
    ),
    QnnError(8003, "QNN_MEM_ERROR_MAPPING", "memory could not be mapped for the DSP", _SPACE),
    QnnError(14000, "QNN_DEVICE_ERROR_INVALID_HANDLE", "the device is gone", _REBOOT, session_lost=True),
    QnnError(
        14001,
        "QNN_DEVICE_ERROR_INVALID_CONFIG",
        "the device was not made: most often the DSP can't be reached (permissions, firmware, skel), else SoC or"
        " architecture are not this board's",
        _TRANSPORT,
    ),
    QnnError(14002, "QNN_DEVICE_ERROR_HARDWARE_UNAVAILABLE", "the NPU is not there or is off", _TRANSPORT),
    QnnError(
        14003,
        "QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT",
        "the device is still in use by a context",
        "close the other session first; one process runs one SoC",
    ),
    QnnError(30002, "QNN_SYSTEM_CONTEXT_ERROR_OPERATION_FAILED", "the context's header could not be read", _RECOMPILE),
    QnnError(
        30010,
        "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY",
        "no context of this release: cut off, damaged or newer",
        "copy it again, compare its sha256 with the manifest; else " + _RECOMPILE,
    ),
    QnnError(
        None,
        "SSR",
        "the DSP crashed and was restarted (subsystem restart); its sessions are dead",
        "the session is built again by itself; if it repeats, look at temperature, power supply and firmware",
        session_lost=True,
    ),
    QnnError(
        None,
        "ENGINE_ERROR",
        "the NPU failed while it ran, as it does when the DSP crashes",
        "the session is built again by itself; if it repeats, look at dmesg, temperature and power",
        session_lost=True,
    ),
    QnnError(None, "EP_FAIL", "the provider failed", "read the number behind it; run `edge_app doctor`"),
)

_BY_CODE = {error.code: error for error in QNN_ERRORS if error.code is not None}
_BY_NAME = {error.name: error for error in QNN_ERRORS}
_NAMED = re.compile(r"QNN_[A-Z]+(?:_[A-Z]+)*_ERROR_[A-Z_]+|ENGINE_ERROR|EP_FAIL")
_NUMBERED = re.compile(r"(?:err(?:or)?(?:[ _]?code)?|status)\s*[:=]?\s*(0x[0-9a-fA-F]{3,16}|\d{4,20})", re.IGNORECASE)
_CRASH = re.compile(r"\bSSR\b|NPU crashed")
_LOW_16_BITS = 0xFFFF


def explain_qnn(text: str) -> QnnError | None:
    """The error that a message tells of; None if there is none in it.

    A number or a QNN name is more than onnxruntime's status, so `ENGINE_ERROR ... error code: 1100` is 1100; a crash
    of the DSP is more than either.
    """
    if _CRASH.search(text):
        return _BY_NAME["SSR"]
    names = [_BY_NAME[name] for name in _NAMED.findall(text) if name in _BY_NAME]
    qnn = [error for error in names if error.code is not None]
    if qnn:
        return qnn[0]
    for digits in _NUMBERED.findall(text):
        known = explain_code(int(digits, 0))
        if known is not None:
            return known
    return names[0] if names else None


def explain_code(handle: int) -> QnnError | None:
    """The error of a number as QNN gives it: the low 16 bits are the code."""
    return _BY_CODE.get(handle & _LOW_16_BITS)


def remedy_of(text: str) -> str | None:
    """Meaning and remedy of a message in one sentence, for an error's `do:` line; None if it is not known."""
    error = explain_qnn(text)
    return None if error is None else f"{error.name}: {error.meaning}; {error.remedy}"

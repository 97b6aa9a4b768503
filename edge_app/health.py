"""What `edge_app doctor` looks at: each check takes what was found on a board and says what to do about it."""

from __future__ import annotations

import ctypes.util
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from edge_app.npu_out import NpuOut
from edge_app.scheduler.policy import own_trip_c
from edge_app.thermal import CoolingDevice
from edge_app.zones import Zone, ZoneGroup, ZoneReading, ZoneState

DEV = Path("/dev")
DSP_NODES = "fastrpc-cdsp*"
LIBRARIES = {"onnxruntime": (1, 32), "onnxruntime-qnn": (2, 7), "numpy": (2, 0), "opencv-python-headless": (4, 10)}
"""Distributions that a node needs, and the oldest release that works."""


class Grade(StrEnum):
    """How bad a finding is. FAIL alone makes the command's exit code 1."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing to do."""
    WARN = "warn"
    """Works, but not as well as it could."""
    FAIL = "fail"
    """Something that this machine should do does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    grade: Grade
    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DspNode:
    """A device node of the compute DSP, and whether this user may open it."""

    path: str
    readable: bool
    writable: bool


def machine_findings(root: Path) -> list[Finding]:
    """Processor and board.

    Args:
        root: /sys, or a recorded tree.
    """
    chip = _first_line(root / "devices/soc0/machine")
    number = _first_line(root / "devices/soc0/soc_id")
    model = _first_line(Path("/proc/device-tree/model"))
    found = [Finding("machine", Grade.NOTE, f"{platform.machine()}, {platform.system()} {platform.release()}")]
    if chip is not None or model is not None:
        parts = [text for text in (model, chip, f"soc_id {number}" if number else None) if text]
        found.append(Finding("board", Grade.NOTE, ", ".join(parts)))
    return found


def library_findings(installed: Mapping[str, str | None]) -> list[Finding]:
    """Versions of what a node needs.

    Args:
        installed: release by distribution; None: absent. See `installed_libraries`.
    """
    found = []
    for name, oldest in LIBRARIES.items():
        release = installed.get(name)
        wanted = ".".join(str(n) for n in oldest)
        if release is None:
            optional = name == "onnxruntime-qnn" and platform.machine() not in ("x86_64", "aarch64")
            found.append(
                Finding(
                    "library",
                    Grade.NOTE if optional else Grade.FAIL,
                    f"{name} is not installed",
                    f"pip install '{name}>={wanted}'",
                )
            )
        elif release_of(release) < oldest:
            found.append(
                Finding(
                    "library", Grade.FAIL, f"{name} {release} is older than {wanted}", f"pip install '{name}>={wanted}'"
                )
            )
        else:
            found.append(Finding("library", Grade.OK, f"{name} {release}"))
    return found


def installed_libraries() -> dict[str, str | None]:
    """Release by distribution, of those in LIBRARIES; None: absent."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version up to the first part that is none: 1.32.0rc1 is (1, 32)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def dsp_nodes(dev: Path = DEV) -> list[DspNode]:
    """Device nodes of the compute DSP."""
    return [
        DspNode(str(node), os.access(node, os.R_OK), os.access(node, os.W_OK)) for node in sorted(dev.glob(DSP_NODES))
    ]


def dsp_findings(root: Path, nodes: Sequence[DspNode], simulator: bool) -> list[Finding]:
    """Whether the DSP runs, has its device node, and may be opened.

    Args:
        root: /sys, or a recorded tree.
        nodes: see `dsp_nodes`.
        simulator: this machine has the HTP simulator instead (x86_64).
    """
    if simulator and not nodes:
        return [
            Finding(
                "npu",
                Grade.NOTE,
                "no NPU: an x86_64 machine has the HTP simulator instead",
                "runtime.provider: qnn uses it; `auto` uses the CPU",
            )
        ]
    found = []
    state = dsp_state(root)
    if state not in (None, "running"):
        found.append(
            Finding(
                "dsp",
                Grade.FAIL,
                f"the compute DSP is {state}",
                "look at `dmesg | grep -i cdsp`; its firmware must be where the kernel looks for it"
                " (also in the initramfs), then restart the board",
            )
        )
    elif state == "running":
        found.append(Finding("dsp", Grade.OK, "the compute DSP is running"))
    if not nodes:
        # A machine whose kernel knows no compute DSP is not broken: it has none.
        grade = Grade.WARN if state is None else Grade.FAIL
        remedy = (
            "without a compute DSP the cpu plan is used; if the board has one, its kernel needs the FastRPC driver:"
            " load module fastrpc, use the vendor's kernel and device tree"
        )
        found.append(Finding("npu", grade, f"no device node {DEV}/{DSP_NODES}", remedy))
        return found
    # Unprivileged processes use the plain node; the one for signed code (-secure) is normally closed to them.
    plain = [node for node in nodes if not node.path.endswith("-secure")] or list(nodes)
    return found + [_node_finding(node) for node in plain]


def _node_finding(node: DspNode) -> Finding:
    """Whether this user may open it."""
    missing = " and ".join(word for word, ok in (("read", node.readable), ("written", node.writable)) if not ok)
    if not missing:
        return Finding("npu", Grade.OK, f"{node.path} may be opened")
    return Finding(
        "npu",
        Grade.FAIL,
        f"{node.path} can't be {missing} by this user",
        "add the service's user to the node's group (often fastrpc, render or system), or a"
        ' udev rule: KERNEL=="fastrpc-cdsp*", GROUP="fastrpc", MODE="0660"',
    )


def dsp_state(root: Path) -> str | None:
    """What the kernel says of the compute DSP (running, offline, crashed); None if it does not know one."""
    for folder in sorted(root.glob("class/remoteproc/remoteproc*")):
        if "cdsp" in (_first_line(folder / "name") or ""):
            return _first_line(folder / "state")
    return None


def transport_findings(library: str | None) -> list[Finding]:
    """The vendor's library that talks to the DSP.

    Args:
        library: its file, None if the linker does not find it; see `transport_library`.
    """
    if library is not None:
        return [Finding("transport", Grade.OK, f"{library} is found")]
    return [
        Finding(
            "transport",
            Grade.FAIL,
            "libcdsprpc.so is not found",
            "install the board's FastRPC package (libcdsprpc1, qcom-fastrpc or the vendor's image), run ldconfig",
        )
    ]


def transport_library() -> str | None:
    """The file of libcdsprpc as the linker finds it."""
    return ctypes.util.find_library("cdsprpc")


def provider_findings(devices: Sequence[str] | None, error: str | None, on_npu: bool, simulator: bool) -> list[Finding]:
    """What onnxruntime-qnn lists.

    Args:
        devices: names of its devices; None if the provider could not be asked.
        error: why not.
        on_npu: whether this machine should have a real one.
        simulator: its devices are the HTP simulator.
    """
    if devices is None:
        return [
            Finding(
                "provider",
                Grade.FAIL,
                f"onnxruntime-qnn can't be loaded: {error}",
                "install the wheel of this machine; it needs glibc 2.34 (aarch64) or 2.35 (x86_64)",
            )
        ]
    if devices:
        what = "the HTP simulator" if simulator else ", ".join(devices)
        return [Finding("provider", Grade.OK, f"onnxruntime-qnn lists {what}")]
    grade = Grade.FAIL if on_npu else Grade.NOTE
    return [
        Finding(
            "provider",
            grade,
            "onnxruntime-qnn lists no device",
            "see the findings on the DSP above; without one the cpu plan is used",
        )
    ]


def soc_findings(provider: str, soc: str | None, on_npu: bool, root: Path) -> list[Finding]:
    """Whether a pipeline that may use the NPU names the SoC whose plans it loads.

    Args:
        provider: `runtime.provider`.
        soc: `runtime.soc`.
        on_npu: whether this machine has a real NPU.
        root: /sys, or a recorded tree.
    """
    if soc is not None or not on_npu or provider not in ("auto", "qnn"):
        return []
    chip = _first_line(root / "devices/soc0/machine")
    here = "" if chip is None else f"; this board's is {chip.lower()}"
    remedy = f"set runtime.soc{here}; `edge_app model show` lists those that the model has plans for"
    return [Finding("soc", Grade.FAIL, "runtime.soc is not set: no plan on the NPU can be chosen", remedy)]


def npu_out_findings(note: NpuOut | None, file: Path, removed: bool, asked: bool = False) -> list[Finding]:
    """Whether this pipeline's starts keep the NPU out; see edge_app.npu_out.

    Args:
        note: that holds; None: there is none.
        file: where it lies, or would.
        removed: it was there and has just been taken away.
        asked: it was to be taken away.
    """
    if removed:
        return [Finding("npu_out", Grade.OK, f"{file} is removed", "the next start uses the NPU: restart the service")]
    if note is None and asked:
        remedy = "is that the service's file? Without a journal it is in the service's working directory: run it there"
        return [Finding("npu_out", Grade.WARN, f"nothing to take away: there is no {file}", remedy)]
    if note is None:
        return []
    remedy = "start the board again; or see to the NPU, then `edge_app doctor --pipeline FILE --allow-npu`"
    return [Finding("npu_out", Grade.FAIL, f"{note.text} ({file})", remedy)]


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """A zone with its reading and the limits that the scheduler takes for it."""

    zone: Zone
    reading: ZoneReading
    warm_c: float
    hot_c: float
    trip_c: float


def zone_findings(zones: Sequence[ZoneReport], required: Mapping[ZoneGroup, bool], on_npu: bool) -> list[Finding]:
    """Thermal zones by group: absent ones, such as can't be believed, such as are too hot already.

    Args:
        zones: those that the pipeline's globs match.
        required: groups without which the scheduler counts the board as hot.
        on_npu: whether this machine has a real NPU; zones matter only then.
    """
    found = []
    for group, needed in required.items():
        if not any(report.zone.group is group for report in zones):
            found.append(_no_zone(group, needed, on_npu))
    for report in zones:
        found.append(_zone(report, on_npu))
    return found


def nameless_findings(errors: Sequence[OSError], watched: bool) -> list[Finding]:
    """Zones of which nobody can tell what they are; see `thermal.nameless_zones`. Each is told only if it matters."""
    remedy = "let the service's user read it; until then nothing there is watched"
    return [Finding("zone", Grade.WARN, f"{e.filename} can't be read: {e.strerror}", remedy) for e in errors if watched]


def _no_zone(group: ZoneGroup, needed: bool, on_npu: bool) -> Finding:
    text = f"no thermal zone of group {group}"
    if not on_npu:
        return Finding("zone", Grade.NOTE, text, "zones are watched on a board with an NPU")
    if not needed:
        return Finding("zone", Grade.NOTE, f"{text}: the board's own temperature is not watched")
    return Finding(
        "zone",
        Grade.FAIL,
        f"{text}: the scheduler counts it as hot",
        f"see the types in /sys/class/thermal/*/type and set scheduler.zones.{group}.types, or required: false",
    )


def _zone(report: ZoneReport, watched: bool) -> Finding:
    reading, zone = report.reading, report.zone
    limits = f"warm {report.warm_c:g}, hot {report.hot_c:g}, trip {report.trip_c:g} C"
    if reading.state is not ZoneState.OK or reading.temp_c is None:
        return Finding(
            "zone",
            Grade.FAIL if watched else Grade.WARN,
            f"{zone.name} ({zone.group}) is {reading.state}: {reading.note}",
            "it counts as hot, so parts are refused; if the board has no such sensor, leave it out of scheduler.zones",
        )
    text = f"{zone.name} ({zone.group}) {reading.temp_c:.1f} C; {limits}"
    if reading.temp_c >= report.hot_c:
        return Finding("zone", Grade.WARN, text, "it is hot now: check fan, dust and the cabinet's temperature")
    if own_trip_c(zone) is None:
        text = f"{text}; it has no trip point of its own that can be used"
        return Finding("zone", Grade.NOTE, text, "set trip_c in scheduler.zones")
    return Finding("zone", Grade.OK, text)


def cooling_findings(devices: Sequence[CoolingDevice], on_npu: bool) -> list[Finding]:
    """Whether the kernel holds clocks back at this moment."""
    held = [d for d in devices if d.state]
    if held:
        names = ", ".join(f"{d.type} {d.state}/{d.most}" for d in held)
        return [
            Finding(
                "cooling",
                Grade.WARN,
                f"the kernel is cooling: {names}",
                "clocks are held back, or fans run; latencies measured now are not those of a cool board",
            )
        ]
    if on_npu:
        return [
            Finding(
                "cooling",
                Grade.NOTE,
                f"{len(devices)} cooling devices, none active",
                "on most boards none of them is the NPU's: it throttles without saying so, which the scheduler"
                " sees by its latency",
            )
        ]
    return []


def _first_line(file: Path) -> str | None:
    """In characters that can be shown, as thermal.py reads its files."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None
    first = text.splitlines()[0] if text else ""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in first) or None

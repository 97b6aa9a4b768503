"""What has to do with one SoC's HTP, in a process of its own: compile, run, read the placement back.

A QNN session's SoC leaks into the later sessions of its process, so each SoC gets a new process. Started as
`python -m edge_app.toolchain.worker REQUEST`; REQUEST is a JSON file, the answer is written to `REQUEST.answer`.
Imports neither onnx nor the quantizer: a board can make its own plans from a QDQ model.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from edge_app.errors import EdgeAppError, RuntimeFault
from edge_app.runtime import qnn
from edge_app.runtime.ort import load, placed_on_cpu, session_options

LEAST_ROOM = 1 << 20
"""Bytes of disk: with less left, a failure to write a plan is one of room."""
CYCLES_EVENT = "Accelerator (execute) time (cycles)"


def _session(
    request: dict[str, Any], model: Path, extra: dict[str, str], config: dict[str, str]
) -> ort.InferenceSession:
    soc = request["soc"]
    target = qnn.HtpTarget(soc["name"], soc["soc_model"], soc["htp_arch"])
    if not qnn.devices():
        raise RuntimeFault("there is no HTP compiler on this machine", got="onnxruntime-qnn lists no device",
                           remedy="compile on x86_64 Linux or on the board; see `edge_app doctor`")  # fmt: skip
    options = session_options(None)
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    settings = {**qnn.provider_options(target), "vtcm_mb": str(soc["vtcm_mb"]), **extra}
    options.add_provider_for_devices(list(qnn.devices()), settings)
    return load(model, options)


def compile_plan(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles a QDQ model; request: model, out, host_ops, optimization."""
    out, model = Path(request["out"]).resolve(), Path(request["model"]).resolve()
    # onnxruntime names the NPU's parts after a hash of the model's path as it was given: only a path without folders
    # gives the same bytes wherever the model lies.
    os.chdir(model.parent)
    extra = {"htp_graph_finalization_optimization_mode": str(request["optimization"])}
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".compile-") as folder:
        if request["host_ops"]:
            affinity = Path(folder, "affinity.json")
            affinity.write_text(json.dumps({"op_type": dict.fromkeys(request["host_ops"], "cpu")}), encoding="utf-8")
            extra["op_affinity"] = str(affinity)
        config = {
            "ep.context_enable": "1",
            "ep.context_embed_mode": "1",
            "ep.context_file_path": str(Path(folder, "plan.onnx")),
        }
        try:
            session = _session(request, Path(model.name), extra, config)
        except EdgeAppError as error:
            raise _full_disk(out.parent, model) or error from error
        placed = placed_on_cpu(session)
        del session
        Path(folder, "plan.onnx").replace(out)
    return {"host_nodes": [list(node) for node in placed]}


def compile_all(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles several models; request: parts ([model, out] each)."""
    for model, out in request["parts"]:
        compile_plan({**request, "model": model, "out": out, "host_ops": []})
    return {}


def _full_disk(folder: Path, model: Path) -> RuntimeFault | None:
    """What really is the matter if there is no room for a plan: onnxruntime calls it an invalid model."""
    free, wanted = shutil.disk_usage(folder).free, max(model.stat().st_size, LEAST_ROOM)
    if free >= wanted:
        return None
    return RuntimeFault(
        "there is no space left for the plan",
        where=str(folder),
        wanted=f"{wanted >> 10} KiB or more",
        got=f"{free >> 10} KiB",
        remedy="free some space, then compile again",
    )


def write_dlc(request: dict[str, Any]) -> dict[str, Any]:
    """Writes a .dlc for the QNN and SNPE tools; request: model, out (folder)."""
    out = Path(request["out"])
    library = Path(qnn.provider_options(qnn.HtpTarget("", 0, 0))["backend_path"]).with_name("libQnnIr.so")
    _session(request, Path(request["model"]), {
        "dump_qnn_ir_dlc": "1", "dump_qnn_ir_dlc_dir": str(out), "qnn_ir_backend_path": str(library),
    }, {})  # fmt: skip
    return {"files": sorted(file.name for file in out.glob("*.dlc"))}


def run_plan(request: dict[str, Any], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Runs a plan; request: model, inputs (.npy files), outputs (.npz files), host_ops, profile (CSV or null)."""
    extra = {} if request["profile"] is None else {
        "profiling_level": "detailed", "profiling_file_path": request["profile"],
    }  # fmt: skip
    session = _session(request, Path(request["model"]), extra, {})
    placed = placed_on_cpu(session)
    names = [output.name for output in session.get_outputs()]
    image = session.get_inputs()[0].name
    pairs = list(zip(request["inputs"], request["outputs"], strict=True))
    for done, (source, target) in enumerate(pairs, 1):
        results = session.run(names, {image: np.load(source)})
        part = Path(f"{target}.part.npz")
        np.savez(part, **{f"o{number}": value for number, value in enumerate(results)})
        part.replace(target)
        progress(done, len(pairs))
    del session  # the profile is written when the session goes
    return {"host_nodes": [list(node) for node in placed], "rows": _profile(request["profile"]), "names": names}


def read_support(request: dict[str, Any]) -> dict[str, Any]:
    """Which nodes of some models the HTP takes; request: models. A model that fails to compile gives its error."""
    answers: list[dict[str, Any]] = []
    for model in request["models"]:
        try:
            session = _session(request, Path(model), {}, {})
            answers.append({"host_nodes": [list(node) for node in placed_on_cpu(session)], "error": None})
        except EdgeAppError as error:
            answers.append({"host_nodes": [], "error": error.got or error.what})
    return {"models": answers}


def _profile(file: str | None) -> list[list[Any]]:
    """[level, event, cycles] of each row counted in cycles, in order."""
    if file is None:
        return []
    with open(file, newline="", encoding="utf-8") as stream:
        return [
            [row["Message"], row["Event Identifier"], int(row["Time"])]
            for row in csv.DictReader(stream)
            if row["Unit of Measurement"] == "CYCLES"
        ]


def main(file: str) -> int:
    """Answers one request."""
    request = json.loads(Path(file).read_text(encoding="utf-8"))

    def progress(done: int, of: int) -> None:
        print(f"progress {done} {of}", flush=True)

    actions: dict[str, Callable[[], dict[str, Any]]] = {
        "compile": lambda: compile_plan(request),
        "compile_all": lambda: compile_all(request),
        "dlc": lambda: write_dlc(request),
        "run": lambda: run_plan(request, progress),
        "support": lambda: read_support(request),
    }
    try:
        answer = {"ok": True, **actions[request["action"]](), **qnn.versions()}
    except EdgeAppError as error:
        answer = {"ok": False, "what": error.what, "where": error.where, "got": error.got, "remedy": error.remedy}
    except OSError as error:
        answer = {"ok": False, "what": "can't write the result", "where": str(error.filename), "got": error.strerror}
    Path(f"{file}.answer").write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""An NPU that should be there and can't be had: `auto` goes on with the CPU and an alarm, `qnn` ends with exit 5."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnxruntime_qnn
import pytest
import toys

from edge_app.config.pipeline import Model, Pipeline
from edge_app.config.tensor import Preprocess
from edge_app.errors import RuntimeFault
from edge_app.model import resolve
from edge_app.plans import Options, plan_options
from edge_app.runtime import qnn
from edge_app.verdict import PlanKind, SchedReason


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board with a DSP, whose library of onnxruntime-qnn is damaged."""
    library = tmp_path / "libonnxruntime_providers_qnn.so"
    library.write_bytes(b"\x7fELF cut off")
    monkeypatch.setattr(onnxruntime_qnn, "get_library_path", lambda: str(library))
    monkeypatch.setattr(qnn, "devices", functools.cache(qnn.devices.__wrapped__))
    monkeypatch.setattr(qnn, "is_simulator", lambda: False)
    monkeypatch.setattr(qnn, "dsp_nodes", lambda: ["/dev/fastrpc-cdsp"])


def options(model: Path, **runtime: object) -> Options:
    document = {"camera": {"type": "synthetic"}, "model": {"path": str(model)}, "runtime": runtime,
                "limits": {"pacing": "offline"}}  # fmt: skip
    pipeline = Pipeline.model_validate(document, strict=False)
    return plan_options(pipeline, resolve(Model(path=model), Preprocess()), np.zeros(2, np.float32))


@pytest.mark.usefixtures("board")
def test_a_damaged_library_does_not_keep_the_line_down(toy_model: Path) -> None:
    found = options(toy_model, provider="auto")
    assert list(found.openers) == [PlanKind.CPU]
    assert (found.reason, found.degraded) == (SchedReason.NO_NPU, {"cpu_fallback"})
    assert [alarm.name for alarm in found.alarms] == ["NPU_FAULT"]
    assert "library can't be loaded" in found.alarms[0].text
    assert list(options(toy_model, provider="qnn", fallback="cpu").openers) == [PlanKind.CPU]
    with pytest.raises(RuntimeFault, match="there is no NPU here") as error:
        options(toy_model, provider="qnn")
    assert error.value.exit_code == 5


def test_a_soc_that_is_not_named_is_told_with_what_to_do(toy_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qnn, "npu_missing", lambda: None)
    (alarm,) = options(toy_model, provider="auto").alarms
    assert alarm.text == "which SoC the plans are for is not known"
    assert "set runtime.soc" in alarm.remedy


@pytest.fixture
def line_with(tmp_path: Path, toy_model: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs two frames with another onnxruntime_qnn: its source, and further arguments."""
    (tmp_path / "pictures").mkdir()
    cv2.imwrite(str(tmp_path / "pictures" / "part.png"), toys.detector_picture([]))
    (tmp_path / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true}}
model: {{path: {toy_model}}}
limits: {{pacing: offline}}
results: {{publish: null, commands: null}}
""")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))

    def line(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "onnxruntime_qnn.py").write_text(module)
        command = [sys.executable, "-P", "-m", "edge_app", "--pipeline", "line.yaml", "--frames", "2", "--json"]
        return subprocess.run([*command, *arguments], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
                              capture_output=True, text=True, timeout=120, check=False,
                              preexec_fn=heed_ctrl_c)  # fmt: skip

    return line


def heed_ctrl_c() -> None:
    """Tests that run behind a shell have it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_provider_that_can_not_be_imported_does_not_either(line_with) -> None:
    broken = "raise ImportError('libQnnHtp.so: cannot open shared object file')\n"
    done = line_with(broken)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["plan"], summary["degraded"]) == ("cpu", ["cpu_fallback"])
    assert "libQnnHtp.so: cannot open shared object file" in done.stderr
    refused = line_with(broken, "--set", "runtime.provider=qnn")
    assert refused.returncode == 5, refused.stderr
    assert "libQnnHtp.so" in refused.stderr


@pytest.mark.parametrize("instead", ["ImportError('initialization failed')", "RuntimeError('calling __set_name__')"])
def test_a_ctrl_c_that_an_import_swallows_or_changes_still_ends_the_line(line_with, instead) -> None:
    done = line_with(f"""\
import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
raise {instead}
""")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert "RUNNING" not in done.stderr

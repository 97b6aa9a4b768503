"""The process that the toolchain works in, whatever it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edge_app.errors import RuntimeFault
from edge_app.toolchain import htp
from edge_app.toolchain.socs import soc_named

ASK = "from edge_app.toolchain import htp, socs; print(htp.support([], socs.soc_named('qcs8550')))"


def test_one_that_says_more_than_a_pipe_holds_is_not_waited_for_for_ever() -> None:
    """Compilers warn by the node. Here Python itself tells each import, some 400 KB."""
    pytest.importorskip("onnxruntime_qnn")
    once = f"import os; os.environ['PYTHONVERBOSE'] = '1'; {ASK}"
    asked = subprocess.run([sys.executable, "-P", "-c", once], capture_output=True, text=True, timeout=120)
    assert (asked.returncode, asked.stdout) == (0, "[]\n"), asked.stderr


def test_its_last_words_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/ls")  # which finds no such files
    with pytest.raises(RuntimeFault, match="ended without an answer") as caught:
        htp.support([], soc_named("qcs8550"))
    assert "ls: " in str(caught.value.got)

"""One start of a line, told step by step; a module of its own, so that nothing but the line is loaded.

    python -m edge_app.bench.one_start BORN PIPELINE [KEY=VALUE ...]

tells on stdout as JSON when each step was done, in milliseconds since BORN, a moment of the monotonic clock.

    python -m edge_app.bench.one_start --load FILE SOC SOC_MODEL HTP_ARCH

loads one plan and tells how long that took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def one_start(born_s: float, pipeline: Path, overrides: list[str]) -> dict[str, float]:
    """Runs `build` and one frame; milliseconds since `born_s` of the monotonic clock at which each step was done."""
    done: dict[str, float] = {}

    def mark(name: str) -> None:
        done[name] = (time.monotonic() - born_s) * 1000

    mark("interpreter_ms")
    from edge_app import memory

    memory.begin_loading()
    from edge_app import app

    mark("imported_ms")
    from edge_app.config.load import load_pipeline

    checked = load_pipeline(pipeline, overrides)
    mark("configured_ms")
    line = app.build(checked, "bench", 1)
    mark("built_ms")
    line.start()
    memory.end_loading()
    line.wait()
    mark("first_result_ms")
    done["cpu_ms"] = time.process_time() * 1000  # of all threads; what a busy machine does not change much
    line.close()
    return done


def load_ms(file: Path, soc: str, soc_model: int, htp_arch: int) -> float:
    """Of one session."""
    from edge_app.runtime import qnn
    from edge_app.toolchain.remake import EDGES
    from edge_app.verdict import PlanKind

    qnn.devices()
    start = time.perf_counter()
    qnn.open_qnn(file, PlanKind.HTP, qnn.HtpTarget(soc, soc_model, htp_arch), host_ops=EDGES)
    return (time.perf_counter() - start) * 1000


def main(words: list[str]) -> Any:
    """One start, or one load."""
    if words[0] == "--load":
        return load_ms(Path(words[1]), words[2], int(words[3]), int(words[4]))
    return json.dumps(one_start(float(words[0]), Path(words[1]), words[2:]))


if __name__ == "__main__":
    print(main(sys.argv[1:]))

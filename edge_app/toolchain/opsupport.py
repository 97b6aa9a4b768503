"""Which ops of a model the HTP of each SoC takes, and how precisely: asked of the real compiler, never of a list."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto

from edge_app.config.tensor import HeadSpec, InputSpec
from edge_app.toolchain import graph, htp
from edge_app.toolchain.calibration import Ranges
from edge_app.toolchain.graph import Index
from edge_app.toolchain.measure import Step
from edge_app.toolchain.quantize import Activations, Recipe, Style, prepare, quantized
from edge_app.toolchain.socs import Soc

PRECISIONS: tuple[Activations, ...] = ("a8", "a16")


@dataclass(frozen=True, slots=True)
class OpSupport:
    """One kind of op: how many nodes of it the model has, and by SoC at which precisions the HTP takes all of them."""

    op_type: str
    count: int
    words: dict[str, str]
    """SoC -> e.g. `a8 a16 fp16`, `a8 (3 of 5)`, `none`."""

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {"op": self.op_type, "nodes": self.count, "htp": self.words}


def op_support(
    model: ModelProto, head: HeadSpec, image: InputSpec, socs: Sequence[Soc], step: Step = lambda _done, _of: None
) -> list[OpSupport]:
    """Compiles the model (head cut where that will be done) at 8 and 16 bits, and each kind of op alone in float.

    The ranges are made up, since only the placement is read back.
    """
    prepared = prepare(model, head, image, "model")
    ranges: Ranges = {
        name: (-1.0, 1.0) for node in prepared.model.graph.node for name in (*node.input, *node.output) if name
    }
    counts = Counter(node.op_type for node in prepared.model.graph.node)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        files = []
        for precision in PRECISIONS:
            files.append(work / f"{precision}.onnx")
            onnx.save(quantized(prepared, ranges, Recipe(precision, Style()), work), files[-1])
        kinds = sorted(counts)
        for number, kind in enumerate(kinds):
            files.append(work / f"float{number}.onnx")
            onnx.save(_alone(prepared.model, kind), files[-1])
        by_soc = {}
        for done, soc in enumerate(socs, 1):
            by_soc[soc.name] = htp.support(files, soc)
            step(done, len(socs))
    return [
        OpSupport(
            kind, counts[kind], {soc: _words(kind, counts[kind], kinds, answers) for soc, answers in by_soc.items()}
        )
        for kind in kinds
    ]


def _words(kind: str, count: int, kinds: Sequence[str], answers: Sequence[dict[str, Any]]) -> str:
    words = []
    for precision, answer in zip(PRECISIONS, answers, strict=False):
        lost = count if answer["error"] else sum(op == kind for _, op in answer["host_nodes"])
        if lost < count:
            words.append(precision if not lost else f"{precision} ({count - lost} of {count})")
    in_float = answers[len(PRECISIONS) + kinds.index(kind)]
    if in_float["error"] is None and not any(op == kind for _, op in in_float["host_nodes"]):
        words.append("fp16")
    return " ".join(words) or "none"


def _alone(model: ModelProto, kind: str) -> ModelProto:
    """A model of the first node of a kind, its inputs open, in float."""
    index = Index(model)
    node: NodeProto = next(n for n in model.graph.node if n.op_type == kind)
    constants = [index.initializers[name] for name in node.input if name in index.initializers]
    inputs = [index.info(name) for name in dict.fromkeys(index.dynamic_inputs(node))]
    outputs = [index.info(name) for name in node.output if name and name in index.types]
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], kind, inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", graph.opset(model))],
        ir_version=model.ir_version,
    )

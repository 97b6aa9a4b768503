"""What the CPU and QNN sessions share: an onnxruntime session with buffers bound by address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort

from edge_app import memory
from edge_app.errors import ModelError, RuntimeFault, scarcity
from edge_app.runtime.base import Binding, TensorInfo, numpy_dtype
from edge_app.verdict import PlanKind, PowerMode

FaultExplainer = Callable[[str], str | None]


def session_options(threads: int | None) -> ort.SessionOptions:
    """Options of every session: placement is recorded, onnxruntime's own chatter is off."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # Spinning threads would take the cores from the other stages of the line between two runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The pattern is a second block beside what the first run took piece by piece: 10 MB for pcb-defect, and no faster.
    options.enable_mem_pattern = False
    if threads is not None:
        options.intra_op_num_threads = threads
    keep_products_exact(options)
    return options


def keep_products_exact(options: ort.SessionOptions) -> None:
    """On x86 without VNNI, products of uint8 and int8 saturate at 16 bits, and a quantised model's numbers are wrong.

    onnxruntime then multiplies uint8 by uint8 instead. Elsewhere this changes nothing.
    """
    options.add_session_config_entry("session.x64quantprecision", "1")


def load(file: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    """Loads an ONNX file.

    Raises:
        ModelError: absent, empty, damaged, or not loadable; says which.
        RuntimeFault: no memory for it: no fault of the model, and another start may have it.
    """
    if not file.is_file():
        raise ModelError("no such model file", where=str(file), remedy="check model.path, or compile the plan")
    if file.stat().st_size == 0:
        raise ModelError(
            "the model file is empty",
            where=str(file),
            wanted="an ONNX model",
            got="0 bytes",
            remedy="copy it again; a transfer or a full disk cut it off",
        )
    try:
        session = ort.InferenceSession(str(file), options)
    except Exception as error:  # onnxruntime raises a dozen unrelated classes
        if (scarce := scarcity(error)) is not None:
            raise scarce from error
        raise ModelError(
            "onnxruntime can't load the model",
            where=str(file),
            wanted="a loadable ONNX model",
            got=first_line(error),
            remedy="export it again, or check that this release supports its opset",
        ) from error
    memory.give_back()
    return session


def first_line(error: BaseException) -> str:
    """The first line of an error, shortened: onnxruntime puts whole graphs into its messages."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


def tensor_infos(session: ort.InferenceSession, file: Path) -> tuple[TensorInfo, tuple[TensorInfo, ...]]:
    """Input and outputs of a session; exactly one input, all shapes static, batch 1."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise ModelError(
            "a model must have one input, the picture",
            where=str(file),
            wanted="1 input",
            got=f"{len(inputs)}: {', '.join(i.name for i in inputs)}",
            remedy="export it without the others",
        )
    return _info(inputs[0], file), tuple(_info(output, file) for output in session.get_outputs())


def _info(node: Any, file: Path) -> TensorInfo:
    if not all(isinstance(size, int) and size > 0 for size in node.shape):
        raise ModelError(
            "a tensor has a shape that is not static",
            where=f"{file}, tensor {node.name}",
            wanted="fixed sizes, batch 1",
            got=str(node.shape),
            remedy="export with a static shape, or run `edge_app model import`, which fixes it",
        )
    return TensorInfo(node.name, tuple(node.shape), numpy_dtype(node.type, f"{file}, tensor {node.name}"))


def placed_on_cpu(session: ort.InferenceSession) -> tuple[tuple[str, str], ...]:
    """(name, op type) of every node that was read back as placed on the CPU execution provider."""
    return tuple(
        (node.name, node.op_type)
        for subgraph in session.get_provider_graph_assignment_info()
        if subgraph.ep_name == "CPUExecutionProvider"
        for node in subgraph.get_nodes()
    )


class OrtSession:
    """A plan that onnxruntime runs."""

    def __init__(
        self,
        session: ort.InferenceSession,
        file: Path,
        plan: PlanKind,
        *,
        provider: str,
        simulated: bool,
        explain: FaultExplainer = lambda _text: None,
    ) -> None:
        self._session: ort.InferenceSession | None = session
        self._file = file
        self._explain = explain
        self.plan = plan
        self.provider = provider
        self.simulated = simulated
        self.input, self.outputs = tensor_infos(session, file)
        self.host_nodes = tuple(f"{name} ({op})" for name, op in placed_on_cpu(session))
        self.metadata: dict[str, str] = dict(session.get_modelmeta().custom_metadata_map)
        self._run_options: dict[PowerMode, ort.RunOptions] = {}

    def bind(self) -> Binding:
        """Buffers bound by address; they live as long as the Binding."""
        if self._session is None:
            raise RuntimeFault("the session is closed", where=str(self._file))
        binding = self._session.io_binding()
        image = self.input.empty()
        binding.bind_input(self.input.name, "cpu", 0, image.dtype, image.shape, image.ctypes.data)
        outputs = tuple(info.empty() for info in self.outputs)
        for info, array in zip(self.outputs, outputs, strict=True):
            binding.bind_output(info.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        return Binding(image, outputs, binding)

    def run(self, binding: Binding, power_mode: PowerMode) -> None:
        """One inference; see Session.run."""
        if self._session is None:
            raise RuntimeFault("the session is closed", where=str(self._file))
        try:
            self._session.run_with_iobinding(binding.handle, self._options(power_mode))
        except Exception as error:  # onnxruntime raises a dozen unrelated classes; each is a fault
            text = first_line(error)
            raise RuntimeFault(
                f"inference failed on plan {self.plan}",
                where=str(self._file),
                got=text,
                remedy=self._explain(str(error)),
            ) from error

    def _options(self, power_mode: PowerMode) -> ort.RunOptions:
        options = self._run_options.get(power_mode)
        if options is None:
            options = ort.RunOptions()
            if power_mode is not PowerMode.NONE:
                options.add_run_config_entry("qnn.htp_perf_mode", power_mode.value)
            self._run_options[power_mode] = options
        return options

    def close(self) -> None:
        """Gives the memory back."""
        self._session = None

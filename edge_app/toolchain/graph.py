"""Reading and reshaping ONNX graphs: what import, quantize, partition and audit have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, numpy_helper, shape_inference

from edge_app.durable import write_whole
from edge_app.errors import ModelError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """Lookups over a graph. Worked out once; worthless after the graph is changed."""

    model: ModelProto

    @cached_property
    def producer(self) -> dict[str, NodeProto]:
        """Tensor -> the node that makes it."""
        return {output: node for node in self.model.graph.node for output in node.output if output}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        """Tensor -> the nodes that read it."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """Constant tensors by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def outputs(self) -> set[str]:
        """Names of the graph's outputs."""
        return {output.name for output in self.model.graph.output}

    @cached_property
    def types(self) -> dict[str, onnx.TypeProto]:
        """Tensor -> type, of all whose type is known."""
        graph = self.model.graph
        return {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}

    def info(self, tensor: str) -> onnx.ValueInfoProto:
        """A tensor as graphs declare their inputs and outputs; its type must be known."""
        info = onnx.ValueInfoProto()
        info.name = tensor
        info.type.CopyFrom(self.types[tensor])
        return info

    def shape(self, tensor: str) -> Shape | None:
        """Static shape of a tensor; None where it is not known or not static."""
        if tensor in self.initializers:
            return tuple(self.initializers[tensor].dims)
        kind = self.types.get(tensor)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]
        return tuple(dims) if all(size > 0 for size in dims) else None

    def constant(self, tensor: str) -> npt.NDArray[np.generic] | None:
        """Value of an initializer; None if the tensor is none."""
        found = self.initializers.get(tensor)
        return None if found is None else numpy_helper.to_array(found)

    def dynamic_inputs(self, node: NodeProto) -> Iterator[str]:
        """Inputs of a node that are no constants."""
        return (name for name in node.input if name and name not in self.initializers)


def load(file: Path) -> ModelProto:
    """Reads an ONNX file.

    Raises:
        ModelError: absent, empty, or not an ONNX model.
    """
    try:
        size = file.stat().st_size
    except OSError as error:
        raise ModelError("can't read the model file", where=str(file), got=error.strerror or str(error)) from error
    if size == 0:
        raise ModelError("the model file is empty", where=str(file), wanted="an ONNX model", got="0 bytes",
                         remedy="copy it again; a transfer or a full disk cut it off")  # fmt: skip
    try:
        model = onnx.load(file)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf and onnx raise unrelated classes
        raise ModelError("not a valid ONNX model", where=str(file), wanted="a model that onnx can read and check",
                         got=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                         remedy="export it again") from error  # fmt: skip
    return model


def save(model: ModelProto, file: Path) -> None:
    """Writes a model so that it appears whole or not at all.

    Raises:
        ModelError: no space, or no permission.
    """
    write_whole(file, model.SerializeToString(deterministic=True), "the model", ModelError)


def inferred(model: ModelProto, where: str) -> ModelProto:
    """The model with the shape of every tensor worked out.

    Raises:
        ModelError: its shapes contradict each other.
    """
    try:
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise ModelError("the shapes of the model's tensors can't be worked out", where=where,
                         got=str(error).strip().splitlines()[0][:300], remedy="export it again") from error  # fmt: skip


def image_input(model: ModelProto, where: str) -> onnx.ValueInfoProto:
    """The one input that is no initializer.

    Raises:
        ModelError: there is not exactly one.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs: list[onnx.ValueInfoProto] = [info for info in model.graph.input if info.name not in constants]
    if len(inputs) != 1:
        raise ModelError("a model must have one input, the picture", where=where, wanted="1 input",
                         got=f"{len(inputs)}: {', '.join(info.name for info in inputs)}",
                         remedy="export it without the others")  # fmt: skip
    return inputs[0]


def unshare_initializers(model: ModelProto) -> int:
    """Gives every node its own copy of the constants that it shares with others; returns how many copies were made.

    A bias that two convs share can't be quantised (its scale is the product of the conv's own input and weight
    scales), and the HTP then runs both convs in float without a word.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    taken: set[str] = set()
    copies = 0
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name not in constants:
                continue
            if name in taken:
                own = onnx.TensorProto()
                own.CopyFrom(constants[name])
                own.name = f"{name}_{copies}_of_{node.name or node.output[0]}"
                model.graph.initializer.append(own)
                node.input[position] = own.name
                copies += 1
            taken.add(name)
    return copies


def name_nodes(model: ModelProto) -> int:
    """Gives nodes without a name, or with another's, one of their own; returns how many."""
    seen: set[str] = set()
    named = 0
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{number}"
            named += 1
        seen.add(node.name)
    return named


def drop_dead(model: ModelProto) -> int:
    """Removes nodes and constants that no output depends on; returns how many nodes."""
    index = Index(model)
    alive: set[int] = set()
    waiting = list(index.outputs)
    seen: set[str] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        node = index.producer.get(tensor)
        if node is not None:
            alive.add(id(node))
            waiting.extend(name for name in node.input if name)
    dead = [node for node in model.graph.node if id(node) not in alive]
    for node in dead:
        model.graph.node.remove(node)
    used = {name for node in model.graph.node for name in node.input} | index.outputs
    keep(model.graph.initializer, lambda tensor: tensor.name in used)
    return len(dead)


def keep(repeated: object, wanted: object) -> None:
    """Keeps the elements of a protobuf list that `wanted` accepts."""
    kept = [item for item in repeated if wanted(item)]  # type: ignore[attr-defined, operator]
    del repeated[:]  # type: ignore[attr-defined]
    repeated.extend(kept)  # type: ignore[attr-defined]


def cut_at(model: ModelProto, outputs: Sequence[tuple[str, str]]) -> ModelProto:
    """The part of a model that makes some of its tensors.

    Args:
        model: with inferred shapes.
        outputs: (tensor, new name) of each new output, in order.
    """
    index = Index(model)
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:]
    for tensor, name in outputs:
        rename_tensor(part, tensor, name)
        info = part.graph.output.add()
        info.name = name
        info.type.CopyFrom(index.types[tensor])
    keep(part.graph.value_info, lambda info: info.name not in {name for _, name in outputs})
    drop_dead(part)
    return part


def rename_tensor(model: ModelProto, old: str, new: str) -> None:
    """Renames a tensor wherever it is made or read."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == old:
                    names[position] = new


def attribute(node: NodeProto, name: str, default: object = None) -> object:
    """Value of a node's attribute."""
    for candidate in node.attribute:
        if candidate.name == name:
            return onnx.helper.get_attribute_value(candidate)
    return default


def metadata(model: ModelProto) -> dict[str, str]:
    """What the exporter left in the file."""
    return {prop.key: prop.value for prop in model.metadata_props}


def set_metadata(model: ModelProto, entries: Mapping[str, str]) -> None:
    """Replaces the metadata."""
    del model.metadata_props[:]
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)


def opset(model: ModelProto) -> int:
    """Version of the standard operator set."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def ancestors(index: Index, tensors: Iterable[str], stop_at: str) -> list[NodeProto]:
    """The nearest nodes of kind `stop_at` upstream of some tensors, in no order; the walk ends at each."""
    found: dict[str, NodeProto] = {}
    waiting, seen = list(tensors), set[str]()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        node = index.producer.get(tensor)
        if node is None:
            continue
        if node.op_type == stop_at:
            found[node.output[0]] = node
        else:
            waiting.extend(index.dynamic_inputs(node))
    return list(found.values())

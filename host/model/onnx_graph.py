"""The graph of an ONNX model for all passes: producers and consumers of tensors, constants, and operator sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from .as_read import reads

#: Both names of the standard operators' domain.
_STANDARD = ("", "ai.onnx")


class OnnxGraph:
    """Nodes of a model, or of the body of a function, by the tensors between them.

    The nodes are those of the file, not copies. After a change of a node's operands or results call :meth:`index`, or
    change the node by :meth:`replace`.

    Parameters
    ----------
    model : ModelProto or FunctionProto
        The model or function that the nodes belong to.
    nodes : iterable of NodeProto
        In order of execution.
    constants : dict of str to array
        The dictionary itself is kept, not a copy.

    Attributes
    ----------
    model, nodes, constants
        As above.
    shapes : dict of str to sequence of int
        Shapes of tensors, as far as they are known.
    producer : dict of str to NodeProto
        The node that computes a tensor.
    consumers : dict of str to list of NodeProto
        The nodes that read a tensor, or whose branches and bodies do, each once and in order of execution.
    """

    model: ModelProto | FunctionProto
    nodes: list[NodeProto]
    constants: dict[str, np.ndarray]
    shapes: Mapping[str, Sequence[int]]
    producer: dict[str, NodeProto]
    consumers: dict[str, list[NodeProto]]

    def __init__(self, model: ModelProto | FunctionProto, nodes: Iterable[NodeProto], constants: dict[str, np.ndarray]):
        self.model, self.nodes, self.constants, self.shapes = model, list(nodes), constants, {}
        #: Keys are identities of nodes, which are unique as long as the nodes are kept here.
        self._dropped: dict[int, NodeProto] = {}
        self.index()

    @classmethod
    def of(cls, model: ModelProto) -> OnnxGraph:
        """Return the graph of all nodes of a model, with its initializers as constants."""
        return OnnxGraph(model, model.graph.node, initial_values(model.graph))

    def index(self) -> None:
        """Index the producer and the consumers of each tensor, after nodes were changed."""
        self.producer, self.consumers = {}, {}
        for node in self.nodes:
            self.producer |= dict.fromkeys(filter(None, node.output), node)
            for name in dict.fromkeys(reads(node)):
                self.consumers.setdefault(name, []).append(node)

    def replace(self, node: NodeProto, other: NodeProto) -> None:
        """Overwrite a node by another one."""
        node.CopyFrom(other)
        self.index()

    def drop(self, node: NodeProto) -> None:
        """Remove a node whose outputs other nodes compute."""
        self._dropped[id(node)] = node
        self.nodes = [one for one in self.nodes if one is not node]
        for name in node.output:
            if self.producer.get(name) is node:
                del self.producer[name]
        for name in reads(node):
            self.consumers[name] = [one for one in self.readers(name) if one is not node]

    def is_dropped(self, node: NodeProto) -> bool:
        """Whether a node was removed."""
        return id(node) in self._dropped

    def add_constant(self, name: str, values: np.ndarray) -> str:
        """Add a constant to the model, by this name or, where a tensor has that, by one like it, which is returned."""
        while name in self.constants or name in self.shapes:
            name += "_"
        self.constants[name] = values
        self.model.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return operator_set(self.model)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs of the model or function."""
        if isinstance(self.model, FunctionProto):
            return list(self.model.output)
        return [value.name for value in self.model.graph.output]

    def is_output(self, name: str) -> bool:
        """Whether a tensor is an output of the model."""
        return name in self.outputs

    def readers(self, name: str) -> list[NodeProto]:
        """Return the nodes that read a tensor; none if only the caller reads it, or it is unknown."""
        return self.consumers.get(name, [])

    def reader(self, name: str) -> NodeProto | None:
        """Return the node that reads a tensor, if it is the only one and the tensor is no output."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and not self.is_output(name) else None

    def computed(self, node: NodeProto) -> list[str]:
        """Return the inputs of a node that are not constants."""
        return list(dict.fromkeys(name for name in node.input if name and name not in self.constants))

    def part(
        self,
        nodes: Iterable[NodeProto],
        inputs: Mapping[str, Sequence[int | str | None]] | Sequence[ValueInfoProto],
        outputs: Iterable[str],
        constants: Iterable[TensorProto] | None = None,
        *,
        element: int = TensorProto.FLOAT,
    ) -> ModelProto:
        """Return a model of some nodes, with the operator sets of this one.

        Parameters
        ----------
        nodes : iterable of NodeProto
            Nodes in order of execution: of this graph, or others that read the same tensors.
        inputs : mapping of str to shape, or sequence of ValueInfoProto
            Inputs of the model.
        outputs : iterable of str
            Outputs of the model, whose types and shapes ONNX Runtime infers.
        constants : iterable of TensorProto, optional
            Constants; by default those of this graph that the nodes read.
        element : int
            Type of the inputs of which only shapes are given.
        """
        nodes = list(nodes)
        if constants is None:
            read = dict.fromkeys(name for node in nodes for name in reads(node) if name in self.constants)
            constants = [numpy_helper.from_array(np.asarray(self.constants[name]), name) for name in read]
        if isinstance(inputs, Mapping):
            inputs = [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()]
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        return helper.make_model(
            helper.make_graph(nodes, "part", inputs, ends, list(constants)),
            opset_imports=self.model.opset_import,
            ir_version=self.model.ir_version,
        )


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name; text is bytes."""
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def initial_values(graph: GraphProto) -> dict[str, np.ndarray]:
    """Return the values of the initializers of a graph, by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def set_values(tensor: TensorProto, values: np.ndarray) -> None:
    """Replace the values, the type and the shape of a tensor."""
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the nodes of a graph by others, some of which may be its own."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def operator_set(model: ModelProto | FunctionProto, domain: str = "") -> int:
    """Return the version of a domain's operators that a model or a function imports; 0 if it imports none."""
    names = (domain,) if domain else _STANDARD
    return next((entry.version for entry in model.opset_import if entry.domain in names), 0)


def import_operators(model: ModelProto, domain: str, version: int) -> None:
    """Add the import of a domain's operators to a model, unless it has one."""
    if not operator_set(model, domain):
        model.opset_import.append(helper.make_opsetid(domain, version))

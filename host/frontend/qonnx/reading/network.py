"""A QONNX model, measured: its quantisers, its constants, and the shape of every tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from ....model.model import Model
from ....model.model_graph import keep_inputs, model_inputs
from ...fragments.fragments import label
from ...reading.errors import ModelError
from ...reading.measure import fix_batch, measure
from ...reading.parse import check_inputs, name_nodes
from ...reading.source import Source
from .quantisers import DOMAINS, Quantiser, read_quantiser


@dataclass
class Network:
    """What the rewriting reads.

    Attributes
    ----------
    name : str
        For messages.
    model : ModelProto
        As the user gave it, with a name for every node.
    measured : Source
        The same with standard operators in place of the quantisers, for a batch of 1.
    quantisers : dict of str to Quantiser
        By their results.
    initializers : list of TensorProto
        The model's, and those of the standard operators.
    nodes : list of NodeProto
        Those of the model that depend on its inputs.
    producer : dict of str to NodeProto
        Node of the model that computes a tensor, constants included.
    """

    name: str
    model: onnx.ModelProto
    measured: Source
    quantisers: dict[str, Quantiser]
    initializers: list[onnx.TensorProto]
    nodes: list[NodeProto] = field(default_factory=list)
    producer: dict[str, NodeProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer = {name: node for node in self.model.graph.node for name in node.output}
        self.nodes = [node for node in self.model.graph.node if any(name in self.shapes for name in node.output)]

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Initializers, and what is computed from them alone."""
        return self.measured.constants

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every activation, for one sample."""
        return self.measured.shapes

    def dynamic_inputs(self, node: NodeProto) -> list[str]:
        """The inputs of a node that are activations."""
        return self.measured.dynamic_inputs(node)


def read_network(model: onnx.ModelProto, name: str) -> Network:
    """Read a model's quantisers, and measure it.

    Raises
    ------
    ModelError
        If a quantiser or an input cannot be read, or ONNX Runtime cannot run the model.
    """
    given = onnx.ModelProto()
    given.CopyFrom(model)
    name_nodes(given)
    # Weights that are listed as inputs, as Brevitas exports them, are constants all the same.
    keep_inputs(given, [value.name for value in model_inputs(given)])
    written = {tensor.name: numpy_helper.to_array(tensor) for tensor in given.graph.initializer}
    written |= {
        node.output[0]: numpy_helper.to_array(attribute.t)
        for node in given.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    quantisers = {
        node.output[0]: read_quantiser(name, node, written) for node in given.graph.node if node.domain in DOMAINS
    }
    measured = Source(name, _spelled(given, quantisers), Model(), qdq=True)
    initializers = list(measured.model.graph.initializer)
    check_inputs(measured)
    fix_batch(measured.model)
    measure(measured)
    network = Network(name, given, measured, quantisers, initializers)
    _check_sizes(network)
    return network


def _check_sizes(network: Network) -> None:
    for node in network.nodes:
        for output in node.output:
            if 0 in network.shapes.get(output, ()):
                raise ModelError(
                    f"{network.name}: {label(node)} must give at least one number, not the shape "
                    f"{list(network.shapes[output])}; export the network for larger inputs"
                )


def _spelled(given: onnx.ModelProto, quantisers: dict[str, Quantiser]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(given)
    del model.graph.node[:], model.graph.value_info[:]
    for node in given.graph.node:
        quantiser = quantisers.get(node.output[0])
        nodes, constants = quantiser.spell(node.output[0]) if quantiser else ([node], [])
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(constants)
    kept = [entry for entry in model.opset_import if entry.domain not in DOMAINS]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model

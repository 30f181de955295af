"""What ONNX Runtime makes of a model in QDQ form: integer operators, read from its own optimised graph."""
from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, numpy_helper

from ..reference import RUNTIME_ERRORS, activation_names, expose, open_session, session_options
from .errors import FOLD, ModelError
from .source import Source
from .units import AVERAGE, LINEAR, label

INTEGER_PRODUCTS = ("QLinearConv", "QGemm", "QLinearMatMul")
_INTEGER = (*INTEGER_PRODUCTS, "QLinearGlobalAveragePool")


@dataclass(frozen=True)
class Executed:
    """An integer convolution, matrix product or global average as ONNX Runtime executes it, with its constants."""

    node: NodeProto
    constants: dict[str, np.ndarray]

    def constant(self, position: int) -> np.ndarray | None:
        """The constant at an input, or None if the input is absent or no constant."""
        return self.constants.get(self.node.input[position]) if position < len(self.node.input) else None

    def attributes(self) -> dict[str, object]:
        """The attributes by name."""
        return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in self.node.attribute}


def read_executed(source: Source) -> dict[str, Executed]:
    """The integer products and global averages of the model by the name of the node that they come from.

    A model in QOperator form is executed as it stands. For one in QDQ form ONNX Runtime is asked for its optimised
    graph, with the same options as the reference: a node that is missing here is computed in float.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot load the model.
    """
    found = {node.name: Executed(node, source.constants) for node in source.nodes if node.op_type in _INTEGER}
    if not source.qdq:
        return found
    optimised = _optimise(source)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in optimised.graph.initializer}
    names = {node.name for node in source.nodes if node.op_type in (*LINEAR, *AVERAGE)}
    for node in optimised.graph.node:
        # A fusion keeps the name of the node, or appends its own.
        origin = node.name if node.name in names else node.name.rpartition("/")[0]
        if node.op_type in _INTEGER and origin in names:
            found[origin] = Executed(node, constants)
    return found


def _optimise(source: Source) -> onnx.ModelProto:
    model = expose(source.model, activation_names(source.model))
    options = session_options(qdq=True)
    # The next level only changes layouts, which no byte depends on, and cannot be written to a portable file.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        try:
            open_session(model.SerializeToString(), options)
        except RUNTIME_ERRORS as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"{source.name}: ONNX Runtime cannot load the model: {reason}") from error
        return onnx.load(path)


def float_remedy(source: Source, node: NodeProto, others: list[NodeProto]) -> str:
    """Say why ONNX Runtime computes a product in float although its ends are quantised, and what to do."""
    begin = f"{source.name}: ONNX Runtime computes {label(node)} in float, because"
    shown = " and ".join(map(label, others))
    if others and others[0].op_type == "BatchNormalization":
        return f"{begin} {shown} stands behind it; {FOLD}"
    if others and all(other.op_type in ("Relu", "Clip") for other in others):
        return (
            f"{begin} {shown} cuts codes that the QuantizeLinear behind it keeps; quantise the output of "
            f"{node.op_type} as well, or let the range of that QuantizeLinear end where the {others[0].op_type} cuts"
        )
    if others:
        verb = "stands" if len(others) == 1 else "stand"
        return (f"{begin} {shown} {verb} between it and its quantised ends; put QuantizeLinear and DequantizeLinear "
                "between them")
    return (f"{begin} its operands are not quantised to its rules; input, output and weights need QuantizeLinear and "
            "DequantizeLinear, a bias int32 codes with the scale of input times weights, and alpha and beta must be 1 "
            "(onnxruntime.quantization does all this)")

"""A measured QONNX model: its quantisers, its constants, and the shape of every tensor."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...model.model import Model
from ...model.model_graph import keep_inputs, model_inputs
from ...model.onnx_graph import OnnxGraph, attributes_of, initial_values
from ..fragments import label
from ..lowering.lowering import refuses
from ..parse import check_inputs, fix_batch, measure, name_nodes
from ..source import ModelError, Source

# Quant and BipolarQuant nodes, and the standard operators that compute them.
#
# Source: *QONNX: Representing Arbitrary-Precision Quantized Neural Networks* (arXiv 2206.07527), and the operators'
# definitions in the qonnx repository (docs/qonnx-custom-ops).

DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
BIPOLAR, INTEGER = ("BipolarQuant",), ("Quant", "IntQuant")

#: The standard operator of each rounding mode; modes without one are refused.
_ROUNDING = {"ROUND": "Round", "HALF_EVEN": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}
_BITS = 8


@dataclass(frozen=True)
class Quantiser:
    """A Quant or BipolarQuant node.

    Attributes
    ----------
    node : NodeProto
    scale : str
        Name of its scale.
    is_binary : bool
        Whether results are +scale and -scale.
    zero_point : int
    least, greatest : int
        Bounds of the rounded number plus the zero point.
    rounding : str
        The operator that rounds.
    """

    node: NodeProto
    scale: str
    is_binary: bool = True
    zero_point: int = 0
    least: int = -1
    greatest: int = 1
    rounding: str = ""

    @property
    def fits(self) -> bool:
        """Whether the numbers, with some zero point, have 8 bits."""
        return self.greatest - self.least < 1 << _BITS

    @property
    def is_plain(self) -> bool:
        """Whether QuantizeLinear, which adds the zero point after the rounding, computes the codes."""
        is_whole = self.greatest - self.least == (1 << _BITS) - 1
        return not self.is_binary and is_whole and not self.zero_point and self.rounding == "Round"

    @property
    def shift(self) -> int:
        """The difference of numbers and int8 codes: 128 where the numbers are unsigned and reach 128."""
        return 0 if self.greatest < 1 << _BITS - 1 else 1 << _BITS - 1

    def spell(self, result: str) -> tuple[list[NodeProto], list[onnx.TensorProto]]:
        """Return standard operators, and their constants, that compute the node's result as ``result``."""
        written: list[NodeProto] = []
        constants: list[onnx.TensorProto] = []

        def constant(name: str, value: object, dtype: type = np.float32) -> str:
            constants.append(numpy_helper.from_array(np.array(value, dtype), f"{result} {name}"))
            return constants[-1].name

        def add(operator: str, name: str, *inputs: str) -> str:
            output = f"{result} {name}" if name else result
            written.append(helper.make_node(operator, inputs, [output], f"{self.node.name} {name}".rstrip()))
            return output

        if self.is_binary:
            reached = add("GreaterOrEqual", "reached", self.node.input[0], constant("zero", 0))
            ones = add("Where", "sign", reached, constant("plus", 1), constant("minus", -1))
            add("Mul", "", ones, self.scale)
            return written, constants
        scaled = add("Div", "scaled", self.node.input[0], self.scale)
        if self.zero_point:
            scaled = add("Add", "shifted", scaled, constant("zero point", self.zero_point))
        clipped = add("Clip", "clipped", scaled, constant("least", self.least), constant("greatest", self.greatest))
        number = add(self.rounding, "number", clipped)
        if self.zero_point:
            number = add("Sub", "centred", number, constant("zero point again", self.zero_point))
        add("Mul", "", number, self.scale)
        return written, constants


def is_qonnx(model: onnx.ModelProto) -> bool:
    """Return whether a model has QONNX operators."""
    return any(node.domain in DOMAINS for node in model.graph.node)


@refuses(
    "it is another operator of QONNX' domains",
    "zero point or bit width are no whole constants, or a rounding mode is none of those that ONNX has an operator for",
)
def read_quantiser(name: str, node: NodeProto, constants: Mapping[str, np.ndarray]) -> Quantiser:
    """Read a node of QONNX's domains.

    Parameters
    ----------
    name : str
        Name of the model, for messages.
    node : NodeProto
    constants : mapping of str to array
        Its constant inputs.
    """
    place = f"{name}: {label(node)}"
    if node.op_type not in (*BIPOLAR, *INTEGER):
        raise ModelError(
            f"{name}: the operator of {node.name!r} must be Quant or BipolarQuant, not {node.op_type}; export the "
            "network with brevitas.export.export_qonnx"
        )
    if node.op_type in BIPOLAR:
        return Quantiser(node, node.input[1])
    values = [_number(place, node, at, kind, constants) for at, kind in ((2, "zero point"), (3, "bit width"))]
    for kind, value in zip(("zero point", "bit width"), values, strict=True):
        if value != int(value):
            raise ModelError(f"{place}: the {kind} must be a whole number, not {value}; quantise with whole ones")
    zero_point, bits = map(int, values)
    given = attributes_of(node)
    signed, narrow = bool(given.get("signed", 1)), bool(given.get("narrow", 1))
    if bits < 1:
        raise ModelError(f"{place}: the bit width must be at least 1, not {bits}; quantise with 2 to 8 bits")
    if bits == 1 and signed:
        if zero_point:
            raise ModelError(f"{place}: the zero point must be 0 with one bit, not {zero_point}; use BipolarQuant")
        return Quantiser(node, node.input[1])
    mode = given.get("rounding_mode", b"ROUND").decode().upper()
    if mode not in _ROUNDING:
        raise ModelError(
            f"{place}: the rounding mode must be {', '.join(_ROUNDING)}, not {mode}; quantise with "
            "FloatToIntImplType.ROUND"
        )
    least = -(1 << bits - 1) + narrow if signed else 0
    greatest = (1 << bits - 1) - 1 if signed else (1 << bits) - 1 - narrow
    return Quantiser(node, node.input[1], False, zero_point, least, greatest, _ROUNDING[mode])


def _number(place: str, node: NodeProto, at: int, kind: str, constants: Mapping[str, np.ndarray]) -> float:
    value = constants.get(node.input[at])
    if value is None or value.size != 1:
        found = "computed" if value is None else f"of {value.size} values"
        raise ModelError(f"{place}: the {kind} {node.input[at]!r} must be one constant, not {found}; export it as one")
    return float(value.item())


class MeasuredNetwork(OnnxGraph):
    """The input of the rewriting: all nodes, constants included, with the constants and shapes of ``measured``.

    Parameters
    ----------
    name : str
        For messages.
    model : ModelProto
        The user's model, with a name for every node.
    measured : Source
        The model with standard operators in place of the quantisers, for a batch of 1.
    quantisers : dict of str to Quantiser
        Quantisers by the names of their results.
    initializers : list of TensorProto
        The initializers of the model, and those of the standard operators.

    Attributes
    ----------
    dynamic : list of NodeProto
        The nodes that depend on its inputs.
    """

    shapes: dict[str, tuple[int, ...]]

    def __init__(
        self,
        name: str,
        model: onnx.ModelProto,
        measured: Source,
        quantisers: dict[str, Quantiser],
        initializers: list[onnx.TensorProto],
    ):
        super().__init__(model, model.graph.node, measured.constants)
        self.name, self.measured, self.quantisers, self.initializers = name, measured, quantisers, initializers
        self.shapes = measured.shapes
        self.dynamic = [node for node in self.nodes if any(name in self.shapes for name in node.output)]

    def dynamic_inputs(self, node: NodeProto) -> list[str]:
        """The inputs of a node that are activations."""
        return self.measured.dynamic_inputs(node)


def read_network(model: onnx.ModelProto, name: str) -> MeasuredNetwork:
    """Read a model's quantisers, and measure it.

    Raises
    ------
    ModelError
        If a quantiser or an input cannot be read, or ONNX Runtime cannot run the model.
    """
    given = copy.deepcopy(model)
    name_nodes(given)
    # Weights that are also listed as inputs, as Brevitas exports them, are constants.
    keep_inputs(given, [value.name for value in model_inputs(given)])
    written = initial_values(given.graph)
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
    network = MeasuredNetwork(name, given, measured, quantisers, initializers)
    _check_sizes(network)
    return network


def _check_sizes(network: MeasuredNetwork) -> None:
    for node in network.dynamic:
        for output in node.output:
            if 0 in network.shapes.get(output, ()):
                raise ModelError(
                    f"{network.name}: {label(node)} must give at least one number, not the shape "
                    f"{list(network.shapes[output])}; export the network for larger inputs"
                )


def _spelled(given: onnx.ModelProto, quantisers: dict[str, Quantiser]) -> onnx.ModelProto:
    model = copy.deepcopy(given)
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

"""The model that a QONNX network is rewritten to: nodes, constants and functions, in order of execution."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...model.as_read import reads
from ...model.functions.binary_function import make_call
from ...model.functions.binary_function import make_function as make_binary
from ...model.functions.onnx_function import LEAST_OPSET, add_function
from ...model.onnx_graph import import_operators, set_nodes
from ..source import ModelError
from .network import DOMAINS, MeasuredNetwork
from .products import Coded

_MICROSOFT = "com.microsoft"
_EXTENSIONS = ("QGemm", "QLinearAdd")
_NOTE_KEY = "lutterfly.note"
_OTHER = (
    "are those of the quantised sums, with whole numbers as biases, and may be by one other than those of QONNX, which "
    "adds up in float32"
)


def note_in(model: onnx.ModelProto, note: str) -> None:
    """Add a note for the user to a model."""
    model.metadata_props.add(key=_NOTE_KEY, value=note)


def notes_of(model: onnx.ModelProto) -> list[str]:
    """Return the notes of a model."""
    return [entry.value for entry in model.metadata_props if entry.key == _NOTE_KEY]


class Writer:
    """The nodes, constants and functions that have been written so far.

    Parameters
    ----------
    network : MeasuredNetwork
        The network, whose inputs and outputs the model has.

    Raises
    ------
    ModelError
        If its operator set is too old for binary functions.
    """

    def __init__(self, network: MeasuredNetwork):
        self._network = network
        self._model = copy.deepcopy(network.measured.model)
        given = network.model.graph
        self._names = itertools.count(1)
        self._taken = {name for node in self._model.graph.node for name in (*node.input, *node.output)}
        self._taken |= {name for node in given.node for name in (*node.input, *node.output)}
        del self._model.graph.node[:], self._model.graph.initializer[:], self._model.graph.value_info[:]
        for kept, written in ((self._model.graph.input, given.input), (self._model.graph.output, given.output)):
            del kept[:]
            kept.extend(written)
        self._values: dict[str, onnx.TensorProto] = {}
        self._noted: list[str] = []
        self.opset = network.opset
        if self.opset < LEAST_OPSET:
            raise ModelError(
                f"{network.name}: the operator set must be at least {LEAST_OPSET}, not {self.opset}; export the "
                f"network with opset_version={LEAST_OPSET} or later"
            )

    def name(self, wanted: str) -> str:
        """Return a unique name for a tensor."""
        while wanted in self._taken:
            wanted += "'"
        self._taken.add(wanted)
        return wanted

    def constant(self, name: str, value: object, dtype: type = np.float32) -> str:
        """Add a constant, and return its name, which is like this one."""
        name = self.name(name)
        self._values[name] = numpy_helper.from_array(np.array(value, dtype, order="C"), name)
        return name

    def keep(self, nodes: Iterable[NodeProto], constants: Iterable[onnx.TensorProto] = ()) -> None:
        """Add nodes and constants unchanged."""
        self._model.graph.node.extend(nodes)
        self._values |= {tensor.name: tensor for tensor in constants}

    def add(self, operator: str, inputs: list[str], output: str, node: str, **attributes: object) -> str:
        """Add a node, and return its only result."""
        domain = _MICROSOFT if operator in _EXTENSIONS else ""
        self.keep([helper.make_node(operator, inputs, [output], node, domain=domain, **attributes)])
        return output

    def quantise(self, values: str, codes: str, scale: np.float32, zero_point: int, node: str) -> str:
        """Add the quantisation of values that are multiples of a scale; return int8 codes."""
        return self.add(
            "QuantizeLinear", [values, *self.quantisation(codes, scale, zero_point)], codes, f"{node} codes"
        )

    def quantisation(self, name: str, scale: np.float32, zero_point: int) -> tuple[str, str]:
        """Add scale and zero point as constants."""
        return self.constant(f"{name} scale", scale), self.constant(f"{name} zero point", zero_point, np.int8)

    def note(self, node: str) -> None:
        """Note a node whose codes may differ from those of QONNX."""
        self._noted.append(node)

    def mark(self) -> int:
        """Return the number of nodes so far."""
        return len(self._model.graph.node)

    def since(self, mark: int) -> tuple[list[NodeProto], list[onnx.TensorProto]]:
        """Return the nodes after a mark, and the constants that they read."""
        nodes = list(self._model.graph.node)[mark:]
        _tell_apart(nodes)
        names = dict.fromkeys(name for node in nodes for name in node.input if name in self._values)
        return nodes, [self._values[name] for name in names]

    def clip(self, codes: str, result: str, coded: Coded, limits: tuple[int, int], node: str) -> str:
        """Clip codes to limits, through their values."""
        values = self.name(f"{result} values")
        self.dequantise(coded, values, node)
        ends = [
            self.constant(f"{result} {kind}", np.float32(code - coded.zero_point) * coded.scale)
            for kind, code in zip(("least", "greatest"), limits, strict=True)
        ]
        clipped = self.add("Clip", [values, *ends], self.name(f"{result} clipped"), f"{node} limits")
        return self.quantise(clipped, result, coded.scale, coded.zero_point, f"{node} limits")

    def ones(self, coded: Coded) -> Coded:
        """Return binary codes, of which only the signs count, as +1 and -1; other codes unchanged."""
        if not coded.is_binary:
            return coded
        values = self.name(f"{coded.codes} signs")
        self.dequantise(dataclasses.replace(coded, scale=np.float32(1)), values, f"{coded.codes} signs")
        codes = self.quantise(values, self.name(f"{coded.codes} ones"), np.float32(1), 0, f"{coded.codes} ones")
        return Coded(codes, coded.scale)

    def dequantise(self, coded: Coded, values: str, node: str) -> None:
        """Add the dequantisation of codes, and return their values."""
        if not coded.is_binary:
            parts = self.quantisation(values, coded.scale, coded.zero_point)
            self.add("DequantizeLinear", [coded.codes, *parts], values, f"{node} values")
            return
        plus, minus = self.constant(f"{values} plus", coded.scale), self.constant(f"{values} minus", -coded.scale)
        number, parts = self.name(f"{values} number"), self.quantisation(f"{values} number", np.float32(1), 0)
        self.add("DequantizeLinear", [coded.codes, *parts], number, f"{node} number")
        least = self.constant(f"{values} least", 0)
        reached = self.add("GreaterOrEqual", [number, least], self.name(f"{values} reached"), f"{node} reached")
        self.add("Where", [reached, plus, minus], values, f"{node} values")

    def call_binary(self, codes: str, result: str, node: str, weights: np.ndarray, **parts: object) -> str:
        """Add the call of a binary convolution."""
        function = make_binary(weights, name=f"BinaryConv{next(self._names)}", opset=self.opset, **parts)
        add_function(self._model, function)
        self.keep([make_call(function, codes, result, node)])
        return result

    def model(self) -> onnx.ModelProto:
        """Return the whole model, without nodes and constants that no output depends on."""
        graph, constants = self._model.graph, self._folded()
        needed = {value.name for value in graph.output}
        kept: list[NodeProto] = []
        for node in reversed(list(graph.node)):
            if needed & set(node.output) and not set(node.output) <= constants.keys():
                kept.append(node)
                needed |= set(reads(node))
        _tell_apart(kept[::-1])
        set_nodes(graph, kept[::-1])
        graph.initializer.extend(tensor for name, tensor in constants.items() if name in needed)
        domains = {node.domain for node in graph.node}
        called = {node.op_type for node in graph.node}
        functions = [function for function in self._model.functions if function.name in called]
        del self._model.functions[:]
        self._model.functions.extend(functions)
        if _MICROSOFT in domains:
            import_operators(self._model, _MICROSOFT, 1)
        assert not domains & set(DOMAINS)
        if self._noted:
            note_in(self._model, f"codes of {', '.join(self._noted)} {_OTHER}")
        return self._model

    def _folded(self) -> dict[str, onnx.TensorProto]:
        """Return the constants, including those that are computed from others."""
        constants = self._values | {tensor.name: tensor for tensor in self._network.initializers}
        for node in self._model.graph.node:
            if all(name in constants for name in reads(node)) and all(
                name in self._network.constants for name in node.output
            ):
                for name in node.output:
                    constants[name] = numpy_helper.from_array(self._network.constants[name], name)
        return constants


def _tell_apart(nodes: Iterable[NodeProto]) -> None:
    """Give each node a unique name; the first one of several keeps it."""
    taken: set[str] = set()
    for node in nodes:
        name = node.name
        numbers = itertools.count(2)
        while node.name in taken:
            node.name = f"{name} {next(numbers)}"
        taken.add(node.name)


# Layout operators and max pooling on codes.


def write_step(writer: Writer, node: NodeProto, codes: str, result: str) -> str:
    """Write a layout operator, or max pooling, on codes instead of their values, which rise with the codes.

    Other inputs of the operator are constants.
    """
    copied = helper.make_node(node.op_type, [codes, *node.input[1:]], [result], f"{node.name} codes")
    copied.attribute.extend(node.attribute)
    writer.keep([copied])
    return result

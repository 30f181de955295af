"""The graph that ONNX Runtime executes, and sessions of the reference with the settings that keep its bytes exact."""

from __future__ import annotations

import copy
import hashlib
import itertools
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import NodeProto, numpy_helper

from .model import Model
from .model_graph import INTEGER_PRODUCTS, has_unsigned, is_qdq, keep_inputs, model_inputs
from .onnx_graph import operator_set, set_nodes
from .runtime import open_with, session_options

# Separate weights and zero points for each product: ONNX Runtime makes weights unsigned only where none is shared.

#: The position of the weights among the inputs of products and DequantizeLinear; a scale and a zero point follow.
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, "DequantizeLinear": 0}
#: From this operator set on ONNX Runtime (1.32) does not make the weights of a QLinearMatMul unsigned.
_SIGNED_PRODUCTS = 21
#: The difference between an int8 code and the uint8 code of the same value.
_TO_UNSIGNED = 1 << 7


def own_zero_points(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model in which no two readers share constant weights, dequantised or not, or their zero point.

    Exporters write one zero point for all weights, and equal weights once. ONNX Runtime (1.32) makes an unsigned copy
    of both for each product, names it after the tensor, and fails on the second copy of one name.
    """
    copied = copy.deepcopy(model)
    constants = {tensor.name: tensor for tensor in copied.graph.initializer}
    for node in copied.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    fixed, taken = set(constants), set()
    for node in copied.graph.node:
        # A tensor that is computed from constants becomes a constant.
        if fixed.issuperset(name for name in node.input if name):
            fixed |= set(node.output)
    nodes = _own_dequantisers(copied, fixed)
    set_nodes(copied.graph, nodes)
    for node in copied.graph.node:
        for position in _operands(node, fixed, constants):
            name = node.input[position]
            if name in taken:
                tensor = copied.graph.initializer.add()
                tensor.CopyFrom(constants[name])
                tensor.name = node.input[position] = f"{name} of {node.output[0]}"
                constants[tensor.name] = tensor
            taken.add(name)
    if operator_set(copied) >= _SIGNED_PRODUCTS:
        _make_unsigned(copied, constants)
    return copied


def _make_unsigned(model: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> None:
    """Give every QLinearMatMul of uint8 activations uint8 weights of the same values, beside those that others read."""
    for node in model.graph.node:
        if node.op_type != "QLinearMatMul" or _type(constants, node.input[2]) != onnx.TensorProto.UINT8:
            continue
        positions = (3, 5)
        if any(_type(constants, node.input[at]) != onnx.TensorProto.INT8 for at in positions):
            continue
        for at in positions:
            codes = numpy_helper.to_array(constants[node.input[at]]).astype(np.int16) + _TO_UNSIGNED
            node.input[at] = f"{node.input[at]} of {node.output[0]}, unsigned"
            model.graph.initializer.append(numpy_helper.from_array(codes.astype(np.uint8), node.input[at]))


def _type(constants: dict[str, onnx.TensorProto], name: str) -> int | None:
    return constants[name].data_type if name in constants else None


def _own_dequantisers(model: onnx.ModelProto, fixed: set[str]) -> list[NodeProto]:
    """Return the nodes, with a DequantizeLinear before each reader of dequantised weights but the first."""
    sources = {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in fixed
    }
    nodes, taken = [], set()
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name in taken:
                own = copy.deepcopy(sources[name])
                own.name = own.output[0] = node.input[position] = f"{name} of {node.output[0]}, {position}"
                nodes.append(own)
            elif name in sources:
                taken.add(name)
        nodes.append(node)
    return nodes


def _operands(node: NodeProto, fixed: set[str], constants: dict[str, onnx.TensorProto]) -> list[int]:
    """Return the positions of constant weights and of their zero point."""
    first = _WEIGHTS.get(node.op_type)
    if first is None or node.input[first] not in fixed:
        return []
    return [at for at in (first, first + 2) if at < len(node.input) and node.input[at] in constants]


#: Without VNNI the kernels for uint8 activations add pairs of products in 16 bits, and saturate, unless this is set.
#: Those for int8 activations never do, and have no kernel for the weights that it would make.
_EXACT_SUMS = "session.x64quantprecision"


@dataclass(frozen=True)
class Prepared:
    """A model with the changes and options that the reference needs: with uint8 activations, its sums must be exact.

    Attributes
    ----------
    given : Model
        A model, or a part cut from one.
    """

    given: Model = field(repr=False)

    @cached_property
    def model(self) -> Model:
        """The model to open instead, with the weights that the processor needs for exact sums, which may be uint8."""
        return Model.written(own_zero_points(self.given.proto)) if self._is_unsigned else self.given

    @cached_property
    def executed(self) -> onnx.ModelProto:
        """The graph that ONNX Runtime makes of it, see :func:`executed_model`; it must not be changed."""
        return executed_model(self.model.proto, self.options()) if self._needs_exact_sums else self._plainly_executed

    def options(self) -> onnxruntime.SessionOptions:
        """Create the options with which it is opened."""
        options = session_options(qdq=is_qdq(self.model.proto))
        if self._needs_exact_sums:
            options.add_session_config_entry(_EXACT_SUMS, "1")
        return options

    @cached_property
    def _is_unsigned(self) -> bool:
        return has_unsigned(self.given.proto)

    @cached_property
    def _plainly_executed(self) -> onnx.ModelProto:
        return executed_model(self.model.proto)

    @cached_property
    def _needs_exact_sums(self) -> bool:
        """Whether activations are uint8, and no product reads int8 codes, which would have no kernels then."""
        if not self._is_unsigned:
            return False
        graph = self._plainly_executed.graph
        types = {tensor.name: tensor.data_type for tensor in graph.initializer}
        zeros = {node.input[2] for node in graph.node if node.op_type in INTEGER_PRODUCTS}
        return onnx.TensorProto.INT8 not in {types.get(name) for name in zeros}


def open_session(model: Model) -> onnxruntime.InferenceSession:
    """Open a model, or a part cut from one, with the settings of the reference."""
    prepared = Prepared(model)
    return open_with(prepared.model.data, prepared.options())


def executed_model(model: onnx.ModelProto, options: onnxruntime.SessionOptions | None = None) -> onnx.ModelProto:
    """Return the graph that ONNX Runtime makes of a model and executes, as it writes it under the reference's options.

    Every fusion is done in it: to show more of its tensors, or to run a part of it, open it with
    :func:`plain_session`, so that ONNX Runtime changes nothing any more. The last level of optimisation is missing,
    which only changes layouts: float convolutions may add up in another order then, no quantised operator does.

    Parameters
    ----------
    model : ModelProto
    options : SessionOptions or None
        Options in place of those of :func:`session_options`; they are changed.
    """
    options = options or session_options(qdq=is_qdq(model))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executed.onnx"
        options.optimized_model_filepath = str(path)
        open_with(model.SerializeToString(), options)
        executed = onnx.load(path)
    # ONNX Runtime leaves initializers among the inputs that it has fused away.
    keep_inputs(executed, [value.name for value in model_inputs(model)])
    _name_by_origin(model, executed)
    return executed


def _name_by_origin(model: onnx.ModelProto, executed: onnx.ModelProto) -> None:
    """Name the tensors that ONNX Runtime adds to a model after their inputs.

    It numbers the tensors that it adds, in an order that depends on the whole model. In a model with stand-ins for
    functions, tensors could have swapped names, and one would be compared with another.
    """
    given = {name for node in model.graph.node for name in (*node.input, *node.output)}
    given |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    renamed: dict[str, str] = {}
    #: Names of added tensors are shortened, or each would contain the names of all before it.
    short: dict[str, str] = {}
    constants = {tensor.name: tensor for tensor in executed.graph.initializer}
    for node in executed.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        if given.issuperset(filter(None, node.output)):
            continue
        # Constants are named by their contents, as ONNX Runtime keeps any one of equal constants.
        shown = [
            _digest(numpy_helper.to_array(constants[name]).tobytes()) if name in constants else short.get(name, name)
            for name in node.input
            if name in given or name in short or name in constants
        ]
        sources = ", ".join(shown)
        for position, name in enumerate(node.output):
            if name and name not in given:
                number, added = 1, f"{node.op_type} of {sources}"
                while added in given or added in short:
                    number, added = number + 1, f"{node.op_type} {number + 1} of {sources}"
                renamed[name] = node.output[position] = added
                short[added] = _digest(added.encode())
    for value in executed.graph.value_info:
        value.name = renamed.get(value.name, value.name)


def _digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=4).hexdigest()


def open_host_part(part: Model) -> onnxruntime.InferenceSession:
    """Open a head or tail that was cut out of the executed graph.

    It is opened with the settings of the reference, but every QuantizeLinear and DequantizeLinear stays in place.
    Otherwise ONNX Runtime would merge pairs that it does not merge in the whole network, where a tensor between two
    quantisations has other readers too; and it would dequantise constant weights beforehand, which other kernels with
    another order of additions multiply then. Constants have been folded already.
    """
    prepared = Prepared(part)
    options = prepared.options()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(
        prepared.model.data,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ConstantFolding", "DoubleQDQPairsRemover"],
    )


# Transposed convolutions as ordinary ones: every phase of the output is a convolution of the input.


def uncut_size(size: int, kernel: int, stride: int, dilation: int, more: int) -> int:
    """Return the rows or columns that a ConvTranspose gives for ``size`` of its input before borders are cut off.

    ``more`` of them are its output_padding.
    """
    return stride * (size - 1) + more + dilation * (kernel - 1) + 1


@dataclass(frozen=True)
class Transposed:
    """Geometry of a ConvTranspose; pairs are (vertical, horizontal).

    Attributes
    ----------
    kernel, strides, dilations : tuple of int
    begin : tuple of int
        Rows and columns that are cut off above and to the left.
    source, target : tuple of int
        Rows and columns of input and output.
    groups : int
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begin: tuple[int, int]
    source: tuple[int, int]
    target: tuple[int, int]
    groups: int = 1

    @property
    def phases(self) -> list[tuple[int, int]]:
        """Row and column of each phase of the output, row by row."""
        return [*itertools.product(*map(range, self.strides))]

    @property
    def phases_first(self) -> bool:
        """Whether the channels of a phase are adjacent; with groups the phases of a channel have to be."""
        return self.groups == 1

    @property
    def whole(self) -> tuple[int, int]:
        """Rows and columns of all phases together: those of the output, or a few more."""
        return tuple(self._count(axis) * self.strides[axis] for axis in range(2))

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """The padding of the convolution: top, left, bottom, right."""
        (top, _, bottom), (left, _, right) = (self._along(axis) for axis in range(2))
        return top, left, bottom, right

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Convert weights [inputs, outputs / groups, rows, columns] into those of all phases.

        They are [outputs of all phases, inputs / groups, rows, columns]; elements of the window that a phase does not
        use are zero.
        """
        rows, columns = (self._along(axis)[1] for axis in range(2))
        inputs, of_group = weights.shape[0] // self.groups, weights.shape[1]
        result = np.zeros((len(self.phases), self.groups, of_group, inputs, rows, columns), weights.dtype)
        split = weights.reshape(self.groups, inputs, of_group, *self.kernel).transpose(0, 2, 1, 3, 4)
        for at, phase in enumerate(self.phases):
            for row, column in itertools.product(*map(range, self.kernel)):
                places = [self._place(axis, phase[axis], tap) for axis, tap in enumerate((row, column))]
                if None not in places:
                    result[at, ..., places[0], places[1]] = split[..., row, column]
        moved = result if self.phases_first else result.transpose(1, 2, 0, 3, 4, 5)
        return np.ascontiguousarray(moved).reshape(-1, inputs, rows, columns)

    def of_outputs(self, values: npt.NDArray) -> npt.NDArray:
        """Expand values for each output channel to the output channels of all phases."""
        phases = len(self.phases)
        return np.tile(values, phases) if self.phases_first else np.repeat(values, phases)

    def _count(self, axis: int) -> int:
        return -(-self.target[axis] // self.strides[axis])

    def _offset(self, axis: int, phase: int, tap: int) -> int | None:
        """Return the offset in pixels of the input pixel that an output takes with an element of the kernel, if any."""
        distance = phase + self.begin[axis] - tap * self.dilations[axis]
        return None if distance % self.strides[axis] else distance // self.strides[axis]

    def _place(self, axis: int, phase: int, tap: int) -> int | None:
        """Return the place of a kernel element in the window of a phase, if it is in it."""
        offset = self._offset(axis, phase, tap)
        return None if offset is None else offset + self._along(axis)[0]

    def _along(self, axis: int) -> tuple[int, int, int]:
        """Return the padding before, the size of the window, and the padding after."""
        taps = itertools.product(range(self.strides[axis]), range(self.kernel[axis]))
        offsets = [offset for one in taps if (offset := self._offset(axis, *one)) is not None]
        before = max(-min(offsets), 0)
        size = max(*offsets, 0) + before + 1
        after = self._count(axis) - self.source[axis] - before + size - 1
        # If the last pixels of the input are not used, weights of zero extend to them.
        return before, size - min(after, 0), max(after, 0)

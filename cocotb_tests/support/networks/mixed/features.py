"""Which features meet in one network: every two of them must, in some network of a set."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto

from lutterfly.golden.config import Config
from lutterfly.golden.isa import COMMAND_BYTES
from lutterfly.golden.program.program import Program
from lutterfly.host.graph import (
    Add,
    Arrange,
    AveragePool,
    BinaryConvolution,
    Concat,
    Convolution,
    ElementwiseMaximum,
    ElementwiseProduct,
    FastPointwiseConvolution,
    Graph,
    Layer,
    MatrixProduct,
    MaxPool,
    Pointwise,
    Rearrange,
    Slice,
)
from lutterfly.host.model.model import Model

#: Of the layers of a graph.
_OF_LAYERS = (
    "fast",
    "binary",
    "sparse",
    "dense",
    "depthwise",
    "grouped",
    "table",
    "sum",
    "concatenation",
    "pooling",
    "average",
    "fully connected",
    "slice",
    "moved pixels",
    "arranged",
    "product",
    "maximum",
    "matrix product",
)
#: Of its tensors, of the file, and of the program.
_OF_THE_REST = (
    "unread channels",
    "unread pixels",
    "inner output",
    "several outputs",
    "QOperator",
    "QDQ",
    "other order",
    "border classes",
    "longer than the ring",
    "batch",
    "16 bits",
)
FEATURES = _OF_LAYERS + _OF_THE_REST
#: Of maps; a batch is of vectors.
_OF_MAPS = (
    "depthwise",
    "grouped",
    "pooling",
    "average",
    "moved pixels",
    "arranged",
    "unread pixels",
    "border classes",
    "matrix product",
)
PAIRS = [
    frozenset(pair)
    for pair in itertools.combinations(FEATURES, 2)
    if not ("batch" in pair and set(pair) & set(_OF_MAPS))
]
#: Commands of a layer that runs in many classes of windows.
_MANY_CLASSES = 4


class Meetings:
    """Counts which features meet."""

    def __init__(self) -> None:
        self.counts: Counter[frozenset[str]] = Counter()

    def sample(self, found: Iterable[str]) -> None:
        """Count the features of one network."""
        self.counts.update(map(frozenset, itertools.combinations(sorted(set(found)), 2)))

    def holes(self, without: Iterable[str] = ()) -> list[str]:
        """What did not meet: ``feature with feature``, those ``without`` which the accelerators are left out."""
        missing = [pair for pair in PAIRS if not self.counts[pair] and not pair & set(without)]
        return [" with ".join(sorted(pair)) for pair in missing]


def features(graph: Graph, program: Program, config: Config) -> set[str]:
    """What a network has, by what the frontend made of the file and the compiler of it."""
    found = {feature for layer in graph.layers for feature in _of_layer(graph, layer)}
    found |= {*_of_tensors(graph), *_of_file(graph.model.proto)}
    if any(tensor.order for tensor in (*program.cores[0].written, *program.cores[0].spilled)):
        found.add("other order")
    if any(len(commands) // COMMAND_BYTES > config.resident_commands for commands in _queues(program)):
        found.add("longer than the ring")
    if program.batch > 1:
        found.add("batch")
    if _wide_tensors(graph.model) - _wide_tensors(graph.head) - _wide_tensors(graph.tail):
        found.add("16 bits")
    bordered = {layer.name for layer in graph.layers if any(_pads(layer))}
    if any(layer.name in bordered and len(layer.commands) >= _MANY_CLASSES for layer in program.layers):
        found.add("border classes")
    return found


def _wide_tensors(part: Model) -> set[str]:
    """Tensors that a file, or what the host runs of it, quantises to 16 bits."""
    graph = part.proto.graph
    zeros = {tensor.name for tensor in graph.initializer if tensor.data_type in (TensorProto.INT16, TensorProto.UINT16)}
    return {node.output[0] for node in graph.node if node.op_type == "QuantizeLinear" and node.input[2] in zeros}


def _queues(program: Program) -> tuple[bytes, bytes]:
    return program.cores[0].body.dma.commands, program.cores[0].body.compute.commands


def _pads(layer: Layer) -> tuple[int, ...]:
    window = getattr(layer, "window", None)
    return window.pads if window else ()


def _of_layer(graph: Graph, layer: Layer) -> Iterator[str]:
    kinds = {
        FastPointwiseConvolution: "fast",
        BinaryConvolution: "binary",
        AveragePool: "average",
        Add: "sum",
        ElementwiseProduct: "product",
        ElementwiseMaximum: "maximum",
        MatrixProduct: "matrix product",
        Concat: "concatenation",
        MaxPool: "pooling",
        Slice: "slice",
        Rearrange: "moved pixels",
        Arrange: "arranged",
        Pointwise: "table",
    }
    for kind, name in kinds.items():
        if isinstance(layer, kind):
            yield name
    if getattr(layer, "table", None) is not None:
        yield "table"
    if isinstance(layer, Convolution) and not isinstance(layer, BinaryConvolution | AveragePool):
        kind = layer.kind(graph.tensors[layer.input].shape, graph.tensors[layer.output].shape)
        if kind == "fully connected":
            yield kind
        if layer.groups > 1:
            yield "depthwise" if kind == "depthwise" else "grouped"
        else:
            yield "dense" if layer.weights.any(axis=(1, 2)).all() else "sparse"


def _of_tensors(graph: Graph) -> Iterator[str]:
    readers: dict[str, list[Layer]] = {name: [] for name in graph.tensors}
    for layer in graph.layers:
        for name in layer.inputs:
            readers[name].append(layer)
    if len(graph.outputs) > 1:
        yield "several outputs"
    for name, layers in readers.items():
        if name in graph.outputs:
            if layers:
                yield "inner output"
        elif layers:
            read = np.zeros(graph.tensors[name].shape, bool)
            for layer in layers:
                read |= _read(layer, graph.tensors[name].shape)
            if not read.any(axis=(0, 1)).all():
                yield "unread channels"
            if not read.any(axis=2).all():
                yield "unread pixels"


def _read(layer: Layer, shape: tuple[int, int, int]) -> np.ndarray:
    """Which elements of its input a layer reads: bool[height, width, channels]."""
    read = np.zeros(shape, bool)
    if isinstance(layer, Slice):
        read[..., layer.first : layer.first + layer.channels] = True
        return read
    window = getattr(layer, "window", None)
    if window is None:
        return ~read
    rows, columns = (
        {
            output // window.up[axis] * window.stride[axis] - window.pads[axis] + element * window.dilation[axis]
            for output in range(outputs)
            for element in window.inside(axis, size, output)
        }
        for axis, (size, outputs) in enumerate(zip(shape[:2], window.output_size(*shape[:2]), strict=True))
    )
    read[np.ix_(sorted(rows), sorted(columns))] = True
    return read


def _of_file(model: onnx.ModelProto) -> Iterator[str]:
    operators = {node.op_type for node in model.graph.node}
    if any(operator.startswith("QLinear") or operator == "QGemm" for operator in operators):
        yield "QOperator"
    weights = {tensor.name for tensor in model.graph.initializer}
    dequantised = {
        node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in weights
    }
    if any(dequantised & set(node.input) for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")):
        yield "QDQ"

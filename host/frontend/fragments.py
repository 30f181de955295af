"""Fragments: the model cut at its quantised tensors, so that each fragment is one operation on codes.

A fragment is an operator on codes (QLinearConv, MaxPool, Transpose ...), or everything that is computed in float
between quantised tensors: DequantizeLinear, operators, QuantizeLinear.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from ..model.model_graph import INTEGER_PRODUCTS
from ..model.onnx_graph import OnnxGraph
from .source import REPLACE, ModelError, Source, connect

FLOAT_PRODUCTS = ("Conv", "Gemm", "MatMul", "FusedConv", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat")
LINEAR = (*INTEGER_PRODUCTS, *FLOAT_PRODUCTS)
TRANSPOSED = ("ConvTranspose",)
NORMALISATION = "BatchNormalization"
CHOICE = ("Gather", "GatherND")
CROP = ("Slice",)
LAYOUT = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
TRANSPARENT = ("Identity", "Dropout")
MAX_POOLING = ("MaxPool",)
POOLING = (*MAX_POOLING, "ReduceMax")
MOVES = ("DepthToSpace", "Resize", "SpaceToDepth")
AVERAGE = ("AveragePool", "GlobalAveragePool", "QLinearAveragePool", "QLinearGlobalAveragePool", "ReduceMean")
ADDITION = ("Add", "QLinearAdd")
SUBTRACTION = ("Sub",)
EXTREMES = ("Max", "Min")
MULTIPLICATION = ("Mul", "QLinearMul")
CONCAT = ("Concat", "QLinearConcat")
SLICE = ("Split", "Slice")
PAD = ("Pad",)
POINTWISE = (
    *TRANSPARENT,
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "DequantizeLinear",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "FastGelu",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QLinearAdd",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearSigmoid",
    "QLinearWhere",
    "QuantizeLinear",
    "QuickGelu",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
)
QUANTISERS = ("QuantizeLinear", "DequantizeLinear")
_WRITTEN_KEY = "lutterfly.operator"


class Kind(enum.Enum):
    """The kind of layers that a fragment becomes."""

    LINEAR = "convolution or matrix product"
    FLOAT_LINEAR = "convolution or matrix product in float32"
    MATRIX_PRODUCT = "matrix product of two activations"
    TRANSPOSED = "transposed convolution in float32"
    FUNCTION = "function that is a layer"
    REGION = "pointwise operators, max pooling and moves of elements"
    OF_CHANNELS = "pointwise operators with a value for each channel"
    ADDITION = "addition"
    SUBTRACTION = "difference of two activations"
    EXTREME = "maximum or minimum of two activations"
    MULTIPLICATION = "product of two activations"
    AVERAGE = "average pooling"
    CONCAT = "concatenation"
    SLICE = "slice"
    PAD = "border"
    COMBINATION = "pointwise operators on several activations"
    LAYOUT = "layout only"
    HOST = "host only"


#: Kinds that the accelerator must run, with all fragments between them.
PRODUCTS = (Kind.LINEAR, Kind.FLOAT_LINEAR, Kind.FUNCTION)


@dataclass(eq=False)
class Fragment:
    """One operation between quantised tensors.

    Attributes
    ----------
    nodes : list of NodeProto
        Nodes in order of execution, including the DequantizeLinear nodes of its inputs.
    inputs, outputs : list of str
        Activations that it reads, and its results that others read.
    kind : Kind
    reason, remedy : str
        Why the accelerator cannot run it, and what the user can do.
    cause : NodeProto or None
        The node that ``reason`` is about, if the fragment is not named after it.
    own : list of NodeProto
        Where it shares nodes with other fragments, those that no other fragment has; it is named after them.
    """

    nodes: list[NodeProto]
    inputs: list[str]
    outputs: list[str]
    kind: Kind = Kind.HOST
    reason: str = ""
    remedy: str = REPLACE
    cause: NodeProto | None = None
    own: list[NodeProto] = field(default_factory=list)

    @property
    def main(self) -> NodeProto:
        """The node that the fragment is named after."""
        nodes = self.own or self.nodes
        inner = [node for node in nodes if node.op_type not in QUANTISERS]
        products = [node for node in inner if node.op_type in LINEAR]
        return (products or inner or nodes[-1:])[0]

    @property
    def label(self) -> str:
        """The operator and the name of the fragment, for messages."""
        return label(self.cause or self.main)


def label(node: NodeProto) -> str:
    """Return operator and name of a node as the user wrote them, for messages."""
    return f"{written_operator(node)} {node.name!r}"


def written_operator(node: NodeProto) -> str:
    """Return the operator that the user wrote in the place of a node of ONNX Runtime."""
    return next((entry.value for entry in node.metadata_props if entry.key == _WRITTEN_KEY), node.op_type)


def note_written(node: NodeProto, operator: str) -> None:
    """Note the operator that the user wrote in the place of a node of ONNX Runtime."""
    node.metadata_props.add(key=_WRITTEN_KEY, value=operator)


# The fragments of a model are found by cutting it at its tensors of 8-bit codes.


def find_fragments(source: Source) -> list[Fragment]:
    """Cut the model into fragments, in order of execution.

    Raises
    ------
    ModelError
        If a float tensor bypasses a quantised one, so that no order exists.
    """
    places = {id(node): place for place, node in enumerate(source.nodes)}
    fragments = [_make_fragment(source, nodes, places) for nodes in _group_nodes(source)]
    return _order(source, [part for fragment in fragments for part in _parts(source, fragment)])


def _group_nodes(source: Source) -> list[list[NodeProto]]:
    """Return groups of nodes connected by float tensors; a DequantizeLinear is added to each of its readers later."""
    group = {id(node): [node] for node in source.nodes if not _dequantises(source, node)}
    for node in source.nodes:
        if _dequantises(source, node):
            continue
        for name in node.output:
            if name in source.shapes and not source.is_codes(name):
                for reader in source.consumers.get(name, []):
                    _join(group, node, reader)
    groups = list({id(nodes): nodes for nodes in group.values()}.values())
    outputs = set(source.outputs)
    groups += [[node] for node in source.nodes if _dequantises(source, node) and node.output[0] in outputs]
    return groups


def _dequantises(source: Source, node: NodeProto) -> bool:
    """Return whether a node dequantises codes; sums of 32 bits are no codes."""
    return node.op_type == "DequantizeLinear" and source.is_codes(node.input[0])


def _join(group: dict[int, list[NodeProto]], one: NodeProto, other: NodeProto) -> None:
    first, second = group[id(one)], group[id(other)]
    if first is not second:
        first.extend(second)
        for node in second:
            group[id(node)] = first


def _make_fragment(source: Source, nodes: list[NodeProto], places: Mapping[int, int]) -> Fragment:
    present = {id(node) for node in nodes}
    for node in list(nodes):
        for name in source.dynamic_inputs(node):
            producer = source.producer.get(name)
            if producer is not None and _dequantises(source, producer):
                present.add(id(producer))
    ordered = [source.nodes[place] for place in sorted(places[identity] for identity in present)]
    computed = {name for node in ordered for name in node.output}
    read = dict.fromkeys(name for node in ordered for name in source.dynamic_inputs(node))
    model_outputs = set(source.outputs)
    dequantised = {name for node in ordered if _dequantises(source, node) for name in node.output}
    shared = dequantised if len(ordered) > 1 else set()

    def is_output(name: str) -> bool:
        readers = source.consumers.get(name, [])
        leaves = name in model_outputs or any(id(reader) not in present for reader in readers)
        # Codes with a float path around them are read within the fragment itself.
        return name not in shared and (leaves or (source.is_codes(name) and bool(readers)))

    outputs = [name for node in ordered for name in node.output if name in source.shapes and is_output(name)]
    return Fragment(ordered, [name for name in read if name not in computed], outputs)


def _parts(source: Source, fragment: Fragment) -> list[Fragment]:
    """Divide a fragment into one for each result, or group of results, that share pointwise operators only.

    A float or 16-bit tensor with several readers joins them in one fragment; after the division each result is a layer
    of its own, or runs on the host. Shared nodes are in each part, as a DequantizeLinear is in each fragment that reads
    it.
    """
    if len(fragment.outputs) < 2 or any(node.op_type in LINEAR for node in fragment.nodes):
        return [fragment]
    groups = _apart(source, fragment)
    found = [_above(source, fragment, names) for names in groups]
    parts = []
    for names, nodes in zip(groups, found, strict=True):
        others = {id(node) for other in found if other is not nodes for node in other}
        computed = {name for node in nodes for name in node.output}
        read = dict.fromkeys(name for node in nodes for name in source.dynamic_inputs(node) if name not in computed)
        parts.append(Fragment(nodes, list(read), names, own=[node for node in nodes if id(node) not in others]))
    return parts


def _apart(source: Source, fragment: Fragment) -> list[list[str]]:
    """Return the outputs of a fragment in groups; those that share an operator that is not pointwise are in one."""
    groups: list[tuple[list[str], set[int]]] = []
    for name in fragment.outputs:
        nodes = _above(source, fragment, [name])
        names, special = [name], {id(node) for node in nodes if node.op_type not in (*POINTWISE, *LAYOUT)}
        for group in [group for group in groups if group[1] & special]:
            groups.remove(group)
            names, special = group[0] + names, group[1] | special
        groups.append((names, special))
    return [names for names, _ in groups]


def _above(source: Source, fragment: Fragment, outputs: list[str]) -> list[NodeProto]:
    """Return the nodes of a fragment between codes and some of its outputs, in order of execution."""
    needed, nodes = set(outputs), []
    for node in reversed(fragment.nodes):
        if needed & set(node.output):
            needed |= {name for name in source.dynamic_inputs(node) if not source.is_codes(name)}
            nodes.append(node)
    return nodes[::-1]


def _order(source: Source, fragments: list[Fragment]) -> list[Fragment]:
    """Return the fragments in order of execution, in rounds: each has all fragments whose inputs come from earlier
    rounds."""
    maker = {name: number for number, fragment in enumerate(fragments) for name in fragment.outputs}
    makers = [{maker[name] for name in fragment.inputs if name in maker} for fragment in fragments]
    readers: list[list[int]] = [[] for _ in fragments]
    for number, before in enumerate(makers):
        for one in before:
            readers[one].append(number)
    missing = [len(before) for before in makers]
    done: list[int] = []
    ready = [number for number, count in enumerate(missing) if not count]
    while ready:
        done += ready
        following = []
        for number in (reader for one in ready for reader in readers[one]):
            missing[number] -= 1
            if not missing[number]:
                following.append(number)
        ready = sorted(following)
    if len(done) < len(fragments):
        waiting = next(fragment for fragment, count in zip(fragments, missing, strict=True) if count)
        late = {name for fragment, count in zip(fragments, missing, strict=True) if count for name in fragment.outputs}
        raise ModelError(f"{source.name}: {_bypass(source, waiting, late)}; quantise every branch")
    return [fragments[number] for number in done]


def _bypass(source: Source, fragment: Fragment, late: Container[str]) -> str:
    """Return a message that names the node that combines a float tensor with codes that bypass it.

    These codes, ``late``, are computed from the fragment's own results.
    """
    behind = {name for name in fragment.inputs if name in late}
    for node in fragment.nodes:
        read = source.dynamic_inputs(node)
        direct = [name for name in read if name not in behind and name not in late]
        if behind.intersection(read):
            if direct:
                return f"{label(node)} reads the float tensor {direct[0]!r} past a quantised one"
            behind |= set(node.output)
    return f"{fragment.label} reads a float tensor past a quantised one"


# Constant operands of operators on two activations may be codes that the host delivers like an input.

_OPERATORS = (*ADDITION, *SUBTRACTION, *MULTIPLICATION, *EXTREMES, *CONCAT)


def deliver_constants(source: Source) -> None:
    """Turn constant codes with a value for each element, such as position embeddings and class tokens, into
    activations.

    Scalars, which become part of a table, and values of channels remain constants.
    """
    makers = OnnxGraph(source.model, source.model.graph.node, source.constants).producer
    found: set[str] = set()
    for node in source.nodes:
        for name in _operands(node) if node.op_type in _OPERATORS else ():
            maker = makers.get(name)
            dequantised = maker is not None and maker.op_type == "DequantizeLinear"
            codes = source.constants.get(maker.input[0] if dequantised else name)
            if name not in source.constants or codes is None or codes.dtype not in (np.int8, np.uint8):
                continue
            # ONNX's own operators read codes that are not dequantised as integers.
            is_quantised = dequantised or node.domain == "com.microsoft"
            if node.op_type in CONCAT or (is_quantised and has_elements(codes.shape)):
                found |= {name, maker.input[0]} if dequantised else {name}
    for name in found:
        array = source.constants.pop(name)
        source.shapes[name], source.types[name] = array.shape, array.dtype
    if found:
        connect(source)


def _operands(node: NodeProto) -> Sequence[str]:
    """Return the operands of an operator without scales and zero points."""
    if node.op_type == "QLinearConcat":
        return node.input[2::3]
    return (node.input[0], node.input[3]) if node.domain == "com.microsoft" else node.input


def has_elements(shape: Sequence[int]) -> bool:
    """Return whether a constant varies along more than one axis, so that it has values for elements."""
    return sum(size > 1 for size in shape) > 1

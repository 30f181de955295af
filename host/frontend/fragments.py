"""Fragments: the model cut at its quantised tensors, so that each fragment is one operation on codes.

A fragment is an operator on codes (QLinearConv, MaxPool, Transpose ...), or everything that is computed in float
between quantised tensors: DequantizeLinear, operators, QuantizeLinear.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from onnx import NodeProto

from ..reference import INTEGER_PRODUCTS
from .errors import REPLACE, ModelError
from .source import Source

FLOAT_PRODUCTS = ("Conv", "Gemm", "MatMul", "FusedConv", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat")
LINEAR = (*INTEGER_PRODUCTS, *FLOAT_PRODUCTS)
LAYOUT = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
TRANSPARENT = ("Identity", "Dropout")
POOLING = ("MaxPool",)
AVERAGE = ("AveragePool", "GlobalAveragePool", "QLinearAveragePool", "QLinearGlobalAveragePool", "ReduceMean")
SUM = ("Add", "QLinearAdd")
CONCAT = ("Concat", "QLinearConcat")
SPLIT = ("Split", "Slice")
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
    """What a fragment is for the accelerator."""

    LINEAR = "convolution or matrix product"
    FLOAT_LINEAR = "convolution or matrix product in float32"
    FUNCTION = "function that is a layer"
    REGION = "pointwise operators and max pooling"
    SUM = "sum of two activations"
    AVERAGE = "average pooling"
    CONCAT = "concatenation of channels"
    SPLIT = "selection of channels"
    PAD = "border"
    COMBINATION = "pointwise operators on several activations"
    LAYOUT = "layout only"
    HOST = "host only"


#: What the accelerator is there for: it runs all of these, whatever stands between them.
PRODUCTS = (Kind.LINEAR, Kind.FLOAT_LINEAR, Kind.FUNCTION)


@dataclass(eq=False)
class Fragment:
    """One operation between quantised tensors.

    Attributes
    ----------
    nodes : list of NodeProto
        In order of execution, the DequantizeLinear nodes of its inputs included.
    inputs, outputs : list of str
        Activations that it reads and that others read from it.
    kind : Kind
    reason, remedy : str
        Why the accelerator cannot run it, and what the user can do.
    cause : NodeProto or None
        The node that this is about, where it is not the one that the fragment is named after.
    """

    nodes: list[NodeProto]
    inputs: list[str]
    outputs: list[str]
    kind: Kind = Kind.HOST
    reason: str = ""
    remedy: str = REPLACE
    cause: NodeProto | None = None

    @property
    def main(self) -> NodeProto:
        """The node that the fragment is named after."""
        inner = [node for node in self.nodes if node.op_type not in QUANTISERS]
        products = [node for node in inner if node.op_type in LINEAR]
        return (products or inner or self.nodes[-1:])[0]

    @property
    def label(self) -> str:
        """Operator and name, for messages."""
        return label(self.cause or self.main)


def label(node: NodeProto) -> str:
    """Operator and name of a node as the user wrote them, for messages."""
    return f"{written_operator(node)} {node.name!r}"


def written_operator(node: NodeProto) -> str:
    """The operator that the user wrote where ONNX Runtime executes a node."""
    return next((entry.value for entry in node.metadata_props if entry.key == _WRITTEN_KEY), node.op_type)


def note_written(node: NodeProto, operator: str) -> None:
    """Note which operator the user wrote where ONNX Runtime executes a node."""
    node.metadata_props.add(key=_WRITTEN_KEY, value=operator)


def find_fragments(source: Source) -> list[Fragment]:
    """Cut the model into fragments, in order of execution.

    Raises
    ------
    ModelError
        If a float tensor bypasses a quantised one, so that no order exists.
    """
    members = _group_nodes(source)
    fragments = [_make_fragment(source, nodes) for nodes in members]
    return _order(source, fragments)


def _group_nodes(source: Source) -> list[list[NodeProto]]:
    """Nodes that exchange float tensors belong together; a DequantizeLinear belongs to each of its readers."""
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
    """Whether a node dequantises codes; sums of 32 bits are no codes."""
    return node.op_type == "DequantizeLinear" and source.is_codes(node.input[0])


def _join(group: dict[int, list[NodeProto]], one: NodeProto, other: NodeProto) -> None:
    first, second = group[id(one)], group[id(other)]
    if first is not second:
        first.extend(second)
        for node in second:
            group[id(node)] = first


def _make_fragment(source: Source, nodes: list[NodeProto]) -> Fragment:
    present = {id(node) for node in nodes}
    for node in list(nodes):
        for name in source.dynamic_inputs(node):
            producer = source.producer.get(name)
            if producer is not None and _dequantises(source, producer):
                present.add(id(producer))
    ordered = [node for node in source.nodes if id(node) in present]
    computed = {name for node in ordered for name in node.output}
    read = dict.fromkeys(name for node in ordered for name in source.dynamic_inputs(node))
    model_outputs = set(source.outputs)
    dequantised = {name for node in ordered if _dequantises(source, node) for name in node.output}
    shared = dequantised if len(ordered) > 1 else set()

    def is_output(name: str) -> bool:
        readers = source.consumers.get(name, [])
        return name not in shared and (name in model_outputs or any(id(reader) not in present for reader in readers))

    outputs = [name for node in ordered for name in node.output if name in source.shapes and is_output(name)]
    return Fragment(ordered, [name for name in read if name not in computed], outputs)


def _order(source: Source, fragments: list[Fragment]) -> list[Fragment]:
    maker = {name: fragment for fragment in fragments for name in fragment.outputs}
    done: list[Fragment] = []
    waiting = list(fragments)
    while waiting:
        ready = [
            fragment for fragment in waiting if all(maker[name] in done for name in fragment.inputs if name in maker)
        ]
        if not ready:
            raise ModelError(
                f"{source.name}: {waiting[0].label} reads a float tensor past a quantised one; quantise every branch"
            )
        done += ready
        waiting = [fragment for fragment in waiting if fragment not in ready]
    return done

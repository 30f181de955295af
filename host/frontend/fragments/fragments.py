"""Fragments: the model cut at its quantised tensors, so that each fragment is one operation on codes.

A fragment is an operator on codes (QLinearConv, MaxPool, Transpose ...), or everything that is computed in float
between quantised tensors: DequantizeLinear, operators, QuantizeLinear.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from onnx import NodeProto

from ...model.model_graph import INTEGER_PRODUCTS
from ..reading.errors import REPLACE

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
    """What a fragment is for the accelerator."""

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
    own : list of NodeProto
        The nodes that no other fragment has, where it shares operators with some; the fragment is named after them.
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

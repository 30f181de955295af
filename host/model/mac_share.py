"""The accelerator's share of a network's multiply-accumulates: the operators on the host are counted as well.

Source: the operators' definitions in the ONNX specification and in ONNX Runtime's contributed operators.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, inliner

from ...golden.program.program import Program
from .arrays import TensorInfo
from .model import Model
from .model_graph import computed_tensors, expose
from .onnx_graph import attributes_of
from .runtime import plain_session

#: With less than this share, most of the network's work is done on the host.
SMALL = 0.5
_NAMED = 3

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class MacShare:
    """Multiply-accumulates of one inference, on the accelerator and on the host.

    Attributes
    ----------
    accelerator : int
    host : dict of str to int
        Multiply-accumulates of each operator on the host that has any.
    unknown : tuple of str
        Operators on the host for which the number is not known.
    """

    accelerator: int
    host: dict[str, int]
    unknown: tuple[str, ...]

    @property
    def total(self) -> int:
        """Multiply-accumulates of the network, as far as they are known."""
        return self.accelerator + sum(self.host.values())

    @property
    def share(self) -> float | None:
        """The accelerator's part, between 0 and 1; None where it is not known, or where there are none at all."""
        return None if self.unknown or not self.total else self.accelerator / self.total

    @property
    def warnings(self) -> list[str]:
        """The warnings for a user."""
        found = []
        if self.total and self.accelerator < SMALL * self.total:
            largest = Counter(self.host).most_common(_NAMED)
            others = f" and {len(self.host) - _NAMED} others" if len(self.host) > _NAMED else ""
            named = ", ".join(f"{label} ({macs:,})" for label, macs in largest)
            found.append(f"most of the network runs on the host: {named}{others}")
        if self.unknown:
            found.append(f"how much work these are on the host is not known: {', '.join(self.unknown)}")
        return found

    def lines(self) -> list[str]:
        """Return the share and the warnings as lines of text."""
        limit = "at most " if self.unknown else ""
        share = f"{limit}{self.accelerator / self.total:.1%}" if self.total else "none"
        shown = f"accelerator: {self.accelerator:,} of the network's {self.total:,} multiply-accumulates ({share})"
        return [shown, *(f"warning: {text}" for text in self.warnings)]

    def values(self) -> dict[str, object]:
        """Return the values for JSON."""
        return {
            "host_macs": None if self.unknown else sum(self.host.values()),
            "mac_share": None if self.share is None else round(self.share, 6),
            "warnings": self.warnings,
        }


def mac_share(program: Program, parts: Iterable[Model]) -> MacShare:
    """Count the multiply-accumulates of a program's layers in one inference, and of the ``parts`` on the host."""
    host: Counter[str] = Counter()
    unknown = []
    for part in parts:
        for label, macs in count(part).items() if part else ():
            if macs is None:
                unknown.append(label)
            elif macs:
                host[label] += program.batch * macs
    return MacShare(sum(layer.macs for layer in program.layers), dict(host), tuple(unknown))


def count(part: Model) -> dict[str, int | None]:
    """Count the multiply-accumulates of each operator of an ONNX model, for one run; None where that is not known.

    By convention, operators that compute element by element, average, normalise, move or compare have none.
    """
    model = part.proto
    if model.functions:
        model = inliner.inline_local_functions(model)
    shapes = _shapes(model)
    return {f"{node.op_type} {node.name or node.output[0]!r}": _macs(node, shapes) for node in model.graph.node}


def _shapes(model: onnx.ModelProto) -> dict[str, Sequence[int]]:
    """Find the shape of every tensor by running the model on inputs of zeros."""
    shapes: dict[str, Sequence[int]] = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    names = computed_tensors(model)
    session = plain_session(expose(model, names))
    feeds = {
        value.name: np.zeros(value.shape, TensorInfo(value.name, value.shape, value.type).dtype)
        for value in session.get_inputs()
    }
    values = feeds | dict(zip(names, session.run(names, feeds), strict=True))
    return shapes | {name: np.shape(value) for name, value in values.items() if isinstance(value, np.ndarray)}


def _macs(node: NodeProto, shapes: Shapes) -> int | None:
    operator = node.op_type
    if node.domain not in ("", "ai.onnx", "com.microsoft"):
        return None
    for pattern, function in _COUNTED.items():
        if re.fullmatch(pattern, operator):
            return function(node, shapes)
    return None if _multiplies(node) else 0


def _multiplies(node: NodeProto) -> bool:
    """Return whether an operator, or one in its branches and bodies, multiplies tensors with one another and sums."""
    # Only a run would show how often a body runs, and on which shapes.
    inner = [other for item in node.attribute for graph in (item.g, *item.graphs) for other in graph.node]
    if node.domain == "com.microsoft":
        return re.fullmatch(_CONTRIBUTED_WITHOUT, node.op_type) is None
    return any(re.fullmatch(pattern, node.op_type) for pattern in (_UNKNOWN, *_COUNTED)) or any(map(_multiplies, inner))


def _convolution(node: NodeProto, shapes: Shapes) -> int:
    weights = shapes[node.input[3 if node.op_type == "QLinearConv" else 1]]
    return math.prod(shapes[node.output[0]]) * math.prod(weights[1:])


def _transposed_convolution(node: NodeProto, shapes: Shapes) -> int:
    # Each element of the input meets one filter of every output channel of its group.
    return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


def _product(node: NodeProto, shapes: Shapes) -> int:
    summed = -2 if attributes_of(node).get("transA") else -1
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][summed]


def _recurrent(node: NodeProto, shapes: Shapes) -> int:
    # Each step of each sequence meets all weights, those of the input and those of the state.
    steps = math.prod(shapes[node.input[0]][:2])
    return steps * sum(math.prod(shapes[name]) for name in node.input[1:3])


def _einsum(node: NodeProto, shapes: Shapes) -> int | None:
    equation = attributes_of(node)["equation"].decode()
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if "..." in equation:
        return None
    sizes = {
        label: size
        for term, name in zip(terms, node.input, strict=True)
        for label, size in zip(term, shapes[name], strict=True)
    }
    return (len(terms) - 1) * math.prod(sizes.values())


#: Functions that count the multiply-accumulates of operators, by a pattern of the operators' names.
_COUNTED: dict[str, Callable[[NodeProto, Shapes], int | None]] = {
    "Conv|ConvInteger|QLinearConv|FusedConv|DeformConv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm|QGemm|FusedGemm": _product,
    "MatMul|MatMulInteger|QLinearMatMul|FusedMatMul|DynamicQuantizeMatMul|MatMulIntegerToFloat": _product,
    "LSTM|GRU|RNN|DynamicQuantizeLSTM": _recurrent,
    "Einsum": _einsum,
}
#: Operators of ONNX that multiply and sum, and for which there is no count here.
_UNKNOWN = "Attention|DFT|STFT|MelWeightMatrix|Det|LinearAttention|CausalConvWithState"
#: Contributed operators that compute element by element, or only move, compare or average.
_CONTRIBUTED_WITHOUT = (
    "QLinear(Add|Mul|Sigmoid|LeakyRelu|Softmax|Concat|Where|AveragePool|GlobalAveragePool|ReduceMean)|"
    "QuantizeLinear|DequantizeLinear|DynamicQuantizeLinear|Gelu|FastGelu|BiasGelu|QuickGelu|BiasSoftmax|"
    "(Skip|Simplified|SkipSimplified)?LayerNormalization|FusedActivation|Trilu|Unique|Pad|Range|ExpandDims"
)

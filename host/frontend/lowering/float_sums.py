"""Products that ONNX Runtime computes in float, and that give the bytes of an integer sum in whatever order it adds.

Between DequantizeLinear and QuantizeLinear of other types, or with a Flatten in front of it, a product stays in float.
Its code is certain in two cases. Where scales are powers of two, every number is a whole multiple of one of them, and
nothing is rounded before the code is. Elsewhere no sum may come so near to a tie that float32's roundings could decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ...graph import Int8
from ..building.build import attributes
from ..building.checks import are_powers_of_two
from ..fragments.fragments import LAYOUT, POOLING, QUANTISERS, TRANSPARENT, Fragment, label
from ..reading.errors import OperandError, UnsupportedError
from ..reading.source import Source
from .linear import constant

_CONVOLUTIONS, _MATRICES = ("Conv", "FusedConv"), ("Gemm", "MatMul")
_TRUNK, _CUTTING = (*LAYOUT, *POOLING), ("Relu", "Clip")
#: Half a unit of float32's last place, relative.
_UNIT = 2.0**-24
#: Roundings of a term besides those of the additions: of its factors, the product and the quotient, and of the
#: requantiser's scale and product; and half as many again for what their products leave.
_ROUNDINGS = 16
#: Relative error of a bias that was quantised with the scale of input times weight, in units: that scale's and its own.
_BIAS_ROUNDINGS = 4
#: Magnitudes from which float32 holds multiples of the least term exactly.
_LEAST_TERM = 2.0**-100

Float64 = npt.NDArray[np.float64]


@dataclass
class FloatProduct:
    """A product in float, as integers.

    Attributes
    ----------
    node : NodeProto
    before, after : list of NodeProto
        Layout operators and max pooling around it.
    weights : int8[outputs, ...]
        Of a matrix product int8[outputs, features].
    bias : int32[outputs]
    scales : float32[outputs]
        Of the weights.
    ends : tuple of float32
        Scales of input and output.
    codes : tuple of int
        Least and greatest code of the input, as they are in the file.
    zero_points : tuple of int
        Of input and output.
    low, high : int
        Bounds of the output's code that Relu and Clip leave.
    """

    node: NodeProto
    before: list[NodeProto]
    after: list[NodeProto]
    weights: Int8
    bias: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float32]
    ends: tuple[np.float32, np.float32]
    codes: tuple[int, int]
    zero_points: tuple[int, int]
    low: int
    high: int
    _real_bias: Float64 = field(default_factory=lambda: np.zeros(0))

    def check(self) -> None:
        """Check that no order of float32 additions can give another code than the integer sum.

        Raises
        ------
        UnsupportedError
            With a channel and a sum whose code is not certain.
        """
        weights = self.weights.reshape(len(self.weights), -1).astype(np.float64)
        unit = self.ends[0].astype(np.float64) * self.scales.astype(np.float64)
        reach = [code - self.zero_points[0] for code in self.codes]
        # The border of a map counts as 0.
        steps = np.stack([weights * reach[0], weights * reach[1], weights * 0])
        least, greatest = (end.sum(axis=1) + self.bias for end in (steps.min(axis=0), steps.max(axis=0)))
        total = np.abs(weights).sum(axis=1) * max(map(abs, reach)) + np.abs(self.bias)
        if self._is_exact(unit, total):
            return
        ratio = unit / np.float64(self.ends[1])
        bound = total * ratio * (weights.shape[1] + 1 + _ROUNDINGS) * _UNIT
        ties = np.arange(self.low, self.high) - self.zero_points[1] + 0.5
        below = np.floor(ties[:, None] / ratio)
        for sums in (below, below + 1):
            near = (np.abs(sums * ratio - ties[:, None]) <= bound) & (sums >= least) & (sums <= greatest)
            if near.any():
                tie, channel = (int(at[0]) for at in np.nonzero(near))
                raise UnsupportedError(
                    f"float32 may round the sum {int(sums[tie, channel])} of channel {channel} to the code "
                    f"{self.low + tie} or to {self.low + tie + 1}",
                    "scales that are powers of two (Brevitas: FixedPoint quantisers, or export_qonnx)",
                )

    def _is_exact(self, unit: Float64, total: Float64) -> bool:
        """Whether nothing is rounded: all numbers are whole multiples of one power of two, and at most 2**24 of it."""
        scales = np.concatenate([self.scales, self.ends])
        is_power = are_powers_of_two(scales) and unit.min() >= _LEAST_TERM
        return bool(is_power and (total <= 1 / _UNIT).all() and np.array_equal(self._real_bias, self.bias * unit))


def read_float_product(source: Source, fragment: Fragment) -> FloatProduct:
    """Read a fragment whose product ONNX Runtime computes in float.

    Raises
    ------
    UnsupportedError
        If it is more than a product of codes with quantised weights; without a reason where something else stands in
        it, or it is no product that has an integer form.
    """
    node = fragment.main
    before, after = _around(fragment, node)
    given = attributes(node)
    reads_codes = len(fragment.inputs) == 1 and source.dynamic_inputs(node) == [node.input[0]]
    foreign = [other for other in before if other.op_type not in _TRUNK]
    foreign += [other for other in after if other.op_type not in (*_TRUNK, *_CUTTING)]
    plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1 and not given.get("transA", 0)
    plain = plain and given.get("activation", b"Relu") in (b"Relu", b"Clip")
    if node.op_type not in (*_CONVOLUTIONS, *_MATRICES) or foreign or not (reads_codes and plain):
        raise UnsupportedError("")
    first, last = fragment.nodes[0], fragment.nodes[-1]
    if (first.op_type, last.op_type) != ("DequantizeLinear", "QuantizeLinear"):
        raise UnsupportedError("")
    ends = tuple(np.float32(source.constants[end.input[1]].item()) for end in (first, last))
    zero_points = tuple(_zero_point(source, end) for end in (first, last))
    transposed = node.op_type in _MATRICES and not given.get("transB", 0)
    weights, scales = _weights(source, node, transposed=transposed)
    bias, real_bias = _bias(source, node, ends[0].astype(np.float64) * scales.astype(np.float64))
    low, high = code_range(source, fragment.outputs[0])
    return FloatProduct(
        node=node,
        before=before,
        after=[other for other in after if other.op_type in _TRUNK],
        weights=weights,
        bias=bias,
        scales=scales,
        ends=ends,
        codes=code_range(source, fragment.inputs[0]),
        zero_points=zero_points,
        low=low,
        high=high,
        _real_bias=real_bias,
    )


def code_range(source: Source, tensor: str) -> tuple[int, int]:
    """Least and greatest code that Relu and Clip in front of them leave: QuantizeLinear never decreases."""
    limits = np.iinfo(source.types[tensor])
    bounds: list[tuple[float, float]] = [(limits.min, limits.max)]
    node = source.producer.get(tensor)
    while node is not None and source.is_codes(node.input[0]) and node.op_type in (*_TRUNK, *TRANSPARENT, "Clip"):
        bounds.append(_numbers(source, node))
        node = source.producer.get(node.input[0])
    if node is not None and node.op_type == "QuantizeLinear":
        scale, zero_point = np.float32(source.constants[node.input[1]].item()), _zero_point(source, node)
        node = source.producer.get(node.input[0])
        while node is not None and node.op_type in (*_TRUNK, *TRANSPARENT, *_CUTTING, "FusedConv"):
            ends = _numbers(source, node)
            bounds.append(tuple(float(np.rint(np.float32(end) / scale)) + zero_point for end in ends))
            node = source.producer.get(node.input[0]) if node.op_type != "FusedConv" else None
    low, high = -math.inf, math.inf
    for least, greatest in reversed(bounds):
        low, high = (min(max(code, least), greatest) for code in (low, high))
    return int(low), int(high)


def _numbers(source: Source, node: NodeProto) -> tuple[float, float]:
    """Bounds that an operator sets to what it computes."""
    activation = attributes(node).get("activation", b"").decode() or node.op_type
    if activation == "Relu":
        return 0.0, math.inf
    if node.op_type == "Clip":
        least, greatest = (constant(source, node, at) for at in (1, 2))
        return -math.inf if least is None else least.item(), math.inf if greatest is None else greatest.item()
    if activation == "Clip":
        least, greatest = attributes(node)["activation_params"]
        return least, greatest
    return -math.inf, math.inf


def _around(fragment: Fragment, node: NodeProto) -> tuple[list[NodeProto], list[NodeProto]]:
    at = fragment.nodes.index(node)
    before, after = (
        [other for other in nodes if other.op_type not in (*QUANTISERS, *TRANSPARENT)]
        for nodes in (fragment.nodes[:at], fragment.nodes[at + 1 :])
    )
    return before, after


def _zero_point(source: Source, node: NodeProto) -> int:
    given = constant(source, node, 2)
    return 0 if given is None else int(given.item())


def _weights(source: Source, node: NodeProto, *, transposed: bool) -> tuple[Int8, npt.NDArray[np.float32]]:
    """int8[outputs, ...] and float32[outputs], what DequantizeLinear makes weights of."""
    name = node.input[1]
    values, maker = source.constants[name], {out: made for made in source.model.graph.node for out in made.output}
    dequantised = maker.get(name)
    while dequantised is not None and dequantised.op_type in (*LAYOUT, *TRANSPARENT):
        dequantised = maker.get(dequantised.input[0])
    problem = OperandError(
        f"the weights {name!r} of {label(node)} are no int8 codes times one scale for each output channel",
        "symmetric int8 weights",
    )
    if dequantised is None or dequantised.op_type != "DequantizeLinear":
        raise problem
    if values.ndim not in ((2,) if node.op_type in _MATRICES else (3, 4)):
        raise UnsupportedError("")
    values = values.T if transposed else values
    scales = source.constants[dequantised.input[1]].reshape(-1)
    if scales.size not in (1, len(values)):
        raise problem
    scales = np.broadcast_to(scales, len(values)).astype(np.float32)
    along = scales.reshape(-1, *[1] * (values.ndim - 1))
    with np.errstate(all="ignore"):
        codes = np.rint(values / along)
    if not ((np.abs(codes + 0.5) <= 127.5).all() and np.array_equal(codes.astype(np.float32) * along, values)):
        raise problem
    return codes.astype(np.int8), scales


def _bias(source: Source, node: NodeProto, unit: Float64) -> tuple[npt.NDArray[np.int32], Float64]:
    """int32[outputs] and what the file has: a whole number of input scale times weight scale, but for its roundings."""
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(len(unit), np.int32), np.zeros(len(unit))
    real = np.broadcast_to(source.constants[node.input[2]].reshape(-1), len(unit)).astype(np.float64)
    whole = np.rint(real / unit)
    wrong = np.abs(real / unit - whole) > np.abs(whole) * _BIAS_ROUNDINGS * _UNIT
    wrong |= np.abs(whole) * _BIAS_ROUNDINGS * _UNIT >= 0.5
    if wrong.any():
        raise OperandError(
            f"the bias {node.input[2]!r} of channel {int(wrong.argmax())} is no whole multiple of input scale times "
            "weight scale",
            "a bias quantised with that scale (Brevitas: bias_quant=Int32Bias)",
        )
    return whole.astype(np.int32), real

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
from ..building.transposed import geometry_of
from ..fragments.fragments import LAYOUT, POOLING, QUANTISERS, TRANSPARENT, TRANSPOSED, Fragment
from ..fragments.lowering import refuses
from ..lowering.linear import constant
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .float_operands import MATRICES, UNIT, bias_of, weights_of, zero_point_of

CONVOLUTIONS = ("Conv", "FusedConv")
_TRUNK, _CUTTING = (*LAYOUT, *POOLING), ("Relu", "Clip")
#: Roundings of a term besides those of the additions: of its factors, the product and the quotient, and of the
#: requantiser's scale and product; and half as many again for what their products leave.
_ROUNDINGS = 16
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
    channels : int64[outputs]
        Of the operator's output, for messages.
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
    channels: npt.NDArray[np.int64]
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
        bound = total * ratio * (weights.shape[1] + 1 + _ROUNDINGS) * UNIT
        ties = np.arange(self.low, self.high) - self.zero_points[1] + 0.5
        below = np.floor(ties[:, None] / ratio)
        for sums in (below, below + 1):
            near = (np.abs(sums * ratio - ties[:, None]) <= bound) & (sums >= least) & (sums <= greatest)
            if near.any():
                tie, channel = (int(at[0]) for at in np.nonzero(near))
                raise UnsupportedError(
                    f"float32 may round the sum {int(sums[tie, channel])} of channel {self.channels[channel]} to the "
                    f"code {self.low + tie} or to {self.low + tie + 1}",
                    "scales that are powers of two (Brevitas: FixedPoint quantisers, or export_qonnx)",
                )

    def _is_exact(self, unit: Float64, total: Float64) -> bool:
        """Whether nothing is rounded: all numbers are whole multiples of one power of two, and at most 2**24 of it."""
        scales = np.concatenate([self.scales, self.ends])
        is_power = are_powers_of_two(scales) and unit.min() >= _LEAST_TERM
        return bool(is_power and (total <= 1 / UNIT).all() and np.array_equal(self._real_bias, self.bias * unit))


@refuses(
    "something else than a product of codes with quantised weights stands in it",
    "it is no product that has an integer form",
)
def read_float_product(source: Source, fragment: Fragment) -> FloatProduct:
    """Read a fragment whose product ONNX Runtime computes in float."""
    node = next((node for node in fragment.nodes if node.op_type in TRANSPOSED), fragment.main)
    before, after = _around(fragment, node)
    given = attributes(node)
    reads_codes = len(fragment.inputs) == 1 and source.dynamic_inputs(node) == [node.input[0]]
    foreign = [other for other in before if other.op_type not in _TRUNK]
    foreign += [other for other in after if other.op_type not in (*_TRUNK, *_CUTTING)]
    plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1 and not given.get("transA", 0)
    plain = plain and given.get("activation", b"Relu") in (b"Relu", b"Clip")
    if node.op_type not in (*CONVOLUTIONS, *MATRICES, *TRANSPOSED) or foreign or not (reads_codes and plain):
        raise UnsupportedError("")
    first, last = fragment.nodes[0], fragment.nodes[-1]
    if (first.op_type, last.op_type) != ("DequantizeLinear", "QuantizeLinear"):
        raise UnsupportedError("")
    ends = tuple(np.float32(source.constants[end.input[1]].item()) for end in (first, last))
    zero_points = tuple(zero_point_of(source, end) for end in (first, last))
    weights, scales = weights_of(source, node)
    bias, real_bias = bias_of(source, node, ends[0].astype(np.float64) * scales.astype(np.float64))
    channels = np.arange(len(scales))
    if node.op_type in TRANSPOSED:
        # Each phase of the output is a channel of its own, of the weights that reach it.
        geometry = geometry_of(source, node)
        weights = geometry.weights(weights.reshape(*weights.shape[:2], *geometry.kernel))
        scales, bias, real_bias, channels = map(geometry.of_outputs, (scales, bias, real_bias, channels))
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
        channels=channels,
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
        scale, zero_point = np.float32(source.constants[node.input[1]].item()), zero_point_of(source, node)
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

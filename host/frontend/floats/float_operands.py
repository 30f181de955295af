"""Operands of products in float, as integers: weights and bias that DequantizeLinear makes of codes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ...graph import Int8
from ..building.build import attributes
from ..fragments.fragments import LAYOUT, TRANSPARENT, TRANSPOSED, label
from ..lowering.linear import constant
from ..reading.errors import OperandError, UnsupportedError
from ..reading.source import Source

MATRICES = ("Gemm", "MatMul")
#: Half a unit of float32's last place, relative.
UNIT = 2.0**-24
#: Relative error of a bias that was quantised with the scale of input times weight, in units: that scale's and its own.
_ROUNDINGS = 4

Float64 = npt.NDArray[np.float64]


def zero_point_of(source: Source, node: NodeProto) -> int:
    """The zero point that a QuantizeLinear or DequantizeLinear has."""
    given = constant(source, node, 2)
    return 0 if given is None else int(given.item())


def weights_of(source: Source, node: NodeProto) -> tuple[Int8, npt.NDArray[np.float32]]:
    """int8[outputs, ...] and float32[outputs], what DequantizeLinear makes weights of.

    Of a transposed convolution int8[inputs, outputs / groups, ...], as they are in the file.
    """
    name = node.input[1]
    values, maker = source.constants[name], {out: made for made in source.model.graph.node for out in made.output}
    dequantised = maker.get(name)
    while dequantised is not None and dequantised.op_type in (*LAYOUT, *TRANSPARENT):
        dequantised = maker.get(dequantised.input[0])
    problem = OperandError(
        "weights",
        name,
        f"of {label(node)} are no int8 codes times one scale for each output channel",
        "symmetric int8 weights",
    )
    if dequantised is None or dequantised.op_type != "DequantizeLinear":
        raise problem
    if values.ndim not in ((2,) if node.op_type in MATRICES else (3, 4)):
        raise UnsupportedError("")
    given = attributes(node)
    values = values.T if node.op_type in MATRICES and not given.get("transB", 0) else values
    axis = 1 if node.op_type in TRANSPOSED else 0
    scales = source.constants[dequantised.input[1]].reshape(-1)
    if scales.size not in (1, values.shape[axis]):
        raise problem
    scales = np.broadcast_to(scales, values.shape[axis]).astype(np.float32)
    along = scales.reshape(*[1] * axis, -1, *[1] * (values.ndim - 1 - axis))
    with np.errstate(all="ignore"):
        codes = np.rint(values / along)
    if not ((np.abs(codes + 0.5) <= 127.5).all() and np.array_equal(codes.astype(np.float32) * along, values)):
        raise problem
    return codes.astype(np.int8), np.tile(scales, given.get("group", 1)) if axis else scales


def bias_of(source: Source, node: NodeProto, unit: Float64) -> tuple[npt.NDArray[np.int32], Float64]:
    """int32[outputs] and what the file has: a whole number of input scale times weight scale, but for its roundings."""
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(len(unit), np.int32), np.zeros(len(unit))
    real = np.broadcast_to(source.constants[node.input[2]].reshape(-1), len(unit)).astype(np.float64)
    whole = np.rint(real / unit)
    wrong = np.abs(real / unit - whole) > np.abs(whole) * _ROUNDINGS * UNIT
    wrong |= np.abs(whole) * _ROUNDINGS * UNIT >= 0.5
    if wrong.any():
        raise OperandError(
            "bias",
            node.input[2],
            f"of channel {int(wrong.argmax())} is no whole multiple of input scale times weight scale",
            "a bias quantised with that scale (Brevitas: bias_quant=Int32Bias)",
        )
    return whole.astype(np.int32), real

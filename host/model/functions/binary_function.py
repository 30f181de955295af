"""Binary convolution as an ONNX function: a body of standard operators that computes it exactly.

``docs/binary.md`` shows the body; ``host/frontend/functions/binary_body.py`` reads it back. Inner products are whole
numbers below 2**24, exact in float32. They become int32 before the bias is added: ONNX Runtime would multiply scales
into the weights of a convolution directly before them, and round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import FunctionProto, TensorProto

from ....golden.numerics.requant import pack_parameters, requantise
from .onnx_function import LEAST_OPSET, Body, add_function, make_call

__all__ = ["EXACT", "NAME", "add_function", "make_call", "make_function"]

NAME = "BinaryConv"

#: A sum of as many values is exact in float32.
EXACT = 1 << 24


def make_function(
    weights: npt.NDArray[np.int8],
    *,
    bias: npt.NDArray[np.int32],
    scale: npt.NDArray[np.float32] | None = None,
    zero_point: int = 0,
    low: int = -128,
    high: int = 127,
    input_zero_point: int = 0,
    pad_value: int = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    name: str = NAME,
    opset: int = LEAST_OPSET,
) -> FunctionProto:
    """Make the function of a layer: int8[batch, inputs, ...] to int8[batch, outputs, ...].

    Its input counts as +1 where it is at least ``input_zero_point``, else as -1; a map of +1 and -1 stays itself.

    Parameters
    ----------
    weights : int8[outputs, inputs, kernel rows, kernel columns] or int8[outputs, inputs]
        Weights, +1 and -1; a matrix for vectors.
    bias : int32[outputs]
    scale : float32[outputs] or None
        The scale; None for a result of +1 where the sum of inner product and bias is at least 0, else -1.
    zero_point, low, high : int
        int8 codes of a result with a scale: ``clip(rint(f32(product + bias) * scale) + zero_point, low, high)``.
    input_zero_point : int
        int8 code.
    pad_value : int
        The value of padding: +1, -1, or 0 for none.
    pads : (top, left, bottom, right)
    strides, dilations : (vertical, horizontal)
    name : str
        Functions of one model need different names: the weights are in the body.
    opset : int
        Operator set, that of the model, at least 13.

    Raises
    ------
    TypeError
        If an array is of another type.
    ValueError
        If a shape or a number is out of range.
    """
    _check_weights(weights)
    _check_result(bias, scale, (zero_point, low, high), len(weights))
    _check_input(input_zero_point, pad_value)
    body = Body(weights.ndim - 2)
    values = _enter(body, input_zero_point)
    if body.spatial:
        products = _convolve(body, values, weights, pad_value, pads, strides, dilations)
    else:
        _check_vector(pads, strides, dilations)
        products = body.add("MatMul", "products", values, _weights(body, weights.T))
    _epilogue(body, products, bias, scale, (zero_point, low, high))
    return body.function(name, opset)


def _epilogue(
    body: Body,
    products: str,
    bias: npt.NDArray[np.int32],
    scale: npt.NDArray[np.float32] | None,
    codes: tuple[int, int, int],
) -> None:
    """Add the bias and requantise, or take signs; ``codes`` are zero point, least and greatest code."""
    numbers = body.add("Cast", "numbers", products, to=TensorProto.INT32)
    sums = body.add("Add", "biased", numbers, body.channels("bias", bias, np.int32))
    if scale is None:
        _signs(body, sums)
    else:
        floats = body.add("Cast", "sums", sums, to=TensorProto.FLOAT)
        body.requantise(floats, scale, *codes)


def _check_weights(weights: npt.NDArray[np.int8]) -> None:
    if weights.dtype != np.int8:
        raise TypeError(f"weights must be int8, not {weights.dtype}")
    if weights.ndim not in (2, 4) or not weights.size:
        raise ValueError(
            "weights must have the shape [outputs, inputs, kernel rows, kernel columns] or [outputs, inputs], "
            f"not {list(weights.shape)}"
        )
    wrong = weights[np.abs(weights) != 1]
    if wrong.size:
        raise ValueError(f"weights must be +1 and -1, not {wrong[0]}")
    if weights[0].size > EXACT:
        raise ValueError(f"weights must be at most {EXACT} for an output, not {weights[0].size}")


def _check_result(
    bias: npt.NDArray[np.int32], scale: npt.NDArray[np.float32] | None, codes: tuple[int, int, int], outputs: int
) -> None:
    if bias.shape != (outputs,):
        raise ValueError(f"bias must be of {outputs} outputs, not of the shape {list(bias.shape)}")
    # This refuses biases, scales and codes as every requantisation does.
    factors = np.ones(outputs, np.float32) if scale is None else scale
    requantise(np.zeros(outputs, np.int32), pack_parameters(bias, factors), *codes)
    if scale is None and codes != (0, -128, 127):
        raise ValueError("zero_point, low and high must be left out where the result is signs: give a scale, or none")


def _check_input(zero_point: int, pad_value: int) -> None:
    if not -128 <= zero_point <= 127:
        raise ValueError(f"input_zero_point must be between -128 and 127, not {zero_point}")
    if pad_value not in (1, -1, 0):
        raise ValueError(f"pad_value must be +1, -1 or 0, not {pad_value}")


def _check_vector(pads: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> None:
    given = {"pads": pads, "strides": strides, "dilations": dilations}
    for name, least in (("pads", 0), ("strides", 1), ("dilations", 1)):
        if set(given[name]) != {least}:
            raise ValueError(f"{name} must be left out for weights without a kernel, not be {given[name]}")


def _enter(body: Body, zero_point: int) -> str:
    """Convert the codes to +1 and -1 as float32."""
    numbers = body.add("Cast", "floats", "codes", to=TensorProto.FLOAT)
    reached = body.add("GreaterOrEqual", "reached", numbers, body.constant("zero_point", zero_point))
    return body.add("Where", "values", reached, body.constant("plus", 1), body.constant("minus", -1))


def _convolve(
    body: Body,
    values: str,
    weights: npt.NDArray[np.int8],
    pad_value: int,
    pads: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> str:
    for name, given, count, least in (("pads", pads, 4, 0), ("strides", strides, 2, 1), ("dilations", dilations, 2, 1)):
        if len(given) != count or min(given) < least:
            raise ValueError(f"{name} must be {count} numbers of at least {least}, not {tuple(given)}")
    if any(pads):
        around = np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64)
        border = body.constant("pads", around, np.int64), body.constant("pad_value", pad_value)
        values = body.add("Pad", "padded", values, *border)
    return body.add("Conv", "products", values, _weights(body, weights), strides=strides, dilations=dilations)


def _weights(body: Body, weights: npt.NDArray[np.int8]) -> str:
    """Add the weights as float32, stored as int8 in a quarter of the space."""
    return body.add("Cast", "kernel", body.constant("weights", weights, np.int8), to=TensorProto.FLOAT)


def _signs(body: Body, sums: str) -> None:
    reached = body.add("GreaterOrEqual", "result_reached", sums, body.constant("threshold", 0, np.int32))
    signs = body.add("Where", "signs", reached, "plus", "minus")
    body.add("Cast", "result", signs, to=TensorProto.INT8)

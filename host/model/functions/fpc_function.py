"""Fast pointwise convolution as an ONNX function: a body of standard operators that computes it exactly in float32.

``docs/fpc.md`` shows the body; ``host/frontend/functions/fpc_body.py`` reads it back. Every sum in it is an integer
below 2**24, and the body contains everything that gives a code its meaning, so that ONNX Runtime gives the bytes of
:func:`lutterfly.golden.numerics.fpc.fast_pointwise` in any model.
"""

from __future__ import annotations

import numpy as np
from onnx import FunctionProto, TensorProto

from ....golden.numerics.fpc import FRACTION_BITS, UNIT_WEIGHT, VALUE_BITS, FpcEpilogue, Stages
from .onnx_function import LEAST_OPSET, Body, add_function, make_call

__all__ = ["GREATEST_VALUE", "LEAST_VALUE", "NAME", "add_function", "make_call", "make_function"]

NAME = "FastPointwiseConv"

LEAST_VALUE, GREATEST_VALUE = float(-(1 << VALUE_BITS - 1)), float((1 << VALUE_BITS - 1) - 1)


def make_function(
    stages: Stages,
    epilogue: FpcEpilogue,
    zero_point: int,
    *,
    spatial: int = 2,
    name: str = NAME,
    opset: int = LEAST_OPSET,
) -> FunctionProto:
    """Make the function of a layer: int8[batch, inputs, ...] to int8[batch, outputs, ...].

    Parameters
    ----------
    stages : Stages
    epilogue : FpcEpilogue
    zero_point : int
        The input's zero point, as an int8 code.
    spatial : int
        Dimensions after the channels: 2 for images, 0 for vectors.
    name : str
        Functions of one model need different names: the weights are in the body.
    opset : int
        Operator set, that of the model, at least 13.

    Raises
    ------
    ValueError
        If the epilogue is of other channels than the stages, or a number is out of range.
    """
    pattern = stages.pattern
    if len(epilogue.bias) != pattern.outputs:
        raise ValueError(f"bias must be of {pattern.outputs} outputs, not {len(epilogue.bias)}")
    if not -128 <= zero_point <= 127:
        raise ValueError(f"zero_point must be between -128 and 127, not {zero_point}")
    if spatial < 0:
        raise ValueError(f"spatial must be at least 0, not {spatial}")
    body = Body(spatial)
    values = _enter(body, stages, zero_point)
    entering = [values]
    for stage in range(pattern.stages):
        entering.append(_stage(body, stages, stage, entering))
    _epilogue(body, entering[-1], stages, epilogue)
    return body.function(name, opset)


def _enter(body: Body, stages: Stages, zero_point: int) -> str:
    pattern, zero = stages.pattern, body.constant("zero_point", zero_point)
    shift = body.constant("input_shift", 2.0**stages.input_shift)
    numbers = body.add("Cast", "numbers", "codes", to=TensorProto.FLOAT)
    centred = body.add("Sub", "centred", numbers, zero)
    values = body.add("Mul", "values", centred, shift)
    if pattern.inputs == pattern.width:
        return values
    rank = 2 + body.spatial
    pads = np.zeros(2 * rank, np.int64)
    pads[rank + 1] = pattern.width - pattern.inputs
    return body.add("Pad", "extended", values, body.constant("null_channels", pads, np.int64))


def _stage(body: Body, stages: Stages, stage: int, entering: list[str]) -> str:
    pattern, before, begin = stages.pattern, entering[-1], f"stage{stage}"
    density, indices = pattern.densities[stage], np.arange(pattern.width)
    weights = {}
    for kind, is_trained in (("own", density.trains_own), ("cross", density.trains_cross)):
        name, array = f"{begin}_{kind}", getattr(stages, kind)[stage]
        # A weight that does not exist is one number, not a number for each channel.
        weights[kind] = body.channels(name, array) if is_trained else body.constant(name, UNIT_WEIGHT)
    order = body.constant(f"{begin}_order", indices ^ pattern.distances[stage], np.int64)
    other = body.add("Gather", f"{begin}_other", before, order, axis=1)
    own = body.add("Mul", f"{begin}_own_product", before, weights["own"])
    cross = body.add("Mul", f"{begin}_cross_product", other, weights["cross"])
    total = body.add("Add", f"{begin}_sum", own, cross)
    unit = body.constant(f"{begin}_unit", 2.0 ** -(FRACTION_BITS + stages.growth_shifts[stage]))
    result = body.add("Round", f"{begin}_rounded", body.add("Mul", f"{begin}_scaled", total, unit))
    for first, last in pattern.skips:
        if last == stage:
            result = body.add("Add", f"{begin}_with{first}", result, entering[first])
    limits = (body.constant(f"{begin}_{name}", value) for name, value in _LIMITS)
    return body.add("Clip", f"{begin}_values", result, *limits)


_LIMITS = (("least", LEAST_VALUE), ("greatest", GREATEST_VALUE))


def _epilogue(body: Body, values: str, stages: Stages, epilogue: FpcEpilogue) -> None:
    pattern = stages.pattern
    if pattern.outputs < pattern.width:
        ends = (body.constant(f"kept_{name}", [at], np.int64) for name, at in _kept(pattern.outputs))
        values = body.add("Slice", "kept", values, *ends)
    biased = body.add("Add", "biased", values, body.channels("bias", epilogue.bias))
    body.requantise(biased, epilogue.scale, epilogue.zero_point, epilogue.low, epilogue.high)


def _kept(outputs: int) -> tuple[tuple[str, int], ...]:
    return ("start", 0), ("end", outputs), ("axis", 1)

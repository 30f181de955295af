"""The kinds of blocks that networks are drawn of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from cocotb_tests.support.networks.generated import ACTIVATIONS, Maker

from .steps import Draw, add, convolve, dequantised, join, pool, restore, state


def depthwise(draw: Draw, made: Maker) -> None:
    channels = made.shape[1]
    convolve(draw, made, outputs=channels * draw(st.sampled_from([1, 1, 2])), groups=channels, largest=7)


def grouped(draw: Draw, made: Maker) -> None:
    channels = made.shape[1]
    convolve(draw, made, groups=draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0])))


def residual(draw: Draw, made: Maker) -> None:
    """One or two convolutions, and around them the input or a pointwise convolution of it."""
    trunk = state(made)
    channels = made.shape[1] if draw(st.booleans()) else draw(st.integers(1, 12))
    if draw(st.booleans()):
        convolve(draw, made, keep_size=True)
    convolve(draw, made, outputs=channels, keep_size=True)
    branch = state(made)
    restore(made, trunk)
    if channels != made.shape[1]:
        convolve(draw, made, outputs=channels, keep_size=True, largest=1)
    add(draw, made, branch)


def inverted_residual(draw: Draw, made: Maker) -> None:
    """Expand, depthwise, project, and the input added."""
    trunk, channels = state(made), made.shape[1]
    convolve(draw, made, outputs=2 * channels, keep_size=True, largest=1)
    convolve(draw, made, outputs=2 * channels, groups=2 * channels, keep_size=True)
    convolve(draw, made, outputs=channels, keep_size=True, largest=1)
    add(draw, made, trunk)


def concatenate(draw: Draw, made: Maker) -> None:
    """The input beside a convolution of it, and perhaps once more."""
    parts = [state(made)]
    convolve(draw, made, keep_size=True)
    parts.append(state(made))
    join(made, parts + parts[: draw(st.integers(0, 1))])


def split(draw: Draw, made: Maker) -> None:
    """Two parts of the channels, one of them convolved, joined again the other way round."""
    trunk = state(made)
    first = draw(st.integers(0, trunk[3][1] - 1))
    if first == 0:
        return
    sizes = made.constant("sizes", np.array([first, trunk[3][1] - first]))
    tensor = trunk[0] if made.form == "qop" else dequantised(made, trunk)
    names = [made.node("Split", [tensor, sizes], axis=1)]
    names.append(f"{names[0]}_rest")
    made.nodes[-1].output.append(names[1])
    parts = []
    for name, channels in zip(names, (first, trunk[3][1] - first), strict=True):
        restore(made, (name, *trunk[1:3], (1, channels, *trunk[3][2:])))
        if made.form == "qdq":
            made.quantise(name, *trunk[1:3], made.shape)
        parts.append(state(made))
    restore(made, parts[0])
    convolve(draw, made, keep_size=True)
    join(made, [parts[1], state(made)])


def average(draw: Draw, made: Maker) -> None:
    """The average of the whole map."""
    scale, zero = made.quantisation(float(made.value(made.scale)) * draw(st.sampled_from([1, 0.4])))
    result = (*made.shape[:2], *(1 for _ in made.shape[2:]))
    if made.form == "qop":
        ends = [made.tensor, made.scale, made.zero, scale, zero]
        made.tensor = made.node("QLinearGlobalAveragePool", ends, domain="com.microsoft")
        made.scale, made.zero, made.shape = scale, zero, result
    else:
        made.quantise(made.node("GlobalAveragePool", [made.dequantised()]), scale, zero, result)


def windowed_average(draw: Draw, made: Maker) -> None:
    """The averages of windows whose borders do not count: with one scale and odd numbers of elements, which all are
    exact."""
    kernel, strides, begin, end = [], [], [], []
    for side in made.shape[2:]:
        size = draw(st.sampled_from([3, 5]))
        before, after = (2 * draw(st.integers(0, size // 2)) for _ in range(2))
        if side % 2 == 0 or before + side < size:
            size, before, after = 1, 0, 0
        for values, value in ((kernel, size), (strides, 2), (begin, before), (end, after)):
            values.append(value)
    result = [
        (before + side + after - size) // 2 + 1
        for before, side, after, size in zip(begin, made.shape[2:], end, kernel, strict=True)
    ]
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": begin + end}
    shape = (*made.shape[:2], *result)
    if made.form == "qop":
        ends = [made.tensor, made.scale, made.zero, made.scale, made.zero]
        made.tensor = made.node("QLinearAveragePool", ends, domain="com.microsoft", **attributes)
        made.shape = shape
    else:
        made.quantise(made.node("AveragePool", [made.dequantised()], **attributes), made.scale, made.zero, shape)


def pad(draw: Draw, made: Maker) -> None:
    """A border of zeros, perhaps max pooling of it, and a convolution: it says what zero is in the QOperator form."""
    sides = made.shape[2:]
    pads = [draw(st.integers(0, 2)) for _ in range(2 * len(sides))]
    result = (*made.shape[:2], *(side + pads[at] + pads[len(sides) + at] for at, side in enumerate(sides)))
    sizes = made.constant("pads", np.array([0, 0, *pads[: len(sides)], 0, 0, *pads[len(sides) :]]))
    if made.form == "qop":
        made.tensor, made.shape = made.node("Pad", [made.tensor, sizes, made.zero]), result
    else:
        value = made.constant("nothing", np.float32(0))
        made.quantise(made.node("Pad", [made.dequantised(), sizes, value]), made.scale, made.zero, result)
    if draw(st.booleans()):
        maximum(draw, made)
    convolve(draw, made)


def activation(draw: Draw, made: Maker) -> None:
    made.activation(draw(st.sampled_from(ACTIVATIONS)))


def gate(draw: Draw, made: Maker) -> None:
    """x * f(x), quantised in between: hard swish and its like."""
    trunk = state(made)
    made.activation(draw(st.sampled_from(["Sigmoid", "HardSigmoid", "Tanh"])))
    scale, zero = made.quantisation(0.5 * float(made.value(trunk[1])))
    operands = [trunk, state(made)][:: draw(st.sampled_from([1, -1]))]
    if made.form == "qop":
        ends = [*operands[0][:3], *operands[1][:3], scale, zero]
        made.tensor = made.node("QLinearMul", ends, domain="com.microsoft")
        made.scale, made.zero = scale, zero
    else:
        made.quantise(made.node("Mul", [dequantised(made, operand) for operand in operands]), scale, zero, trunk[3])


def maximum(draw: Draw, made: Maker) -> None:
    """Max pooling, without ceil_mode: ONNX Runtime infers another shape for it than it computes, and then refuses what
    follows."""
    made.max_pool(ceil_mode=0)


def pool_beside(draw: Draw, made: Maker) -> None:
    """A max pooling and a convolution of one tensor, joined: what lies in its border differs for them."""
    trunk = state(made)
    pool(draw, made, keep_size=True)
    pooled = state(made)
    restore(made, trunk)
    convolve(draw, made, keep_size=True)
    join(made, [pooled, state(made)])


def connect(draw: Draw, made: Maker) -> None:
    """A fully connected layer on the whole map: the last block."""
    made.fully_connected(draw(st.integers(1, 12)))


BLOCKS: dict[str, Callable[[Draw, Maker], None]] = {
    "activation": activation,
    "average": average,
    "concatenate": concatenate,
    "connect": connect,
    "convolve": convolve,
    "depthwise": depthwise,
    "gate": gate,
    "grouped": grouped,
    "inverted residual": inverted_residual,
    "maximum": maximum,
    "pad": pad,
    "pool beside": pool_beside,
    "residual": residual,
    "split": split,
    "windowed average": windowed_average,
}

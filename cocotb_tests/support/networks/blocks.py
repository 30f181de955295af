"""Hypothesis strategies for quantised ONNX networks: chains of blocks, of every kind that the accelerator runs.

What shapes a network is drawn, so that a failing one shrinks; weights, scales and zero points come from a seed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from cocotb_tests.support.networks.generated import ACTIVATIONS, FORMS, TINY, Generated, Limits, Maker

# What blocks of networks are made of: drawn convolutions, poolings, sums and concatenations.

Draw = Callable[[st.SearchStrategy], object]
#: Tensor, scale, zero point and shape of the codes that a block begins with.
State = tuple[str, str, str, tuple[int, ...]]


def state(made: Maker) -> State:
    """The codes that come next, to be read once more."""
    return made.tensor, made.scale, made.zero, made.shape


def restore(made: Maker, saved: State) -> None:
    made.tensor, made.scale, made.zero, made.shape = saved


def dequantised(made: Maker, tensor: State) -> str:
    return made.node("DequantizeLinear", tensor[:3])


def convolve(
    draw: Draw, made: Maker, *, outputs: int | None = None, groups: int = 1, keep_size: bool = False, largest: int = 5
) -> None:
    """A convolution whose window fits; with ``keep_size`` the feature map keeps its sides."""
    sides, channels = made.shape[2:], made.shape[1]
    kernel, strides, dilations, begin, end, result = [], [], [], [], [], []
    for side in sides:
        size = draw(st.integers(1, largest))
        dilation = 2 if size > 1 and draw(st.booleans()) and not keep_size else 1
        extent = dilation * (size - 1) + 1
        before = (extent - 1) // 2 if keep_size else draw(st.integers(0, min(3, size - 1)))
        after = extent - 1 - before if keep_size else draw(st.integers(0, min(3, size - 1)))
        if before + side + after < extent:
            size, dilation, extent, before, after = 1, 1, 1, 0, 0
        stride = 1 if keep_size else draw(st.integers(1, 3))
        for values, value in (
            (kernel, size),
            (strides, stride),
            (dilations, dilation),
            (begin, before),
            (end, after),
            (result, (before + side + after - extent) // stride + 1),
        ):
            values.append(value)
    outputs = outputs or groups * draw(st.integers(1, max(1, 12 // groups)))
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": begin + end}
    made.product(
        "Conv",
        (outputs, channels // groups, *kernel),
        0,
        (1, outputs, *result),
        bias=draw(st.booleans()),
        relu=draw(st.booleans()),
        group=groups,
        **attributes,
    )


def pool(draw: Draw, made: Maker, *, keep_size: bool) -> None:
    """Max pooling with a border; with ``keep_size`` the feature map keeps its sides."""
    kernel, strides, dilations, begin, end, result = [], [], [], [], [], []
    for side in made.shape[2:]:
        size, dilation = draw(st.integers(2, 5)), draw(st.sampled_from([1, 1, 2]))
        reach = dilation * (size - 1)
        # ONNX Runtime takes no border as wide as the kernel.
        most = size - 1
        before = draw(st.integers(max(reach - most, 0), min(reach, most)) if keep_size else st.integers(0, most))
        after = reach - before if keep_size else draw(st.integers(0, most))
        if before + side + after <= reach:
            size, dilation, reach, before, after = 1, 1, 0, 0, 0
        stride = 1 if keep_size else draw(st.integers(1, 3))
        for values, value in (
            (kernel, size),
            (strides, stride),
            (dilations, dilation),
            (begin, before),
            (end, after),
            (result, (before + side + after - reach - 1) // stride + 1),
        ):
            values.append(value)
    made.pool([*made.shape[:2], *result], kernel_shape=kernel, strides=strides, dilations=dilations, pads=begin + end)


def add(draw: Draw, made: Maker, other: State) -> None:
    """Add another tensor to the current one, in either order."""
    operands = [state(made), other][:: draw(st.sampled_from([1, -1]))]
    relu = draw(st.booleans())
    scale, zero = made.quantisation(
        0.5 * sum(float(made.value(operand[1])) for operand in operands), -128 if relu else None
    )
    if made.form == "qop":
        made.tensor = made.node("QLinearAdd", [*operands[0][:3], *operands[1][:3], scale, zero], domain="com.microsoft")
        made.scale, made.zero = scale, zero
        return
    tensor = made.node("Add", [dequantised(made, operand) for operand in operands])
    made.quantise(made.node("Relu", [tensor]) if relu else tensor, scale, zero, other[3])


def join(made: Maker, parts: list[State]) -> None:
    """Concatenate channels, with the scale and zero point of one of the parts."""
    _, scale, zero, shape = parts[-1]
    result = (1, sum(part[3][1] for part in parts), *shape[2:])
    if made.form == "qop":
        ends = [name for part in parts for name in part[:3]]
        made.tensor = made.node("QLinearConcat", [scale, zero, *ends], domain="com.microsoft", axis=1)
        made.scale, made.zero, made.shape = scale, zero, result
    else:
        made.quantise(made.node("Concat", [dequantised(made, part) for part in parts], axis=1), scale, zero, result)


# The kinds of blocks that networks are drawn of.


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


@st.composite
def networks(draw: Draw, *, limits: Limits = TINY, kinds: Sequence[str] | None = None, most: int = 4) -> Generated:
    """A network of up to ``most`` blocks of some kinds, by default all.

    Parameters
    ----------
    limits : Limits
        Channels, sides and bytes of every feature map stay within them.
    kinds : sequence of str
        Keys of :data:`BLOCKS`.
    most : int
    """
    made = Maker(
        np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(FORMS)), draw(st.booleans()), limits
    )
    spatial = draw(st.sampled_from([2, 1]))
    sides = [draw(st.integers(1, limits.side)) for _ in range(spatial)]
    room = max(1, limits.map_bytes // (4 * math.prod(sides)))
    made.start((1, draw(st.integers(1, min(limits.channels, 12, room))), *sides))
    for kind in draw(st.lists(st.sampled_from(sorted(kinds or BLOCKS)), min_size=1, max_size=most)):
        if len(made.shape) > 2:
            made.text.append(kind)
            BLOCKS[kind](draw, made)
    if not made.nodes:
        convolve(draw, made)
    return made.finish()


# Networks with a convolution whose outputs are few, so that a window may compute several pixels.


@st.composite
def few_outputs(draw: st.DrawFn, *, most: int = 4) -> Generated:
    """A convolution with few outputs, in front of it perhaps a pointwise one, and behind it perhaps another block.

    It has ``most`` outputs at most. Its geometry comes from the seed: what is drawn is small too often.
    """
    rng, limits = np.random.default_rng(draw(st.integers(0, 2**16))), dataclasses.replace(TINY, channels=most)
    made = Maker(rng, draw(st.sampled_from(FORMS)), draw(st.booleans()), limits)
    made.start((1, draw(st.integers(1, 4)), draw(st.integers(3, 10)), draw(st.integers(3, 10))))
    if draw(st.booleans()):
        convolve(draw, made, largest=1)
    made.convolution()
    behind = draw(st.sampled_from(["", "residual", "maximum", "convolve", "split", "concatenate", "depthwise"]))
    if behind:
        BLOCKS[behind](draw, made)
    return made.finish()

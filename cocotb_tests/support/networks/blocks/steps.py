"""What blocks of networks are made of: drawn convolutions, poolings, sums and concatenations."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from cocotb_tests.support.networks.generated import Maker

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

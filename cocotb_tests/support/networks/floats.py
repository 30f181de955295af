"""Hypothesis strategy for float networks as users export them, which `lutterfly quantize` is given."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from cocotb_tests.support.networks.float_maker import BATCHES, Draw, FloatMaker, FloatNetwork, Naming

# Blocks of float networks, as exporters spell them; each works on maps, on rows of features or on vectors.

Block = Callable[[Draw, FloatMaker], None]


def normalise(draw: Draw, made: FloatMaker) -> None:
    """Batch normalisation, sometimes."""
    if draw(st.booleans()):
        ranges = ((0.5, 2), (-0.3, 0.3), (-0.2, 0.2), (0.5, 2))
        made.add("BatchNormalization", *(made.constant(made.rng.uniform(*ends, made.shape[0])) for ends in ranges))


def _clip(made: FloatMaker) -> None:
    made.add("Clip", made.constant(0.0), made.constant(6.0))


def _clip_written_out(made: FloatMaker) -> None:
    made.add("Max", made.constant(0.0))
    made.add("Min", made.constant(6.0))


def _hard_swish_written_out(made: FloatMaker) -> None:
    whole = made.last
    made.add("Add", made.constant(3.0))
    _clip(made)
    gate = made.add("Div", made.constant(6.0))
    made.add("Mul", gate, source=whole)


def _hard_swish(made: FloatMaker) -> None:
    # Before there is no such operator.
    if made.opset >= 14:
        made.add("HardSwish")
    else:
        _hard_swish_written_out(made)


def _silu(made: FloatMaker) -> None:
    whole = made.last
    gate = made.add("Sigmoid")
    made.add("Mul", gate, source=whole)


def _gelu(made: FloatMaker) -> None:
    whole = made.last
    made.add("Div", made.constant(math.sqrt(2)))
    made.add("Erf")
    made.add("Add", made.constant(1.0))
    made.add("Mul", made.last, source=whole)
    made.add("Mul", made.constant(0.5))


def _prelu(made: FloatMaker) -> None:
    slopes = made.rng.uniform(0, 0.5, (made.shape[0], *[1] * (len(made.shape) - 1)))
    made.add("PRelu", made.constant(slopes))


ACTIVATIONS: dict[str, Callable[[FloatMaker], object]] = {
    "Relu": lambda made: made.add("Relu"),
    "Clip": _clip,
    "Clip as Min and Max": _clip_written_out,
    "HardSwish": _hard_swish,
    "HardSwish written out": _hard_swish_written_out,
    "SiLU": _silu,
    "GELU written out": _gelu,
    "Sigmoid": lambda made: made.add("Sigmoid"),
    "Tanh": lambda made: made.add("Tanh"),
    "LeakyRelu": lambda made: made.add("LeakyRelu", alpha=0.1),
    "PRelu": _prelu,
    "Elu": lambda made: made.add("Elu"),
}


def activation(draw: Draw, made: FloatMaker) -> None:
    name = draw(st.sampled_from(sorted(ACTIVATIONS)))
    made.text.append(f"  {name}")
    ACTIVATIONS[name](made)


def _bias(draw: Draw, made: FloatMaker, channels: int) -> list[str]:
    return [made.constant(made.rng.normal(0, 0.1, channels))] if draw(st.booleans()) else []


def convolve(
    draw: Draw, made: FloatMaker, *, channels: int | None = None, groups: int = 1, keeps: bool = False
) -> None:
    """A convolution of a map; with ``keeps`` its size stays."""
    inputs, *sides = made.shape
    outputs = channels or draw(st.integers(1, 12))
    kernel = [draw(st.sampled_from([1, 3])) for _ in sides]
    strides = [1 if keeps else draw(st.sampled_from([1, 1, 2])) for _ in sides]
    pads = [size // 2 for size in kernel]
    shape = [(side - 1) // stride + 1 for side, stride in zip(sides, strides, strict=True)]
    weights = made.weights(outputs, inputs // groups, *kernel, reach=inputs // groups * math.prod(kernel))
    options = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "group": groups}
    made.add("Conv", weights, *_bias(draw, made, outputs), shape=[outputs, *shape], **options)


def convolution(draw: Draw, made: FloatMaker) -> None:
    convolve(draw, made)
    normalise(draw, made)
    activation(draw, made)


def depthwise(draw: Draw, made: FloatMaker) -> None:
    convolve(draw, made, channels=made.shape[0], groups=made.shape[0])
    normalise(draw, made)
    activation(draw, made)
    convolve(draw, made, keeps=True)


def residual(draw: Draw, made: FloatMaker) -> None:
    trunk, channels = made.last, made.shape[0]
    convolve(draw, made, keeps=True)
    activation(draw, made)
    convolve(draw, made, channels=channels, keeps=True)
    branch = made.last
    made.add(draw(st.sampled_from(["Add", "Add", "Sub"])), branch, source=trunk)


def squeeze_and_excite(draw: Draw, made: FloatMaker) -> None:
    trunk, shape = made.last, made.shape
    if draw(st.booleans()):
        made.add("GlobalAveragePool", shape=[shape[0], *[1] * (len(shape) - 1)])
    else:
        made.mean(*range(1, len(shape)))
    inner = draw(st.integers(1, 6))
    ones = [1] * (len(shape) - 1)
    made.add("Conv", made.weights(inner, shape[0], *ones, reach=shape[0]), shape=[inner, *ones])
    made.add("Relu")
    made.add("Conv", made.weights(shape[0], inner, *ones, reach=inner), shape=[shape[0], *ones])
    gate = made.add(draw(st.sampled_from(["Sigmoid", "HardSigmoid"])))
    made.add("Mul", gate, source=trunk, shape=shape)


def pool(draw: Draw, made: FloatMaker) -> None:
    channels, *sides = made.shape
    if min(sides) < 2:
        return
    operator = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    shape = [channels, *(side // 2 for side in sides)]
    made.add(operator, shape=shape, kernel_shape=[2] * len(sides), strides=[2] * len(sides))


def enlarge(draw: Draw, made: FloatMaker) -> None:
    channels, *sides = made.shape
    if max(sides) > 8 or len(sides) != 2:
        return
    shape = [channels, *(2 * side for side in sides)]
    if draw(st.booleans()):
        scales = made.constant(np.array([1.0, 1.0, 2.0, 2.0]))
        made.add("Resize", "", scales, shape=shape, mode=draw(st.sampled_from(["nearest", "linear"])))
    else:
        outputs = draw(st.integers(1, 6))
        weights = made.weights(channels, outputs, 2, 2, reach=channels)
        made.add("ConvTranspose", weights, shape=[outputs, *shape[1:]], strides=[2, 2])


def join(draw: Draw, made: FloatMaker) -> None:
    """A convolution beside what it is of, along any axis."""
    trunk, shape = made.last, list(made.shape)
    axis = draw(st.integers(0, len(shape) - 1))
    convolve(draw, made, channels=shape[0], keeps=True)
    shape[axis] *= 2
    where = axis + 1 if draw(st.booleans()) else axis - len(shape)
    made.add("Concat", made.last, source=trunk, shape=shape, axis=where)


def cut(draw: Draw, made: FloatMaker) -> None:
    """A part along any axis, by Slice, Split or Gather."""
    shape = list(made.shape)
    axis = draw(st.integers(0, len(shape) - 1))
    size = shape[axis]
    if size < 2:
        return
    first = draw(st.integers(0, size - 2))
    count = draw(st.integers(1, size - 1 - first))
    kind = draw(st.sampled_from(["Slice", "Slice from the end", "Split"]))
    made.text.append(f"  {kind} along {axis}")
    if kind == "Split":
        made.split([size - count, count], axis)
        return
    shape[axis] = count
    ends = (first, first + count) if kind == "Slice" else (first - size, first + count - size)
    made.add("Slice", *(made.constant([value]) for value in (*ends, axis + 1)), shape=shape)


def turn(draw: Draw, made: FloatMaker) -> None:
    """A linear layer over any axis: turned to the end, and back."""
    rank = len(made.shape)
    axis = draw(st.integers(0, rank - 1))
    order = [*(one for one in range(rank) if one != axis), axis]
    if order != [*range(rank)]:
        made.transpose(*order)
    linear(draw, made, outputs=made.shape[-1])
    back = [order.index(one) for one in range(rank)]
    if order != [*range(rank)]:
        made.transpose(*back)


def soften(draw: Draw, made: FloatMaker) -> None:
    """Softmax over any axis."""
    axis = draw(st.integers(0, len(made.shape) - 1))
    made.add("Softmax", axis=axis + 1 if draw(st.booleans()) else axis - len(made.shape))


def linear(draw: Draw, made: FloatMaker, *, outputs: int | None = None) -> None:
    """A product with weights over the last axis, in any spelling."""
    *others, inputs = made.shape
    outputs = outputs or draw(st.integers(1, 12))
    shape = [*others, outputs]
    spellings = ["MatMul", "Einsum"] if others else ["MatMul", "Gemm", "Gemm turned"]
    spelling = draw(st.sampled_from(spellings))
    made.text.append(f"  {spelling}")
    if spelling.startswith("Gemm"):
        turned = spelling.endswith("turned")
        sizes = (outputs, inputs) if turned else (inputs, outputs)
        made.add("Gemm", made.weights(*sizes, reach=inputs), *_bias(draw, made, outputs), shape=shape, transB=turned)
        return
    weights = made.weights(inputs, outputs, reach=inputs)
    if spelling == "Einsum":
        axes = "abc"[: len(others)]
        made.add("Einsum", weights, shape=shape, equation=f"n{axes}i,io->n{axes}o")
    else:
        made.add("MatMul", weights, shape=shape)
    for bias in _bias(draw, made, outputs):
        operands = (bias, made.last) if draw(st.booleans()) else (made.last, bias)
        made.add("Add", operands[1], source=operands[0])


def dense(draw: Draw, made: FloatMaker) -> None:
    linear(draw, made)
    activation(draw, made)


def weights_at_the_left(draw: Draw, made: FloatMaker) -> None:
    """Rows are mixed: a matrix of weights times the rows."""
    rows, features = made.shape
    outputs = draw(st.integers(1, 10))
    made.add("MatMul", made.last, source=made.weights(outputs, rows, reach=rows), shape=[outputs, features])


def residual_rows(draw: Draw, made: FloatMaker) -> None:
    trunk, features = made.last, made.shape[-1]
    linear(draw, made)
    activation(draw, made)
    linear(draw, made, outputs=features)
    made.add("Add", made.last, source=trunk)


def layer_normalise(draw: Draw, made: FloatMaker) -> None:
    """Of the last axis, as an operator or written out."""
    features = made.shape[-1]
    # Of two or three features the results are hardly more than signs.
    if features < 4:
        return
    factor, offset = (made.constant(made.rng.uniform(*ends, features)) for ends in ((0.5, 2), (-0.3, 0.3)))
    if made.opset >= 17 and draw(st.booleans()):
        made.add("LayerNormalization", factor, offset, axis=-1)
        return
    source, shape = made.last, made.shape
    mean = made.mean(len(shape) - 1)
    difference = made.add("Sub", mean, source=source, shape=shape)
    if draw(st.booleans()):
        made.add("Pow", made.constant(2.0))
    else:
        made.add("Mul", difference)
    made.mean(len(shape) - 1)
    made.add("Add", made.constant(1e-5))
    deviation = made.add("Sqrt")
    made.add("Div", deviation, source=difference, shape=shape)
    made.add("Mul", factor)
    made.add("Add", offset)


def recurrence(draw: Draw, made: FloatMaker) -> None:
    """A recurrent layer over the rows, from states of zero."""
    steps, features = made.shape
    made.add("Transpose", perm=[1, 0, 2], shape=[steps, 1, features])
    recur(draw, made)


def recur(draw: Draw, made: FloatMaker) -> None:
    """A recurrent layer over steps that lie first, of which it makes rows."""
    steps, _, features = made.shape
    operator, gates = draw(st.sampled_from([("LSTM", 4), ("GRU", 3), ("RNN", 1)]))
    directions, units = draw(st.sampled_from([1, 2])), draw(st.integers(2, 6))
    made.text.append(f"  {operator} of {units}, {directions} directions")
    options = {"hidden_size": units, "direction": "bidirectional" if directions == 2 else "forward"}
    made.add(operator, *_recurrent_weights(made, directions, gates, features, units), **options, **_spelling(operator))
    # [steps, directions, samples, units]
    made.add("Transpose", perm=[2, 0, 1, 3], shape=[steps, directions, units])
    made.reshape(steps, directions * units)


def _recurrent_weights(made: FloatMaker, directions: int, gates: int, features: int, units: int) -> list[str]:
    return [made.weights(directions, gates * units, columns, reach=features + units) for columns in (features, units)]


def _spelling(operator: str) -> dict[str, int]:
    return {"linear_before_reset": 1} if operator == "GRU" else {}


def step(draw: Draw, made: FloatMaker) -> None:
    """One step of a recurrent layer, whose states are inputs and outputs."""
    operator, gates, count = draw(st.sampled_from([("LSTM", 4, 2), ("GRU", 3, 1)]))
    features, units = draw(st.integers(2, 8)), draw(st.integers(2, 6))
    made.text.append(f"  {operator} of {units}")
    # States stand as [layers, samples, units] in the file, where there is one sample.
    has_layers = made.batch == "one" and draw(st.booleans())
    states = [made.input([1, units] if has_layers else [units], largest=0.9) for _ in range(count)]
    source, axis = made.input([features]), made.constant([0])
    if not has_layers:
        states = [made.add("Unsqueeze", axis, source=state) for state in states]
    made.add("Unsqueeze", axis, source=source)
    matrices = _recurrent_weights(made, 1, gates, features, units)
    # Biases, and lengths, are left out.
    results = made.add_several(
        operator, 1 + count, *matrices, "", "", *states, hidden_size=units, **_spelling(operator)
    )[1:]
    for state in results:
        made.outputs.append(state if has_layers else made.add("Squeeze", axis, source=state))
    made.add("Squeeze", axis, source=results[0], shape=[units])


def attention(draw: Draw, made: FloatMaker) -> None:
    """Heads that see all rows, or those before them; as an operator or written out, of what may have been cut off."""
    rows, features = made.shape
    heads, size = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    masking = draw(st.sampled_from(["none", "causal", "some left out"]))
    is_operator = made.opset >= 23 and draw(st.booleans())
    limit = draw(st.sampled_from(["none", "none", "Relu", "Clip"]))
    spelling = "operator" if is_operator else "written out"
    made.text.append(f"  {heads} heads, masking: {masking}, limits: {limit}; {spelling}")
    trunk, width = made.last, heads * size
    parts = []
    for _ in range(3):
        weights = made.weights(features, width, reach=features)
        made.add("MatMul", weights, source=trunk, shape=[rows, width])
        if limit != "none":
            ACTIVATIONS[limit](made)
        parts.append(made.last)
    seen = np.tri(rows, dtype=bool) if masking == "causal" else made.rng.random((rows, rows)) < 0.6
    seen |= np.eye(rows, dtype=bool)
    mask = np.where(seen, 0.0, draw(st.sampled_from([-np.inf, -1e9])))
    if is_operator:
        causal = draw(st.booleans()) and masking == "causal"
        held = [] if causal or masking == "none" else [made.constant(mask)]
        counts = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(causal)}
        made.add("Attention", *parts[1:], *held, source=parts[0], shape=[rows, width], **counts)
        return
    turned = []
    for part, order in zip(parts, ((1, 0, 2), (1, 2, 0), (1, 0, 2)), strict=True):
        made.last, made.shape = part, (rows, width)
        made.reshape(rows, heads, size)
        turned.append(made.transpose(*order))
    made.add("MatMul", turned[1], source=turned[0], shape=[heads, rows, rows])
    made.add("Mul", made.constant(size**-0.5))
    if masking != "none":
        made.add("Add", made.constant(mask))
    made.add("Softmax", axis=-1)
    made.add("MatMul", turned[2], shape=[heads, rows, size])
    made.transpose(1, 0, 2)
    made.reshape(rows, width)


def root_normalise(draw: Draw, made: FloatMaker) -> None:
    """By the root of the mean square of the last axis, as an operator or written out."""
    features = made.shape[-1]
    if features < 4:
        return
    factor = made.constant(made.rng.uniform(0.5, 2, features))
    if made.opset >= 23 and draw(st.booleans()):
        made.add("RMSNormalization", factor, axis=-1)
        return
    source, shape = made.last, made.shape
    made.add("Pow", made.constant(2.0))
    made.mean(len(shape) - 1)
    made.add("Add", made.constant(1e-5))
    root = made.add("Sqrt")
    made.add("Div", root, source=source, shape=shape)
    made.add("Mul", factor)


def group_normalise(draw: Draw, made: FloatMaker) -> None:
    """Of groups of channels, as the operator of set 21 or as PyTorch's exporter writes it; or of each channel."""
    channels, *sides = made.shape
    groups = draw(st.sampled_from([count for count in range(1, channels + 1) if channels % count == 0]))
    # Of two or three elements the results are hardly more than signs.
    if channels // groups * math.prod(sides) < 4:
        return
    made.text.append(f"  {groups} groups")
    factor, offset = made.rng.uniform(0.5, 2, channels), made.rng.uniform(-0.3, 0.3, channels)
    if groups == channels:
        made.add("InstanceNormalization", made.constant(factor), made.constant(offset))
        return
    if made.opset >= 21 and draw(st.booleans()):
        made.add("GroupNormalization", made.constant(factor), made.constant(offset), num_groups=groups)
        # Of maps with one dimension ONNX does not find it.
        made.declare()
        return
    shape = made.shape
    made.reshape(groups, channels // groups * math.prod(sides))
    made.add("InstanceNormalization", made.constant(np.ones(groups)), made.constant(np.zeros(groups)))
    made.reshape(*shape)
    for operator, values in (("Mul", factor), ("Add", offset)):
        made.add(operator, made.constant(values.reshape(-1, *[1] * len(sides))))


def widen(draw: Draw, made: FloatMaker) -> None:
    """A residual sum with more channels, which the trunk gets as zeros."""
    channels, *sides = made.shape
    trunk, more = made.last, draw(st.integers(1, 6))
    convolve(draw, made, channels=channels + more, keeps=True)
    branch, rest = made.last, [0] * len(sides)
    before = draw(st.sampled_from([0, more // 2]))
    pads = made.constant(np.array([0, before, *rest, 0, more - before, *rest]))
    padded = made.add("Pad", pads, source=trunk, shape=[channels + more, *sides])
    made.add("Add", branch, source=padded)


def to_rows(draw: Draw, made: FloatMaker) -> None:
    """The pixels of a map as rows of channels."""
    channels, *sides = made.shape
    made.reshape(channels, math.prod(sides))
    made.transpose(1, 0)


def to_vector(draw: Draw, made: FloatMaker) -> None:
    """The mean of a map's pixels or of rows, or all elements."""
    kind = draw(st.sampled_from(["mean", "Flatten"]))
    made.text.append(f"  {kind}")
    if kind == "Flatten":
        made.add("Flatten", shape=[math.prod(made.shape)])
    elif len(made.shape) == 2:
        made.mean(0, kept=False)
    else:
        made.mean(*range(1, len(made.shape)), kept=False)


ANYWHERE: dict[str, Block] = {"cut": cut, "linear over an axis": turn, "softmax": soften, "activation": activation}
ON_MAPS: dict[str, Block] = ANYWHERE | {
    "convolution": convolution,
    "depthwise": depthwise,
    "residual": residual,
    "squeeze and excite": squeeze_and_excite,
    "pool": pool,
    "enlarge": enlarge,
    "join": join,
    "widen": widen,
    "group normalisation": group_normalise,
    "to rows": to_rows,
    "to a vector": to_vector,
}
ON_ROWS: dict[str, Block] = ANYWHERE | {
    "dense": dense,
    "weights at the left": weights_at_the_left,
    "residual of rows": residual_rows,
    "layer normalisation": layer_normalise,
    "root normalisation": root_normalise,
    "attention": attention,
    "recurrence": recurrence,
    "to a vector": to_vector,
}
ON_VECTORS: dict[str, Block] = {
    "dense": dense,
    "softmax": soften,
    "residual of rows": residual_rows,
    "cut": cut,
    "root normalisation": root_normalise,
}


@st.composite
def float_networks(draw: Draw, *, most: int = 4) -> FloatNetwork:
    """A float network of up to ``most`` blocks, with samples.

    What shapes the network is drawn, so that a failing one shrinks; weights and samples come from a seed.
    """
    kind = draw(st.sampled_from(["map", "rows", "signal", "vector", "stream", "step", "time first"]))
    made = FloatMaker(
        np.random.default_rng(draw(st.integers(0, 2**16))),
        Naming(draw),
        # Most exporters write a symbol or one sample; time first has one, in the second axis.
        "one" if kind == "time first" else draw(st.sampled_from([*BATCHES, "symbol", "one", "symbol", "one"])),
        draw(st.sampled_from([17, 13, 14, 18, 21, 23])),
        draw(st.sampled_from(["as they are computed", "as they are computed", "backwards"])),
    )
    made.text.append(kind)
    _begin(draw, made, kind)
    for _ in range(draw(st.integers(1, most))):
        blocks = ON_VECTORS if len(made.shape) == 1 else ON_ROWS if _is_of_rows(made, kind) else ON_MAPS
        name = draw(st.sampled_from(sorted(blocks)))
        made.text.append(f"{name} of {made.shape}")
        blocks[name](draw, made)
        if name == "to rows":
            kind = "rows"
        if draw(st.integers(0, 5)) == 0:
            made.outputs.append(made.last)
    # A layer with weights at the end, that the accelerator has something to do.
    made.text.append(f"end of {made.shape}")
    if len(made.shape) == 1 or _is_of_rows(made, kind):
        linear(draw, made)
    else:
        convolve(draw, made)
    return made.finish()


def _is_of_rows(made: FloatMaker, kind: str) -> bool:
    return kind in ("rows", "time first") and len(made.shape) == 2


def _begin(draw: Draw, made: FloatMaker, kind: str) -> None:
    """The input; a stream has its last frames as a state, and a step those of a layer, as inputs and outputs."""
    channels = draw(st.integers(1, 8))
    if kind == "vector":
        made.input([draw(st.integers(2, 24))])
    elif kind == "rows":
        made.input([draw(st.integers(2, 8)), draw(st.integers(2, 16))])
    elif kind == "map":
        made.input([channels, draw(st.integers(2, 10)), draw(st.integers(2, 10))])
    elif kind == "signal":
        made.input([channels, draw(st.integers(2, 16))])
    elif kind == "step":
        step(draw, made)
    elif kind == "time first":
        made.input([draw(st.integers(2, 6)), 1, draw(st.integers(2, 8))], is_whole=True)
        recur(draw, made)
    else:
        frames, kept = draw(st.integers(1, 8)), draw(st.integers(1, 4))
        state, frame = made.input([channels, kept]), made.input([channels, frames])
        whole = made.add("Concat", frame, source=state, shape=[channels, kept + frames], axis=2)
        ends = (made.constant([value]) for value in (frames, kept + frames, 2))
        made.outputs.append(made.add("Slice", *ends))
        made.last, made.shape = whole, (channels, kept + frames)

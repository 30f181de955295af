"""BipolarQuant nodes after a product, or after codes with a batch normalisation between, as thresholds of integers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from ..fragments import MAX_POOLING, label
from ..integer_products import MOST_RESULTS
from ..source import ModelError
from .chain import Chain, Evaluator, require_monotone
from .network import MeasuredNetwork, Quantiser
from .products import PRODUCTS, Coded, Product
from .thresholds import Thresholds, Way, find_thresholds
from .writer import Writer, write_step


def write_product_signs(
    writer: Writer, network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, product: Product, scale: np.float32
) -> Coded:
    """Write a product whose results become signs: inner products and their thresholds in one layer.

    Raises
    ------
    ModelError
        If a channel's signs are not certainly a threshold of its sums.
    """
    place, name = f"{network.name}: {label(quantiser.node)}", quantiser.node.output[0]
    found = _thresholds_of(network, quantiser, chain, product, place)
    pools = [node for node in chain.steps if node.op_type in MAX_POOLING]
    least = found.takes_least(place, pools)
    # Where pooling must take the least sign, it takes the greatest of the opposite signs, which are inverted after
    # it: a code is negative where its opposite, -1 less the code, is not.
    weights, bias = _decide(product, found, least, place)
    codes = writer.name(f"{name} codes")
    first = codes if not chain.steps else writer.name(f"{name} sums")
    write_sums(writer, product, weights, bias, first, is_signs=not least.any())
    last = pools[-1] if least.any() else None
    for node in chain.steps:
        is_last = node is chain.steps[-1]
        turned = codes if is_last else writer.name(f"{node.output[0]} codes")
        if node is last:
            pooled = write_step(writer, node, first, writer.name(f"{node.output[0]} pooled"))
            shape = network.shapes[node.output[0]]
            first = write_scaled_channels(
                writer, pooled, turned, np.where(least, -1, 1), -least.astype(np.int64), node.name, shape
            )
        else:
            first = write_step(writer, node, first, turned)
    return Coded(first, scale, is_binary=True)


def _thresholds_of(
    network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, product: Product, place: str
) -> Thresholds:
    evaluator = Evaluator(network, chain, quantiser, product.outputs)
    sums = product.sums()

    def evaluate(part: npt.NDArray[np.int64]) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        results, errors = product.results(part), product.errors(part)
        found = [evaluator.run(results.astype(np.float32))]
        if errors.any():
            # The bounds are widened by one float32 number, as the ends are float32 numbers too.
            ends = (
                np.nextafter((results + side * errors).astype(np.float32), np.float32(side * np.inf))
                for side in (-1, 1)
            )
            found += [evaluator.run(end) for end in ends]
        return found

    if product.errors(sums[:1]).any():
        require_monotone(network, chain, place)
    return find_thresholds(place, sums, product.limits(), evaluate)


def _decide(
    product: Product, found: Thresholds, least: npt.NDArray[np.bool_], place: str
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Return weights and bias with which a sum is at least 0 where the sign is +1; or -1, for channels in ``least``.

    "p >= T" has the bias -T. "p <= T" is "-p >= -T", with negated weights and the bias T. The opposite of "p >= T" is
    "p <= T - 1".
    """
    low, high = product.limits()
    way = np.where(least, -found.way, found.way)
    threshold = np.where(least, found.threshold - found.way, found.threshold)
    turns = way == Way.FALLING
    if (product.weights[turns] == -128).any():
        channel = int(np.flatnonzero(turns & (product.weights.reshape(product.outputs, -1) == -128).any(axis=1))[0])
        raise ModelError(
            f"{place}: the weights of channel {channel}, whose batch normalisation has a negative scale, must be at "
            "least -127, not -128; quantise them with narrow_range=True"
        )
    weights = np.where(turns.reshape(-1, *[1] * (product.weights.ndim - 1)), -product.weights, product.weights)
    bias = np.where(turns, threshold, -threshold)
    # The bias of a constant sign exceeds all sums.
    constant = np.where(found.always, -low, -high - 1)
    return weights.astype(np.int8), np.where(way == Way.CONSTANT, constant, bias)


def write_sums(
    writer: Writer,
    product: Product,
    weights: npt.NDArray[np.int8],
    bias: npt.NDArray[np.int64],
    result: str,
    *,
    is_signs: bool,
) -> str:
    """Write a product and its bias as int8 codes, whose signs are right though they saturate. ``is_signs`` allows signs
    alone."""
    name, window = product.node.name, product.window
    if product.is_exclusive_or:
        parts: dict[str, object] = {} if is_signs else {"scale": np.ones(product.outputs, np.float32)}
        if window is not None:
            parts |= {
                "pads": window.pads,
                "strides": window.stride,
                "dilations": window.dilation,
                # The network's padding is 0, neither +1 nor -1.
                "pad_value": 0,
            }
        return writer.call_binary(product.source.codes, result, name, weights, bias=bias.astype(np.int32), **parts)
    unit = np.float32(1)
    return write_integer_product(writer, product, weights, bias, result, (unit, np.array(unit), unit, 0))


def write_integer_product(
    writer: Writer,
    product: Product,
    weights: npt.NDArray[np.int8],
    bias: npt.NDArray[np.int64],
    result: str,
    scales: tuple[np.float32, npt.NDArray[np.float32], np.float32, int],
) -> str:
    """Write a quantised product; ``scales`` are the input's, the weights', the result's, and the result's zero
    point."""
    name, source = product.node.name, writer.ones(product.source)

    def constant(kind: str, value: object, dtype: type = np.float32) -> str:
        return writer.constant(f"{result} {kind}", value, dtype)

    ahead = [source.codes, constant("input scale", scales[0]), constant("input zero point", source.zero_point, np.int8)]
    weighted = [
        constant("weights", weights, np.int8),
        constant("weight scale", scales[1]),
        constant("weight zero point", np.zeros_like(scales[1]), np.int8),
    ]
    after = [constant("scale", scales[2]), constant("zero point", scales[3], np.int8)]
    added = constant("bias", bias, np.int32)
    if product.window is None:
        return writer.add("QGemm", [*ahead, *weighted, added, *after], result, name, transB=1)
    window, one_row = product.window, product.weights.ndim == 3
    attributes = {
        "strides": window.stride[one_row:],
        "dilations": window.dilation[one_row:],
        "pads": window.pads if not one_row else window.pads[1::2],
        "group": product.groups,
    }
    return writer.add("QLinearConv", [*ahead, *weighted, *after, added], result, name, **attributes)


def write_code_signs(
    writer: Writer, network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, source: Coded, scale: np.float32
) -> Coded:
    """Write codes that become signs, with a threshold of the code for each channel.

    Raises
    ------
    ModelError
        If a channel's signs are not a threshold of its codes, or there is pooling between.
    """
    place, name = f"{network.name}: {label(quantiser.node)}", quantiser.node.output[0]
    for node in chain.steps:
        if node.op_type in MAX_POOLING:
            raise ModelError(
                f"{place}: {label(node)} must not stand between it and quantised values with other operands for each "
                "channel; put it in front of the quantiser before"
            )
    shape = network.shapes[chain.root]
    channels = shape[1]
    evaluator = Evaluator(network, chain, quantiser, channels)
    low, high = source.bounds
    numbers = np.unique([low, high]) if source.is_binary else np.arange(low, high + 1)

    def evaluate(part: npt.NDArray[np.int64]) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        values = part.astype(np.float32) * source.scale
        return [evaluator.run(np.repeat(values[:, None], channels, axis=1))]

    found = find_thresholds(place, numbers, (np.full(channels, low), np.full(channels, high)), evaluate)
    factor = np.where(found.way == Way.FALLING, -1, 1)
    bias = np.where(found.way == Way.CONSTANT, np.where(found.always, -low, -high - 1), -factor * found.threshold)
    codes = writer.name(f"{name} codes")
    first = codes if not chain.steps else writer.name(f"{name} sums")
    source = writer.ones(source)
    write_scaled_channels(writer, source.codes, first, factor, bias, quantiser.node.name, shape, source.zero_point)
    for node in chain.steps:
        first = write_step(writer, node, first, codes if node is chain.steps[-1] else writer.name(f"{name} moved"))
    return Coded(first, scale, is_binary=True)


def write_scaled_channels(
    writer: Writer,
    codes: str,
    result: str,
    factors: npt.NDArray[np.int64],
    bias: npt.NDArray[np.number],
    node: str,
    shape: tuple[int, ...],
    zero_point: int = 0,
    scaled: tuple[npt.NDArray[np.float32], int] = (np.ones(1, np.float32), 0),
) -> str:
    """Write sums, over groups of channels, of codes less the zero point, times factors, plus a bias.

    Parameters
    ----------
    writer : Writer
    codes, result : str
    factors : int64[outputs] or int64[outputs, inputs of a group]
    bias : int64[outputs]
    node : str
        Name for the node.
    shape : tuple of int
        Shape of the codes, of rank 2 to 4.
    zero_point : int
    scaled : float32[outputs] or float32[1], int
        The multipliers of the sums, and the zero point of the result.
    """
    outputs, is_vector = len(factors), len(shape) == 2
    if is_vector:
        wide = writer.constant(f"{result} map", [0, shape[1], 1], np.int64)
        codes = writer.add("Reshape", [codes, wide], writer.name(f"{result} one pixel"), f"{node} one pixel")
    last = writer.name(f"{result} channels") if is_vector else result
    multipliers, added = scaled
    multiplier = multipliers if multipliers.size > 1 else multipliers[0]
    one, zero = writer.quantisation(f"{result} read", np.float32(1), zero_point)
    kernel = np.reshape(factors, (outputs, -1, *[1] * max(len(shape) - 2, 1)))
    operands = [
        *(codes, one, zero, writer.constant(f"{result} factors", kernel, np.int8)),
        writer.constant(f"{result} multiplier", multiplier),
        writer.constant(f"{result} zero", np.zeros_like(multiplier, np.int8), np.int8),
        *writer.quantisation(result, np.float32(1), added),
        writer.constant(f"{result} bias", bias, np.int32),
    ]
    writer.add("QLinearConv", operands, last, f"{node} channels", group=outputs)
    if is_vector:
        flat = writer.constant(f"{result} vector", [0, outputs], np.int64)
        writer.add("Reshape", [last, flat], result, f"{node} vector")
    return result


# Products whose results the model gives in float: the accelerator computes sums, and the host scales them.

#: Steps from the least code to the greatest.
_STEPS = 255


def float_results(network: MeasuredNetwork) -> set[str]:
    """Return the tensors that outputs of the model are computed from without a quantiser between."""
    frontier, found = [value.name for value in network.model.graph.output], set()
    while frontier:
        name = frontier.pop()
        if name in found:
            continue
        found.add(name)
        node = network.producer.get(name)
        if node is not None and name not in network.quantisers:
            frontier += network.dynamic_inputs(node)
    return found & {node.output[0] for node in network.dynamic if node.op_type in PRODUCTS}


def can_count(product: Product) -> bool:
    """Return whether the accelerator's codes can represent the sums of a product."""
    return product.is_exclusive_or and _results_of(product)[2] <= MOST_RESULTS


def _results_of(product: Product) -> tuple[int, int, int]:
    """Return the least sum, the step between sums, and the number of codes for one sum."""
    sums = product.sums()
    step = int(np.diff(sums).min()) if len(sums) > 1 else 1
    return int(sums[0]), step, max(-(-int(sums[-1] - sums[0]) // (step * _STEPS)), 1)


def write_counted(writer: Writer, network: MeasuredNetwork, product: Product) -> None:
    """Write a product of binary values as codes that add up to its sums, and compute its results from them in float.

    A sum p that is at least l and rises by steps of d is

        l + d * (sum of clip((p - l) / d - 255 * i, 0, 255) for i in range(n))

    and each term is a result of a binary convolution; :mod:`..integer_products` replaces integer products in the same
    way.
    """
    node, outputs = product.node, product.outputs
    least, step, count = _results_of(product)
    name = node.output[0]
    bias = np.repeat(np.full(outputs, -least)[:, None] - _STEPS * step * np.arange(count), 1, axis=1).reshape(-1)
    parts: dict[str, object] = {}
    if product.window is not None:
        window = product.window
        parts = {"pads": window.pads, "strides": window.stride, "dilations": window.dilation, "pad_value": 0}
    codes = writer.call_binary(
        product.source.codes,
        writer.name(f"{name} codes"),
        node.name,
        np.repeat(product.weights, count, axis=0),
        bias=bias.astype(np.int32),
        scale=np.full(outputs * count, 1 / step, np.float32),
        zero_point=-128,
        **parts,
    )

    def add(operator: str, kind: str, *inputs: str, **attributes: object) -> str:
        return writer.add(operator, list(inputs), writer.name(f"{name} {kind}"), f"{node.name} {kind}", **attributes)

    numbers = add("Cast", "numbers", codes, to=TensorProto.FLOAT)
    spatial = len(network.shapes[name]) - 2
    if count > 1:
        shape = writer.constant(f"{name} parts", [0, outputs, count, *network.shapes[name][2:]], np.int64)
        split = add("Reshape", "split", numbers, shape)
        numbers = add("ReduceSum", "added", split, writer.constant(f"{name} axis", [2], np.int64), keepdims=0)
    doubled = add("Mul", "steps", numbers, writer.constant(f"{name} step", step))
    sums = add("Add", "sums", doubled, writer.constant(f"{name} least", least + 128 * count * step))

    def channels(kind: str, values: np.ndarray) -> str:
        return writer.constant(f"{name} {kind}", values.reshape(-1, *[1] * spatial))

    scale = channels("scale", product.real_scale.astype(np.float32))
    last = "Mul" if product.bias is None else "Add"
    if product.bias is not None:
        sums = add("Mul", "scaled", sums, scale)
        scale = channels("bias", product.bias)
    writer.add(last, [sums, scale], name, f"{node.name} results")

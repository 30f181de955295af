"""Quant nodes after products, sums and averages: codes, requantised as in the accelerator."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ...graph import Int8
from ...graph.tabulate import CODES
from ...model.executed import open_session
from ...model.model import Model
from ...model.onnx_graph import attributes_of
from ...model.runtime import plain_session
from ..build import are_powers_of_two
from ..fragments import AVERAGE, LAYOUT, TRANSPARENT, label
from ..lowering.averaging import check_ties
from ..source import ModelError, UnsupportedError
from .chain import Chain, constant_operands
from .fit import Affine, fit_scaled, fit_windows
from .network import MeasuredNetwork, Quantiser
from .products import PRODUCTS, Coded, Product
from .signs import write_integer_product, write_scaled_channels
from .thresholds import Wanted, evaluate_sums
from .writer import Writer, write_step

#: Greatest departure of the operators between from a scale and a bias by rounding in float32, in codes.
_DEPARTURE = 2.0**-4


def write_product_codes(
    writer: Writer, network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, product: Product, scale: np.float32
) -> Coded:
    """Write a product whose results are quantised.

    Sums of binary products have few values: one layer gives the codes of all of them, or two layers do, the second of
    which is a depthwise convolution, or the product is refused. Sums of int8 codes have too many values for that, and
    float32 may round them; they are requantised with the nearest whole bias, as usual in quantised networks, and the
    user gets a note unless all codes are the same.

    Raises
    ------
    ModelError
        If the operators between are not a scale and a bias for each channel.
    """
    place, name = f"{network.name}: {label(quantiser.node)}", quantiser.node.output[0]
    if quantiser.rounding != "Round":
        raise ModelError(
            f"{place}: results of {label(product.node)} must be rounded to the nearest number, not by "
            f"{quantiser.rounding}; quantise with FloatToIntImplType.ROUND"
        )
    wanted = evaluate_sums(network, quantiser, chain, product, scale, place)
    zero_point = quantiser.zero_point - quantiser.shift
    coded = Coded(writer.name(f"{name} codes"), scale, zero_point, wanted.low, wanted.high)
    first = coded.codes if not chain.steps else writer.name(f"{name} unpooled")
    if product.is_exclusive_or:
        _write_binary(writer, product, wanted, coded, first, place)
    else:
        coded = _write_integers(writer, quantiser, chain, product, wanted, coded, first, place)
    for node in chain.steps:
        is_last = node is chain.steps[-1]
        first = write_step(writer, node, first, coded.codes if is_last else writer.name(f"{node.output[0]} codes"))
    return coded


def _write_binary(writer: Writer, product: Product, wanted: Wanted, coded: Coded, result: str, place: str) -> None:
    fit = fit_scaled(wanted, coded.zero_point)
    if not fit.wrong.any():
        codes = {"zero_point": coded.zero_point, "low": wanted.low, "high": wanted.high}
        _write_call(writer, product, fit, result, **codes)
        return
    windows = fit_windows(wanted, coded.zero_point)
    second, group = windows.second, windows.parts * windows.copies
    if second.wrong.any():
        raise ModelError(
            f"{place}: channel {int(second.wrong.argmax())} must be a scale and a bias of the product's sums, and is "
            "not for every sum; keep to batch normalisation and Relu in front of it"
        )
    counted, scaled = writer.name(f"{result} counted"), writer.name(f"{result} scaled")
    first = Affine(
        np.repeat(windows.factor, group),
        windows.first_biases().reshape(-1),
        np.full(product.outputs * group, 1 / windows.step, np.float32),
    )
    _write_call(writer, product, first, counted, zero_point=-128)
    shape = (1, product.outputs * group, *[1] * (0 if product.window is None else 2))
    write_scaled_channels(
        writer,
        counted,
        scaled if second.is_limited else result,
        windows.second_factors(),
        second.bias,
        product.node.name,
        shape,
        -128,
        (second.multiplier, coded.zero_point),
    )
    if second.is_limited:
        _limit(writer, product, wanted, coded, scaled, result)


def _write_call(writer: Writer, product: Product, fit: Affine, result: str, **codes: int) -> None:
    weights = np.repeat(product.weights, len(fit.factor) // product.outputs, axis=0)
    weights = weights * fit.factor.reshape(-1, *[1] * (weights.ndim - 1))
    parts: dict[str, object] = dict(codes)
    if product.window is not None:
        window = product.window
        parts |= {"pads": window.pads, "strides": window.stride, "dilations": window.dilation, "pad_value": 0}
    writer.call_binary(
        product.source.codes,
        result,
        product.node.name,
        weights.astype(np.int8),
        bias=fit.bias.astype(np.int32),
        scale=fit.multiplier,
        **parts,
    )


def _write_integers(
    writer: Writer,
    quantiser: Quantiser,
    chain: Chain,
    product: Product,
    wanted: Wanted,
    coded: Coded,
    result: str,
    place: str,
) -> Coded:
    fit = fit_scaled(wanted, coded.zero_point, is_binary=False)
    refused = (fit.wrong > 1) | (fit.departure > _DEPARTURE)
    if refused.any():
        raise ModelError(
            f"{place}: channel {int(refused.argmax())} must be a scale and a bias of 32 bits of "
            "the product's sums, and is not; keep to batch normalisation and Relu in front of it"
        )
    weights = product.weights.astype(np.int64) * fit.factor.reshape(-1, *[1] * (product.weights.ndim - 1))
    if weights.max() > 127:
        raise ModelError(
            f"{place}: weights of channels whose batch normalisation has a negative scale must be at least -127, not "
            "-128; quantise them with narrow_range=True"
        )
    if fit.wrong.any() or not (wanted.is_certain or _is_same(quantiser, chain, product, fit, coded)):
        writer.note(product.node.name)
    scaled = writer.name(f"{result} scaled") if fit.is_limited else result
    unit = np.float32(1)
    write_integer_product(writer, product, weights, fit.bias, scaled, (unit, fit.multiplier, unit, coded.zero_point))
    if fit.is_limited:
        _limit(writer, product, wanted, coded, scaled, result)
        return coded
    # Codes that are off by one may be beyond the wanted ones.
    return dataclasses.replace(coded, least=-128, greatest=127)


def _is_same(quantiser: Quantiser, chain: Chain, product: Product, fit: Affine, coded: Coded) -> bool:
    """Return whether a fit is the real scale and bias, and only the code itself is rounded.

    Results of the product are exact then, whole numbers of up to 24 bits times a power of two, and so are their
    quotients by a scale that is a power of two. The fit's sums are these whole numbers, and its multipliers powers of
    two. Relu cuts codes as it cuts results. A zero point that is added before codes are rounded may make other ties.
    """
    pointwise = {node.op_type for node in chain.nodes if node not in chain.steps}
    scales = np.concatenate([fit.multiplier, [coded.scale]])
    if (
        quantiser.zero_point
        or pointwise - {"Relu"}
        or not are_powers_of_two(scales)
        or product.errors(np.zeros(1, np.int64)).any()
    ):
        return False
    ends = np.array([0, 1])
    real = product.results(ends) / coded.scale
    return np.array_equal((fit.factor * ends[:, None] + fit.bias) * fit.multiplier.astype(np.float64), real)


def _limit(writer: Writer, product: Product, wanted: Wanted, coded: Coded, scaled: str, result: str) -> None:
    inner = Coded(scaled, coded.scale, coded.zero_point)
    writer.clip(scaled, result, inner, (wanted.low, wanted.high), product.node.name)


# Quant nodes after the sum of two quantised activations.

#: The limits of int8.
FULL = (-128, 127)


def write_sum(
    writer: Writer,
    network: MeasuredNetwork,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    scale: np.float32,
) -> Coded:
    """Write a sum and its quantisation as ONNX Runtime's sum of quantised tensors.

    Raises
    ------
    ModelError
        If there are other operators than Relu and layout between, or some pair of codes has another sum in QONNX.
    """
    place, name = f"{network.name}: {label(quantiser.node)}", quantiser.node.output[0]
    add = network.producer[chain.root]
    pointwise = [node for node in chain.nodes if node not in chain.steps]
    if quantiser.is_binary or any(node.op_type != "Relu" for node in pointwise):
        raise ModelError(
            f"{place}: the sum {add.name!r} in front of it must be quantised to 8 bits before other operators; put a "
            "QuantIdentity after it"
        )
    zero_point = quantiser.zero_point - quantiser.shift
    low, high = quantiser.least - quantiser.shift, quantiser.greatest - quantiser.shift
    # Relu becomes a clip of codes.
    low = max(low, zero_point) if pointwise else low
    operands = tuple(writer.ones(coded) for coded in operands)
    start = writer.mark()
    result = writer.name(f"{name} sum")
    read = [
        part
        for index, coded in enumerate(operands)
        for part in (coded.codes, *writer.quantisation(f"{result} operand {index}", coded.scale, coded.zero_point))
    ]
    inputs = [*read, *writer.quantisation(result, scale, zero_point)]
    codes = writer.add("QLinearAdd", inputs, result, add.name)
    coded = Coded(codes, scale, zero_point, low, high)
    if (low, high) != FULL:
        codes = writer.clip(codes, writer.name(f"{name} clipped"), coded, (low, high), quantiser.node.name)
    _check_pairs(network, quantiser, chain, operands, writer.since(start), (scale, zero_point), place)
    for node in chain.steps:
        codes = write_step(writer, node, codes, writer.name(f"{node.output[0]} codes"))
    return dataclasses.replace(coded, codes=codes)


def _check_pairs(
    network: MeasuredNetwork,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    written: tuple[list[NodeProto], list[onnx.TensorProto]],
    quantisation: tuple[np.float32, int],
    place: str,
) -> None:
    """Compare the written nodes with the operators of the file on every pair of codes."""
    numbers = [CODES[(coded.least <= CODES) & (coded.greatest >= CODES)] for coded in operands]
    pairs = np.array(list(itertools.product(*numbers)), np.int8)
    # The sum x + x has one operand.
    if operands[0].codes == operands[1].codes:
        pairs = np.stack([numbers[0]] * 2, axis=1)
    feeds = {coded.codes: pairs[:, index] for index, coded in enumerate(operands)}
    nodes, constants = written
    result = nodes[-1].output[0]
    model = network.measured.part(nodes, dict.fromkeys(feeds, (None,)), [result], constants, element=TensorProto.INT8)
    found = open_session(Model.written(model)).run([result], feeds)[0]
    wanted = _given_codes(network, quantiser, chain, operands, pairs, *quantisation)
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        first, second = (int(code) for code in pairs[wrong[0]])
        raise ModelError(
            f"{place}: the sum in front of it must be the same number in ONNX Runtime's quantised sums, and is not for "
            f"{wrong.size} of {len(pairs)} pairs of codes, first {first} and {second}; quantise operands and sum with "
            "scales that are powers of two"
        )


def _given_codes(
    network: MeasuredNetwork,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    pairs: Int8,
    scale: np.float32,
    zero_point: int,
) -> Int8:
    """Return the codes of the file's operators for pairs of codes."""
    add = network.producer[chain.root]
    result = quantiser.node.output[0]
    spelled, constants = quantiser.spell(result)
    between = [
        helper.make_node("Identity", node.input[:1], node.output) if node in chain.steps else node
        for node in chain.nodes
    ]
    known = constant_operands(network, spelled) | {item.name: numpy_helper.to_array(item) for item in constants}
    model = network.measured.part(
        [add, *between, *spelled],
        dict.fromkeys(add.input, (None,)),
        [result],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    feeds = {
        name: (codes.astype(np.float32) - np.float32(coded.zero_point)) * coded.scale
        for name, coded, codes in zip(add.input, operands, pairs.T, strict=True)
    }
    values = plain_session(model).run([result], feeds)[0]
    return (np.rint(values / scale) + zero_point).astype(np.int8)


# Quant nodes after an average of codes.

_CONVOLVE = "use a convolution with a group for each channel"
_QUANTISE = "put a QuantIdentity of Brevitas' default rounding, without a zero point,"


def write_average(
    writer: Writer, network: MeasuredNetwork, quantiser: Quantiser, chain: Chain, source: Coded, scale: np.float32
) -> Coded | None:
    """Write an average of codes and its quantisation, with codes that do not depend on ONNX Runtime's roundings
    between.

    Returns
    -------
    Coded or None
        The codes; None if it is no such average, or one that the host computes as it is.

    Raises
    ------
    ModelError
        If it is between two products, and other operators or roundings could change a code.
    """
    node = next((node for node in chain.nodes if node.op_type in AVERAGE), None)
    if node is None:
        return None
    zero_point = quantiser.zero_point - quantiser.shift
    try:
        _check_form(quantiser, chain, node, source)
        _check_codes(network, node, source, (scale, zero_point))
    except UnsupportedError as error:
        if not _is_inner(network, node):
            return None
        raise ModelError(f"{network.name}: {label(node)} {error.reason}; {error.remedy}") from error
    name = quantiser.node.output[0]
    limits = quantiser.least - quantiser.shift, quantiser.greatest - quantiser.shift
    codes = writer.quantise(quantiser.node.input[0], writer.name(f"{name} codes"), scale, zero_point, node.name)
    coded = Coded(codes, scale, zero_point, *limits)
    if limits == FULL:
        return coded
    clipped = writer.clip(codes, writer.name(f"{name} clipped"), coded, limits, quantiser.node.name)
    return dataclasses.replace(coded, codes=clipped)


def _check_form(quantiser: Quantiser, chain: Chain, node: NodeProto, source: Coded) -> None:
    after = [other for other in chain.nodes[1:] if other.op_type not in (*LAYOUT, *TRANSPARENT)]
    others = after if chain.nodes[0] is node else chain.nodes[:1]
    if others:
        raise UnsupportedError(f"must not be combined with {label(others[0])}", f"{_QUANTISE} between them")
    if source.is_binary:
        raise UnsupportedError("must average numbers of several bits, not signs", _CONVOLVE)
    if quantiser.is_binary or quantiser.zero_point or quantiser.rounding != "Round":
        raise UnsupportedError(
            f"must be rounded to the nearest number with the zero point 0, not as {label(quantiser.node)} does it",
            f"{_QUANTISE} after it",
        )


def _check_codes(network: MeasuredNetwork, node: NodeProto, source: Coded, target: tuple[np.float32, int]) -> None:
    """Check that all elements count equally, and that their order does not affect a code."""
    given = attributes_of(node)
    bordered = any(given.get("pads", ())) or given.get("auto_pad", b"").startswith(b"SAME")
    if given.get("ceil_mode", 0) or (bordered and not given.get("count_include_pad", 0)):
        raise UnsupportedError(
            "must have windows of equal size", "set count_include_pad=True and ceil_mode=False, or pool without padding"
        )
    read, made = (math.prod(network.shapes[name]) for name in (node.input[0], node.output[0]))
    elements = math.prod(given["kernel_shape"]) if "kernel_shape" in given else read // made
    try:
        check_ties(node, (source.scale, source.zero_point), target, elements)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"is a mean of {elements} numbers, and for some of their sums float32's roundings decide the code",
            "quantise both ends with scales that are powers of two and average 2, 4, 8 ... numbers "
            "(restrict_scaling_type=POWER_OF_TWO), give both ends one scale and average an odd number, or "
            f"{_CONVOLVE}",
        ) from error


def _is_inner(network: MeasuredNetwork, node: NodeProto) -> bool:
    """Return whether there are products before a node and after it; else the host may compute it."""
    above, below = set(node.input), set(node.output)
    is_fed = is_read = False
    for other in reversed(network.dynamic):
        if above.intersection(other.output):
            is_fed = is_fed or other.op_type in PRODUCTS
            above.update(other.input)
    for other in network.dynamic:
        if below.intersection(other.input):
            is_read = is_read or other.op_type in PRODUCTS
            below.update(other.output)
    return is_fed and is_read

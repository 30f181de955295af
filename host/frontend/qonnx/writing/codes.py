"""Quant after a product: codes of its sums, requantised as the accelerator does it."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...building.checks import are_powers_of_two
from ...fragments.fragments import label
from ...reading.errors import ModelError
from ..fitting.fit import Affine, fit_scaled
from ..fitting.wanted import Wanted, evaluate_sums
from ..fitting.windows import fit_windows
from ..reading.chain import Chain
from ..reading.network import Network
from ..reading.product import Coded, Product
from ..reading.quantisers import Quantiser
from .signs import write_integer_product, write_scaled_channels
from .steps import write_step
from .writer import Writer

#: How far float32 may make what stands between depart from a scale and a bias, in codes.
_DEPARTURE = 2.0**-4


def write_product_codes(
    writer: Writer, network: Network, quantiser: Quantiser, chain: Chain, product: Product, scale: np.float32
) -> Coded:
    """A product whose results are quantised.

    Sums of binary products have few values: one layer gives the codes of all of them, or two do, the second of which is
    a depthwise convolution, or the product is refused. Those of int8 codes have too many for that, and float32 does not
    hold them for certain; they are requantised with the nearest whole bias, as everywhere in quantised networks, and a
    note says so unless all codes are the same.

    Raises
    ------
    ModelError
        If the operators between are no scale and bias for each channel.
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
    # Codes that are one off may lie beyond the wanted ones.
    return dataclasses.replace(coded, least=-128, greatest=127)


def _is_same(quantiser: Quantiser, chain: Chain, product: Product, fit: Affine, coded: Coded) -> bool:
    """Whether a fit is the real scale and bias, and nothing is rounded before the code is.

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

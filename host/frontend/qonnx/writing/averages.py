"""Quant after an average of codes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from onnx import NodeProto

from ...building.build import attributes
from ...fragments.fragments import AVERAGE, LAYOUT, TRANSPARENT, label
from ...lowering.averaging import check_ties
from ...reading.errors import ModelError, UnsupportedError
from ..reading.chain import Chain
from ..reading.network import Network
from ..reading.product import PRODUCTS, Coded
from ..reading.quantisers import Quantiser
from .sums import FULL
from .writer import Writer

_CONVOLVE = "use a convolution with a group for each channel"
_QUANTISE = "put a QuantIdentity of Brevitas' default rounding, without a zero point,"


def write_average(
    writer: Writer, network: Network, quantiser: Quantiser, chain: Chain, source: Coded, scale: np.float32
) -> Coded | None:
    """An average of codes and its quantisation, which have the same codes however ONNX Runtime rounds on the way.

    Returns
    -------
    Coded or None
        None if it is no such average, or one that the host computes as it stands.

    Raises
    ------
    ModelError
        If it stands between two products, and other operators or roundings could change a code.
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


def _check_codes(network: Network, node: NodeProto, source: Coded, target: tuple[np.float32, int]) -> None:
    """Check that all elements count alike, and that no order of them decides a code."""
    given = attributes(node)
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


def _is_inner(network: Network, node: NodeProto) -> bool:
    """Whether there are products in front of a node and after it; else the host may compute it."""
    above, below = set(node.input), set(node.output)
    is_fed = is_read = False
    for other in reversed(network.nodes):
        if above.intersection(other.output):
            is_fed = is_fed or other.op_type in PRODUCTS
            above.update(other.input)
    for other in network.nodes:
        if below.intersection(other.input):
            is_read = is_read or other.op_type in PRODUCTS
            below.update(other.output)
    return is_fed and is_read

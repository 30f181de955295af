"""Read a product of a QONNX network: its weights as whole numbers, its scales, bias and geometry."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ....graph import Int8, Window
from ...building.build import attributes
from ...fragments.fragments import LAYOUT, TRANSPARENT, label
from ...reading.errors import ModelError
from .network import Network
from .product import Coded, Product


def read_product(network: Network, node: NodeProto, source: Coded) -> Product:
    """Read a product whose first operand is coded.

    Raises
    ------
    ModelError
        If its weights are not quantised to 8 bits or less, or it has a form that no layer has.
    """
    place, given = f"{network.name}: {label(node)}", attributes(node)
    weights = network.constants.get(node.input[1])
    if weights is None:
        raise ModelError(f"{place} must have constant weights, not {node.input[1]!r}; multiply with a parameter")
    scales = _scales_of(network, node.input[1])
    if node.op_type == "Conv":
        return _convolution(network, node, source, weights, scales)
    if node.op_type == "Gemm":
        factors = {name: given.get(name, default) for name, default in (("alpha", 1.0), ("beta", 1.0), ("transA", 0))}
        if factors != {"alpha": 1.0, "beta": 1.0, "transA": 0}:
            raise ModelError(f"{place} must have alpha 1, beta 1 and transA 0, not {factors}; export it without them")
    if weights.ndim != 2 or len(network.shapes[node.input[0]]) != 2:
        shapes = [list(network.shapes[node.input[0]]), list(weights.shape)]
        raise ModelError(f"{place} must multiply a vector with a matrix, not the shapes {shapes}; flatten the features")
    transposed = not given.get("transB", 0)
    weights, scales = (array.T if transposed else array for array in (weights, scales))
    codes, scale = _codes(place, node.input[1], weights, scales)
    return Product(node, source, codes, scale, _bias(network, node, 2, len(codes)))


def _convolution(network: Network, node: NodeProto, source: Coded, weights: np.ndarray, scales: np.ndarray) -> Product:
    place, given, rank = f"{network.name}: {label(node)}", attributes(node), weights.ndim - 2
    if rank not in (1, 2):
        raise ModelError(f"{place} must have one or two spatial dimensions, not {rank}; reshape the map")
    mode = given.get("auto_pad", b"NOTSET").decode()
    if mode not in ("NOTSET", "VALID"):
        raise ModelError(f"{place} must have its border in pads, not auto_pad {mode}; export it with explicit pads")
    pads = given.get("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
    if min(pads) < 0:
        raise ModelError(f"{place} must have pads of at least 0, not {list(pads)}; slice the map before")
    codes, scale = _codes(place, node.input[1], weights, scales)
    ahead = (1,) * (2 - rank)

    def pair(name: str) -> tuple[int, ...]:
        return (*ahead, *given.get(name, [1] * rank))

    around = tuple(pads) if rank == 2 else (0, pads[0], 0, pads[1])
    window = Window((*ahead, *weights.shape[2:]), pair("strides"), pair("dilations"), around)
    product = Product(node, source, codes, scale, _bias(network, node, 2, len(codes)), window, given.get("group", 1))
    return dataclasses.replace(product, area=(*ahead, *network.shapes[node.input[0]][2:]))


def _scales_of(network: Network, name: str) -> np.ndarray:
    """The scale of every weight: that of the quantiser, arranged as its results are on the way to the product."""
    steps: list[NodeProto] = []
    at = name
    while at not in network.quantisers:
        node = network.producer.get(at)
        if node is None or node.op_type not in (*LAYOUT, *TRANSPARENT):
            # No quantiser: they may be +1 and -1 times their magnitude.
            return np.abs(network.constants[name])
        steps.append(node)
        at = node.input[0]
    quantiser = network.quantisers[at]
    scale = network.constants.get(quantiser.scale)
    place = f"{network.name}: {label(quantiser.node)}"
    if scale is None:
        raise ModelError(f"{place}: the scale {quantiser.scale!r} must be a constant, not computed; export it as one")
    check_scale(place, quantiser.scale, scale)
    scales = np.broadcast_to(scale, network.constants[at].shape)
    for node in reversed(steps):
        if node.op_type == "Transpose":
            scales = scales.transpose(attributes(node).get("perm"))
        elif node.op_type in LAYOUT:
            scales = scales.reshape(network.constants[node.output[0]].shape)
    return scales


def check_scale(place: str, name: str, scale: np.ndarray) -> None:
    """Refuse a scale that is not positive.

    Raises
    ------
    ModelError
    """
    wrong = scale[~(np.isfinite(scale) & (scale > 0))]
    if wrong.size:
        raise ModelError(f"{place}: the scale {name!r} must be positive, not {wrong.flat[0]}; quantise again")


def _codes(place: str, name: str, weights: np.ndarray, scales: np.ndarray) -> tuple[Int8, npt.NDArray[np.float32]]:
    """int8 codes, and float32[outputs]: their scale."""
    flat = scales.reshape(len(scales), -1)
    if (flat != flat[:, :1]).any():
        channel = int((flat != flat[:, :1]).any(axis=1).argmax())
        found = ", ".join(map(str, np.unique(flat[channel])[:2]))
        raise ModelError(
            f"{place}: the weights {name!r} of output channel {channel} must be whole numbers times one scale, not "
            f"several ({found}); quantise them per tensor or per output channel"
        )
    scale = np.where(flat[:, 0] > 0, flat[:, 0], np.float32(1)).astype(np.float32)
    numbers = weights / scale.reshape(-1, *[1] * (weights.ndim - 1))
    codes = np.rint(numbers)
    # Where they were multiplied with the scale they were rounded once.
    is_whole = codes * scale.reshape(-1, *[1] * (weights.ndim - 1)) == weights
    wrong = numbers[~is_whole | (codes < -128) | (codes > 127)]
    if wrong.size:
        raise ModelError(
            f"{place}: the weights {name!r} must be whole numbers of 8 bits times their scale, not {wrong[0]} times "
            "it; quantise them with 8 bits or less"
        )
    return codes.astype(np.int8), scale


def _bias(network: Network, node: NodeProto, at: int, outputs: int) -> npt.NDArray[np.float32] | None:
    if len(node.input) <= at or not node.input[at]:
        return None
    bias = network.constants.get(node.input[at])
    if bias is None or bias.size not in (1, outputs):
        found = "computed" if bias is None else f"of the shape {list(bias.shape)}"
        raise ModelError(
            f"{network.name}: the bias {node.input[at]!r} of {label(node)} must be {outputs} constants, not {found}; "
            "add something else after it"
        )
    return np.broadcast_to(bias.reshape(-1), outputs).astype(np.float32)

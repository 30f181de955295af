"""Convolutions and matrix products of codes: their possible sums, and error bounds of their results in float32."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ...graph import Int8, Window
from ...model.onnx_graph import attributes_of
from ..fragments import LAYOUT, TRANSPARENT, label
from ..source import ModelError
from .network import MeasuredNetwork

PRODUCTS = ("Conv", "Gemm", "MatMul")
#: Unit roundoff of float32: no rounding changes a number by more than this share of it.
UNIT_ROUNDOFF = 2.0**-24
_EXACT = 1 << 24


@dataclass(frozen=True)
class Coded:
    """An activation with the values ``scale * (code - zero_point)`` of int8 codes.

    Attributes
    ----------
    codes : str
        Name of the int8 tensor.
    scale : float32
    zero_point : int
    least, greatest : int
        Range of its codes.
    is_binary : bool
        Whether its values are +scale where the code is at least 0, and -scale elsewhere.
    """

    codes: str
    scale: np.float32
    zero_point: int = 0
    least: int = -1
    greatest: int = 1
    is_binary: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number that is multiplied."""
        return (-1, 1) if self.is_binary else (self.least - self.zero_point, self.greatest - self.zero_point)


@dataclass(frozen=True, eq=False)
class Product:
    """A product, whose sums are whole numbers; each of its results is a scale times a sum, plus a bias.

    Attributes
    ----------
    node : NodeProto
    source : Coded
    weights : int8[outputs, inputs / groups, ...]
        Weights, with the axes of the kernel last, if there is one.
    scale : float32[outputs]
        Scale of the weights.
    bias : float32[outputs] or None
    window : Window or None
        Window of a convolution, where a kernel of one dimension counts as one row; None for a matrix.
    groups : int
    is_binary : bool
        Whether all weights are +1 and -1.
    area : (rows, columns)
        Size of the map that it reads.
    """

    node: NodeProto
    source: Coded
    weights: Int8
    scale: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32] | None = None
    window: Window | None = None
    groups: int = 1
    is_binary: bool = field(init=False)
    area: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_binary", bool((np.abs(self.weights) == 1).all()))

    @property
    def outputs(self) -> int:
        """The number of output channels."""
        return len(self.weights)

    @property
    def terms(self) -> int:
        """The number of products in a sum."""
        return self.weights[0].size

    @property
    def is_exclusive_or(self) -> bool:
        """Whether the accelerator's engine for binary values can compute it."""
        spatial = self.weights.ndim - 2
        return self.source.is_binary and self.is_binary and self.groups == 1 and spatial in (0, 2)

    def limits(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the least and the greatest sum of each output channel."""
        low, high = self.source.bounds
        flat = self.weights.reshape(self.outputs, -1)
        above, below = (flat.clip(*ends).sum(axis=1, dtype=np.int64) for ends in ((0, 127), (-128, 0)))
        return above * low + below * high, above * high + below * low

    def sums(self) -> npt.NDArray[np.int64]:
        """Return all sums that some output channel may have, ascending; of n binary products these are n, n - 2, n - 4
        ...

        Windows over a border of zeros add up fewer products.
        """
        least, greatest = (int(limit) for limit in (self.limits()[0].min(), self.limits()[1].max()))
        if not (self.is_binary and self.source.is_binary):
            return np.arange(least, greatest + 1)
        of_tap = self.terms if self.window is None else self.weights.shape[1]
        counts = np.array([1]) if self.window is None else np.unique(self.window.counts(*self.area))
        return np.unique(np.concatenate([np.arange(-of_tap * n, of_tap * n + 1, 2) for n in counts]))

    def errors(self, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return bounds of float32's errors in the results of these sums: float64[sums, outputs], 0 where it is exact.

        The order of float32 additions is not specified, nor whether products are rounded before them. Where all numbers
        are whole multiples of one number and none exceeds 2**24 of it, no order rounds anything. Elsewhere: with m
        terms there are m - 1 additions, each of which changes its result by at most u = 2**-24 of it. If the magnitudes
        of all terms add up to A, and the terms themselves to v, a partial sum is at most (A + |v|) / 2, as the other
        terms would have to cancel any excess. Earlier roundings change a partial sum by at most m * u / (1 - m * u) *
        A. Finally, a code times its scale and a product are rounded once each: 2 * u * A, with terms of higher order
        less than 3 * u * A.
        """
        if self._is_exact():
            return np.zeros((len(sums), self.outputs))
        u, m = UNIT_ROUNDOFF, self.terms + (self.bias is not None)
        scale = self.real_scale
        magnitude = self._largest_magnitude() * scale + self._bias_or_zero().__abs__()
        value = np.abs(sums[:, None] * scale + self._bias_or_zero())
        gathered = (magnitude + np.minimum(value, magnitude)) / 2 + m * u / (1 - m * u) * magnitude
        return u * (m * gathered + 3 * magnitude)

    def results(self, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return results that are rounded in float64 only: float64[sums, outputs]."""
        return sums[:, None] * self.real_scale + self._bias_or_zero()

    @property
    def real_scale(self) -> npt.NDArray[np.float64]:
        """The exact scale of sums, float64[outputs]."""
        return np.float64(self.source.scale) * self.scale.astype(np.float64)

    def _bias_or_zero(self) -> npt.NDArray[np.float64]:
        return np.zeros(self.outputs) if self.bias is None else self.bias.astype(np.float64)

    def _largest_magnitude(self) -> npt.NDArray[np.int64]:
        """Return the sum of the magnitudes of all numbers that a channel adds up."""
        largest = max(map(abs, self.source.bounds))
        return np.abs(self.weights.astype(np.int64)).reshape(self.outputs, -1).sum(axis=1) * largest

    def _is_exact(self) -> bool:
        """Return whether all partial sums are whole multiples, at most 2**24, of one power of two.

        Then the products of codes and of weights with their scales have not been rounded either: in units of its own
        power of two, each is at most its product with the other one, which is a term of a sum.
        """
        bias = self._bias_or_zero()
        unit = np.float64(_unit(np.array([self.source.scale]))[0]) * _unit(self.scale)
        unit = np.where(bias == 0, unit, np.minimum(unit, _unit(np.where(bias == 0, 1, bias))))
        magnitude = self._largest_magnitude() * self.real_scale + np.abs(bias)
        return bool((magnitude <= _EXACT * unit).all())


def _unit(numbers: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the power of two of which each float32 is an odd multiple."""
    return np.abs(numbers.astype(np.float64)) / _mantissa(numbers)


def _mantissa(numbers: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the odd whole number of which each float32 is a multiple by a power of two."""
    whole = np.abs(np.frexp(numbers.astype(np.float64))[0] * _EXACT).astype(np.int64)
    # The zeros below the lowest set bit are removed.
    return (whole // (whole & -whole)).astype(np.float64)


# A product of a QONNX network is read with weights as whole numbers, scales, bias and geometry.


def read_product(network: MeasuredNetwork, node: NodeProto, source: Coded) -> Product:
    """Read a product whose first operand is coded.

    Raises
    ------
    ModelError
        If its weights are not quantised to 8 bits or less, or no layer has its form.
    """
    place, given = f"{network.name}: {label(node)}", attributes_of(node)
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


def _convolution(
    network: MeasuredNetwork, node: NodeProto, source: Coded, weights: np.ndarray, scales: np.ndarray
) -> Product:
    place, given, rank = f"{network.name}: {label(node)}", attributes_of(node), weights.ndim - 2
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


def _scales_of(network: MeasuredNetwork, name: str) -> np.ndarray:
    """Return the scale of every weight: that of the quantiser, moved as its results are on the way to the product."""
    steps: list[NodeProto] = []
    at = name
    while at not in network.quantisers:
        node = network.producer.get(at)
        if node is None or node.op_type not in (*LAYOUT, *TRANSPARENT):
            # Weights without a quantiser may be +1 and -1 times their magnitude.
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
            scales = scales.transpose(attributes_of(node).get("perm"))
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
    """Return int8 codes, and their scale float32[outputs]."""
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
    # The multiplication by the scale has rounded the weights once.
    is_whole = codes * scale.reshape(-1, *[1] * (weights.ndim - 1)) == weights
    wrong = numbers[~is_whole | (codes < -128) | (codes > 127)]
    if wrong.size:
        raise ModelError(
            f"{place}: the weights {name!r} must be whole numbers of 8 bits times their scale, not {wrong[0]} times "
            "it; quantise them with 8 bits or less"
        )
    return codes.astype(np.int8), scale


def _bias(network: MeasuredNetwork, node: NodeProto, at: int, outputs: int) -> npt.NDArray[np.float32] | None:
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

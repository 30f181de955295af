"""Read the body of an ONNX function as a binary convolution.

Functions of :func:`lutterfly.host.model.functions.binary_function.make_function` are recognised with any names of
tensors, and any order of nodes and of the operands of a sum or product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto

from ....golden.numerics.requant import pack_parameters, requantise
from ...graph import Int8
from ...model.functions.binary_function import EXACT
from ..source import KernelGeometry
from .body import BodyError, BodyReader, Requantised, code, read_with, shown

_PADS_ITSELF = "a binary map cannot hold; pad with a Pad node in front, whose value is +1 or -1, or 0 for nothing"


@dataclass(frozen=True, eq=False)
class BinaryBody:
    """A function that is a binary convolution.

    Attributes
    ----------
    weights : int8[outputs, inputs, kernel rows, kernel columns] or int8[outputs, inputs]
        Weights, +1 and -1.
    bias : int32[outputs]
    scale : float32[outputs] or None
        Scales of the result; None where the result is signs.
    result_zero_point, low, high : int
        int8 codes of the epilogue, for a result of codes.
    zero_point : int
        The least int8 code of the input that counts as +1.
    pad_value : int
        Value of the padding: +1, -1, or 0 for none.
    geometry : KernelGeometry
        Geometry of the kernel, without sizes for vectors.
    """

    weights: Int8
    bias: np.ndarray
    scale: np.ndarray | None
    result_zero_point: int
    low: int
    high: int
    zero_point: int
    pad_value: int
    geometry: KernelGeometry

    @property
    def inputs(self) -> int:
        """The number of input channels."""
        return self.weights.shape[1]

    @property
    def outputs(self) -> int:
        """The number of output channels."""
        return self.weights.shape[0]

    @property
    def spatial(self) -> int:
        """The number of dimensions after the channels."""
        return self.weights.ndim - 2


def read_body(function: FunctionProto) -> BinaryBody:
    """Read a function.

    Raises
    ------
    BodyError
        If its body is no binary convolution.
    """
    return read_with(_BinaryReader, function)


class _BinaryReader(BodyReader):
    def read(self) -> BinaryBody:
        self.check_signature()
        sums, epilogue = self._epilogue()
        products, bias = self._sums(sums)
        values, weights, geometry = self._products(products)
        pad_value = 1
        if self.operator(values) == "Pad":
            values, pads, pad_value = self._pad(values)
            geometry = KernelGeometry(geometry.kernel, geometry.strides, geometry.dilations, pads)
        zero_point = self._enter(values)
        self.check_all_read()
        bias = self.channels(bias, "the bias", len(weights), np.int32)
        scale = None if epilogue is None else self.channels(epilogue.scale, "the result's scale", len(weights))
        zero, low, high = (0, -128, 127) if epilogue is None else (epilogue.zero_point, epilogue.low, epilogue.high)
        # The requantisation refuses wrong scales and codes.
        factors = np.ones(len(weights), np.float32) if scale is None else scale
        requantise(np.zeros(len(weights), np.int32), pack_parameters(bias, factors), zero, low, high)
        return BinaryBody(weights, bias, scale, zero, low, high, zero_point, pad_value, geometry)

    def _epilogue(self) -> tuple[str, Requantised | None]:
        """Return the tensor of sums, and its requantisation to codes; None where sums become signs."""
        node = self.node(self.function.output[0], "Cast", "the result", to=TensorProto.INT8)
        if self.operator(node.input[0]) == "Where":
            reached, threshold = self._signs(node.input[0], "the result's signs")
            if self.scalar(threshold, "the threshold of the result") != 0:
                raise BodyError(f"the threshold of the result must be 0, not {threshold.item():g}: the bias moves it")
            return reached, None
        found = self.requantised(node.input[0])
        node = self.node(found.sums, "Cast", "the sums", to=TensorProto.FLOAT)
        return node.input[0], found

    def _sums(self, sums: str) -> tuple[str, np.ndarray]:
        """Return the tensor of inner products in float32, and the bias."""
        numbers, bias = self.operands(sums, "Add", "the sum of product and bias")
        if self.operator(numbers) != "Cast":
            raise BodyError(
                f"{shown(self.producer[sums])} must add the bias to inner products that Cast has made int32: ONNX "
                "Runtime multiplies the scale into the weights of a convolution right in front of it, and rounds them"
            )
        return self.node(numbers, "Cast", "the inner products", to=TensorProto.INT32).input[0], bias

    def _products(self, products: str) -> tuple[str, Int8, KernelGeometry]:
        """Return the tensor that is convolved or multiplied, the weights, and the geometry without pads."""
        node, given = self.take(products, ("Conv", "MatMul"), "the inner products")
        place = f"the weights of {shown(node)}"
        name = node.input[1]
        if self.operator(name) == "Cast":
            name = self.node(name, "Cast", place, to=TensorProto.FLOAT).input[0]
        known = self.constants.get(name)
        if known is None or (len(node.input) > 2 and any(node.input[2:])):
            raise BodyError(f"{shown(node)} must have weights that are a Constant, and no bias of its own")
        rank, meaning = {"Conv": (4, "[outputs, inputs, kernel rows, kernel columns]"), "MatMul": (2, "a matrix")}[
            node.op_type
        ]
        if known.ndim != rank or not known.size:
            raise BodyError(f"{place} must be {meaning}, not of the shape {list(known.shape)}")
        wrong = np.argwhere(np.abs(known) != 1)
        if len(wrong):
            at = tuple(wrong[0].tolist())
            raise BodyError(f"{place} must be +1 and -1, not {known[at]:g} at {list(at)}; export their signs")
        weights = (known if rank == 4 else known.T).astype(np.int8)
        if weights[0].size > EXACT:
            raise BodyError(f"{place} must be at most {EXACT} for an output, not {weights[0].size}")
        self.agree(rank - 2, place)
        return node.input[0], weights, self._geometry(node, given, weights.shape[2:])

    def _geometry(self, node: NodeProto, given: dict, kernel: tuple[int, ...]) -> KernelGeometry:
        strides, dilations = (tuple(given.pop(name, [1] * len(kernel))) for name in ("strides", "dilations"))
        pads, auto = given.pop("pads", []), given.pop("auto_pad", b"NOTSET")
        if any(pads) or auto not in (b"NOTSET", b"VALID"):
            raise BodyError(f"{shown(node)} must not pad by itself, with 0 that {_PADS_ITSELF}")
        if given.pop("group", 1) != 1:
            raise BodyError(f"{shown(node)} must have one group; write a function for each")
        if tuple(given.pop("kernel_shape", kernel)) != kernel or given:
            raise BodyError(f"{shown(node)} must have the attributes of a convolution with the kernel {list(kernel)}")
        return KernelGeometry(kernel, strides, dilations, (0,) * (2 * len(kernel)))

    def _pad(self, values: str) -> tuple[str, tuple[int, ...], int]:
        """Return the tensor that is padded, and sizes and value of the padding."""
        node = self.node(values, "Pad", "the border")
        pads, value = self.listed(node, 1), self.listed(node, 2)
        if value is None or len(value) != 1 or value[0] not in (1, -1, 0):
            raise BodyError(
                f"{shown(node)} must name its value, +1 or -1, or 0 for a border that counts as nothing, not "
                f"{'none' if value is None else value}"
            )
        if len(node.input) > 3 or pads is None or len(pads) != 8 or self.spatial != 2:
            raise BodyError(f"{shown(node)} must have the sizes of a border for each of four axes")
        if min(pads) < 0 or any((*pads[:2], *pads[4:6])):
            raise BodyError(f"{shown(node)} must put a border around rows and columns alone, not {pads}")
        return node.input[0], (*pads[2:4], *pads[6:]), int(value[0])

    def _enter(self, values: str) -> int:
        """Return the zero point of the codes."""
        numbers, zero_point = self._signs(values, "the signs of the codes")
        self.entered(numbers)
        return code(self.scalar(zero_point, "the zero point"), "the zero point")

    def _signs(self, values: str, place: str) -> tuple[str, np.ndarray]:
        """Return the tensor whose signs are taken, and the least value with the sign +1."""
        node = self.node(values, "Where", place)
        found = [self.constants.get(name) for name in node.input[1:]]
        if any(value is None or value.size != 1 for value in found) or [value.item() for value in found] != [1, -1]:
            raise BodyError(f"{shown(node)} must give the Constants +1 and -1, in this order")
        return self.operands(node.input[0], "GreaterOrEqual", place)

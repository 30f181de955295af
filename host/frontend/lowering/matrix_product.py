"""Lower matrix products of two activations, of which one becomes weights at run time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from ...graph import Concat, MatrixProduct
from ...graph.tabulate import code_offset
from ..building.build import Build
from ..building.checks import check_layers
from ..building.elements import Elements, add_arrangement, channels_of, elements_of, place_with
from ..fragments.fragments import AVERAGE, LAYOUT, POINTWISE, POOLING, Fragment, label
from ..fragments.lowering import refuses
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .linear import multiplier_of

#: How ONNX and ONNX Runtime call it.
PRODUCTS_OF_TWO = ("MatMul", "QLinearMatMul")
#: Positions of both operands in QLinearMatMul; scale and zero point follow each.
_OPERANDS = (0, 3)


class _Operand(NamedTuple):
    """A tensor of the graph, and which of its elements make the matrices: int64[products, rows, columns]."""

    tensor: str
    elements: Elements


class _Result(NamedTuple):
    """A tensor of the graph with the results, one behind the other in the channels.

    Attributes
    ----------
    tensor : str
    end : str
        The ONNX tensor that they are.
    size : tuple of int
        Rows and columns.
    """

    tensor: str
    end: str
    size: tuple[int, int]


@refuses("an operand has another zero point than 0", "it is a vector")
def lower_matrix_product(build: Build, fragment: Fragment) -> None:
    """Add a layer for each product of a stack, whose results are channels side by side."""
    source, node, end = build.source, fragment.main, fragment.outputs[0]
    first_layer = len(build.graph.layers)
    left, right = _operands(build, node)
    # Each row of the left one by each column of the right one, which both lie in their last axis.
    right = right._replace(elements=right.elements.swapaxes(1, 2))
    is_image = _is_read_as_image(source, end)
    windows, matrices = (right, left) if is_image else (left, right)
    # Side by side in the channels, rows of several matrices are no ONNX tensor before a layout operator makes them one.
    is_one = is_image or len(matrices.elements) == 1
    tensor = end if is_one else build.own_name(f"{end} side by side")
    size = (1, windows.elements.shape[1]) if is_image else _size(build, windows, matrices)
    _add_products(build, node, windows, matrices, _Result(tensor, end, size))
    shape = build.graph.tensors[tensor].shape
    every = np.arange(np.prod(shape)).reshape(-1, len(matrices.elements), matrices.elements.shape[1])
    every = every.transpose((1, 2, 0) if is_image else (1, 0, 2))
    build.add_view(end, place_with(tensor, every.reshape(source.shapes[end]), shape, node))
    check_layers(build, fragment, first_layer)


def _operands(build: Build, node: NodeProto) -> tuple[_Operand, _Operand]:
    """Both, with as many matrices."""
    found = []
    for at in _OPERANDS:
        name, zero = node.input[at], build.source.constants[node.input[at + 2]]
        if zero.size != 1 or int(zero.item()) - code_offset(zero.dtype):
            raise UnsupportedError(
                f"{label(node)} multiplies two activations, and the zero point {zero.reshape(-1)[0]} of {name!r} would "
                "add to each sum what depends on the codes",
                "quantise both around 0 (lutterfly quantize; extra_options={'ActivationSymmetric': True})",
            )
        place = build.places[name]
        if len(place.shape) < 2:
            raise UnsupportedError(f"{label(node)} multiplies by the vector {name!r}", "make it a matrix of one column")
        found.append((place.tensor, elements_of(place, build.shape_of(place))))
    stack = np.broadcast_shapes(*(elements.shape[:-2] for _, elements in found))
    left, right = (
        _Operand(tensor, np.broadcast_to(elements, stack + elements.shape[-2:]).reshape(-1, *elements.shape[-2:]))
        for tensor, elements in found
    )
    return left, right


def _add_products(build: Build, node: NodeProto, windows: _Operand, matrices: _Operand, result: _Result) -> None:
    """Add the layers."""
    sources, (tensor, end, size) = _window_tensors(build, node, windows, result.size), result
    results = [tensor] if len(sources) == 1 else [build.own_name(f"{end} {number}") for number in range(len(sources))]
    (multiplier,) = multiplier_of(build.source, node, 1)
    for name, part, order in zip(sources, results, matrices.elements, strict=True):
        build.add_tensor(part, (*size, len(order)), end)
        layer = MatrixProduct(node.name, (name, matrices.tensor), part, multiplier=multiplier, order=order)
        build.graph.layers.append(layer)
    if len(results) > 1:
        build.add_tensor(tensor, (*size, matrices.elements.shape[1] * len(results)), end)
        build.graph.layers.append(Concat(node.name, tuple(results), tensor, (None,) * len(results)))


def _size(build: Build, windows: _Operand, matrices: _Operand) -> tuple[int, int]:
    """Rows and columns of the results' pixels: those of an operand with as many, as other layers may combine them."""
    rows = windows.elements.shape[1]
    sizes = [build.graph.tensors[operand.tensor].shape[:2] for operand in (windows, matrices)]
    return max([(1, rows), *(size for size in sizes if np.prod(size) == rows)])


def _window_tensors(build: Build, node: NodeProto, operand: _Operand, size: tuple[int, int]) -> list[str]:
    """A tensor for each matrix whose pixels are the rows: channels of the operand's where they are, else moved."""
    tensor = build.graph.tensors[operand.tensor]
    pixels = np.arange(np.prod(tensor.shape)).reshape(-1, tensor.shape[2])
    firsts, channels = operand.elements[:, 0, 0], operand.elements.shape[2]
    if tensor.shape[:2] == size and all(
        np.array_equal(one, pixels[:, first : first + channels])
        for one, first in zip(operand.elements, firsts, strict=True)
    ):
        return [channels_of(build, node, operand.tensor, int(first), channels) for first in firsts]
    names = []
    for number, elements in enumerate(operand.elements):
        names.append(build.own_name(f"{tensor.name} for {node.name} {number}"))
        add_arrangement(build, [tensor.name], elements.reshape(*size, -1), names[-1], None, node)
    return names


def _is_read_as_image(source: Source, name: str) -> bool:
    """Whether what reads a result next reduces its last axis, whose elements are pixels then."""
    waiting, seen = [name], set()
    while waiting:
        for node in source.consumers.get(waiting.pop(), []):
            if node.op_type in (*POOLING, *AVERAGE):
                return True
            if node.op_type in (*POINTWISE, *LAYOUT):
                waiting += {*node.output} - seen
                seen |= {*node.output}
    return False

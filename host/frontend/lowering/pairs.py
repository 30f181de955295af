"""Lower operators on two activations: each is compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from ....golden.numerics.addition import PAIRS, UNSIGNED_OFFSET, add, difference_tables, sum_tables
from ....golden.numerics.multiplication import product_scaling
from ...graph import Add, CodeEpilogue, ElementwiseMaximum, ElementwiseProduct, Int8, Layer, Pointwise
from ...graph.geometry import from_codes, to_codes
from ...graph.tabulate import CODES, code_offset, open_part
from ...model.model_graph import has_unsigned
from ..build import Build, Place, check_layers, image_shape
from ..elements import as_image, as_other
from ..fragments import ADDITION, EXTREMES, MULTIPLICATION, SUBTRACTION, Fragment, label
from ..source import ONE_TYPE, Source, UnsupportedError, cut
from .lowering import refuses

# Operators on two activations: their operands, and ONNX Runtime's result for every pair of codes.


class Operands(NamedTuple):
    """Operands and result of an operator on two activations.

    Attributes
    ----------
    names : list of str
        Tensors of codes of both operands.
    scales, zero_points : tuple
        Scales and zero points of both and of the result; zero points are int8 codes.
    """

    names: list[str]
    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]


def operands_of(source: Source, fragment: Fragment, node: NodeProto) -> Operands:
    """Return the operands of ``node``, which has QLinear form or is between DequantizeLinear and QuantizeLinear."""
    if node.domain == "com.microsoft":
        names, ends = [node.input[0], node.input[3]], [node.input[at : at + 2] for at in (1, 4, 6)]
    else:
        readers = [_producer(source, name) for name in node.input]
        names = [reader.input[0] for reader in readers]
        ends = [end.input[1:3] for end in [*readers, fragment.nodes[-1]]]
    kinds = [source.types[name] for name in [*names, fragment.outputs[0]]]
    first, second, result = (float(source.constants[end[0]].item()) for end in ends)
    zero_points = [
        (int(source.constants[end[1]].item()) if len(end) > 1 and end[1] else 0) - code_offset(kind)
        for end, kind in zip(ends, kinds, strict=True)
    ]
    return Operands(names, (first, second, result), (zero_points[0], zero_points[1], zero_points[2]))


def _producer(source: Source, name: str) -> NodeProto:
    """Return the DequantizeLinear of an operand."""
    node = source.producer[name]
    return node if node.op_type == "DequantizeLinear" else _producer(source, node.input[0])


def lie_alike(build: Build, node: NodeProto, names: Sequence[str]) -> tuple[Place, Place]:
    """Give both operands one shape and layout: layers move or repeat elements of one where necessary.

    Parameters
    ----------
    build : Build
    node : NodeProto
    names : sequence of str
        Names of two tensors of codes.

    Raises
    ------
    UnsupportedError
        If neither has the shape of the result.
    """
    first, second = (build.places[name] for name in names)
    shape = np.broadcast_shapes(first.shape, second.shape)
    if first.shape == shape:
        return first, as_other(build, node, second, first)
    if second.shape == shape:
        return as_other(build, node, first, second), second
    raise UnsupportedError(
        f"its operands have the shapes {list(first.shape)} and {list(second.shape)}, and none has that of its result",
        "give one of them the shape of the result",
    )


def check_types(source: Source, names: Sequence[str], operator: str) -> None:
    """Refuse operands of which one is int8 and one uint8, in the file or after ONNX Runtime's conversion.

    Raises
    ------
    UnsupportedError
    """
    if len({source.types[name] for name in names}) == 1:
        return
    if has_unsigned(source.file.proto):
        raise UnsupportedError("its operands are int8 and uint8", ONE_TYPE)
    raise UnsupportedError(
        "ONNX Runtime makes one of its operands uint8, as it does between QuantizeLinear and DequantizeLinear in files "
        "without a product in QDQ form, and computes in float",
        f"write all operators in QDQ form, or this one as {operator}",
    )


def tabulate_pairs(source: Source, fragment: Fragment, names: Sequence[str]) -> Int8:
    """Compute the codes int8[256, 256] of every pair in ONNX Runtime."""
    model = cut(source, fragment.nodes, dict.fromkeys(names, PAIRS[0].shape), fragment.outputs)
    feeds = {name: from_codes(codes, source.types[name]) for name, codes in zip(names, PAIRS, strict=True)}
    return to_codes(open_part(model).run(fragment.outputs, feeds)[0])


def reached(expected: Int8) -> CodeEpilogue:
    """Return the clamp of a fused Relu or Clip, as the range of the codes that pairs reach."""
    return CodeEpilogue(int(expected.min()), int(expected.max()))


def add_checked(build: Build, fragment: Fragment, place: Place, layer: Layer, first_layer: int) -> None:
    """Add the layer that computes a fragment's output, with the layout of ``place``.

    Raises
    ------
    UnsupportedError
        If a byte of the layers from ``first_layer`` on differs from ONNX Runtime's.
    """
    build.add_tensor(layer.output, build.shape_of(place), layer.output)
    build.graph.layers.append(layer)
    build.add_view(layer.output, Place(layer.output, place.axes, build.source.shapes[layer.output]))
    check_layers(build, fragment, first_layer)


# Lower additions of two activations to two tables in fixed point, compared with ONNX Runtime on every pair of codes.


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "the sum of two tables is not what ONNX Runtime computes for every pair of codes",
)
def lower_addition(build: Build, fragment: Fragment) -> None:
    """Add the layer of an addition, with a fused Relu or Clip."""
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in ADDITION)
    names, scales, zero_points = operands_of(source, fragment, node)
    check_types(source, names, ADDITION[1])
    unsigned = source.types[end] == np.uint8
    first, second, fraction = sum_tables(scales, zero_points, unsigned=unsigned)
    offset = UNSIGNED_OFFSET if unsigned else 0
    expected = tabulate_pairs(source, fragment, names)
    epilogue = reached(expected)
    result = add(*PAIRS, first, second, fraction, offset=offset, low=epilogue.low, high=epilogue.high)
    wrong = np.count_nonzero(result != expected)
    if wrong:
        raise UnsupportedError(
            _difference(fragment, node, wrong),
            "put QuantizeLinear and DequantizeLinear after the addition, or choose other scales",
        )
    first_layer = len(build.graph.layers)
    first_place, second_place = lie_alike(build, node, names)
    tensors = first_place.tensor, second_place.tensor
    layer = Add(node.name, tensors, end, first, second, fraction, offset, epilogue=epilogue)
    add_checked(build, fragment, first_place, layer, first_layer)


def _difference(fragment: Fragment, node: NodeProto, wrong: int) -> str:
    after = [other for other in fragment.nodes if other.op_type in ("Relu", "Clip")]
    cause = f", because {label(after[0])} makes it compute {label(node)} in float" if after else ""
    return f"for {wrong} of 65536 pairs of codes ONNX Runtime gives another sum than two tables{cause}"


# Lower differences of two activations to two tables that are added, compared with ONNX Runtime on every pair.


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "no two tables that were tried give what ONNX Runtime computes for every pair of codes",
)
def lower_subtraction(build: Build, fragment: Fragment) -> None:
    """Add the layer of a difference, with a fused Relu or Clip."""
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in SUBTRACTION)
    names, scales, zero_points = operands_of(source, fragment, node)
    check_types(source, names, node.op_type)
    expected = tabulate_pairs(source, fragment, names)
    tables = difference_tables(scales, zero_points, expected)
    if tables is None:
        raise UnsupportedError(
            f"no two tables that were tried give ONNX Runtime's code for every pair of codes of {label(node)}",
            "choose other scales",
        )
    first_layer = len(build.graph.layers)
    first, second = lie_alike(build, node, names)
    epilogue = reached(expected)
    layer = Add(node.name, (first.tensor, second.tensor), end, *tables, zero_points[2], epilogue=epilogue)
    add_checked(build, fragment, first, layer, first_layer)


# Lower products of two activations, compared with ONNX Runtime on every pair of codes.


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "what ONNX Runtime computes is not one scaling of all products",
)
def lower_multiplication(build: Build, fragment: Fragment) -> None:
    """Add the layer of a product, with a fused Relu or Clip."""
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in MULTIPLICATION)
    names, scales, zero_points = operands_of(source, fragment, node)
    check_types(source, names, MULTIPLICATION[1])
    scaling = product_scaling(scales, zero_points, expected := tabulate_pairs(source, fragment, names))
    if scaling is None:
        raise UnsupportedError(
            f"no scaling that was tried gives ONNX Runtime's code for every product of {label(node)}",
            "choose another scale for its result",
        )
    first, second = (build.places[name] for name in names)
    points = zero_points[:2]
    if _is_vector(first, second):
        first, second, points = second, first, points[::-1]
    first_layer, spread = len(build.graph.layers), (1, 1)
    if _is_vector(second, first):
        first, second = (as_image(build, node, place) for place in (first, second))
        spread = build.shape_of(first)[:2]
    else:
        first, second = lie_alike(build, node, names)
        points = zero_points[:2]
    epilogue = reached(expected)
    layer = ElementwiseProduct(
        node.name, (first.tensor, second.tensor), end, points, scaling, spread, epilogue=epilogue
    )
    add_checked(build, fragment, first, layer, first_layer)


def _is_vector(place: Place, of: Place) -> bool:
    """Return whether a tensor has one element for each channel of a map ``of``, as ONNX broadcasts it."""
    is_map = image_shape(of.shape) is not None and place.shape != of.shape
    return is_map and place.shape == (1, of.shape[1], *(1 for _ in of.shape[2:]))


# Lower maxima and minima of two activations, compared with ONNX Runtime on every pair of codes.

#: A table that reverses the order of codes: the greatest becomes the least.
_TURNED = ~CODES


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "what ONNX Runtime computes is no choice between codes",
)
def lower_extreme(build: Build, fragment: Fragment) -> None:
    """Add the layer of a maximum, and tables before it where an operand's codes stand for other numbers than the
    result's.

    A minimum is the maximum of codes in reverse order.
    """
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in EXTREMES)
    names = operands_of(source, fragment, node).names
    check_types(source, names, node.op_type)
    expected = tabulate_pairs(source, fragment, names)
    is_least = node.op_type == "Min"
    codes = ~expected if is_least else expected
    # Each code is paired with the least one of the other operand.
    tables = codes.min(axis=1), codes.min(axis=0)
    if not np.array_equal(np.maximum(tables[0][:, None], tables[1]), codes):
        raise UnsupportedError(f"ONNX Runtime computes something else for {label(node)} than a choice between codes")
    first_layer = len(build.graph.layers)
    places = lie_alike(build, node, names)
    inputs = tuple(
        _looked_up(build, fragment, place, table, f"{end} {number}")
        for number, (place, table) in enumerate(zip(places, tables, strict=True))
    )
    epilogue = CodeEpilogue(table=_TURNED) if is_least else CodeEpilogue()
    add_checked(build, fragment, places[0], ElementwiseMaximum(node.name, inputs, end, epilogue=epilogue), first_layer)


def _looked_up(build: Build, fragment: Fragment, place: Place, table: Int8, name: str) -> str:
    """Add a tensor after a table; return the given one where the table changes no code."""
    if np.array_equal(table, CODES):
        return place.tensor
    name = build.own_name(name)
    build.add_tensor(name, build.shape_of(place), fragment.outputs[0])
    layer = Pointwise(f"{fragment.main.name} {name}", (place.tensor,), name, epilogue=CodeEpilogue(table=table))
    build.graph.layers.append(layer)
    return name

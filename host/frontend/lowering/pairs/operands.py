"""Two activations that become one: what they are, and what ONNX Runtime makes of every pair of their codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from .....golden.numerics.addition import PAIRS
from ....graph import CodeFinish, Int8, Layer
from ....graph.geometry import from_codes, to_codes
from ....graph.tabulate import code_offset, open_part
from ....model.model_graph import has_unsigned
from ...building.build import Build
from ...building.checks import check_layers
from ...building.elements import as_other
from ...building.layout import Place
from ...fragments.fragments import Fragment
from ...reading.cut import cut
from ...reading.errors import ONE_TYPE, UnsupportedError
from ...reading.source import Source


class Operands(NamedTuple):
    """What an operator on two activations reads and gives.

    Attributes
    ----------
    names : list of str
        Tensors of codes of both operands.
    scales, zero_points : tuple
        Of both and of the result; zero points as int8 codes.
    """

    names: list[str]
    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]


def operands_of(source: Source, fragment: Fragment, node: NodeProto) -> Operands:
    """The operands of ``node``, which is in QLinear form or stands between DequantizeLinear and QuantizeLinear."""
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
    """The DequantizeLinear that an operand comes from."""
    node = source.producer[name]
    return node if node.op_type == "DequantizeLinear" else _producer(source, node.input[0])


def lie_alike(build: Build, node: NodeProto, names: Sequence[str]) -> tuple[Place, Place]:
    """Both operands as places of one shape and layout: layers move or repeat elements of one where need be.

    Parameters
    ----------
    build : Build
    node : NodeProto
    names : sequence of str
        Of two tensors of codes.

    Raises
    ------
    UnsupportedError
        If none has the shape of the result.
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
    """Refuse operands that are int8 and uint8, because the file has both, or ONNX Runtime makes the one of the other.

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
    """Codes int8[256, 256] of every pair, as ONNX Runtime computes them."""
    model = cut(source, fragment.nodes, dict.fromkeys(names, PAIRS[0].shape), fragment.outputs)
    feeds = {name: from_codes(codes, source.types[name]) for name, codes in zip(names, PAIRS, strict=True)}
    return to_codes(open_part(model).run(fragment.outputs, feeds)[0])


def reached(expected: Int8) -> CodeFinish:
    """The clamp of a fused Relu or Clip: what it cuts, no pair reaches."""
    return CodeFinish(int(expected.min()), int(expected.max()))


def add_checked(build: Build, fragment: Fragment, place: Place, layer: Layer, first_layer: int) -> None:
    """Add the layer that gives a fragment's output, whose elements lie as those of ``place``.

    Raises
    ------
    UnsupportedError
        If a byte differs from ONNX Runtime's, of what the layers from ``first_layer`` on give.
    """
    build.add_tensor(layer.output, build.shape_of(place), layer.output)
    build.graph.layers.append(layer)
    build.add_view(layer.output, Place(layer.output, place.axes, build.source.shapes[layer.output]))
    check_layers(build, fragment, first_layer)

"""Lower additions of two activations: two tables in fixed point, compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from ....golden.numerics.addition import UNSIGNED_OFFSET, add, sum_tables
from ...graph import Add, CodeFinish, Int8
from ...graph.codes import from_codes, to_codes
from ...graph.tabulate import CODES, code_offset, open_part
from ...model.model_graph import has_unsigned
from ..building.build import Build
from ..building.checks import check_layers
from ..building.elements import as_other
from ..building.layout import Place
from ..fragments.fragments import ADDITION, Fragment, label
from ..reading.cut import cut
from ..reading.errors import UnsupportedError
from ..reading.source import Source

_PAIRS = [np.ascontiguousarray(codes) for codes in np.meshgrid(CODES, CODES, indexing="ij")]


def lower_addition(build: Build, fragment: Fragment) -> None:
    """Add the layer of an addition, with a fused Relu or Clip.

    Raises
    ------
    UnsupportedError
        If the operands have other shapes, layouts or types, or the sum of two tables is not what ONNX Runtime computes
        for every pair of codes.
    """
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in ADDITION)
    names, scales, zero_points = _quantisation(source, fragment, node)
    first_place, second_place = (build.places[name] for name in names)
    _check_alike(build, names, first_place, second_place)
    unsigned = source.types[end] == np.uint8
    first, second, fraction = sum_tables(scales, zero_points, unsigned=unsigned)
    offset = UNSIGNED_OFFSET if unsigned else 0
    expected = _tabulate(source, fragment, names)
    # What a fused Relu or Clip cuts, no pair reaches.
    low, high = int(expected.min()), int(expected.max())
    result = add(*_PAIRS, first, second, fraction, offset=offset, low=low, high=high)
    wrong = np.count_nonzero(result != expected)
    if wrong:
        raise UnsupportedError(
            _difference(fragment, node, wrong),
            "put QuantizeLinear and DequantizeLinear after the addition, or choose other scales",
        )
    first_layer = len(build.graph.layers)
    second_place = as_other(build, node, second_place, first_place)
    build.add_tensor(end, build.shape_of(first_place), end)
    build.graph.layers.append(
        Add(
            node.name,
            (first_place.tensor, second_place.tensor),
            end,
            first,
            second,
            fraction,
            offset,
            finish=CodeFinish(low, high),
        )
    )
    build.add_view(end, Place(end, first_place.axes, source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _quantisation(source: Source, fragment: Fragment, node: NodeProto) -> tuple[list[str], tuple, tuple]:
    """Tensors of codes of both operands; scales and zero points, as int8 codes, of both and of the result."""
    if node.op_type == "QLinearAdd":
        names, ends = [node.input[0], node.input[3]], [node.input[at : at + 2] for at in (1, 4, 6)]
    else:
        readers = [_producer(source, name) for name in node.input]
        names = [reader.input[0] for reader in readers]
        ends = [end.input[1:3] for end in [*readers, fragment.nodes[-1]]]
    kinds = [source.types[name] for name in [*names, fragment.outputs[0]]]
    scales = tuple(float(source.constants[end[0]].item()) for end in ends)
    zero_points = tuple(
        (int(source.constants[end[1]].item()) if len(end) > 1 and end[1] else 0) - code_offset(kind)
        for end, kind in zip(ends, kinds, strict=True)
    )
    return names, scales, zero_points


def _producer(source: Source, name: str) -> NodeProto:
    """The DequantizeLinear that an operand comes from."""
    node = source.producer[name]
    return node if node.op_type == "DequantizeLinear" else _producer(source, node.input[0])


def _check_alike(build: Build, names: list[str], first: Place, second: Place) -> None:
    source = build.source
    if first.shape != second.shape:
        raise UnsupportedError(
            f"its operands have the shapes {list(first.shape)} and {list(second.shape)}", "give both operands one shape"
        )
    if len({source.types[name] for name in names}) > 1:
        raise _of_two_types(source)


def _of_two_types(source: Source) -> UnsupportedError:
    """Why operands of a sum are int8 and uint8: the file has both, or ONNX Runtime makes the one of the other."""
    if has_unsigned(source.file.proto):
        return UnsupportedError("its operands are int8 and uint8", "quantise all activations to one type")
    return UnsupportedError(
        "ONNX Runtime makes one of its operands uint8, as it does between QuantizeLinear and DequantizeLinear in files "
        "without a product in QDQ form, and computes in float",
        "write all operators in QDQ form, or this one as QLinearAdd",
    )


def _tabulate(source: Source, fragment: Fragment, names: list[str]) -> Int8:
    """Codes int8[256, 256] of every pair, as ONNX Runtime computes them."""
    model = cut(source, fragment.nodes, dict.fromkeys(names, _PAIRS[0].shape), fragment.outputs)
    feeds = {name: from_codes(codes, source.types[name]) for name, codes in zip(names, _PAIRS, strict=True)}
    return to_codes(open_part(model).run(fragment.outputs, feeds)[0])


def _difference(fragment: Fragment, node: NodeProto, wrong: int) -> str:
    after = [other for other in fragment.nodes if other.op_type in ("Relu", "Clip")]
    cause = f", because {label(after[0])} makes it compute {label(node)} in float" if after else ""
    return f"for {wrong} of 65536 pairs of codes ONNX Runtime gives another sum than two tables{cause}"

"""Lower what takes apart, joins or surrounds feature maps along any axis: arrangements of their elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper

from ...graph import CodeFinish, Int8, Pointwise
from ...graph.geometry import to_codes
from ...graph.tabulate import CODES, open_part
from ..building.build import Build
from ..building.checks import check_layers
from ..building.elements import add_arrangement, as_map, elements_of, place_with, settled_place
from ..building.layout import Place
from ..building.moved import moved_by
from ..fragments.fragments import Fragment
from ..fragments.quantisation import quantisation
from ..reading.cut import cut
from .past import ancestors, tabulate_past


def lower_parts(build: Build, fragment: Fragment, node: NodeProto, place: Place) -> None:
    """Note which elements each output of a Split or Slice has, and add the table of each.

    Parameters
    ----------
    build : Build
    fragment : Fragment
    node : NodeProto
        The Split or Slice.
    place : Place
        Of what it reads.

    Raises
    ------
    UnsupportedError
        If what it takes is no constant, or takes too many pieces to move.
    """
    source, first_layer, shape = build.source, len(build.graph.layers), build.shape_of(place)
    found = dict(zip(node.output, moved_by(source, node, elements_of(place, shape)), strict=True))
    for end in fragment.outputs:
        taken = next(name for name in node.output if name in ancestors(source, fragment, end))
        whole = helper.make_node("Identity", node.input[:1], [taken], node.name)
        table = tabulate_past(source, fragment, whole, end)
        here = place_with(place.tensor, found[taken].reshape(source.shapes[end]), shape, node)
        if not keeps(build, place.tensor, end, table):
            moved = as_map(elements_of(here, shape))
            add_arrangement(build, [place.tensor], moved, end, end, node, table=table)
            here = settled_place(end, here.shape)
        build.add_view(end, here)
    check_layers(build, fragment, first_layer)


def lower_joined(
    build: Build, fragment: Fragment, node: NodeProto, axis: int, places: Sequence[Place], tables: Sequence[Int8]
) -> None:
    """Add the layer of a concatenation along any axis, and the tables of its operands.

    Parameters
    ----------
    build : Build
    fragment : Fragment
    node : NodeProto
        The concatenation.
    axis : int
    places : sequence of Place
        Of its operands.
    tables : sequence of int8[256]
        Of each, from its codes to those of the result.

    Raises
    ------
    UnsupportedError
        If it takes too many pieces.
    """
    end, first_layer = fragment.outputs[0], len(build.graph.layers)
    names = [_tabulated(build, node, at, *operand, end) for at, operand in enumerate(zip(places, tables, strict=True))]
    first, firsts = 0, {}
    for name in dict.fromkeys(names):
        firsts[name] = first
        first += int(np.prod(build.graph.tensors[name].shape))
    joined = np.concatenate(
        [elements_of(place, build.shape_of(place)) + firsts[name] for place, name in zip(places, names, strict=True)],
        axis=axis,
    )
    _add(build, fragment, node, [*firsts], joined, "concatenation")
    check_layers(build, fragment, first_layer)


def _tabulated(build: Build, node: NodeProto, at: int, place: Place, table: Int8, end: str) -> str:
    """The tensor with the codes of an operand as the result has them."""
    if keeps(build, place.tensor, end, table):
        return place.tensor
    name = build.own_name(f"{end} operand {at}")
    build.add_tensor(name, build.shape_of(place), end)
    build.graph.layers.append(Pointwise(node.name, (place.tensor,), name, finish=CodeFinish(table=table)))
    return name


def lower_surrounded(build: Build, fragment: Fragment, node: NodeProto) -> None:
    """Add the layer of a Pad of any axes, mode and value, and a table in front of it where the fragment changes codes.

    Raises
    ------
    UnsupportedError
        If it takes too many pieces.
    """
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    first_layer, place = len(build.graph.layers), build.places[start]
    moved = moved_by(source, node, elements_of(place, build.shape_of(place)))[0]
    if (moved < 0).any():
        # What ONNX Runtime puts there does not depend on the codes.
        session = open_part(cut(source, fragment.nodes, {start: source.shapes[start]}, [end]))
        codes = np.zeros(source.shapes[start], source.types[start])
        (result,) = session.run([end], {start: codes})
        moved = np.where(moved < 0, -129 - to_codes(result).astype(np.int64).reshape(moved.shape), moved)
    whole = helper.make_node("Identity", node.input[:1], node.output, node.name)
    table, tensor = tabulate_past(source, fragment, whole, end), place.tensor
    if not keeps(build, tensor, end, table):
        # The padded float tensor lends its name: nothing else in the graph has it.
        tensor = node.output[0]
        build.add_tensor(tensor, build.shape_of(place), end)
        build.graph.layers.append(Pointwise(node.name, (place.tensor,), tensor, finish=CodeFinish(table=table)))
    _add(build, fragment, node, [tensor], moved, "border")
    check_layers(build, fragment, first_layer)


def _add(build: Build, fragment: Fragment, node: NodeProto, sources: list[str], moved: np.ndarray, what: str) -> None:
    end = fragment.outputs[0]
    moved = moved.reshape(build.source.shapes[end])
    add_arrangement(build, sources, as_map(moved), end, end, node, what=what)
    build.add_view(end, settled_place(end, moved.shape))


def keeps(build: Build, tensor: str, end: str, table: Int8) -> bool:
    """Whether codes of a tensor of the graph are those of an ONNX tensor, with the same zero point."""
    return bool((table == CODES).all()) and build.graph.tensors[tensor].zero_point == quantisation(build.source, end)[1]

"""Lower the greater, or the lesser, of two activations, compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

import numpy as np

from ....graph import CodeFinish, Int8, Maximum, Pointwise
from ....graph.tabulate import CODES
from ...building.build import Build
from ...building.layout import Place
from ...fragments.fragments import EXTREMES, Fragment, label
from ...fragments.lowering import refuses
from ...reading.errors import UnsupportedError
from .operands import add_checked, check_types, lie_alike, operands_of, tabulate_pairs

#: Turns the order of codes around: the greatest becomes the least.
_TURNED = ~CODES


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "what ONNX Runtime computes is no choice between codes",
)
def lower_extreme(build: Build, fragment: Fragment) -> None:
    """Add the layer of a maximum, and tables in front of it where an operand's codes stand for other numbers than those
    of the result. A minimum is the maximum of codes whose order is turned around.
    """
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in EXTREMES)
    names = operands_of(source, fragment, node).names
    check_types(source, names, node.op_type)
    expected = tabulate_pairs(source, fragment, names)
    is_least = node.op_type == "Min"
    codes = ~expected if is_least else expected
    # What each code is beside the least one of the other operand.
    tables = codes.min(axis=1), codes.min(axis=0)
    if not np.array_equal(np.maximum(tables[0][:, None], tables[1]), codes):
        raise UnsupportedError(f"ONNX Runtime computes something else for {label(node)} than a choice between codes")
    first_layer = len(build.graph.layers)
    places = lie_alike(build, node, names)
    inputs = tuple(
        _looked_up(build, fragment, place, table, f"{end} {number}")
        for number, (place, table) in enumerate(zip(places, tables, strict=True))
    )
    finish = CodeFinish(table=_TURNED) if is_least else CodeFinish()
    add_checked(build, fragment, places[0], Maximum(node.name, inputs, end, finish=finish), first_layer)


def _looked_up(build: Build, fragment: Fragment, place: Place, table: Int8, name: str) -> str:
    """The tensor after a table, of its own; the one before it where all codes stay."""
    if np.array_equal(table, CODES):
        return place.tensor
    name = build.own_name(name)
    build.add_tensor(name, build.shape_of(place), fragment.outputs[0])
    layer = Pointwise(f"{fragment.main.name} {name}", (place.tensor,), name, finish=CodeFinish(table=table))
    build.graph.layers.append(layer)
    return name

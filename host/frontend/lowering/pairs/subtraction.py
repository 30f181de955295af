"""Lower differences of two activations: two tables that are added up, compared with ONNX Runtime on every pair."""

from __future__ import annotations

from .....golden.numerics.addition import difference_tables
from ....graph import Add
from ...building.build import Build
from ...fragments.fragments import SUBTRACTION, Fragment, label
from ...fragments.lowering import refuses
from ...reading.errors import UnsupportedError
from .operands import add_checked, check_types, lie_alike, operands_of, reached, tabulate_pairs


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
    finish = reached(expected)
    layer = Add(node.name, (first.tensor, second.tensor), end, *tables, zero_points[2], finish=finish)
    add_checked(build, fragment, first, layer, first_layer)

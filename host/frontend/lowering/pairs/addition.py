"""Lower additions of two activations: two tables in fixed point, compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from .....golden.numerics.addition import PAIRS, UNSIGNED_OFFSET, add, sum_tables
from ....graph import Add
from ...building.build import Build
from ...fragments.fragments import ADDITION, Fragment, label
from ...fragments.lowering import refuses
from ...reading.errors import UnsupportedError
from .operands import add_checked, check_types, lie_alike, operands_of, reached, tabulate_pairs


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
    finish = reached(expected)
    result = add(*PAIRS, first, second, fraction, offset=offset, low=finish.low, high=finish.high)
    wrong = np.count_nonzero(result != expected)
    if wrong:
        raise UnsupportedError(
            _difference(fragment, node, wrong),
            "put QuantizeLinear and DequantizeLinear after the addition, or choose other scales",
        )
    first_layer = len(build.graph.layers)
    first_place, second_place = lie_alike(build, node, names)
    tensors = first_place.tensor, second_place.tensor
    layer = Add(node.name, tensors, end, first, second, fraction, offset, finish=finish)
    add_checked(build, fragment, first_place, layer, first_layer)


def _difference(fragment: Fragment, node: NodeProto, wrong: int) -> str:
    after = [other for other in fragment.nodes if other.op_type in ("Relu", "Clip")]
    cause = f", because {label(after[0])} makes it compute {label(node)} in float" if after else ""
    return f"for {wrong} of 65536 pairs of codes ONNX Runtime gives another sum than two tables{cause}"

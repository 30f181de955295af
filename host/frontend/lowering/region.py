"""Lower what is computed in float between two quantised tensors: one table, and max pooling on codes around it."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import NodeProto, helper

from ...graph import CodeFinish, Pointwise
from ...graph.geometry import from_codes
from ...graph.tabulate import CODES, open_part
from ...model.model_graph import expose
from ..building.build import Build
from ..building.checks import check_layers, table_of
from ..building.elements import channels_of
from ..building.layout import Place
from ..building.trunk import follow_layouts, follow_trunk
from ..fragments.fragments import POOLING, QUANTISERS, TRANSPARENT, Fragment, label
from ..fragments.lowering import refuses
from ..fragments.moves import is_choice, is_layout, is_move
from ..fragments.quantisation import quantisation
from ..reading.cut import cut
from ..reading.errors import UnsupportedError
from ..reading.source import Source


@refuses(
    "a layout operator or pooling stands in one branch alone",
    "pooling on codes is not exact, as operators before and after it both decrease somewhere",
    "an operand is no scalar",
    "ONNX Runtime's result for a code depends on its position",
)
def lower_region(build: Build, fragment: Fragment) -> None:
    """Add the layers of a region: max pooling, a table, max pooling; each only where there is one.

    Moves of elements stand after the table, which may then be part of the layer in front of it.
    """
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    steps = [node for node in fragment.nodes if _is_step(source, node)]
    pools = [node for node in steps if node.op_type in POOLING]
    for node in steps:
        _check_passed_by_all(source, fragment, node)
    pointwise = _bypass(source, fragment, steps)
    table = table_of(pointwise)
    leading = _count_leading(source, fragment, pointwise, pools)
    at = steps.index(pools[leading]) if leading < len(pools) else len(steps)
    done = steps.index(pools[leading - 1]) if leading else 0
    at = next((place for place in range(done, at) if _moves(source, steps[place])), at)
    first_layer = len(build.graph.layers)
    place = build.places[start]
    keeps_zero_point = build.graph.tensors[place.tensor].zero_point == quantisation(source, end)[1]
    if keeps_zero_point and (table == CODES).all():
        place = follow_trunk(build, steps, place, end, end)
    else:
        place = follow_trunk(build, steps[:at], place, start)
        is_last = all(is_layout(source, node) for node in steps[at:])
        after = follow_layouts(build, steps[at:], place) if is_last else None
        if after is not None and after.order is not None:
            place, after = _narrowed(build, fragment, place, after)
        # The float tensor in front of QuantizeLinear lends its name: nothing else in the graph has it.
        output = end if after is not None and after.order is None else fragment.nodes[-1].input[0]
        build.add_tensor(output, build.shape_of(place), end)
        build.graph.layers.append(
            Pointwise(fragment.main.name, (place.tensor,), output, finish=CodeFinish(table=table))
        )
        if after is None:
            after = follow_trunk(build, steps[at:], Place(output, place.axes, place.shape), end, end)
        place = dataclasses.replace(after, tensor=output if is_last else after.tensor)
    build.add_view(end, dataclasses.replace(place, shape=source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _narrowed(build: Build, fragment: Fragment, place: Place, after: Place) -> tuple[Place, Place]:
    """Both places in some channels alone, where nothing else is read of a tensor: a table need not have the others."""
    pixels, channels = np.divmod(after.order, build.shape_of(place)[2])
    first, count = int(channels.min()), int(np.ptp(channels)) + 1
    if after.order.size != np.prod(build.shape_of(place)[:2]) * count:
        return place, after
    part = channels_of(build, fragment.main, place.tensor, first, count)
    order = pixels * count + channels - first
    return dataclasses.replace(place, tensor=part), dataclasses.replace(after, tensor=part, order=order)


def _check_passed_by_all(source: Source, fragment: Fragment, node: NodeProto) -> None:
    """Refuse a node that some path from the region's input to its output avoids."""
    above, below = set(node.input), set(node.output)
    for other in reversed(fragment.nodes):
        if above & set(other.output):
            above |= set(other.input)
    for other in fragment.nodes:
        if below & set(other.input):
            below |= set(other.output)
    for other in fragment.nodes:
        bypasses = other is not node and below & set(other.input) and not set(source.dynamic_inputs(other)) <= below
        if bypasses or not (set(other.output) & (above | below)):
            raise UnsupportedError(f"{label(node)} stands in one branch alone", "move it before or after the branches")


def _bypass(source: Source, fragment: Fragment, steps: list[NodeProto]) -> onnx.ModelProto:
    """The region on a tensor of any length, without its layout operators and pooling."""
    skipped = {id(node) for node in steps}
    nodes = [
        helper.make_node("Identity", node.input[:1], node.output[:1], node.name) if id(node) in skipped else node
        for node in fragment.nodes
    ]
    return cut(source, nodes, {fragment.inputs[0]: ["codes"]}, fragment.outputs)


def _count_leading(source: Source, fragment: Fragment, pointwise: onnx.ModelProto, pools: list[NodeProto]) -> int:
    """How many of the poolings stand before the table.

    A pooling may stand before the table if the operators ahead of it never decrease, and after it if those after
    never decrease, on every code.
    """
    names = [node.input[0] for node in pools]
    exposed = expose(pointwise, names)
    session = open_part(exposed)
    codes = from_codes(CODES, source.types[fragment.inputs[0]])
    results, *values = session.run([fragment.outputs[0], *names], {fragment.inputs[0]: codes})
    results = results.astype(np.int64).reshape(-1)
    may_lead, may_follow = [], []
    for value in (item.reshape(-1) for item in values):
        may_lead.append(bool((value[1:] >= value[:-1]).all()))
        # Equal values must have equal results, or sorting by both hides a decrease.
        order = np.lexsort((-results, value))
        may_follow.append(bool((np.diff(results[order]) >= 0).all()))
    # Codes are pooled where the model pools them, if that is exact: poolings with nothing ahead of them stand before
    # the table.
    natural = sum(1 for node in pools if not _computes(source, fragment.nodes[: fragment.nodes.index(node)]))
    for leading in sorted(range(len(pools) + 1), key=lambda count: abs(count - natural)):
        if all(may_lead[:leading]) and all(may_follow[leading:]):
            return leading
    raise UnsupportedError(
        f"{label(pools[0])} cannot pool codes: operators before it and after it, up to the next "
        "quantised tensors, both decrease somewhere",
        "put QuantizeLinear and DequantizeLinear around it",
    )


def _computes(source: Source, nodes: list[NodeProto]) -> bool:
    passing = (*QUANTISERS, *TRANSPARENT)
    return any(node.op_type not in passing and not _is_step(source, node) for node in nodes)


def _moves(source: Source, node: NodeProto) -> bool:
    return is_move(source, node) or is_choice(source, node)


def _is_step(source: Source, node: NodeProto) -> bool:
    """Whether an operator moves codes, or chooses among them."""
    return node.op_type in POOLING or is_layout(source, node) or is_move(source, node)

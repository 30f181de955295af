"""Lower float operators between two quantised tensors to tables, and fuse tables into layers."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
from onnx import NodeProto, helper

from ....golden.elements import BINARY_BITS
from ....golden.numerics.binary import signs
from ....golden.transfer.tables import apply_table
from ...graph import CodeEpilogue, Graph, Int8, Layer, Pointwise, own_name
from ...graph.geometry import composed, from_codes, looked_up
from ...graph.tabulate import CODES, open_part
from ...model.model_graph import expose
from ..build import Build, Place, check_layers, random_codes, same_order, table_of
from ..classify import combines, is_choice, is_layout, is_move, quantisation
from ..elements import channels_of, follow_layouts, follow_trunk
from ..fragments import FLOAT_PRODUCTS, LAYOUT, POOLING, QUANTISERS, TRANSPARENT, Fragment, label
from ..source import Source, UnsupportedError, connect, cut
from .lowering import refuses
from .products import constant


@refuses(
    "a layout operator or pooling stands in one branch alone",
    "pooling on codes is not exact, as operators before and after it both decrease somewhere",
    "an operand is no scalar",
    "ONNX Runtime's result for a code depends on its position",
)
def lower_region(build: Build, fragment: Fragment) -> None:
    """Add the layers of a region: max pooling, a table, max pooling; each only where there is one.

    Moves of elements come after the table, so that it can be fused into the layer before it.
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
        # The float tensor before QuantizeLinear lends its name: nothing else in the graph has it.
        output = end if after is not None and after.order is None else fragment.nodes[-1].input[0]
        build.add_tensor(output, build.shape_of(place), end)
        build.graph.layers.append(
            Pointwise(fragment.main.name, (place.tensor,), output, epilogue=CodeEpilogue(table=table))
        )
        if after is None:
            after = follow_trunk(build, steps[at:], Place(output, place.axes, place.shape), end, end)
        place = dataclasses.replace(after, tensor=output if is_last else after.tensor)
    build.add_view(end, dataclasses.replace(place, shape=source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _narrowed(build: Build, fragment: Fragment, place: Place, after: Place) -> tuple[Place, Place]:
    """Restrict both places to some channels, where no other channels of the tensor are read: the table skips the
    others."""
    pixels, channels = np.divmod(after.order, build.shape_of(place)[2])
    first, count = int(channels.min()), int(np.ptp(channels)) + 1
    if after.order.size != np.prod(build.shape_of(place)[:2]) * count:
        return place, after
    part = channels_of(build, fragment.main, place.tensor, first, count)
    order = pixels * count + channels - first
    return dataclasses.replace(place, tensor=part), dataclasses.replace(after, tensor=part, order=order)


def _check_passed_by_all(source: Source, fragment: Fragment, node: NodeProto) -> None:
    """Refuse a node that is not on every path from the region's input to its output."""
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
    """Return the region for a tensor of any length, without its layout operators and pooling."""
    skipped = {id(node) for node in steps}
    nodes = [
        helper.make_node("Identity", node.input[:1], node.output[:1], node.name) if id(node) in skipped else node
        for node in fragment.nodes
    ]
    return cut(source, nodes, {fragment.inputs[0]: ["codes"]}, fragment.outputs)


def _count_leading(source: Source, fragment: Fragment, pointwise: onnx.ModelProto, pools: list[NodeProto]) -> int:
    """Count the poolings before the table.

    A pooling may be before the table if the operators before it never decrease, and after it if those after it never
    decrease, on every code.
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
    # Codes are pooled where the model pools them, if that is exact: poolings without an operator before them are before
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
    """Return whether an operator moves codes, or selects among them."""
    return node.op_type in POOLING or is_layout(source, node) or is_move(source, node)


# Lower pointwise operators on several activations that all depend on a single one, code by code.
#
# ``x * sigmoid(x)`` whose sigmoid is quantised is a table of x, for example.


@refuses(
    "its inputs are not all functions of one tensor, code by code",
    "ONNX Runtime's result for a code depends on its position",
)
def lower_combination(build: Build, fragment: Fragment) -> None:
    """Add the table of a fragment, from the tensor that all its inputs are functions of."""
    source, end, first_layer = build.source, fragment.outputs[0], len(build.graph.layers)
    root = single_origin(build, fragment)
    if root is None:
        raise combines(source, fragment)
    places = [build.places[name] for name in fragment.inputs]
    tables = [_origin(build.graph, place.tensor)[1] for place in places]
    ahead = dict(zip(fragment.inputs, tables, strict=True))
    table = table_of(cut(source, fragment.nodes, {name: ["codes"] for name in ahead}, [end]), ahead)
    build.add_tensor(end, build.graph.tensors[root].shape, end)
    build.graph.layers.append(Pointwise(fragment.main.name, (root,), end, epilogue=CodeEpilogue(table=table)))
    build.add_view(end, Place(end, places[0].axes, source.shapes[end]))
    codes = random_codes(build, root)
    values = {place.tensor: apply_table(codes, table) for place, table in zip(places, tables, strict=True)}
    check_layers(build, fragment, first_layer, {**values, root: codes})


def table_or(lower: Callable[[Build, Fragment], None]) -> Callable[[Build, Fragment], None]:
    """Return a lowering that adds a table where a fragment's inputs are functions of one tensor, and else is
    ``lower``."""

    @functools.wraps(lower)
    def lower_fragment(build: Build, fragment: Fragment) -> None:
        (lower if single_origin(build, fragment) is None else lower_combination)(build, fragment)

    return lower_fragment


def single_origin(build: Build, fragment: Fragment) -> str | None:
    """Return the tensor of whose codes all inputs of a fragment are functions; None if there is none."""
    places = [build.places[name] for name in fragment.inputs]
    roots = {_origin(build.graph, place.tensor)[0] for place in places}
    shape, first = build.shape_of(places[0]), places[0]
    alike = all(place.shape == first.shape and same_order(place.axes, first.axes, shape) for place in places)
    return roots.pop() if alike and len(roots) == 1 else None


def _origin(graph: Graph, tensor: str) -> tuple[str, Int8]:
    """Return the tensor from which another one is computed by tables only, and the composed table."""
    table = CODES
    producer = {layer.output: layer for layer in graph.layers}
    while (layer := producer.get(tensor)) is not None and layer.is_table:
        tensor, table = layer.input, apply_table(layer.table, table)
    return tensor, table


# Clip of codes after QuantizeLinear, as Brevitas writes fewer than 8 bits, is moved before it.


def clip_ahead(source: Source) -> None:
    """Clip the numbers before quantisation instead of the codes, where no other operator reads the codes.

    QuantizeLinear never decreases: its codes of clipped numbers are the codes clipped to those of the bounds. Rounding
    errors of operators before it do not matter beyond the bounds then.
    """
    graph = source.model.graph
    readers: dict[str, int] = {}
    for name in [*(name for node in graph.node for name in node.input), *source.outputs]:
        readers[name] = readers.get(name, 0) + 1
    made = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    for clip in [node for node in graph.node if node.op_type == "Clip" and node.input[0] in made]:
        quantise = made[clip.input[0]]
        if readers[clip.input[0]] == 1 and _is_product(source, quantise.input[0]):
            _move(source, clip, quantise)
    connect(source)


def _is_product(source: Source, name: str) -> bool:
    """Return whether a float tensor is a product, followed only by operators that clip or move its results."""
    node = source.producer.get(name)
    while node is not None and node.op_type in ("Relu", "Clip", *LAYOUT, *POOLING, *TRANSPARENT):
        node = source.producer.get(node.input[0])
    return node is not None and node.op_type in FLOAT_PRODUCTS


def _move(source: Source, clip: NodeProto, quantise: NodeProto) -> None:
    scale, zero_point, *bounds = operands = (
        *(constant(source, quantise, at) for at in (1, 2)),
        *(constant(source, clip, at) for at in (1, 2)),
    )
    computed = source.dynamic_inputs(clip)[1:] + source.dynamic_inputs(quantise)[1:]
    if computed or any(operand is not None and operand.size != 1 for operand in operands):
        return
    scale, zero_point = scale.reshape(()), 0 if zero_point is None else zero_point.item()
    taken, result = (source.shapes, source.constants), clip.output[0]
    number = own_name(f"{result} in float", *taken)
    names = [
        "" if bound is None else own_name(f"{number} {end}", *taken)
        for end, bound in zip(("least", "greatest"), bounds, strict=True)
    ]
    for name, bound in zip(names, bounds, strict=True):
        if bound is not None:
            value = np.asarray((np.float32(bound.item()) - np.float32(zero_point)) * scale, np.float32)
            source.add_constant(name, value)
    nodes = source.model.graph.node
    moved = helper.make_node("Clip", [quantise.input[0], *names], [number], clip.name)
    moved.metadata_props.extend(clip.metadata_props)
    nodes.remove(clip)
    nodes.insert(list(nodes).index(quantise), moved)
    shape = source.shapes[quantise.input[0]]
    source.shapes[number], source.types[number] = shape, np.dtype(np.float32)
    quantise.input[0], quantise.output[0] = number, result


# Binary tensors: signs that several layers read are computed once, and maps of +1 and -1 are packed where possible.

_SIGNS = np.array([-1, 1], np.int8)


def share_signs(graph: Graph) -> None:
    """Let layers that read the same signs of the same tensor read one binary tensor."""
    first: dict[tuple[str, bytes], str] = {}
    same: dict[str, str] = {}
    for layer in graph.layers:
        if gives_signs(graph, layer):
            key = layer.inputs[0], _signs_after(layer.table).tobytes()
            same[layer.output] = first.setdefault(key, layer.output)
    _read_instead(graph, {name: other for name, other in same.items() if name != other})


def pack_signs(graph: Graph) -> None:
    """Make tensors of +1 and -1 binary where only binary layers and max pooling read them.

    A tensor that other layers read stays one of codes, and so does an output of the network.
    """
    packed = _packable(graph)
    for name in packed:
        graph.tensors[name] = dataclasses.replace(graph.tensors[name], bits=BINARY_BITS)
    kept = {
        layer.output: layer.input for layer in graph.layers if layer.input in packed and _repeats_signs(graph, layer)
    }
    _read_instead(graph, kept)
    graph.layers = [simplified(graph, layer) for layer in graph.layers]


def gives_signs(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer is only the signs of a tensor, with or without a table before them."""
    return layer.is_table and graph.tensors[layer.output].bits == BINARY_BITS


def simplified(graph: Graph, layer: Layer) -> Layer:
    """Remove a table that does not change the signs after it."""
    if gives_signs(graph, layer) and (_signs_after(layer.table) == signs(CODES)).all():
        return dataclasses.replace(layer, epilogue=CodeEpilogue())
    return layer


def _packable(graph: Graph) -> set[str]:
    """Return tensors of +1 and -1 whose readers all take signs, or pool them into such a tensor."""
    producer = {layer.output: layer for layer in graph.layers}
    found = {name for name in producer if name not in graph.outputs and _holds_signs(graph, producer, name)}

    def may_stay(name: str) -> bool:
        readers = [layer for layer in graph.layers if name in layer.inputs]
        pools = [producer[name], *(layer for layer in readers if not _repeats_signs(graph, layer))]
        ends = {end for layer in pools if layer.keeps_signs for end in (layer.input, layer.output)}
        return ends <= found and all(layer.keeps_signs for layer in pools[1:])

    # Removing a tensor may remove others, on either side of a pooling.
    while gone := {name for name in found if not may_stay(name)}:
        found -= gone
    return found


def _holds_signs(graph: Graph, producer: dict[str, Layer], name: str) -> bool:
    """Return whether all codes of a tensor are +1 and -1."""
    layer = producer.get(name)
    if layer is None:
        return False
    if layer.keeps_signs:
        # A window entirely in the padding has the least code.
        rows, columns, _ = graph.tensors[layer.input].shape
        return layer.window.counts(rows, columns).all() and _holds_signs(graph, producer, layer.input)
    return layer.is_table and layer.table is not None and np.isin(layer.table, _SIGNS).all()


def _repeats_signs(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer takes signs, and keeps +1 and -1 unchanged."""
    return gives_signs(graph, layer) and (signs(looked_up(_SIGNS, layer.table)) == _SIGNS).all()


def _signs_after(table: Int8 | None) -> Int8:
    """Return the sign of every code after a table."""
    return signs(looked_up(CODES, table))


def _read_instead(graph: Graph, others: dict[str, str]) -> None:
    """Drop layers by the names of their outputs; their readers read other tensors."""
    graph.layers = [
        dataclasses.replace(layer, inputs=tuple(others.get(name, name) for name in layer.inputs))
        for layer in graph.layers
        if layer.output not in others
    ]
    for name in others:
        del graph.tensors[name]


# Compose successive tables, drop unread ones, and fuse the others into the layer before them.


def compose_tables(graph: Graph) -> None:
    """Compose a table with the one before it, where no other layer reads the codes in between."""
    readers, producer = _readers(graph), {layer.output: layer for layer in graph.layers}
    for at, layer in enumerate(graph.layers):
        before = producer.get(layer.input)
        alone = readers[layer.input] == 1 and layer.input not in graph.outputs
        if alone and layer.is_table and before is not None and before.is_table:
            one = dataclasses.replace(before.with_table(layer.output, layer.table), name=layer.name)
            graph.layers[at] = producer[layer.output] = simplified(graph, one)
            readers.subtract({*layer.inputs})
            readers.update({*graph.layers[at].inputs})
    _drop_unread(graph)


def fuse_tables(graph: Graph) -> None:
    """Fuse tables, or signs, into the layer before them, where no other layer reads the codes in between."""
    readers, producer = _readers(graph), {layer.output: layer for layer in graph.layers}
    fused: dict[Layer, Layer] = {}
    dropped: set[Layer] = set()
    for layer in graph.layers:
        before = producer.get(layer.input)
        if not layer.is_table or before is None or before.is_table or before.output in graph.outputs:
            continue
        can_fuse = before.takes_signs if gives_signs(graph, layer) else before.epilogue is not None
        if readers[layer.input] == 1 and can_fuse:
            fused[before] = before.with_table(layer.output, layer.table)
            dropped.add(layer)
            if before.table is not None and before.inner == before.output:
                _look_up(graph, before.output, before.table)
    graph.layers = [fused.get(layer, layer) for layer in graph.layers if layer not in dropped]


def _drop_unread(graph: Graph) -> None:
    """Drop tables whose result no layer reads and is not an output: its ONNX tensors become views of their input."""
    readers, dropped = _readers(graph), set[Layer]()
    for layer in reversed(graph.layers):
        if layer.output in graph.outputs or readers[layer.output] or not layer.is_table:
            continue
        dropped.add(layer)
        readers.subtract({*layer.inputs})
        _look_up(graph, layer.output, layer.table)
        source, views = graph.tensors[layer.input], graph.tensors.pop(layer.output).views
        graph.tensors[layer.input] = dataclasses.replace(source, views=(*source.views, *views))
    graph.layers = [layer for layer in graph.layers if layer not in dropped]


def _readers(graph: Graph) -> Counter[str]:
    """Count the layers that read each tensor."""
    return Counter(name for layer in graph.layers for name in {*layer.inputs})


def _look_up(graph: Graph, name: str, table: Int8) -> None:
    """Add a table to the views of a tensor that holds the codes before the table."""
    tensor = graph.tensors[name]
    views = [dataclasses.replace(view, table=composed(table, view.table)) for view in tensor.views]
    graph.tensors[name] = dataclasses.replace(tensor, views=(*views,))

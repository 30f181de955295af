"""Lower pointwise operators on several activations that all depend on a single one, code by code.

``x * sigmoid(x)`` whose sigmoid is quantised is a table of x, for example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ....golden.transfer.tables import apply_table
from ...graph import CodeFinish, Graph, Int8, Pointwise
from ...graph.tabulate import CODES
from ..building.build import Build
from ..building.checks import check_layers, random_codes, table_of
from ..building.layout import Place, same_order
from ..fragments.classify import combines
from ..fragments.fragments import Fragment
from ..fragments.lowering import refuses
from ..reading.cut import cut


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
    build.graph.layers.append(Pointwise(fragment.main.name, (root,), end, finish=CodeFinish(table=table)))
    build.add_view(end, Place(end, places[0].axes, source.shapes[end]))
    codes = random_codes(build, root)
    values = {place.tensor: apply_table(codes, table) for place, table in zip(places, tables, strict=True)}
    check_layers(build, fragment, first_layer, {**values, root: codes})


def table_or(lower: Callable[[Build, Fragment], None]) -> Callable[[Build, Fragment], None]:
    """What adds a table where a fragment's inputs are functions of one tensor, and does as ``lower`` elsewhere."""

    @functools.wraps(lower)
    def lower_fragment(build: Build, fragment: Fragment) -> None:
        (lower if single_origin(build, fragment) is None else lower_combination)(build, fragment)

    return lower_fragment


def single_origin(build: Build, fragment: Fragment) -> str | None:
    """The tensor that all inputs of a fragment are functions of, code by code; None if there is none."""
    places = [build.places[name] for name in fragment.inputs]
    roots = {_origin(build.graph, place.tensor)[0] for place in places}
    shape, first = build.shape_of(places[0]), places[0]
    alike = all(place.shape == first.shape and same_order(place.axes, first.axes, shape) for place in places)
    return roots.pop() if alike and len(roots) == 1 else None


def _origin(graph: Graph, tensor: str) -> tuple[str, Int8]:
    """The tensor that another one is a table of, through tables in a row, and that table."""
    table = CODES
    producer = {layer.output: layer for layer in graph.layers}
    while (layer := producer.get(tensor)) is not None and layer.is_table:
        tensor, table = layer.input, apply_table(layer.table, table)
    return tensor, table

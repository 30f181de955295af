"""Lower pointwise operators on several activations that all depend on a single one, code by code.

``x * sigmoid(x)`` whose sigmoid is quantised is a table of x, for example.
"""

from __future__ import annotations

from ....golden.transfer.tables import apply_table
from ...graph import CodeFinish, Graph, Int8, Pointwise
from ...graph.tabulate import CODES
from ..building.build import Build
from ..building.checks import check_layers, random_codes, table_of
from ..building.layout import Place, same_order
from ..fragments.classify import combines
from ..fragments.fragments import Fragment
from ..reading.cut import cut


def lower_combination(build: Build, fragment: Fragment) -> None:
    """Add the table of a fragment, from the tensor that all its inputs are functions of.

    Raises
    ------
    UnsupportedError
        If there is no such tensor, or ONNX Runtime's result for a code depends on its position.
    """
    source, end, first_layer = build.source, fragment.outputs[0], len(build.graph.layers)
    places = [build.places[name] for name in fragment.inputs]
    origins = [_origin(build.graph, place.tensor) for place in places]
    root = origins[0][0]
    shape = build.graph.tensors[root].shape
    alike = all(place.shape == places[0].shape and same_order(place.axes, places[0].axes, shape) for place in places)
    if not alike or any(tensor != root for tensor, _ in origins):
        raise combines(source, fragment)
    ahead = {name: table for name, (_, table) in zip(fragment.inputs, origins, strict=True)}
    table = table_of(cut(source, fragment.nodes, {name: ["codes"] for name in ahead}, [end]), ahead)
    build.add_tensor(end, shape, end)
    build.graph.layers.append(Pointwise(fragment.main.name, (root,), end, finish=CodeFinish(table=table)))
    build.add_view(end, Place(end, places[0].axes, source.shapes[end]))
    codes = random_codes(build, root)
    values = {place.tensor: apply_table(codes, table) for place, (_, table) in zip(places, origins, strict=True)}
    check_layers(build, fragment, first_layer, {**values, root: codes})


def _origin(graph: Graph, tensor: str) -> tuple[str, Int8]:
    """The tensor that another one is a table of, through tables in a row, and that table."""
    table = CODES
    producer = {layer.output: layer for layer in graph.layers}
    while (layer := producer.get(tensor)) is not None and layer.is_table:
        tensor, table = layer.input, apply_table(layer.table, table)
    return tensor, table

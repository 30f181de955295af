"""Lower products of two activations, compared with ONNX Runtime on every pair of codes."""

from __future__ import annotations

from .....golden.numerics.multiplication import product_scaling
from ....graph import Multiply
from ...building.build import Build
from ...building.elements import as_image
from ...building.layout import Place, image_shape
from ...fragments.fragments import MULTIPLICATION, Fragment, label
from ...fragments.lowering import refuses
from ...reading.errors import UnsupportedError
from .operands import add_checked, check_types, lie_alike, operands_of, reached, tabulate_pairs


@refuses(
    "the operands have other types",
    "none has the shape of the result",
    "what ONNX Runtime computes is not one scaling of all products",
)
def lower_multiplication(build: Build, fragment: Fragment) -> None:
    """Add the layer of a product, with a fused Relu or Clip."""
    source, end = build.source, fragment.outputs[0]
    node = next(node for node in fragment.nodes if node.op_type in MULTIPLICATION)
    names, scales, zero_points = operands_of(source, fragment, node)
    check_types(source, names, MULTIPLICATION[1])
    scaling = product_scaling(scales, zero_points, expected := tabulate_pairs(source, fragment, names))
    if scaling is None:
        raise UnsupportedError(
            f"no scaling that was tried gives ONNX Runtime's code for every product of {label(node)}",
            "choose another scale for its result",
        )
    first, second = (build.places[name] for name in names)
    points = zero_points[:2]
    if _is_vector(first, second):
        first, second, points = second, first, points[::-1]
    first_layer, spread = len(build.graph.layers), (1, 1)
    if _is_vector(second, first):
        first, second = (as_image(build, node, place) for place in (first, second))
        spread = build.shape_of(first)[:2]
    else:
        first, second = lie_alike(build, node, names)
        points = zero_points[:2]
    finish = reached(expected)
    layer = Multiply(node.name, (first.tensor, second.tensor), end, points, scaling, spread, finish=finish)
    add_checked(build, fragment, first, layer, first_layer)


def _is_vector(place: Place, of: Place) -> bool:
    """Whether a tensor has one element for each channel of a map ``of``, as ONNX broadcasts it."""
    is_map = image_shape(of.shape) is not None and place.shape != of.shape
    return is_map and place.shape == (1, of.shape[1], *(1 for _ in of.shape[2:]))

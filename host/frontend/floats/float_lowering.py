"""Lower a product that ONNX Runtime computes in float to the graph's Convolution, where the bytes are the same."""

from __future__ import annotations

import numpy as np

from ...graph.tabulate import code_offset
from ..building.build import Build
from ..building.checks import check_layers, random_codes
from ..building.layout import Place
from ..building.trunk import follow_trunk
from ..fragments.fragments import POOLING, Fragment
from ..fragments.lowering import refuses
from ..lowering.linear import add_convolution, check_zero_point
from .float_sums import read_float_product


@refuses(
    "its input has another zero point than it was quantised with",
    "some code depends on the order in which ONNX Runtime adds float32 numbers",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_float_product(build: Build, fragment: Fragment) -> None:
    """Add the layers of a product whose codes are those of the integer sum, and of the max pooling around it."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    product, first_layer = read_float_product(source, fragment), len(build.graph.layers)
    node, given = product.node, build.places[start]
    input_offset, output_offset = code_offset(source.types[start]), code_offset(source.types[end])
    check_zero_point(build, node, given, product.zero_points[0] - input_offset)
    place = follow_trunk(build, product.before, Place(given.tensor, given.axes, source.shapes[start]), start)
    place = Place(place.tensor, place.axes, source.shapes[node.input[0]])
    is_pooled = any(other.op_type in POOLING for other in product.after)
    multiplier = product.ends[0] * product.scales / product.ends[1]
    result = add_convolution(
        build,
        node,
        place,
        product.weights,
        product.bias,
        multiplier,
        node.output[0] if is_pooled else end,
        end,
        low=product.low - output_offset,
        high=product.high - output_offset,
    )
    build.add_view(end, follow_trunk(build, product.after, result, end, end))
    # Codes that the network never has need not be those of float32.
    bounds = (code - input_offset for code in product.codes)
    codes = np.clip(random_codes(build, given.tensor), *bounds).astype(np.int8)
    check_layers(build, fragment, first_layer, {given.tensor: codes})

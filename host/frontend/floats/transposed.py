"""Lower a transposed convolution: the convolution of all phases, depth to space, and a crop where that is too large."""

from __future__ import annotations

import numpy as np

from ...graph import CodeFinish, Convolution, Window, copies
from ...graph.tabulate import code_offset
from ..building.build import Build, image_place
from ..building.checks import check_layers, random_codes
from ..building.elements import as_image
from ..building.layout import CHANNELS_FIRST, Place
from ..building.transposed import geometry_of
from ..building.trunk import follow_trunk
from ..fragments.fragments import Fragment, Kind, label
from ..fragments.lowering import refuses
from ..lowering.linear import check_zero_point
from ..reading.errors import SPELL, UnsupportedError
from ..reading.source import Source
from .float_sums import read_float_product


def check_transposed(source: Source, fragment: Fragment) -> None:
    """Leave a transposed convolution to the host unless its bytes are those of the integer sum."""
    try:
        read_float_product(source, fragment).check()
    except UnsupportedError as error:
        why = error.reason or "more than a product of codes with quantised weights stands in it"
        fragment.kind = Kind.HOST
        fragment.reason, fragment.remedy = f"ONNX Runtime computes it in float, and {why}", SPELL


@refuses(
    "some code depends on the order in which ONNX Runtime adds float32 numbers",
    "its result is moved before it is quantised",
    "its input has another zero point than it was quantised with",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_transposed(build: Build, fragment: Fragment) -> None:
    """Add the layers of a ConvTranspose whose codes are those of the integer sum."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    product, first_layer, graph = read_float_product(source, fragment), len(build.graph.layers), build.graph
    node, given, name = product.node, build.places[start], product.node.output[0]
    if product.after:
        raise UnsupportedError(f"{label(product.after[0])} stands between {label(node)} and QuantizeLinear")
    input_offset, output_offset = code_offset(source.types[start]), code_offset(source.types[end])
    check_zero_point(build, node, given, product.zero_points[0] - input_offset)
    place = follow_trunk(build, product.before, Place(given.tensor, given.axes, source.shapes[start]), start)
    place = Place(place.tensor, place.axes, source.shapes[node.input[0]])
    place = as_image(build, node, place)
    image_place(build, node, place)
    geometry = geometry_of(source, node)
    phases, (rows, columns) = len(geometry.phases), geometry.whole
    shape = rows // geometry.strides[0], columns // geometry.strides[1], len(product.weights)
    # The convolution gives the output itself where there is one phase, and depth to space where that is all.
    is_cropped = geometry.whole != geometry.target
    wide = name if phases > 1 or is_cropped else end
    build.add_tensor(wide, shape, end)
    kernel = np.ascontiguousarray(product.weights.transpose(0, 2, 3, 1))
    graph.layers.append(
        Convolution(
            node.name,
            (place.tensor,),
            wide,
            weights=kernel,
            bias=np.ascontiguousarray(product.bias),
            multiplier=product.ends[0] * product.scales / product.ends[1],
            window=Window(kernel.shape[1:3], pads=geometry.pads),
            finish=CodeFinish(product.low - output_offset, product.high - output_offset),
            groups=geometry.groups,
        )
    )
    large, whole = wide, (rows, columns, shape[2] // phases)
    if phases > 1:
        large = build.own_name(f"{name} in whole") if is_cropped else end
        build.add_tensor(large, whole, end)
        moved = f"{node.name} phases", wide, large, shape, geometry.strides
        graph.layers.append(copies.depth_to_space(*moved, phases_first=geometry.phases_first))
    if is_cropped:
        build.add_tensor(end, (*geometry.target, whole[2]), end)
        pads = 0, 0, rows - geometry.target[0], columns - geometry.target[1]
        graph.layers.append(copies.crop(f"{node.name} rest", large, end, whole, pads))
    build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
    bounds = (code - input_offset for code in product.codes)
    codes = np.clip(random_codes(build, given.tensor), *bounds).astype(np.int8)
    check_layers(build, fragment, first_layer, {given.tensor: codes})

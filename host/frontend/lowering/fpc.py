"""Lower a fast pointwise convolution, a function of the model that stays whole, to its layer."""

from __future__ import annotations

from ...graph import CodeFinish, FastPointwise
from ..building.build import Build, image_place
from ..building.checks import check_layers
from ..building.elements import as_image
from ..building.layout import CHANNELS_FIRST, CHANNELS_LAST, Place
from ..fragments.fragments import Fragment, label
from ..fragments.lowering import refuses
from ..reading.errors import UnsupportedError


@refuses(
    "its input is no feature map with one or two spatial dimensions",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_fast_pointwise(build: Build, fragment: Fragment) -> None:
    """Add the layer of a fast pointwise convolution."""
    node, start, end = fragment.main, fragment.inputs[0], fragment.outputs[0]
    body, place = build.source.function(node), build.places[start]
    place = Place(place.tensor, place.axes, build.source.shapes[start])
    pattern, first_layer = body.stages.pattern, len(build.graph.layers)
    if len(place.shape) > 2:
        place = as_image(build, node, place)
        shape, axes = image_place(build, node, place), CHANNELS_FIRST
    else:
        shape, axes = build.shape_of(place), CHANNELS_LAST
        if shape != (1, 1, pattern.inputs):
            raise UnsupportedError(
                f"{label(node)} reads {shape[0]}x{shape[1]} pixels as the channels of a single one",
                "pool it to one pixel before",
            )
    build.add_tensor(end, (*shape[:2], pattern.outputs), end)
    build.graph.layers.append(
        FastPointwise(
            node.name,
            (place.tensor,),
            end,
            stages=body.stages,
            bias=body.finish.bias,
            scale=body.finish.scale,
            zero_point=body.zero_point,
            result_zero_point=body.finish.zero_point,
            finish=CodeFinish(body.finish.low, body.finish.high),
        )
    )
    build.add_view(end, Place(end, axes, build.source.shapes[end]))
    check_layers(build, fragment, first_layer)

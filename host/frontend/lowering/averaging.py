"""Lower average pooling to sums with unit weights, where ONNX Runtime's bytes are a function of the sum.

ONNX Runtime's global average of codes is one (``golden/numerics/convolution.py``). Its other averages are float32
means, whose rounding errors depend on the order of the elements; they are accepted where no reachable sum is so close
to a tie that these errors could decide.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto

from ....golden.numerics.convolution import average_multiplier
from ...graph import AveragePool, Window
from ...model.onnx_graph import attributes_of
from ..build import (
    CHANNELS_FIRST,
    Build,
    Place,
    are_powers_of_two,
    check_layers,
    image_place,
    image_shape,
    window_of,
)
from ..classify import quantisation_operands
from ..elements import as_image, follow_trunk
from ..fragments import AVERAGE, QUANTISERS, TRANSPARENT, Fragment, label
from ..source import UnsupportedError
from .lowering import refuses

_REMEDY = (
    "average the whole map with GlobalAveragePool, give input and output one scale and the window an odd number "
    "of elements, or use a convolution with a group for each channel"
)
_WHOLE_MAP = (
    "average the map with GlobalAveragePool, which ONNX Runtime computes in integers: `lutterfly quantize` does so "
    "with the float model, and docs/frontend.md has the lines of Python that do so in a quantised file (of PyTorch's "
    "PT2E)"
)
_NO_BORDER = "set count_include_pad to 1, or pool without padding"


@refuses(
    "the windows have elements of unequal weight",
    "it averages over other axes than all rows and columns",
    "ONNX Runtime's float32 roundings could depend on the order of the elements",
)
def lower_average(build: Build, fragment: Fragment) -> None:
    """Add the layer of an average pooling, and of the max pooling around it."""
    node = next(node for node in fragment.nodes if node.op_type in AVERAGE)
    at, start, end = fragment.nodes.index(node), fragment.inputs[0], fragment.outputs[0]
    before, after = (
        [other for other in nodes if other.op_type not in (*QUANTISERS, *TRANSPARENT)]
        for nodes in (fragment.nodes[:at], fragment.nodes[at + 1 :])
    )
    first_layer = len(build.graph.layers)
    place = follow_trunk(build, before, build.places[start], start)
    # Readers of codes may use another scale or zero point than the operator that computes them.
    (_, scale), *_ = quantisation_operands(fragment.nodes[0])
    entering = float(build.source.constants[scale].item())
    place = _average(build, node, place, node.output[0] if after else end, end, entering)
    build.add_view(end, follow_trunk(build, after, place, end, end))
    check_layers(build, fragment, first_layer)


def _average(build: Build, node: NodeProto, place: Place, output: str, like: str, entering: float) -> Place:
    place = Place(place.tensor, place.axes, build.source.shapes[node.input[0]])
    place = as_image(build, node, place)
    shape = image_place(build, node, place)
    onnx_shape = build.source.shapes[node.output[0]]
    window = _window(build, node, shape)
    elements, channels = math.prod(window.kernel), shape[2]
    counts = {elements} if _counts_border(node) else {*np.unique(window.counts(*shape[:2])).tolist()}
    if 0 in counts:
        raise UnsupportedError(f"{label(node)} has windows that lie in the border only", _NO_BORDER)
    build.add_tensor(output, (*window.output_size(*shape[:2]), channels), like)
    source, target = build.graph.tensors[place.tensor], build.graph.tensors[output]
    if node.op_type != "QLinearGlobalAveragePool":
        for count in sorted(counts, reverse=True):
            ends = (entering, source.zero_point), (target.scale, target.zero_point)
            remedy = _WHOLE_MAP if window.kernel == shape[:2] else _REMEDY
            check_ties(node, *ends, count, is_whole=count == elements, remedy=remedy)
    multipliers = {count: average_multiplier(entering, target.scale, count) for count in sorted(counts)}
    build.graph.layers.append(
        AveragePool(
            node.name,
            (place.tensor,),
            output,
            window=window,
            channels=channels,
            scale=multipliers[max(counts)],
            multipliers=multipliers if len(counts) > 1 else {},
        )
    )
    return Place(output, CHANNELS_FIRST, onnx_shape)


def _window(build: Build, node: NodeProto, shape: tuple[int, int, int]) -> Window:
    """Return the window, in which every element counts equally, except that padding may not count."""
    given, onnx_shape = attributes_of(node), build.source.shapes[node.output[0]]
    if node.op_type == "ReduceMean":
        _check_axes(build, node)
    if given.get("channels_last", 0):
        raise UnsupportedError(f"{label(node)} has channels_last", "import the model before ONNX Runtime optimises it")
    if "kernel_shape" not in given:
        return Window(shape[:2])
    kernel, output_shape = tuple(given["kernel_shape"]), image_shape(onnx_shape)
    window = window_of(node, kernel, len(kernel), shape, output_shape)
    if given.get("auto_pad", b"").startswith(b"SAME") and any(np.greater(window.stride, window.kernel)):
        raise UnsupportedError(
            f"{label(node)} has auto_pad and a stride larger than its kernel", "give it pads instead of auto_pad"
        )
    if not _counts_border(node):
        return window
    after = (0, 0, *given.get("pads", (0,)))[-len(kernel) :]
    if given.get("ceil_mode", 0) and any(np.greater(window.pads[-len(kernel) :], after)):
        raise UnsupportedError(f"{label(node)} averages fewer elements in its last windows", "set ceil_mode to 0")
    return window


def _counts_border(node: NodeProto) -> bool:
    return bool(attributes_of(node).get("count_include_pad", 0))


def _check_axes(build: Build, node: NodeProto) -> None:
    rank = len(build.source.shapes[node.input[0]])
    given = attributes_of(node).get("axes")
    if given is None and len(node.input) > 1 and node.input[1]:
        given = build.source.constants[node.input[1]].reshape(-1).tolist()
    axes = sorted(int(axis) % rank for axis in (range(rank) if given is None else given))
    if axes != list(range(2, rank)):
        raise UnsupportedError(
            f"{label(node)} averages over the axes {axes} of a tensor of rank {rank}",
            "average over the spatial axes alone",
        )


def check_ties(
    node: NodeProto,
    source: tuple[float, int],
    target: tuple[float, int],
    elements: int,
    *,
    is_whole: bool = True,
    remedy: str = _REMEDY,
) -> None:
    """Check that float32's rounding errors never decide a code, for windows of this many elements (all, or those
    inside).

    In fragments of the result's scale the mean is ``sum * ratio``. Dequantising rounds each element once, the mean adds
    them with ``elements - 1`` roundings, divides with up to two, and quantising with up to two more; each is relative
    to at most the greatest element. The rounding of the multiplier and the requantiser is within the same bound.

    Parameters
    ----------
    node : NodeProto
        For messages.
    source, target : (float, int)
        Scale and zero point, as an int8 code.
    elements : int
    is_whole : bool
        Whether these are all elements of the window.
    remedy : str
        For messages where they are.

    Raises
    ------
    UnsupportedError
    """
    (entering, zero_point), (leaving, middle) = source, target
    ratio = float(entering) / float(leaving) / elements
    ends = -128 - zero_point, 127 - zero_point
    # With scales and a number of elements that are powers of two, nothing is rounded before the code.
    if are_powers_of_two([entering, leaving, elements]) and elements * max(map(abs, ends)) <= 1 << 24:
        return
    sums = np.arange(elements * ends[0], elements * ends[1] + 1)
    values = sums * ratio
    bound = (elements + 8) * 2.0**-24 * max(map(abs, ends)) * ratio * elements
    # Beyond these everything saturates.
    values = values[(values > -129 - middle) & (values < 128 - middle)]
    distance = np.abs(values - np.floor(values) - 0.5)
    if values.size and distance.min() <= bound:
        where = "" if is_whole else " where its window reaches into the border"
        raise UnsupportedError(
            f"{label(node)} is a float mean of {elements} elements{where}, and for some sums their "
            "order decides the rounding",
            remedy if is_whole else _NO_BORDER,
        )

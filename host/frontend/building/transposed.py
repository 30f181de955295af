"""Geometry of a ConvTranspose, with the borders that ONNX Runtime chooses."""

from __future__ import annotations

from onnx import NodeProto

from ...model.transposed import Transposed, uncut_size
from ..fragments.fragments import label
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .build import attributes
from .layout import image_shape


def geometry_of(source: Source, node: NodeProto) -> Transposed:
    """How a ConvTranspose on one or two spatial dimensions computes.

    Raises
    ------
    UnsupportedError
        If it has more dimensions.
    """
    shapes = [source.shapes[name] for name in (node.input[0], node.output[0])]
    images = [image_shape(shape) for shape in shapes]
    if None in images:
        raise UnsupportedError(
            f"{label(node)} must work on one or two spatial dimensions, not on shape {list(shapes[0])}"
        )
    before, after = (image[:2] for image in images)
    rank, given = len(shapes[0]) - 2, attributes(node)
    lead = (1,) * (2 - rank)
    kernel = lead + tuple(source.constants[node.input[1]].shape[2:])
    strides, dilations = (lead + tuple(given.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    begin = (0,) * (2 - rank) + tuple(given.get("pads", (0,) * rank)[:rank])
    auto = given.get("auto_pad", b"NOTSET")
    if auto != b"NOTSET" or "output_shape" in given:
        more = (0,) * (2 - rank) + tuple(given.get("output_padding", (0,) * rank))
        totals = [
            max(uncut_size(before[axis], kernel[axis], strides[axis], dilations[axis], more[axis]) - size, 0)
            for axis, size in enumerate(after)
        ]
        begin = tuple(total // 2 if auto == b"SAME_UPPER" else total - total // 2 for total in totals)
    return Transposed(kernel, strides, dilations, begin, before, after, given.get("group", 1))

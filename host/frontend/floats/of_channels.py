"""Lower pointwise operators with a value for each channel: to a depthwise 1x1 convolution, where that gives every code
of every channel, else to a copy with a table for each channel.

A convolution with the weight w and the bias b computes ``m * (w * x + b)``, with a multiplier m of float32. A factor a
and an offset o in steps of the result need ``m * w = a`` and ``m * b = o``: of 127 weights, some has a bias that comes
near enough for all 256 codes, or there is none.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ....golden.numerics.convolution import Int32
from ....golden.numerics.requant import pack_parameters, requantise
from ...graph import Arrange, CodeFinish, Convolution, Int8, Selection, Window
from ...graph.boxes import MOST_PIECES, channel_runs
from ...graph.geometry import from_codes, to_codes
from ...graph.tabulate import CODES, open_part
from ...model.model_graph import expose
from ..building.build import Build, image_place
from ..building.checks import check_layers
from ..building.elements import as_image
from ..building.layout import CHANNELS_FIRST, Place
from ..fragments.fragments import Fragment, label
from ..fragments.lowering import refuses
from ..fragments.quantisation import quantisation
from ..reading.cut import cut
from ..reading.errors import UnsupportedError
from ..reading.source import Source

_WEIGHTS = range(1, 128)
Float64 = npt.NDArray[np.float64]
#: Sums beyond it are not exact in float32.
_GREATEST = 1 << 23
_REMEDY = (
    "quantise the float model with `lutterfly quantize`, which spells it as what has an integer form, or use one value "
    "for all channels"
)


@refuses(
    f"no convolution gives the codes of some channel, as they lie on no line or are rounded in between, "
    f"and tables of channels take more than {MOST_PIECES:,} pieces"
)
def lower_of_channels(build: Build, fragment: Fragment) -> None:
    """Add the layer of pointwise operators with a value for each channel."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    first_layer, node = len(build.graph.layers), _named(source, fragment)
    place = as_image(build, node, dataclasses.replace(build.places[start], shape=source.shapes[start]))
    shape = image_place(build, node, place)
    tables, steps = _tables(source, fragment)
    zero_points = build.graph.tensors[place.tensor].zero_point, quantisation(source, end)[1]
    bounds = int(tables.min()), int(tables.max())
    found = [_fitted(table, line, *zero_points, bounds) for table, line in zip(tables, steps, strict=True)]
    if None in found:
        build.add_tensor(end, shape, end)
        build.graph.layers.append(_looked_up(node, place.tensor, end, tables))
        build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
        check_layers(build, fragment, first_layer)
        return
    weights, biases, multipliers = zip(*found, strict=True)
    build.add_tensor(end, shape, end)
    build.graph.layers.append(
        Convolution(
            node.name,
            (place.tensor,),
            end,
            weights=np.array(weights, np.int8).reshape(-1, 1, 1, 1),
            bias=np.array(biases, np.int32),
            multiplier=np.array(multipliers, np.float32),
            window=Window((1, 1)),
            finish=CodeFinish(*bounds),
            groups=len(tables),
        )
    )
    build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _looked_up(node: NodeProto, source: str, end: str, tables: Int8) -> Arrange:
    """A copy in which every channel is looked up in its table, int8[channels, 256]; channels of one table together."""
    kinds, kind_of = np.unique(tables, axis=0, return_inverse=True)
    pieces = [
        Selection(0, taken[0], len(taken), targets[0], table, step=taken.step, spread=targets.step)
        for at, table in enumerate(kinds)
        for targets, taken in channel_runs(*[np.flatnonzero(kind_of.reshape(-1) == at)] * 2)
    ]
    if len(pieces) > MOST_PIECES:
        raise UnsupportedError(
            f"no depthwise convolution gives the codes of {label(node)}, and it has {len(kinds)} tables for "
            f"{len(tables)} channels, in {len(pieces)} pieces of at most {MOST_PIECES}",
            _REMEDY,
        )
    return Arrange(node.name, (source,), end, "tables of channels", tuple(pieces), window=Window((1, 1)))


def _named(source: Source, fragment: Fragment) -> NodeProto:
    """The first operator with a value for each channel."""
    constants = source.constants
    return next(
        node
        for node in fragment.nodes
        if any(name in constants and constants[name].size > 1 for name in node.input) or node is fragment.nodes[-1]
    )


def _tables(source: Source, fragment: Fragment) -> tuple[Int8, Float64]:
    """What ONNX Runtime makes of every code in every channel: int8[channels, 256], and the float values before it
    quantises them, in steps of the result.
    """
    start, end, last = fragment.inputs[0], fragment.outputs[0], fragment.nodes[-1]
    channels, *sizes = source.shapes[start][1:]
    shape = (1, channels, *(256 if at == len(sizes) - 1 else 1 for at in range(len(sizes))))
    session = open_part(expose(cut(source, fragment.nodes, {start: shape}, [end]), last.input[:1]))
    codes = np.broadcast_to(from_codes(CODES, source.types[start]), shape)
    results, values = session.run([end, last.input[0]], {start: np.ascontiguousarray(codes)})
    steps = values.astype(np.float64) / float(source.constants[last.input[1]].item())
    return to_codes(results.reshape(channels, 256)), steps.reshape(channels, 256)


def _fitted(
    table: Int8, steps: Float64, source_zero: int, target_zero: int, bounds: tuple[int, int]
) -> tuple[int, int, np.float32] | None:
    """Weight, bias and multiplier that give a table, int8[256], within the bounds of all tables, if there are some.

    ``steps``, float64[256], lie on a line where nothing cuts them.
    """
    if (table == table[0]).all():
        return 0, int(table[0]) - target_zero, np.float32(1)
    inner = np.flatnonzero((table > table.min()) & (table < table.max()))
    # Of two codes there is no code between: a step where the line is.
    first, last = (inner[0], inner[-1]) if len(inner) > 1 else (at := int(np.diff(table != table[0]).argmax()), at + 1)
    inputs = CODES.astype(np.int64) - source_zero
    slope = (steps[last] - steps[first]) / (last - first)
    if not np.isfinite(slope) or not slope:
        return None
    offset = steps[first] - slope * inputs[first]
    for size in _WEIGHTS:
        weight, bias = int(np.sign(slope)) * size, round(offset / slope * np.sign(slope) * size)
        multiplier = np.float32(abs(slope) / size)
        if abs(bias) > _GREATEST:
            break
        sums = (inputs * weight + bias).astype(np.int32)
        if np.array_equal(_requantised(sums, multiplier, target_zero, bounds), table):
            return weight, bias, multiplier
    return None


def _requantised(sums: Int32, multiplier: np.float32, zero_point: int, bounds: tuple[int, int]) -> Int8:
    parameters = pack_parameters(np.zeros(1, np.int32), np.array([multiplier]))
    return requantise(sums[:, None], parameters, zero_point, *bounds)[:, 0]

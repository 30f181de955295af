"""Max pooling and pointwise tables: windows on the lane-wise maximum, each lane a byte of its own."""
from __future__ import annotations

import numpy as np

from ...golden.isa import Engine, Opcode
from ..graph import Layer
from .folding import window_pitches
from .lower_convolution import interior
from .plan import Command, Plan, window_of


def lower_lanewise(plan: Plan, index: int, layer: Layer) -> list[Command]:
    """The command of a max pooling, or of a table on every code (a window of one element).

    Where windows lie side by side, a row of results is one run of bytes whatever the channels, and a whole map is one
    if its rows lie side by side too; a tile is then ``lanes`` bytes of the run. Else a tile is ``lanes`` channels of a
    pixel.

    Parameters
    ----------
    plan : Plan
        With addresses; its constants are added to.
    index : int
        Of the layer.
    layer : MaxPool or Pointwise
    """
    source, target = plan.storages[layer.input], plan.storages[layer.output]
    window, lanes, channels = window_of(layer), plan.config.array.lanes, target.channels
    row, column = np.ogrid[:window.kernel[0], :window.kernel[1]]
    taps = (row * window.dilation[0] * source.row_pitch + column * window.dilation[1] * channels).reshape(-1)
    first, below, beside = window_pitches(window, source)

    if window.stride[1] > 1:
        run, middle, inner = channels, target.height, target.width
    elif source.is_dense and target.is_dense and window.kernel[1] == 1 and window.stride[0] == 1:
        run, middle, inner = target.height * target.width * channels, 1, 1
    else:
        run, middle, inner = target.width * channels, 1, target.height
        beside = below
    tiles = -(-run // lanes)
    last_lanes = run - (tiles - 1) * lanes
    fields = {
        "engine": Engine.MAXIMUM, "tile_inner": 0,
        "outer": tiles, "middle": middle, "inner": inner,
        "steps": len(taps),
        "list": plan.constants.add_list(taps),
        "source": first, "source_outer": lanes, "source_middle": below, "source_inner": beside,
        "destination": target.origin, "destination_outer": lanes, "destination_middle": target.row_pitch,
        "destination_inner": channels if window.stride[1] > 1 else target.row_pitch,
        "parameter": plan.constants.identity_parameters(), "parameter_shared": 1,
        "lanes": lanes if tiles > 1 else last_lanes, "last_lanes": last_lanes,
        "zero_point": 0, "low": -128, "high": 127,
        "table_enable": int(index in plan.tables), "table": plan.tables.get(index, 0),
    }
    y, x, channel = np.ogrid[:target.height, :target.width, :channels]
    windows = first + y * below + x * window.stride[1] * channels + channel
    reads = windows[..., None] + taps
    return [Command(Opcode.COMPUTE, fields, index, reads.reshape(-1), interior(target, 0, target.height))]

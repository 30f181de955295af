"""Convolutions and fully connected layers: windows on the multiplier array."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...golden.isa import Engine, Opcode
from ..graph import Convolution
from .folding import cover, tap_offsets, window_pitches
from .plan import Addresses, Command, CompileError, Plan, Storage


def lower_convolution(plan: Plan, index: int, layer: Convolution, row_groups: tuple[int, ...]) -> list[Command]:
    """Commands of one convolution.

    Parameters
    ----------
    plan : Plan
        With addresses; its constants are added to.
    index : int
        Of the layer.
    layer : Convolution
    row_groups : tuple of int
        Output rows of each command. The tile loop is then the innermost one, so that each row of the input is done with
        in one go. Empty for one command, which takes a tile's weights for all pixels before the next tile's.

    Raises
    ------
    CompileError
        If the layer's scales are out of range.
    """
    source, target = plan.storages[layer.input], plan.storages[layer.output]
    array = plan.config.array
    outputs, _, _, channels = layer.weights.shape
    offsets = tap_offsets(layer.window, channels, source)
    starts = cover(offsets, array.lanes)
    first, below, beside = window_pitches(layer.window, source)
    tiles = -(-outputs // array.columns)
    last_lanes = outputs - (tiles - 1) * array.columns
    try:
        parameter = plan.constants.add_parameters(layer.bias, layer.multiplier)
    except (TypeError, ValueError) as error:
        raise CompileError(f"{layer.name}: {error}") from error
    common = {
        "engine": Engine.MAC,
        "steps": len(starts),
        "list": plan.constants.add_list(starts),
        "weight": plan.constants.add_weights(weight_words(layer.weights, offsets, starts, array.lanes, array.columns)),
        "parameter": parameter,
        "lanes": array.columns if tiles > 1 else last_lanes,
        "last_lanes": last_lanes,
        "zero_point": plan.graph.tensors[layer.requantised or layer.output].zero_point,
        "low": layer.low,
        "high": layer.high,
        "table_enable": int(index in plan.tables),
        "table": plan.tables.get(index, 0),
    }
    commands, row = [], 0
    for rows in row_groups or (target.height,):
        loops = (rows, target.width, tiles) if row_groups else (tiles, rows, target.width)
        sources = (below, beside, 0) if row_groups else (0, below, beside)
        tile_pitch, row_pitch = array.columns, target.row_pitch
        targets = (row_pitch, target.channels, tile_pitch) if row_groups else (tile_pitch, row_pitch, target.channels)
        fields = {**common, "tile_inner": int(bool(row_groups)), "source": first + row * below,
                  "destination": target.origin + row * row_pitch}
        for name, count, source_pitch, target_pitch in zip(
            ("outer", "middle", "inner"), loops, sources, targets, strict=True
        ):
            fields |= {name: count, f"source_{name}": source_pitch, f"destination_{name}": target_pitch}
        y, x = np.ogrid[row:row + rows, :target.width]
        reads = (first + y * below + x * beside)[..., None] + offsets.reshape(-1)
        commands.append(Command(Opcode.COMPUTE, fields, index, reads.reshape(-1), interior(target, row, rows)))
        row += rows
    return commands


def weight_words(
    weights: npt.NDArray[np.int8], offsets: Addresses, starts: Addresses, lanes: int, columns: int
) -> npt.NDArray[np.int8]:
    """Weights in the order of use: each where its activation byte comes in, zeros at the bytes between.

    Parameters
    ----------
    weights : int8[outputs, kernel rows, kernel columns, channels]
    offsets : int64[kernel rows, kernel columns, channels]
    starts : int64[steps]
        First byte of each word, see :func:`~.folding.cover`.
    lanes, columns : int

    Returns
    -------
    int8[tiles * steps, columns, lanes]
    """
    outputs, steps = len(weights), len(starts)
    tiles = -(-outputs // columns)
    flat = offsets.reshape(-1)
    step = np.searchsorted(starts, flat, side="right") - 1
    words = np.zeros((tiles * columns, steps, lanes), np.int8)
    words[:outputs, step, flat - starts[step]] = weights.reshape(outputs, -1)
    return np.ascontiguousarray(words.reshape(tiles, columns, steps, lanes).transpose(0, 2, 1, 3)).reshape(
        -1, columns, lanes
    )


def interior(storage: Storage, row: int, rows: int) -> Addresses:
    """Addresses of some rows of a tensor, without border: int64[rows * width * channels]."""
    y, byte = np.ogrid[row:row + rows, :storage.width * storage.channels]
    return (storage.origin + y * storage.row_pitch + byte).reshape(-1)

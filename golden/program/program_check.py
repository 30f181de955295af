"""Checks of every program, whoever wrote its file: addresses within the arena, consistent sizes.

The accelerator checks the commands themselves: it stops with an error that names the first wrong one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..elements import BINARY_BITS, CODE_BITS
from ..isa import COMMAND_BYTES, EXTERNAL_BITS, LOCAL_BITS
from ..units import MOST_CORES, Queue
from .outline import NONE, LayerOutline, Outline

if TYPE_CHECKING:
    from .program import CoreProgram, Port, Program, QueueProgram, WrittenTensor

#: Cycles are counted in a register.
_CYCLES = 1 << 32
_MOST = (1 << 63) - 1


def check(program: Program) -> None:
    """Check a program as a whole.

    Raises
    ------
    ValueError
        If a number is out of range; the message names it as ``lutterfly.golden.program.program`` does.
    """
    _between("config_hash", program.config_hash, 0, (1 << 32) - 1)
    _between("arena_bytes", program.arena_bytes, 1, 1 << EXTERNAL_BITS)
    _between("predicted_cycles", program.predicted_cycles, 1, _CYCLES - 1)
    _between("batch", program.batch, 1, program.arena_bytes)
    _between("cores", len(program.cores), 1, MOST_CORES)
    _between("body_bytes", program.body_bytes, 1, program.arena_bytes)
    for core in program.cores:
        _check_core(core, program)
    _in_arena("constants", program.constants_address, len(program.constants), program.arena_bytes)
    _in_arena("streamed", program.streamed_address, len(program.streamed), program.body_bytes)
    for kind, ports in (("inputs", program.inputs), ("outputs", program.outputs)):
        names = [port.name for port in ports]
        if not ports or len(set(names)) != len(names):
            raise ValueError(f"{kind} must be one or more, with different names, not {', '.join(names) or 'none'}")
        for port in ports:
            _check_port(port, program)
    if program.outline != Outline():
        _check_outline(program)


def _check_core(core: CoreProgram, program: Program) -> None:
    for run, queues, room in (
        ("prologue", core.prologue, program.arena_bytes),
        ("body", core.body, program.body_bytes),
    ):
        for queue in Queue:
            _check_queue(f"{run}.{queue.value}", queues[queue], room)
    commands = len(core.body.compute)
    for layer in core.layers:
        _check_layer(layer, commands)
    for tensor in core.written:
        _check_written(tensor, commands)
    for spilled in core.spilled:
        _check_elements(spilled.name, spilled.shape, spilled.bits)
        _check_order(spilled.name, spilled.order, spilled.channel + spilled.shape[2])
        _between(f"{spilled.name}: row", spilled.row, 0, program.body_bytes)
        _between(f"{spilled.name}: channel", spilled.channel, 0, program.body_bytes)
        _in_arena(spilled.name, spilled.address, spilled.size_bytes, program.body_bytes)


def _check_queue(name: str, queue: QueueProgram, room: int) -> None:
    size = len(queue.commands)
    if not size or size % COMMAND_BYTES:
        raise ValueError(f"{name}.commands must be whole commands of {COMMAND_BYTES} bytes, not {size} bytes")
    if queue.address % COMMAND_BYTES:
        raise ValueError(f"{name}.address must be a multiple of {COMMAND_BYTES}, not {queue.address}")
    _in_arena(name, queue.address, size, room)


def _check_port(port: Port, program: Program) -> None:
    _check_elements(port.name, port.shape, port.bits)
    if sorted(port.onnx_axes) != [0, 1, 2]:
        raise ValueError(f"{port.name}: onnx_axes must be 0, 1 and 2 in some order, not {port.onnx_axes}")
    shape = port.onnx_shape
    if len(port.addresses) not in {1, len(program.cores)} or len(port.addresses) != program.shares:
        raise ValueError(
            f"{port.name}: addresses must be 1 or one for each of {len(program.cores)} cores, as those of all ports, "
            f"not {len(port.addresses)}"
        )
    elements = math.prod(port.shape) * program.shares
    if not shape or min(shape) < 1 or math.prod(shape) != elements or shape[0] % program.batch:
        raise ValueError(
            f"{port.name}: onnx_shape must be one of {elements} elements whose first axis is a multiple of the "
            f"batch ({program.batch}), not {shape}"
        )
    for address in port.addresses:
        _in_arena(port.name, address, port.size_bytes, program.body_bytes)


def _check_layer(layer: LayerOutline, commands: int) -> None:
    _check_commands(layer.name, layer.commands, commands)
    _between(f"{layer.name}: at_once", layer.at_once, 1, 8)
    _between(f"{layer.name}: live_connections", layer.live_connections, 0, layer.connections)
    _between(f"{layer.name}: dense_words", layer.dense_words, 1, (1 << 31) - 1)
    for name, words in (("words", layer.words), ("model_words", layer.model_words)):
        _between(f"{layer.name}: {name}", words, 1, layer.dense_words)
    for name, value in (
        ("macs", layer.macs),
        ("cycles", layer.cycles),
        ("array_cycles", layer.array_cycles),
        ("bus_cycles", layer.bus_cycles),
        ("dense_cycles", layer.dense_cycles),
        ("connections", layer.connections),
        ("copied_bytes", layer.copied_bytes),
        ("loaded_bytes", layer.loaded_bytes),
        ("stored_bytes", layer.stored_bytes),
        ("weight_bytes", layer.weight_bytes),
        ("streamed_weight_bytes", layer.streamed_weight_bytes),
        ("feature_bytes", layer.feature_bytes),
    ):
        _between(f"{layer.name}: {name}", value, 0, _MOST)


def _check_written(tensor: WrittenTensor, commands: int) -> None:
    _check_commands(tensor.name, (tensor.command,), commands)
    _check_elements(tensor.name, tensor.shape, tensor.bits)
    _check_order(tensor.name, tensor.order, tensor.channel + tensor.shape[2])
    for name, value in (
        ("address", tensor.address),
        ("row_pitch", tensor.row_pitch),
        ("pixel_pitch", tensor.pixel_pitch),
        ("shape", tensor.size_bytes),
        ("row", tensor.row),
        ("channel", tensor.channel),
    ):
        _between(f"{tensor.name}: {name}", value, 0, 1 << LOCAL_BITS)


def _check_outline(program: Program) -> None:
    """Check that the outline names nothing that the program does not have, and knows every command."""
    for core in program.cores:
        _check_core_outline(core)
    for row in program.outline.rows:
        _within(f"outline.rows: layers of {row.name}", (len(row.layers),), len(program.cores), len(program.cores) + 1)
        for number, core in zip(row.layers, program.cores, strict=True):
            _within(f"outline.rows: layer of {row.name}", (number,), NONE, len(core.layers))
        if row.where not in ("accelerator", "host"):
            raise ValueError(f"outline.rows: where of {row.name} must be accelerator or host, not {row.where}")
    for one in program.outline.tried:
        _within("outline.tried: layers", (one.row_layers, one.channel_layers, one.wide_layers), 0, _MOST)
        _within("outline.tried: cycles", (one.predicted_cycles, one.least_cycles), 0, _MOST)


def _check_core_outline(core: CoreProgram) -> None:
    # END is left out.
    commands, layers = {queue: len(core.body[queue]) - 1 for queue in Queue}, len(core.layers)
    for queue, own in commands.items():
        outline, name = core.outline[queue], f"outline.{queue.value}"
        for column in dataclasses.fields(outline):
            found = len(getattr(outline, column.name))
            if found != own:
                raise ValueError(f"{name}.{column.name} must be {own}, one for each command, not {found}")
        _within(f"{name}.layers", outline.layers, NONE, layers)
        _within(f"{name}.waits_for", outline.waits_for, NONE, commands[queue.peer])
        _within(f"{name}: cycles", (*outline.begins, *outline.ends), 0, _MOST)
    for block in core.outline.blocks:
        _within("outline.blocks: layers", block.layers, 0, layers)
        _within("outline.blocks: bytes", (block.address, block.size_bytes), 0, _MOST)
        if block.tables and len(block.tables) != block.size_bytes:
            raise ValueError(f"outline.blocks: tables must be {block.size_bytes} bytes, not {len(block.tables)}")
    for place in core.outline.placed:
        name = f"outline.placed: {place.tensor}"
        _within(f"{name}: dma", place.dma, 0, commands[Queue.DMA])
        _within(f"{name}: compute", (*place.written, *place.read), 0, commands[Queue.COMPUTE])
        if not (*place.dma, *place.written, *place.read):
            raise ValueError(f"{name} must have commands that touch it, and has none")


def _check_commands(name: str, indices: Iterable[int], commands: int) -> None:
    if not indices or not all(0 <= index < commands for index in indices):
        raise ValueError(f"{name}: commands must be some of the {commands} in the compute queue, not {indices}")


def _check_elements(name: str, shape: tuple[int, int, int], bits: int) -> None:
    if min(shape) < 1:
        raise ValueError(f"{name}: shape must be positive in all axes, not {shape}")
    if bits not in (CODE_BITS, BINARY_BITS):
        raise ValueError(f"{name}: bits must be {CODE_BITS} or {BINARY_BITS}, not {bits}")


def _check_order(name: str, order: tuple[int, ...], channels: int) -> None:
    if order and (len(order) < channels or sorted(order) != list(range(len(order)))):
        raise ValueError(f"{name}: order must name each of at least {channels} channels once, or none, not {order}")


def _in_arena(name: str, address: int, size_bytes: int, room: int) -> None:
    if not 0 <= address <= address + size_bytes <= room:
        raise ValueError(f"{name} must be in the first {room} bytes of the arena, not {size_bytes} bytes at {address}")


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, not {value}")


def _within(name: str, values: Iterable[int], first: int, end: int) -> None:
    wrong = [value for value in values if not first <= value < end]
    if wrong:
        raise ValueError(f"{name} must be from {first} to {end - 1}, not {wrong[0]}")

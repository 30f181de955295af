"""Limits of the commands that move data."""

from __future__ import annotations

from collections.abc import Iterator

from cocotb_tests.support.edges.case import (
    PAGE,
    Case,
    base_fields,
    dma_case,
    layout,
    load_command,
)
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import find_memory
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory, memories


def transfers(config: Config) -> Iterator[Case]:
    """LOAD, STORE and FILL: counts, and where they begin and end."""
    size = config.memory.feature_bytes
    _, free, end = layout(config)
    for name, opcode, counts in (
        ("LOAD", Opcode.LOAD, ("rows", "folds", "row_pieces", "piece_bytes")),
        ("STORE", Opcode.STORE, ("rows", "row_bytes")),
        ("FILL", Opcode.FILL, ("rows", "piece_bytes")),
    ):
        fmt, base = isa.FORMATS[opcode], base_fields(opcode, config)
        bytes_name = "row_bytes" if opcode is Opcode.STORE else "piece_bytes"
        for count in counts:
            for value in (1, 0):
                yield dma_case(f"{name} {count} {value}", value == 1, fmt.encode(**base | {count: value}))
        for count in (1, 9):
            for at in (size - count, size - count + 1):
                yield dma_case(
                    f"{name} of {count} bytes at {at}",
                    at + count == size,
                    fmt.encode(**base | {bytes_name: count, "local": at}),
                )
        for rows in (2, 3):
            yield dma_case(
                f"{name} of {rows} rows at the end",
                rows == 2,
                fmt.encode(**base | {"rows": rows, "local": size - 16, "local_row": 8}),
            )
        for at in (1, 0):
            yield dma_case(
                f"{name} at {at} and a pitch of -1",
                at == 1,
                fmt.encode(**base | {"rows": 2, "local": at, "local_row": -1}),
            )
        if opcode is Opcode.FILL:
            continue
        for at in (end - 8, end):
            yield dma_case(f"{name} external {at}", at < end, fmt.encode(**base | {"external": at}))
        for rows in (2, 3):
            yield dma_case(
                f"{name} external of {rows} rows",
                rows == 2,
                fmt.encode(**base | {"rows": rows, "external": end - 2 * PAGE, "external_row": PAGE, "local_row": 8}),
            )
    yield from _local_memories(config, free)
    # The longest run that there is, and one byte more: the first ends at once, for want of memory.
    for pieces, length in ((65535, 65537), (32768, 131072)):
        yield dma_case(
            f"LOAD {pieces} pieces of {length} bytes",
            False,
            load_command(external=end, row_pieces=pieces, piece_bytes=length),
        )


def _local_memories(config: Config, free: int) -> Iterator[Case]:
    for code in range(32):
        known = code in memories(config)
        unit = find_memory(code).write_bytes(config.array.lanes) if known else 8
        yield dma_case(f"LOAD memory {code}", known, load_command(external=free, memory=code, piece_bytes=unit))
        if not known or code == LocalMemory.FEATURE:
            continue
        memory = find_memory(code)
        base = {"external": free, "memory": code, "piece_bytes": unit}
        for count in ("rows", "folds", "row_pieces"):
            yield dma_case(f"LOAD {memory.name} {count} 2", False, load_command(**base | {count: 2}))
        size = config.size_bytes(memory)
        for at in (size - unit, size):
            yield dma_case(f"LOAD {memory.name} at {at}", at < size, load_command(**base | {"local": at}))
        for units in (2, 3):
            yield dma_case(
                f"LOAD {memory.name} of {units} units at the end",
                units == 2,
                load_command(**base | {"local": size - 2 * unit, "piece_bytes": units * unit}),
            )
        if unit > 1:
            for name in ("local", "piece_bytes"):
                for value in (unit, unit + 1, 2 * unit - 1):
                    yield dma_case(
                        f"LOAD {memory.name} {name} {value}", value == unit, load_command(**base | {name: value})
                    )

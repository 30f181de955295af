"""One small program at a limit, and the parts that such programs are made of.

Its memories are filled before it runs (:func:`images`), so that every byte that it may read is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cocotb_tests.support.edges.programs import place
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, ENGINES, FPC, MAC, MULTIPLY
from lutterfly.golden.engines.add import ENTRIES, ENTRY_BITS
from lutterfly.golden.isa import Opcode
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.numerics.requant import pack_parameters
from lutterfly.golden.program.program import QueueProgram, Queues

PAGE = 4096
#: Of every program: commands that do nothing, so that an index of zero is no accident.
LEAD = 2
SYNC, END = isa.SYNC.encode(), isa.END.encode()


@dataclass(frozen=True)
class Case:
    """Two queues, and whether they run to their ends; ``entries`` of the step lists replace those of the image."""

    name: str
    legal: bool
    dma: tuple[bytes, ...] = (END,)
    compute: tuple[bytes, ...] = (END,)
    entries: dict[int, int] = field(default_factory=dict)


def layout(config: Config) -> tuple[dict[LocalMemory, int], int, int]:
    """Where the images of the memories lie in the arena, where transfers may write, and its size."""
    places, at = {}, 64 * PAGE
    for memory in memories(config):
        places[memory] = at
        at += -(-config.size_bytes(memory) // PAGE) * PAGE
    return places, at, at + 4 * PAGE


def images(config: Config, entries: dict[int, int], rng: np.random.Generator) -> dict[LocalMemory, np.ndarray]:
    """What the memories hold: random values that mean something, and lists of one step."""
    filled = {memory: rng.integers(0, 256, config.size_bytes(memory), dtype=np.uint8) for memory in memories(config)}
    # Whatever a depthwise window reads before its first word, no column but the first multiplies it.
    weights = filled[LocalMemory.WEIGHT].reshape(config.weight_words, config.array.columns, config.array.lanes)
    weights[:, 1:] = 0
    count = config.parameter_words * config.array.requant_lanes
    scales = np.exp2(rng.uniform(-10, -5, count)).astype(np.float32)
    filled[LocalMemory.PARAMETER][:] = pack_parameters(rng.integers(-999, 999, count, dtype=np.int32), scales).view(
        np.uint8
    )
    if ADD.memory in filled:
        limit = 1 << ENTRY_BITS - 2
        sums = rng.integers(-limit, limit, config.engines[ADD].tables * ENTRIES, dtype=np.int64)
        filled[ADD.memory][:] = sums.view(np.uint8)
    lists = np.full(config.memory.list_entries, isa.LIST_CLEAR | isa.LIST_FIRE, np.uint32)
    for index, entry in entries.items():
        lists[index] = entry
    filled[LocalMemory.LIST][:] = lists.view(np.uint8)
    return filled


def arena_of(case: Case, config: Config) -> tuple[np.ndarray, Queues, Queues]:
    """External memory, the prologue that fills the local memories, and the case's own queues."""
    rng = np.random.default_rng(11)
    places, _, size = layout(config)
    arena = rng.integers(0, 256, size, dtype=np.uint8)
    filled = images(config, case.entries, rng)
    loads = []
    for memory, address in places.items():
        arena[address : address + len(filled[memory])] = filled[memory]
        loads.append(load_command(external=address, memory=memory, piece_bytes=len(filled[memory])))
    prologue = Queues(QueueProgram(b"".join([*loads, END]), 0), QueueProgram(END, PAGE))
    body = Queues(QueueProgram(b"".join(case.dma), 2 * PAGE), QueueProgram(b"".join(case.compute), 32 * PAGE))
    for queues in (prologue, body):
        place(arena, queues)
    return arena, prologue, body


def dma_case(name: str, legal: bool, *commands: bytes) -> Case:
    return Case(name, legal, dma=(*[SYNC] * LEAD, *commands, END))


def compute_case(name: str, legal: bool, entries: dict[int, int] | None = None, **fields: int) -> Case:
    engine = ENGINES.get(fields.get("engine", MAC))
    command = (engine.format if engine is not None else isa.COMPUTE).encode(**fields)
    return Case(name, legal, compute=(*[SYNC] * LEAD, command, END), entries=entries or {})


def pair(name: str, last: int, first: int, make) -> Iterator[Case]:
    """The last legal value and the first illegal one."""
    yield make(f"{name} {last}", True, last)
    yield make(f"{name} {first}", False, first)


def load_command(**fields: int) -> bytes:
    return isa.LOAD.encode(**{"rows": 1, "folds": 1, "row_pieces": 1, "piece_bytes": 8} | fields)


def base_fields(opcode: Opcode, config: Config) -> dict[str, int]:
    """A legal command."""
    _, free, _ = layout(config)
    return {
        Opcode.LOAD: {"external": free, "rows": 1, "folds": 1, "row_pieces": 1, "piece_bytes": 8},
        Opcode.STORE: {"external": free, "rows": 1, "row_bytes": 8},
        Opcode.FILL: {"rows": 1, "piece_bytes": 8, "value": 7},
        Opcode.COMPUTE: mac_fields(config),
    }.get(opcode, {})


def mac_fields(config: Config) -> dict[str, int]:
    """A convolution of one window, from the lower half of the feature memory to the upper one."""
    counts = dict.fromkeys(("outer", "middle", "inner", "steps", "lanes", "last_lanes"), 1)
    return counts | {"destination": config.memory.feature_bytes // 2, "low": -128, "high": 127}


def engine_fields(config: Config, engine: int) -> tuple[dict[str, int], dict[int, int]]:
    """A command of an engine, legal if there is that engine, and the entries of its list."""
    fields = mac_fields(config) | {"engine": engine, "list": 8}
    if engine in (ADD, MULTIPLY):
        return fields | {"steps": 2}, {8: isa.LIST_CLEAR, 9: isa.LIST_FIRE | 64}
    if engine == DEPTHWISE:
        return fields | {"rows": 1}, {8: isa.LIST_CLEAR | isa.LIST_FIRE}
    if engine == FPC:
        return fields | {"stages": 1, "channels": 1}, {}
    return fields, {}

"""Programs made by hand: small ones with other commands, and the limits of every command.

Of each limit there is a program at the last legal value and one at the first illegal one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, ENGINES, FPC, MAC, MAXIMUM, MULTIPLY, find_memory
from lutterfly.golden.engines.add import ENTRIES, ENTRY_BITS
from lutterfly.golden.isa import COMMAND_BITS, Opcode, fields_end
from lutterfly.golden.machine.write_back import packs
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.numerics.requant import pack_parameters
from lutterfly.golden.program.program import Program, QueueProgram, Queues
from lutterfly.golden.units import Queue

# Programs with other commands, and arenas that hold them.


def with_body(program: Program, body: Queues) -> Program:
    """The program with other commands for an inference."""
    return dataclasses.replace(program, cores=(dataclasses.replace(program.cores[0], body=body),))


def with_commands(queues: Queues, queue: Queue, commands: bytes) -> Queues:
    """The same with other commands in one queue, at the same place."""
    return dataclasses.replace(queues, **{queue.value: QueueProgram(commands, queues[queue].address)})


def place(arena: np.ndarray, queues: Queues) -> None:
    """Put the commands where they belong in the arena uint8[arena_bytes]."""
    for queue in Queue:
        start, commands = queues[queue].address, queues[queue].commands
        arena[start : start + len(commands)] = np.frombuffer(commands, np.uint8)


# One small program at a limit, and the parts that such programs are made of.
#
# Its memories are filled before it runs (:func:`images`), so that every byte that it may read is known.

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


# Limits of what queues look at: headers, programs and tokens.


def headers(config: Config) -> Iterator[Case]:
    """Opcodes, and bits that belong to no field."""
    for queue in Queue:
        opcodes = isa.opcodes(queue, config.cores)
        for code in range(16):
            if code in opcodes:
                word = isa.FORMATS[Opcode(code)].encode(**base_fields(Opcode(code), config))
            else:
                word = bytes([code]) + bytes(isa.COMMAND_BYTES - 1)
            words = (*[SYNC] * LEAD, word, END)
            yield Case(f"{queue.unit.name} opcode {code}", code in opcodes, **{queue.value: words})
        for opcode in opcodes:
            fmt = isa.FORMATS[opcode]
            word = int.from_bytes(fmt.encode(**base_fields(opcode, config)), "little")
            end = max(entry.lsb + entry.width for entry in fmt.fields)
            reserved = fmt.field("reserved")
            # The last bit of a field is tried with its limits; here, those that belong to none.
            for bit in {reserved.lsb, reserved.lsb + reserved.width - 1, end, COMMAND_BITS - 1}:
                changed = (word | 1 << bit).to_bytes(isa.COMMAND_BYTES, "little")
                words = (*[SYNC] * LEAD, changed, END)
                yield Case(f"{queue.unit.name} {opcode.name} bit {bit}", False, **{queue.value: words})
    argument = isa.COMPUTE.field("argument")
    for engine in config.engines:
        word = int.from_bytes(engine.format.encode(**engine_fields(config, engine)[0]), "little")
        for bit in {fields_end(config.engines.fields(engine)), argument.width - 1}:
            changed = (word | 1 << argument.lsb + bit).to_bytes(isa.COMMAND_BYTES, "little")
            yield Case(f"{engine.name} argument bit {bit}", False, compute=(*[SYNC] * LEAD, changed, END))
    for code in range(16):
        fields, entries = engine_fields(config, code)
        yield compute_case(f"engine {code}", code in config.engines, entries, **fields)


def programs(config: Config) -> Iterator[Case]:
    """Ends of programs and of their rings, and tokens."""
    resident = config.resident_commands
    for queue in Queue:
        for count in (1, resident - 1, resident, resident + 1, 2 * resident, 2 * resident + 1):
            yield Case(f"{queue.unit.name} of {count} commands", True, **{queue.value: (*[SYNC] * (count - 1), END)})
            yield Case(f"{queue.unit.name} of {count} commands, none END", False, **{queue.value: (SYNC,) * count})
        for given, taken in ((255, 255), (255, 256), (256, 255)):
            giver = [isa.SYNC.encode(signal=min(255, given - at)) for at in range(0, given, 255)]
            words = {queue.peer.value: (*giver, END), queue.value: (isa.SYNC.encode(wait=taken), END)}
            yield Case(f"{queue.unit.name} takes {taken} of {given} tokens", given == taken, **words)
        most = (1 << 16) - 1
        yield Case(
            f"{queue.unit.name} takes {most} tokens",
            True,
            **{
                queue.peer.value: (*[isa.SYNC.encode(signal=255)] * (most // 255), END),
                queue.value: (isa.SYNC.encode(wait=most), END),
            },
        )
    yield Case("END gives tokens", True, dma=(isa.END.encode(signal=3),), compute=(isa.END.encode(wait=3),))


# Limits of what the issue looks at before the first step of a COMPUTE command.


def counts(config: Config) -> Iterator[Case]:
    """Loops, steps, lanes, lists and tables."""
    mac = mac_fields(config)
    for name in ("outer", "middle", "inner", "steps", "last_lanes"):
        yield from pair(
            name, 1, 0, lambda text, legal, value, name=name: compute_case(text, legal, **mac | {name: value})
        )
    yield compute_case("lanes 0", False, **mac | {"lanes": 0, "last_lanes": 0})
    limits = {MAC: config.array.columns} | dict.fromkeys((MAXIMUM, DEPTHWISE, ADD), config.array.lanes)
    for engine, limit in limits.items():
        if engine not in config.engines:
            continue
        fields, entries = engine_fields(config, engine)
        for lanes in (limit, limit + 1):
            yield compute_case(f"{engine.name} lanes {lanes}", lanes == limit, entries, **fields | {"lanes": lanes})
        last = max(1, limit - 1)
        for lanes in (last, last + 1):
            yield compute_case(
                f"{engine.name} last_lanes {lanes} of {last}",
                lanes == last,
                entries,
                **fields | {"lanes": last, "last_lanes": lanes},
            )
    # There is no result to wait for then.
    for name, flags in (("fire", isa.LIST_CLEAR), ("flags", 0)):
        yield compute_case(f"a list without {name}", False, {8: flags}, **mac | {"list": 8})
    entries, tables = config.memory.list_entries, config.memory.tables
    for first in (entries - 1, entries):
        if first < 1 << 12:
            yield compute_case(f"list {first}", first < entries, **mac | {"list": first})
    lists = {entries - 2: isa.LIST_CLEAR, entries - 1: isa.LIST_FIRE}
    for first in (entries - 2, entries - 1):
        yield compute_case(f"list {first} of 2 steps", first == entries - 2, lists, **mac | {"list": first, "steps": 2})
    for table in (tables - 1, tables):
        for enable in (0, 1):
            yield compute_case(
                f"table {table}, table_enable {enable}",
                table < tables,
                **mac | {"table": table, "table_enable": enable},
            )


def engines(config: Config) -> Iterator[Case]:
    """Conditions that one engine has."""
    for engine in (MAC, MAXIMUM, ADD):
        if engine in config.engines:
            fields, entries = engine_fields(config, engine)
            for skip in (0, 1):
                yield compute_case(f"{engine.name} skip {skip}", not skip, entries, **fields | {"skip": skip})
    if ADD in config.engines:
        fields, entries = engine_fields(config, ADD)
        for steps in (1, 2, 3):
            yield compute_case(f"ADD steps {steps}", steps == 2, entries, **fields | {"steps": steps})
        pairs = config.engines[ADD].tables
        for pair in (pairs - 1, pairs):
            if pair < 1 << 4:
                yield compute_case(f"add_table {pair}", pair < pairs, entries, **fields | {"add_table": pair})
    if DEPTHWISE in config.engines:
        yield from _depthwise(config)
    yield from _packing(config)


def _packing(config: Config) -> Iterator[Case]:
    """Results as bits: where there are engines of binary values; a byte collects those of an inner loop."""
    columns, fields = config.array.columns, mac_fields(config) | {"packed": 1}
    for inner in (0, 1):
        legal = packs(config) and (bool(inner) or columns >= 8)
        yield compute_case(f"packed, tile_inner {inner}", legal, **fields | {"tile_inner": inner})


def _depthwise(config: Config) -> Iterator[Case]:
    fields, entries = engine_fields(config, DEPTHWISE)
    for inner in (0, 1):
        yield compute_case(f"DEPTHWISE tile_inner {inner}", not inner, entries, **fields | {"tile_inner": inner})
    for rows in (0, 1, 2):
        yield compute_case(f"DEPTHWISE rows {rows} of 1 step", rows == 1, entries, **fields | {"rows": rows})
    # A list of many steps, summed up in its last ones.
    steps, start = 33, 31
    long = {8 + at: 0 for at in range(steps)} | {8 + start: isa.LIST_CLEAR, 8 + steps - 1: isa.LIST_FIRE}
    for rows, skip in ((2, 31), (2, 32), (31, 2), (31, 3)):
        yield compute_case(
            f"DEPTHWISE skip {skip} and rows {rows} of {steps} steps",
            skip + rows == steps,
            long,
            **fields | {"steps": steps, "rows": rows, "skip": skip, "inner": 2, "destination_inner": 1},
        )


# Limits of the addresses of a COMPUTE command: features, results, weights and parameters.


def compute_addresses(config: Config) -> Iterator[Case]:
    """What a step reads, and what a result is written to."""
    mac, size = mac_fields(config), config.memory.feature_bytes
    for engine in config.engines:
        fields, entries = engine_fields(config, engine)
        if engine in (ADD, MULTIPLY):
            entries = {8: isa.LIST_CLEAR, 9: isa.LIST_FIRE}
        for source in (size - 1, size, (1 << isa.LOCAL_BITS) - 1):
            yield compute_case(f"{engine.name} source {source}", source < size, entries, **fields | {"source": source})
    for inner in (2, 3):
        yield compute_case(
            f"source of window {inner}", inner == 2, **mac | {"source": size - 2, "source_inner": 1, "inner": inner}
        )
    for start in (1, 0):
        yield compute_case(
            f"source {start} and a pitch of -1", start == 1, **mac | {"source": start, "source_middle": -1, "middle": 2}
        )
    for offset in (size // 2 - 1, size // 2):
        yield compute_case(
            f"source in the middle, offset {offset}",
            offset < size // 2,
            {8: isa.LIST_CLEAR | isa.LIST_FIRE | offset},
            **mac | {"source": size // 2, "list": 8},
        )
    columns, lanes = config.array.columns, config.array.lanes
    for count in (1, columns):
        for at in (size - count, size - count + 1):
            yield compute_case(
                f"{count} results at {at}",
                at + count == size,
                **mac | {"lanes": count, "last_lanes": count, "destination": at},
            )
    if lanes > columns:
        # In pieces of as many bytes as there are columns.
        for at in (size - lanes, size - lanes + 1, size - columns + 1):
            yield compute_case(
                f"{lanes} results at {at}",
                at == size - lanes,
                **mac | {"engine": MAXIMUM, "lanes": lanes, "last_lanes": lanes, "destination": at},
            )
    for at in (1, 0):
        yield compute_case(
            f"result at {at} and a pitch of -1",
            at == 1,
            **mac | {"source": 64, "destination": at, "destination_outer": -1, "outer": 2},
        )
    # The results of the last tile are fewer.
    yield compute_case(
        "the last tile ends with the memory",
        True,
        **mac
        | {
            "lanes": columns,
            "last_lanes": 1,
            "outer": 2,
            "destination_outer": columns,
            "destination": size - columns - 1,
        },
    )


def constants(config: Config) -> Iterator[Case]:
    """Weight words and parameters."""
    mac, words = mac_fields(config), config.weight_words
    two = {8: isa.LIST_CLEAR, 9: isa.LIST_FIRE}
    for weight in (words - 1, words):
        if weight >= 1 << 20:
            continue
        yield compute_case(f"weight {weight}", weight < words, **mac | {"weight": weight})
        yield compute_case(f"weight {weight} of two tiles", False, **mac | {"weight": weight, "outer": 2})
        yield compute_case(
            f"weight {weight} of two steps", False, two, **mac | {"weight": weight, "steps": 2, "list": 8}
        )
        if DEPTHWISE in config.engines:
            fields, entries = engine_fields(config, DEPTHWISE)
            yield compute_case(f"DEPTHWISE weight {weight}", weight < words, entries, **fields | {"weight": weight})
        if MAXIMUM in config.engines:
            fields, entries = engine_fields(config, MAXIMUM)
            yield compute_case(f"MAXIMUM weight {weight}", True, entries, **fields | {"weight": weight})
    yield compute_case("two tiles to the last weight word", True, **mac | {"weight": words - 2, "outer": 2})
    yield compute_case(
        "two steps to the last weight word", True, two, **mac | {"weight": words - 2, "steps": 2, "list": 8}
    )
    parameters, lanes = config.parameter_words, config.array.requant_lanes
    for shared in (0, 1):
        for outer, first in ((1, parameters - 1), (1, parameters), (2, parameters - 2), (2, parameters - 1)):
            last = first if shared else first + outer - 1
            yield compute_case(
                f"parameter {first} of {outer} tiles, parameter_shared {shared}",
                last < parameters,
                **mac | {"parameter": first, "parameter_shared": shared, "outer": outer},
            )
    if config.array.columns > lanes:
        # Two groups.
        for parameter in (parameters - 2, parameters - 1):
            yield compute_case(
                f"parameter {parameter} of two groups",
                parameter == parameters - 2,
                **mac | {"parameter": parameter, "lanes": lanes + 1, "last_lanes": lanes + 1},
            )


# Limits of the commands that move data.


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


def cases(config: Config) -> Iterator[Case]:
    """All of them, for one configuration."""
    for limits in (headers, programs, counts, engines, compute_addresses, constants, transfers):
        yield from limits(config)

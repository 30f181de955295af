"""One compute unit in cocotb, and random COMPUTE commands and memory contents for it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import cocotb
import numpy as np
from amaranth.hdl import unsigned
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.streams import pack, send
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, SPECIFICATIONS, find_engine
from lutterfly.golden.engines.specification import EngineSpecification, RandomWindow
from lutterfly.golden.machine.compute import compute_results, write_results
from lutterfly.golden.machine.write_back import is_packed_legally
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.memories import memories as built
from lutterfly.golden.numerics.requant import pack_parameters
from lutterfly.hdl.dma.chunks import local_write_layout
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.isa import command_shape

# Random COMPUTE commands and memory contents for the tests of the compute path.

#: What is filled of the larger memories: loading all of them would take most of the simulation.
WEIGHT_WORDS = 48
PARAMETER_WORDS = 72
#: The last weight words, of which only each chain's first column has weights: for windows that need that.
ONE_COLUMN_WORDS = 8


#: An engine, and a window of it.
Shape = tuple[EngineSpecification, RandomWindow]


@dataclass
class Scenario:
    """Commands, and the memories before the first of them (uint8 arrays of full size)."""

    commands: list[dict[str, int]]
    memories: dict[LocalMemory, np.ndarray]
    #: Bytes of each memory that the test must write.
    filled: dict[LocalMemory, int] = field(default_factory=dict)


def _loops(
    rng: np.random.Generator,
    tile_inner: bool,
    tiles: int,
    rows: int,
    columns: int,
    source: tuple[int, int, int],
    destination: tuple[int, int, int],
) -> dict[str, int]:
    """The loop fields for (tile, row, column), in the order that ``tile_inner`` asks for."""
    axes = list(zip((tiles, rows, columns), source, destination, strict=True))
    if tile_inner:
        axes = [*axes[1:], axes[0]]
    fields = {}
    for name, (count, source_pitch, destination_pitch) in zip(("outer", "middle", "inner"), axes, strict=True):
        fields |= {name: count, f"source_{name}": source_pitch, f"destination_{name}": destination_pitch}
    return fields


def random_window(config: Config, rng: np.random.Generator, engine: EngineSpecification, most: int) -> RandomWindow:
    """A window of an engine that takes at most so many weight words; what it leaves open of its own is random."""
    own = config.engines.fields(engine.engine)
    fields = {field.name: int(rng.integers(*field.limits, endpoint=True)) for field in own}
    window = engine.random_window(config, rng, most)
    return dataclasses.replace(window, fields=fields | {"skip": 0} | window.fields)


def payload(command: dict[str, int]) -> dict[str, int]:
    """A COMPUTE command as it comes to its unit: the engine's own fields as the argument."""
    engine = find_engine(command["engine"])
    own = {field.name: command.get(field.name, 0) for field in engine.fields}
    argument = isa.COMPUTE.decode(engine.format.encode(**own))["argument"]
    return {name: value for name, value in command.items() if name not in own} | {"argument": argument}


def random_parameters(rng: np.random.Generator, engine: EngineSpecification, words: int) -> dict[str, int]:
    """Where the parameters of a command begin: in a word of its engine, if its scale is a certain one."""
    special = special_scales()
    if engine.engine in special:
        return {"parameter": PARAMETER_WORDS - 1 - list(special).index(engine.engine), "parameter_shared": 1}
    last = PARAMETER_WORDS - len(special) + 1
    return {"parameter": int(rng.integers(0, last - words)), "parameter_shared": int(rng.integers(2))}


def special_scales() -> dict[int, float]:
    """The engines whose scale is a certain one. Their words are the last ones, the first engine's the very last."""
    return {code: engine.random_scale for code, engine in SPECIFICATIONS.items() if engine.random_scale is not None}


def _pack_some(config: Config, rng: np.random.Generator, command: dict[str, int]) -> None:
    """Pack the results of a command now and then, where it can; the windows of an inner loop may be one string."""
    command["packed"] = 0
    packed, engine = command | {"packed": 1}, SPECIFICATIONS[command["engine"]]
    if rng.random() < 0.4 and is_packed_legally(packed, config) and engine.is_legal(packed, config):
        command["packed"] = 1
        if config.array.columns < 8 and rng.random() < 0.7:
            command["destination_inner"] = 0


def limit_shapes(config: Config, rng: np.random.Generator) -> list[Shape]:
    """Windows of every engine of which some field is the least or the greatest that is drawn, the least number of steps
    beside the greatest of other fields among them."""
    found: list[Shape] = []
    for code in config.engines:
        engine = SPECIFICATIONS[code]
        drawn = [random_window(config, rng, engine, 8) for _ in range(400)]
        # What a window holds, beside what only numbers it: constants of its own do not change when results come.
        names = [name for name in ("steps", "skip", "rows", "further", "lanes", "stages") if name in drawn[0].fields]
        chosen = {}
        for name, other in itertools.product(names, names):
            for sign, tie in itertools.product((1, -1), (1, -1)):
                window = min(drawn, key=lambda one: (sign * one.fields[name], tie * one.fields[other]))
                chosen[tuple(window.fields[each] for each in names)] = window
        found += [(engine, window) for window in chosen.values()]
    return found


def all_pairs(count: int) -> list[int]:
    """Numbers below ``count``, of which each follows each, itself too, once: a de Bruijn sequence of order two."""
    sequence = []
    for first in range(count):
        sequence.append(first)
        for second in range(first + 1, count):
            sequence += [first, second]
    return [*sequence, 0]


def random_scenario(
    config: Config,
    rng: np.random.Generator,
    count: int,
    *,
    run_length: int = 1,
    shapes: Sequence[Shape] | None = None,
) -> Scenario:
    """``count`` commands, each reading the lower half of the feature memory or what the command before it wrote.

    Results go to the upper half, to regions that rotate, so that commands without ``after`` never read what is under
    way. Of each ``run_length`` commands only the first may change the engine or wait, and with more than one of them
    windows have few steps: a run is bound by its results, which pile up. ``shapes`` are those of the commands, where
    they are given: few of these wait, and they have a few windows each.
    """
    memory, array = config.memory, config.array
    memories = {name: np.zeros(config.size_bytes(name), np.uint8) for name in built(config)}
    filled = {
        LocalMemory.FEATURE: memory.feature_bytes,
        LocalMemory.WEIGHT: WEIGHT_WORDS * config.weight_word_bytes,
        LocalMemory.PARAMETER: PARAMETER_WORDS * config.parameter_word_bytes,
        LocalMemory.TABLE: config.size_bytes(LocalMemory.TABLE),
        **{engine.memory: config.size_bytes(engine.memory) for engine in config.engines if engine is ADD},
    }
    for name, size in filled.items():
        memories[name][:size] = rng.integers(0, 256, size)
    weights = memories[LocalMemory.WEIGHT][: filled[LocalMemory.WEIGHT]].reshape(WEIGHT_WORDS, array.columns, -1)
    if DEPTHWISE in config.engines:
        is_first = np.arange(array.columns) % config.engines[DEPTHWISE].taps == 0
        weights[-ONE_COLUMN_WORDS:, ~is_first] = 0
    words = PARAMETER_WORDS * array.requant_lanes
    scales = np.exp2(rng.uniform(-12, -6, words)).astype(np.float32)
    for number, scale in enumerate(special_scales().values()):
        scales.reshape(-1, array.requant_lanes)[-1 - number] = scale
    parameters = pack_parameters(rng.integers(-20_000, 20_000, words, dtype=np.int32), scales)
    memories[LocalMemory.PARAMETER][: 8 * words] = parameters.view(np.uint8)

    half, region = memory.feature_bytes // 2, memory.feature_bytes // 16
    entries: list[int] = []
    commands: list[dict[str, int]] = []
    for number in range(count):
        if shapes is not None:
            engine = shapes[number][0]
        elif number % run_length == 0:
            engine = SPECIFICATIONS[int(rng.choice([*config.engines]))]
        limit = engine.most_results(config)
        tiles = int(rng.integers(1, 4))
        if shapes is not None:
            window = shapes[number][1]
            tiles = min(tiles, max(8 // max(engine.issue.tile_weight_words(window.fields), 1), 1))
        else:
            window = random_window(config, rng, engine, WEIGHT_WORDS // tiles // 2 if run_length == 1 else 2)
        lanes = window.fields.get("lanes", int(rng.choice([limit, rng.integers(1, limit + 1)])))
        last_lanes = window.fields.get("last_lanes", int(rng.integers(1, lanes + 1)))
        steps, weight_words = window.fields["steps"], engine.issue.tile_weight_words(window.fields)
        first_word = WEIGHT_WORDS - ONE_COLUMN_WORDS if window.is_one_column else 0
        groups = -(-lanes // array.requant_lanes)
        # Windows of very many results: as many as have parameters, and room for what they write.
        tiles = min(window.fields.get("outer", tiles), max(PARAMETER_WORDS // 2 // groups, 1))
        width = (tiles - 1) * lanes + last_lanes
        rows, columns = (int(n) for n in rng.integers(1, 6 if shapes is None else 3, 2))
        rows = min(rows, max(region // 2 // (columns * width), 1))
        offsets = np.sort(rng.integers(0, region // 4, steps))
        flags = np.zeros(steps, np.int64)
        flags[window.sum_start] |= isa.LIST_CLEAR
        flags[-1] |= isa.LIST_FIRE
        tile_inner = bool(window.fields.get("tile_inner", rng.integers(2)))
        depends = number > 0 and number % run_length == 0 and rng.random() < (0.5 if shapes is None else 0.1)
        source = commands[-1]["destination"] if depends else int(rng.integers(0, half - region))
        commands.append(
            {
                "engine": int(engine.engine),
                "after": int(depends),
                "tile_inner": int(tile_inner),
                "list": len(entries),
                "source": source,
                "destination": half + number % 8 * region + int(rng.integers(0, 2 * array.lanes)),
                **_loops(
                    rng,
                    tile_inner,
                    tiles,
                    rows,
                    columns,
                    (int(rng.integers(0, 3)) * array.lanes, int(rng.integers(0, 40)), int(rng.integers(0, 9))),
                    (lanes, columns * width + int(rng.integers(0, 3)), width),
                ),
                "weight": int(rng.integers(first_word, WEIGHT_WORDS - tiles * weight_words + 1)),
                **random_parameters(rng, engine, tiles * groups),
                "lanes": lanes,
                "last_lanes": last_lanes,
                "zero_point": int(rng.integers(-128, 128)),
                "low": int(rng.integers(-128, -60)),
                "high": int(rng.integers(60, 128)),
                "table_enable": int(rng.integers(2)),
                "table": int(rng.integers(memory.tables)),
                **window.fields,
            }
        )
        if engine.issue.most_further(config):
            commands[-1][engine.issue.further.pitch] = int(rng.integers(region // 8))
        _pack_some(config, rng, commands[-1])
        # Those of engines that do not ask count as well.
        counts = rng.integers(0, 1 << isa.LIST_COUNT_BITS, steps) << isa.LIST_COUNT_LSB
        entries += list(offsets | flags | counts)
    image = np.array(entries, np.uint32).view(np.uint8)
    memories[LocalMemory.LIST][: len(image)] = image
    filled[LocalMemory.LIST] = len(image)
    return Scenario(commands, memories, filled)


def named(fields: Mapping[str, int]) -> isa.Compute:
    """Return a COMPUTE command with these fields, those of its engine among them."""
    return find_engine(fields["engine"]).format.kind(**fields)


def expected(config: Config, scenario: Scenario) -> np.ndarray:
    """The feature memory after all commands, one after the other."""
    rng = np.random.default_rng(0)
    memories = {name: image.copy() for name, image in scenario.memories.items()}
    for command in map(named, scenario.commands):
        results = compute_results(command, memories, config, rng)
        write_results(command, results, memories[LocalMemory.FEATURE], config)
    return memories[LocalMemory.FEATURE]


class ComputeBench:
    """One compute unit, its clock and its counters."""

    def __init__(self, dut, config: Config):
        self.dut = dut
        self.config = config
        self.done = 0
        self.issued = 0

    async def start(self) -> None:
        for name in ("command__valid", "feature_write__valid", "store_read__valid", "local_write", "halt"):
            getattr(self.dut, name).value = 0
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            self.done += int(self.dut.done.value)
            self.issued += int(self.dut.issued.value)
            assert not int(self.dut.error.value) & 1, "the unit reports an error"

    async def fill(self, scenario: Scenario) -> None:
        layout, lanes = local_write_layout(self.config), self.config.array.lanes
        for memory, size in scenario.filled.items():
            unit = lanes if memory is LocalMemory.FEATURE else memory.write_bytes(lanes)
            for number, address in enumerate(range(0, size, unit)):
                word = int.from_bytes(scenario.memories[memory][address : address + unit].tobytes(), "little")
                if memory is LocalMemory.FEATURE:
                    self.dut.feature_write__payload.value = pack(
                        {"address": address, "count": unit, "data": word}, feature_write_layout(self.config)
                    )
                    self.dut.feature_write__valid.value = 1
                else:
                    self.dut.local_write.value = pack(
                        {"valid": 1, "memory": int(memory), "address": number, "data": word}, layout
                    )
                await RisingEdge(self.dut.clk)
            self.dut.feature_write__valid.value = self.dut.local_write.value = 0

    async def run(self, scenario: Scenario, rng: np.random.Generator, p_stall: float) -> None:
        words = [{"index": number, **payload(command)} for number, command in enumerate(scenario.commands)]
        await send(self.dut.clk, self.dut, "command", words, rng, p_stall, shape=command_shape(isa.COMPUTE))
        while self.done < len(words):
            await RisingEdge(self.dut.clk)

    async def read(self, addresses: range, rng: np.random.Generator, p_stall: float) -> bytes:
        """The words at ``addresses``, through the port of STORE."""
        cocotb.start_soon(
            send(self.dut.clk, self.dut, "store_read", addresses, rng, p_stall, shape=unsigned(isa.LOCAL_BITS))
        )
        words = []
        while len(words) < len(addresses):
            await FallingEdge(self.dut.clk)
            word = int(self.dut.store_word.value)
            if word & 1:
                words.append((word >> 1).to_bytes(self.config.array.lanes, "little"))
        return b"".join(words)

    async def image(self, rng: np.random.Generator) -> np.ndarray:
        """The whole feature memory, uint8[feature_bytes]."""
        lanes = self.config.array.lanes
        return np.frombuffer(await self.read(range(0, self.config.memory.feature_bytes, lanes), rng, 0.0), np.uint8)

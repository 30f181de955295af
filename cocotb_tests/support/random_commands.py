"""Random COMPUTE commands and memory contents for the tests of the compute path."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.isa import Engine, LocalMemory
from lutterfly.golden.requant import pack_parameters

#: What is filled of the larger memories: loading all of them would take most of the simulation.
WEIGHT_WORDS = 48
PARAMETER_WORDS = 64

#: The last of them is for Add: it brings the sum of two table entries into the range of a code.
ADD_SCALE = 2.0**-24


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


@dataclass
class Window:
    """What the list of a command looks like: its fields, the step with ``clear``, and its weight words."""

    fields: dict[str, int]
    sum_start: int = 0
    weight_words: int = 0


def random_window(config: Config, rng: np.random.Generator, engine: Engine, weight_words: int) -> Window:
    """A window of an engine that takes at most so many weight words."""
    fields = {"rows": int(rng.integers(32)), "skip": 0, "add_table": int(rng.integers(config.memory.add_tables))}
    if engine is Engine.ADD:
        return Window(fields | {"steps": 2})
    if engine is Engine.DEPTHWISE:
        rows = int(rng.integers(1, 1 + min(5, weight_words)))
        # Every column's words are from the same inner loop.
        start = (config.array.depthwise_taps - 1) * rows + int(rng.integers(3))
        steps = max(start, rows) + int(rng.integers(1, 2 * rows + 1))
        skip = int(rng.integers(1 + min(start, steps - rows)))
        return Window(fields | {"steps": steps, "rows": rows, "skip": skip}, start, rows)
    steps = int(rng.choice([1, min(2, weight_words), rng.integers(1, weight_words)]))
    return Window(fields | {"steps": steps}, 0, steps if engine is Engine.MAC else 0)


def random_parameters(rng: np.random.Generator, engine: Engine, words: int) -> dict[str, int]:
    """Where the parameters of a command begin; those of an Add are the last word."""
    if engine is Engine.ADD:
        return {"parameter": PARAMETER_WORDS - 1, "parameter_shared": 1}
    return {"parameter": int(rng.integers(0, PARAMETER_WORDS - words)), "parameter_shared": int(rng.integers(2))}


def random_scenario(config: Config, rng: np.random.Generator, count: int, *, run_length: int = 1) -> Scenario:
    """``count`` commands, each reading the lower half of the feature memory or what the command before it wrote.

    Results go to the upper half, to regions that rotate, so that commands without ``after`` never read what is under
    way. Of each ``run_length`` commands only the first may change the engine or wait, and with more than one of them
    windows have few steps: a run is bound by its results, which pile up.
    """
    memory, array = config.memory, config.array
    memories = {name: np.zeros(memory.size_bytes(name), np.uint8) for name in LocalMemory}
    filled = {
        LocalMemory.FEATURE: memory.feature_bytes,
        LocalMemory.WEIGHT: WEIGHT_WORDS * config.weight_word_bytes,
        LocalMemory.PARAMETER: PARAMETER_WORDS * config.parameter_word_bytes,
        LocalMemory.TABLE: memory.size_bytes(LocalMemory.TABLE),
        LocalMemory.ADD_TABLE: memory.size_bytes(LocalMemory.ADD_TABLE),
    }
    for name, size in filled.items():
        memories[name][:size] = rng.integers(0, 256, size)
    words = PARAMETER_WORDS * array.requant_lanes
    scales = np.exp2(rng.uniform(-12, -6, words)).astype(np.float32)
    scales[-array.requant_lanes :] = ADD_SCALE
    parameters = pack_parameters(rng.integers(-20_000, 20_000, words, dtype=np.int32), scales)
    memories[LocalMemory.PARAMETER][: 8 * words] = parameters.view(np.uint8)

    half, region = memory.feature_bytes // 2, memory.feature_bytes // 16
    entries: list[int] = []
    commands: list[dict[str, int]] = []
    for number in range(count):
        if number % run_length == 0:
            engine = Engine(rng.choice(config.engines))
        limit = array.columns if engine is Engine.MAC else array.lanes
        lanes = int(rng.choice([limit, rng.integers(1, limit + 1)]))
        last_lanes, tiles = int(rng.integers(1, lanes + 1)), int(rng.integers(1, 4))
        window = random_window(config, rng, engine, WEIGHT_WORDS // tiles // 2 if run_length == 1 else 2)
        steps, weight_words = window.fields["steps"], window.weight_words
        rows, columns = (int(n) for n in rng.integers(1, 6, 2))
        offsets = np.sort(rng.integers(0, region // 4, steps))
        flags = np.zeros(steps, np.int64)
        flags[window.sum_start] |= isa.LIST_CLEAR
        flags[-1] |= isa.LIST_FIRE
        groups = -(-lanes // array.requant_lanes)
        tile_inner = engine is not Engine.DEPTHWISE and bool(rng.integers(2))
        depends = number > 0 and number % run_length == 0 and rng.random() < 0.5
        source = commands[-1]["destination"] if depends else int(rng.integers(0, half - region))
        width = (tiles - 1) * lanes + last_lanes
        commands.append(
            {
                "engine": int(engine),
                "after": int(depends),
                "tile_inner": int(tile_inner),
                **window.fields,
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
                "weight": int(rng.integers(0, WEIGHT_WORDS - tiles * weight_words + 1)),
                **random_parameters(rng, engine, tiles * groups),
                "lanes": lanes,
                "last_lanes": last_lanes,
                "zero_point": int(rng.integers(-128, 128)),
                "low": int(rng.integers(-128, -60)),
                "high": int(rng.integers(60, 128)),
                "table_enable": int(rng.integers(2)),
                "table": int(rng.integers(memory.tables)),
            }
        )
        entries += list(offsets | flags)
    image = np.array(entries, np.uint32).view(np.uint8)
    memories[LocalMemory.LIST][: len(image)] = image
    filled[LocalMemory.LIST] = len(image)
    return Scenario(commands, memories, filled)

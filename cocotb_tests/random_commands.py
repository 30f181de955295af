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


def random_scenario(config: Config, rng: np.random.Generator, count: int) -> Scenario:
    """``count`` commands, each reading the lower half of the feature memory or what the command before it wrote.

    Results go to the upper half, to regions that rotate, so that commands without ``after`` never read what is under
    way.
    """
    memory, array = config.memory, config.array
    sizes = {
        LocalMemory.FEATURE: memory.feature_bytes,
        LocalMemory.WEIGHT: memory.weight_bytes,
        LocalMemory.TABLE: memory.tables * isa.TABLE_BYTES,
        LocalMemory.PARAMETER: memory.parameter_bytes,
        LocalMemory.LIST: memory.list_entries * isa.LIST_ENTRY_BYTES,
    }
    memories = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    filled = {
        LocalMemory.FEATURE: memory.feature_bytes,
        LocalMemory.WEIGHT: WEIGHT_WORDS * config.weight_word_bytes,
        LocalMemory.PARAMETER: PARAMETER_WORDS * config.parameter_word_bytes,
        LocalMemory.TABLE: sizes[LocalMemory.TABLE],
    }
    for name, size in filled.items():
        memories[name][:size] = rng.integers(0, 256, size)
    words = PARAMETER_WORDS * array.requant_lanes
    parameters = pack_parameters(
        rng.integers(-20_000, 20_000, words, dtype=np.int32), np.exp2(rng.uniform(-12, -6, words)).astype(np.float32)
    )
    memories[LocalMemory.PARAMETER][: 8 * words] = parameters.view(np.uint8)

    half, region = memory.feature_bytes // 2, memory.feature_bytes // 16
    entries: list[int] = []
    commands: list[dict[str, int]] = []
    for number in range(count):
        engine = Engine(rng.choice([Engine.MAC, Engine.MAC, Engine.MAXIMUM]))
        limit = array.columns if engine is Engine.MAC else array.lanes
        lanes = int(rng.choice([limit, rng.integers(1, limit + 1)]))
        last_lanes, tiles = int(rng.integers(1, lanes + 1)), int(rng.integers(1, 4))
        steps = int(rng.choice([1, 2, rng.integers(1, WEIGHT_WORDS // tiles // 2)]))
        rows, columns = (int(n) for n in rng.integers(1, 6, 2))
        offsets = np.sort(rng.integers(0, region // 4, steps))
        flags = np.zeros(steps, np.int64)
        flags[0] |= isa.LIST_CLEAR
        flags[-1] |= isa.LIST_FIRE
        groups = -(-lanes // array.requant_lanes)
        tile_inner = bool(rng.integers(2))
        depends = number > 0 and rng.random() < 0.5
        source = commands[-1]["destination"] if depends else int(rng.integers(0, half - region))
        width = (tiles - 1) * lanes + last_lanes
        commands.append(
            {
                "engine": int(engine),
                "after": int(depends),
                "tile_inner": int(tile_inner),
                "steps": steps,
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
                "weight": int(rng.integers(0, WEIGHT_WORDS - tiles * steps + 1)) if engine is Engine.MAC else 0,
                "parameter": int(rng.integers(0, PARAMETER_WORDS - tiles * groups)),
                "parameter_shared": int(rng.integers(2)),
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

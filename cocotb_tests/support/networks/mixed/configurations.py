"""The accelerators that mixed networks run on: two presets, odd ones that have butterflies or binary layers, and any
number of drawn ones."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from cocotb_tests.support.networks.butterflies import DRAWN_CONFIGS, FPC_CONFIGS
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig, ClusterConfig, MemoryConfig
from lutterfly.golden.engines import (
    ADD,
    BINARY_MAXIMUM,
    DEPTHWISE,
    ENGINES,
    FPC,
    MAC,
    MAXIMUM,
    WINOGRAD,
    XNOR,
    EngineConfigs,
)
from lutterfly.golden.engines.add import AddConfig
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.program import SpreadBy

ODD: dict[str, Config] = {
    # All engines; pairs of lanes share a requantiser.
    "bottom-up": FPC_CONFIGS["bottom-up"],
    # All engines, a heavier butterfly than its direction has, skips.
    "top-down": DRAWN_CONFIGS["top-down"],
    # One column, a ring of four commands, one burst in flight.
    "least": Config(
        ArrayConfig(4, 1, 1),
        MemoryConfig(4 << 10, 8 << 10, 2 << 10, 4, 512),
        AxiConfig(32, 1),
        EngineConfigs.of(
            *ENGINES.values(), DEPTHWISE=DepthwiseConfig(1), ADD=AddConfig(1), FPC=FpcConfig(8, own_words=32)
        ),
        resident_commands=4,
    ),
    # Words of 32 lanes on a bus of four bytes; pixels of a butterfly are one word. No depthwise layers.
    "wide": Config(
        ArrayConfig(32, 2, 1),
        MemoryConfig(32 << 10, 32 << 10, 8 << 10, 8, 1024),
        AxiConfig(32, 3),
        EngineConfigs.of(
            MAC, MAXIMUM, FPC, ADD, XNOR, ADD=AddConfig(4), FPC=FpcConfig(32, "top-down", skips=((0, 4),))
        ),
        resident_commands=8,
    ),
    # As many requantisers as columns, a result in a cycle; no sums.
    "square": Config(
        ArrayConfig(16, 16, 16),
        MemoryConfig(32 << 10, 64 << 10, 16 << 10, 8, 1024),
        AxiConfig(128, 2),
        EngineConfigs.of(
            *ENGINES.values(), DEPTHWISE=DepthwiseConfig(16), FPC=FpcConfig(64, skips=((0, 5), (1, 4)))
        ).without(ADD),
        resident_commands=16,
    ),
    # One requantiser for eight columns, binary layers without a butterfly.
    "bound": Config(
        ArrayConfig(8, 8, 1),
        MemoryConfig(8 << 10, 16 << 10, 4 << 10, 2, 1024),
        AxiConfig(64, 16),
        EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, XNOR, BINARY_MAXIMUM, DEPTHWISE=DepthwiseConfig(5)),
        resident_commands=8,
    ),
    # Three chains of two columns, and two columns that only add up over lanes; engines hand over.
    "rows": Config(
        ArrayConfig(8, 8, 4),
        MemoryConfig(16 << 10, 32 << 10, 8 << 10, 4, 1024),
        AxiConfig(64, 4),
        EngineConfigs.of(*ENGINES.values(), DEPTHWISE=DepthwiseConfig(2, chains=3), FPC=FpcConfig(32)),
        resident_commands=16,
        hands_over=True,
    ),
    # A butterfly and sums alone, without tables or copies of their own.
    "few": Config(
        ArrayConfig(8, 4, 2),
        MemoryConfig(8 << 10, 16 << 10, 4 << 10, 4, 2048),
        AxiConfig(64, 5),
        EngineConfigs.of(MAC, FPC, ADD, ADD=AddConfig(8), FPC=FpcConfig(16, "top-down", own_words=16)),
        resident_commands=32,
    ),
    # A butterfly of many words, and a memory that holds little beside it.
    "small": Config(
        ArrayConfig(4, 2, 2),
        MemoryConfig(2 << 10, 8 << 10, 1 << 10, 4, 256),
        AxiConfig(32, 8),
        EngineConfigs.of(*ENGINES.values(), DEPTHWISE=DepthwiseConfig(2), FPC=FpcConfig(32, own_words=128)),
        resident_commands=4,
    ),
}
CONFIGS: dict[str, Config] = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")} | ODD

#: Names of drawn accelerators begin so, and end in their number.
DRAWN = "drawn-"


def config_of(name: str) -> Config:
    """An accelerator by its name: one of ``CONFIGS``, or a drawn one; of several cores, which share a port or have a
    port each, as ``tiny:2:layer`` or ``tiny:4:sample:own``."""
    core, *cluster = name.split(":")
    config = drawn(int(core.removeprefix(DRAWN))) if core.startswith(DRAWN) else CONFIGS[core]
    if not cluster:
        return config
    cores, _, *own = cluster
    return dataclasses.replace(config, cluster=ClusterConfig(int(cores), shared_port=not own))


def spread_by_of(name: str) -> SpreadBy:
    """What the cores of an accelerator have a part of each."""
    _, *cluster = name.split(":")
    return SpreadBy(cluster[1]) if cluster else SpreadBy.SAMPLE


@functools.cache
def drawn(number: int) -> Config:
    """A legal accelerator with some of the engines: always the same for a number."""
    rng = np.random.default_rng([number, 0xACC])
    while True:
        try:
            return _draw(rng)
        except ValueError:
            # Sizes that do not fit one another.
            continue


def _draw(rng: np.random.Generator) -> Config:
    def power(low: int, high: int) -> int:
        return 1 << int(rng.integers(low, high + 1))

    columns = power(0, 4)
    width = power(3, 6)
    stages = width.bit_length() - 1
    skips = tuple((int(first), stages - 1) for first in rng.choice(stages, int(rng.integers(0, 3)), replace=False))
    others = [engine for engine in ENGINES.values() if engine not in (MAC, WINOGRAD) and rng.random() < 0.7]
    array = ArrayConfig(power(2, 5), columns, int(rng.choice([1, 2, 4, 8])))
    memory = MemoryConfig(power(12, 15), power(13, 16), power(11, 14), power(1, 3), power(9, 11))
    axi = AxiConfig(int(rng.choice([32, 64, 128])), int(rng.integers(1, 17)))
    own: dict[Engine, EngineConfig] = {
        DEPTHWISE: DepthwiseConfig(taps := int(rng.integers(1, columns + 1)), int(rng.integers(columns // taps)) + 1),
        ADD: AddConfig(power(0, 3)),
        FPC: FpcConfig(width, str(rng.choice(["bottom-up", "top-down"])), skips=skips, own_words=power(4, 7)),
    }
    resident, hands_over = power(2, 6), bool(rng.integers(2))
    # Drawn last: what is drawn before is as it was.
    others += [WINOGRAD] if rng.random() < 0.7 else []
    engines = EngineConfigs({engine: own.get(engine, engine.configuration()) for engine in (MAC, *others)})
    return Config(array, memory, axi, engines, resident_commands=resident, hands_over=hands_over)

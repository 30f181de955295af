"""The accelerators that mixed networks run on: two presets, odd ones that have butterflies or binary layers, and any
number of drawn ones."""

from __future__ import annotations

import functools

import numpy as np
from fpc_configs import DRAWN_CONFIGS, FPC_CONFIGS

from lutterfly.golden.config import (
    PRESETS,
    AddConfig,
    ArrayConfig,
    AxiConfig,
    Config,
    DepthwiseConfig,
    FpcConfig,
    MemoryConfig,
)
from lutterfly.golden.isa import Engine

_BINARY = (Engine.XNOR, Engine.BINARY_MAXIMUM)

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
        (Engine.MAC, Engine.MAXIMUM, Engine.DEPTHWISE, Engine.FPC, Engine.ADD, *_BINARY),
        DepthwiseConfig(1),
        AddConfig(1),
        FpcConfig(8, further_words=32),
        resident_commands=4,
    ),
    # Words of 32 lanes on a bus of four bytes; pixels of a butterfly are one word. No depthwise layers.
    "wide": Config(
        ArrayConfig(32, 2, 1),
        MemoryConfig(32 << 10, 32 << 10, 8 << 10, 8, 1024),
        AxiConfig(32, 3),
        (Engine.MAC, Engine.MAXIMUM, Engine.FPC, Engine.ADD, Engine.XNOR),
        add=AddConfig(4),
        fpc=FpcConfig(32, "top-down", skips=((0, 4),)),
        resident_commands=8,
    ),
    # As many requantisers as columns, a result in a cycle; no sums.
    "square": Config(
        ArrayConfig(16, 16, 16),
        MemoryConfig(32 << 10, 64 << 10, 16 << 10, 8, 1024),
        AxiConfig(128, 2),
        (Engine.MAC, Engine.MAXIMUM, Engine.DEPTHWISE, Engine.FPC, *_BINARY),
        DepthwiseConfig(16),
        fpc=FpcConfig(64, skips=((0, 5), (1, 4))),
        resident_commands=16,
    ),
    # One requantiser for eight columns, binary layers without a butterfly.
    "bound": Config(
        ArrayConfig(8, 8, 1),
        MemoryConfig(8 << 10, 16 << 10, 4 << 10, 2, 1024),
        AxiConfig(64, 16),
        (Engine.MAC, Engine.MAXIMUM, Engine.DEPTHWISE, Engine.ADD, *_BINARY),
        DepthwiseConfig(5),
        AddConfig(2),
        resident_commands=8,
    ),
    # A butterfly and sums alone, without tables or copies of their own.
    "few": Config(
        ArrayConfig(8, 4, 2),
        MemoryConfig(8 << 10, 16 << 10, 4 << 10, 4, 2048),
        AxiConfig(64, 5),
        (Engine.MAC, Engine.FPC, Engine.ADD),
        add=AddConfig(8),
        fpc=FpcConfig(16, "top-down", further_words=16),
        resident_commands=32,
    ),
    # A butterfly of many words, and a memory that holds little beside it.
    "small": Config(
        ArrayConfig(4, 2, 2),
        MemoryConfig(2 << 10, 8 << 10, 1 << 10, 4, 256),
        AxiConfig(32, 8),
        (Engine.MAC, Engine.MAXIMUM, Engine.FPC, Engine.XNOR, Engine.BINARY_MAXIMUM, Engine.DEPTHWISE, Engine.ADD),
        DepthwiseConfig(2),
        AddConfig(2),
        FpcConfig(32, further_words=128),
        resident_commands=4,
    ),
}
CONFIGS: dict[str, Config] = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")} | ODD

#: Names of drawn accelerators begin so, and end in their number.
DRAWN = "drawn-"


def config_of(name: str) -> Config:
    """An accelerator by its name: one of ``CONFIGS``, or a drawn one."""
    return drawn(int(name.removeprefix(DRAWN))) if name.startswith(DRAWN) else CONFIGS[name]


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
    others = [engine for engine in Engine if engine is not Engine.MAC and rng.random() < 0.7]
    return Config(
        ArrayConfig(power(2, 5), columns, int(rng.choice([1, 2, 4, 8]))),
        MemoryConfig(power(12, 15), power(13, 16), power(11, 14), power(1, 3), power(9, 11)),
        AxiConfig(int(rng.choice([32, 64, 128])), int(rng.integers(1, 17))),
        (Engine.MAC, *others),
        DepthwiseConfig(int(rng.integers(1, columns + 1))),
        AddConfig(power(0, 3)),
        FpcConfig(width, str(rng.choice(["bottom-up", "top-down"])), skips=skips, further_words=power(4, 7)),
        resident_commands=power(2, 6),
    )

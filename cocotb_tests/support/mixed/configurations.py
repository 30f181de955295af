"""The accelerators that mixed networks run on: two presets, and odd ones that have butterflies or binary layers."""

from __future__ import annotations

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

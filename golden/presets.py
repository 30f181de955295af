"""The presets: accelerators that have a name."""

from __future__ import annotations

from .config import Config
from .config_parts import ArenaConfig, ArrayConfig, AxiConfig, MemoryConfig
from .engines import ADD, BINARY_MAXIMUM, DEPTHWISE, FPC, MAC, MAXIMUM, MULTIPLY, WINOGRAD, XNOR, EngineConfigs
from .engines.depthwise import DepthwiseConfig
from .engines.fpc import FpcConfig

#: Presets with an arena on the chip need no external memory: a board has to provide a clock and a serial port.
PRESETS: dict[str, Config] = {
    "tiny": Config(
        array=ArrayConfig(lanes=4, columns=2, requant_lanes=1),
        memory=MemoryConfig(
            feature_bytes=8 << 10, weight_bytes=16 << 10, parameter_bytes=4 << 10, tables=4, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=EngineConfigs.of(
            MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=2)
        ),
    ),
    "ecp5-85k": Config(
        array=ArrayConfig(lanes=16, columns=8, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=256 << 10, parameter_bytes=32 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=64),
        engines=EngineConfigs.of(
            MAC, MAXIMUM, DEPTHWISE, XNOR, FPC, ADD, BINARY_MAXIMUM, MULTIPLY, FPC=FpcConfig(width=256)
        ),
    ),
    # As many products as a GW5AST-138C has room for, and as many requantisers as columns. FPC is left out: its factors
    # of 16 bits take two multipliers each, and it takes a third more flip-flops.
    "gw5a-138": Config(
        array=ArrayConfig(lanes=16, columns=16, requant_lanes=16),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=256 << 10, parameter_bytes=32 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=128),
        engines=EngineConfigs.of(
            MAC,
            MAXIMUM,
            DEPTHWISE,
            XNOR,
            ADD,
            BINARY_MAXIMUM,
            MULTIPLY,
            WINOGRAD,
            DEPTHWISE=DepthwiseConfig(taps=3, chains=5),
        ),
        resident_commands=16,
        hands_over=True,
    ),
    "large": Config(
        array=ArrayConfig(lanes=32, columns=32, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=512 << 10, weight_bytes=2 << 20, parameter_bytes=64 << 10, tables=16, list_entries=1024
        ),
        axi=AxiConfig(data_bits=128),
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=5)),
    ),
    "ecp5-85k-on-chip": Config(
        array=ArrayConfig(lanes=16, columns=8, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=128 << 10, parameter_bytes=16 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=64),
        # With FPC, which is a third of all logic, routing failed: see `docs/results.md`.
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY),
        arena=ArenaConfig(on_chip_bytes=64 << 10),
    ),
    # That, with the arena in external memory, and its room for weights.
    "ecp5-85k-sdram": Config(
        array=ArrayConfig(lanes=16, columns=8, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=256 << 10, parameter_bytes=16 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=64),
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY),
    ),
    "ecp5-45k-on-chip": Config(
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=4),
        memory=MemoryConfig(
            feature_bytes=32 << 10, weight_bytes=64 << 10, parameter_bytes=8 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=EngineConfigs.of(
            MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=3)
        ),
        arena=ArenaConfig(on_chip_bytes=32 << 10),
    ),
    "ecp5-25k-on-chip": Config(
        array=ArrayConfig(lanes=8, columns=2, requant_lanes=2),
        memory=MemoryConfig(
            feature_bytes=16 << 10, weight_bytes=32 << 10, parameter_bytes=4 << 10, tables=4, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=2)),
        arena=ArenaConfig(on_chip_bytes=16 << 10),
    ),
    "ecp5-45k-sdram": Config(
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=4),
        memory=MemoryConfig(
            feature_bytes=32 << 10, weight_bytes=64 << 10, parameter_bytes=8 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=EngineConfigs.of(
            MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=3)
        ),
    ),
    "ecp5-25k-sdram": Config(
        array=ArrayConfig(lanes=8, columns=2, requant_lanes=2),
        memory=MemoryConfig(
            feature_bytes=16 << 10, weight_bytes=32 << 10, parameter_bytes=4 << 10, tables=4, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=2)),
    ),
    # Twice the weight memory of an ECP5-85F's, which holds the autoencoder of MLPerf Tiny; without FPC.
    "gw5a-138-on-chip": Config(
        array=ArrayConfig(lanes=16, columns=8, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=256 << 10, parameter_bytes=32 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=64),
        engines=EngineConfigs.of(
            MAC, MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY, DEPTHWISE=DepthwiseConfig(taps=3, chains=2)
        ),
        resident_commands=16,
        hands_over=True,
        arena=ArenaConfig(on_chip_bytes=64 << 10),
    ),
}
DEFAULT_PRESET = "ecp5-85k"

#: Clocks in MHz that presets reach after place and route for an ECP5-85F of speed grade 6, as measured in
#: `docs/results.md`.
ROUTED_MHZ: dict[str, float] = {"ecp5-85k": 100.6}

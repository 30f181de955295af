"""Small accelerators with a butterfly."""

from __future__ import annotations

import dataclasses

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig
from lutterfly.golden.engines import DEPTHWISE, ENGINES, FPC, MAC, MAXIMUM, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS

_TINY = PRESETS["tiny"]

FPC_CONFIGS: dict[str, Config] = {
    # Two columns of weights in the weight memory, three in that of the engine.
    "further": dataclasses.replace(
        _TINY,
        engines=EngineConfigs.of(MAC, DEPTHWISE, FPC, DEPTHWISE=DepthwiseConfig(2), FPC=FpcConfig(16, own_words=16)),
    ),
    "bottom-up": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(8, skips=((0, 2), (0, 1)))),
    ),
    # A word of results is a group, and a pixel is eight words.
    "top-down": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=8),
        memory=dataclasses.replace(_TINY.memory, parameter_bytes=8 << 10),
        axi=AxiConfig(data_bits=64),
        engines=EngineConfigs.of(MAC, MAXIMUM, FPC, FPC=FpcConfig(64, "top-down", skips=((0, 5),))),
    ),
}


def _heavier(direction: str, densities: tuple[str, ...], skips: tuple[tuple[int, int], ...]) -> Config:
    """More weights than the directions have by themselves, and a skip across as many stages as most layers have."""
    return dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=2),
        memory=dataclasses.replace(_TINY.memory, weight_bytes=32 << 10, feature_bytes=16 << 10),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(64, direction, densities, skips)),
    )


#: What drawn networks run on.
DRAWN_CONFIGS: dict[str, Config] = {
    "default": PRESETS[DEFAULT_PRESET],
    "bottom-up": _heavier("bottom-up", ("full", "full", *["cross"] * 4), ((0, 5), (0, 4), (0, 3), (0, 2))),
    "top-down": _heavier("top-down", (*["cross"] * 4, "full", "full"), ((0, 5), (1, 5), (2, 5), (3, 5))),
}

#: For proofs: bursts of two results, of two groups each; and of eight, of which the gate lets more cycles wait than
#: of other windows.
BURST_CONFIGS: dict[str, Config] = {
    name: dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=requant_lanes),
        engines=EngineConfigs.of(MAC, FPC, FPC=FpcConfig(width)),
    )
    for name, requant_lanes, width in (("two", 2, 8), ("eight", 4, 32))
}
BURST_CONFIGS["two, hands over"] = dataclasses.replace(BURST_CONFIGS["two"], hands_over=True)

#: For proofs: bursts of two results, windows of three others, and windows of one. Or windows of two neighbours, which
#: may take as many cycles as there can be, and one more.
CHAIN_CONFIGS: dict[str, Config] = {
    "chains": dataclasses.replace(
        BURST_CONFIGS["two, hands over"],
        engines=EngineConfigs.of(MAC, FPC, DEPTHWISE, FPC=FpcConfig(8), DEPTHWISE=DepthwiseConfig(taps=1, chains=3)),
    ),
    "neighbours": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=1),
        engines=EngineConfigs.of(MAC, FPC, WINOGRAD, FPC=FpcConfig(16)),
        hands_over=True,
    ),
}

"""Small accelerators with a butterfly."""

from __future__ import annotations

import dataclasses

from lutterfly.golden.config import DEFAULT_PRESET, PRESETS, ArrayConfig, AxiConfig, Config, DepthwiseConfig, FpcConfig
from lutterfly.golden.isa import Engine

_TINY = PRESETS["tiny"]

FPC_CONFIGS: dict[str, Config] = {
    # Two columns of weights in the weight memory, three in that of the engine.
    "further": dataclasses.replace(
        _TINY, engines=(Engine.MAC, Engine.DEPTHWISE, Engine.FPC), fpc=FpcConfig(16, further_words=16)
    ),
    "bottom-up": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=tuple(Engine),
        depthwise=DepthwiseConfig(taps=3),
        fpc=FpcConfig(8, skips=((0, 2), (0, 1))),
    ),
    # A word of results is a group, and a pixel is eight words.
    "top-down": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=8),
        memory=dataclasses.replace(_TINY.memory, parameter_bytes=8 << 10),
        axi=AxiConfig(data_bits=64),
        engines=(Engine.MAC, Engine.MAXIMUM, Engine.FPC),
        fpc=FpcConfig(64, "top-down", skips=((0, 5),)),
    ),
}


def _heavier(direction: str, densities: tuple[str, ...], skips: tuple[tuple[int, int], ...]) -> Config:
    """More weights than the directions have by themselves, and a skip across as many stages as most layers have."""
    return dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=2),
        memory=dataclasses.replace(_TINY.memory, weight_bytes=32 << 10, feature_bytes=16 << 10),
        engines=tuple(Engine),
        depthwise=DepthwiseConfig(taps=3),
        fpc=FpcConfig(64, direction, densities, skips),
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
        engines=(Engine.MAC, Engine.FPC),
        fpc=FpcConfig(width),
    )
    for name, requant_lanes, width in (("two", 2, 8), ("eight", 4, 32))
}

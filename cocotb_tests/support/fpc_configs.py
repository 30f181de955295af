"""Small accelerators with a butterfly."""

from __future__ import annotations

import dataclasses

from lutterfly.golden.config import PRESETS, ArrayConfig, AxiConfig, Config, DepthwiseConfig, FpcConfig
from lutterfly.golden.isa import Engine

_TINY = PRESETS["tiny"]

FPC_CONFIGS: dict[str, Config] = {
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
        axi=AxiConfig(data_bits=64),
        engines=(Engine.MAC, Engine.MAXIMUM, Engine.FPC),
        fpc=FpcConfig(64, "top-down", skips=((0, 5),)),
    ),
}

"""The accelerators that networks are tried on: two presets, and odd ones at the limits of what is legal."""

from __future__ import annotations

import dataclasses

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig, MemoryConfig
from lutterfly.golden.engines import ADD, DEPTHWISE, MAC, MAXIMUM, MULTIPLY, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.add import AddConfig
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.presets import PRESETS


def _odd(
    array: tuple[int, int, int],
    memory: tuple[int, ...],
    axi: tuple[int, int],
    taps: int,
    tables: int,
    resident: int,
    *more: Engine,
) -> Config:
    """``array``: lanes, columns, requant_lanes; ``memory``: bytes of features, weights and parameters, tables, list
    entries; ``axi``: data bits, outstanding; ``taps`` of DEPTHWISE, pairs of ``tables`` of ADD; ``more`` engines."""
    return Config(
        ArrayConfig(*array),
        MemoryConfig(*memory),
        AxiConfig(*axi),
        EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, *more, DEPTHWISE=DepthwiseConfig(taps), ADD=AddConfig(tables)),
        resident_commands=resident,
    )


ODD: dict[str, Config] = {
    # Results never bind: as many requantisers as columns. The bus has one burst in flight. Pairs of results as well.
    "unbound": _odd((4, 4, 4), (4 << 10, 8 << 10, 2 << 10, 2, 512), (32, 1), 4, 2, 4, WINOGRAD),
    # Results bind most: one requantiser for eight columns, and for eight lanes of a depthwise layer.
    "bound": _odd((8, 8, 1), (16 << 10, 32 << 10, 4 << 10, 4, 1024), (64, 16), 5, 2, 16),
    # One column, no chain, the smallest memories.
    "least": _odd((4, 1, 1), (2 << 10, 4 << 10, 512, 4, 128), (32, 3), 1, 1, 4),
    # Windows of one piece whose groups are half of it.
    "square": _odd((16, 16, 8), (32 << 10, 64 << 10, 8 << 10, 8, 1024), (128, 2), 16, 4, 8, WINOGRAD),
    # A narrow array with wide words, of which a result takes many groups.
    "wide": _odd((32, 2, 1), (32 << 10, 32 << 10, 8 << 10, 16, 1024), (32, 8), 2, 16, 32),
    # The bus is as wide as a word.
    "level": _odd((8, 4, 2), (8 << 10, 16 << 10, 4 << 10, 4, 2048), (64, 5), 3, 2, 64, WINOGRAD),
}
_PRESETS: dict[str, Config] = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")}


def with_products(name: str) -> str:
    """The name of the same accelerator with the engine for products of activations, which both presets have."""
    return name if name in _PRESETS else f"{name} with products"


#: With that engine.
_MULTIPLYING = {
    with_products(name): dataclasses.replace(config, engines=config.engines.having(MULTIPLY, MULTIPLY.configuration()))
    for name, config in ODD.items()
}
CONFIGS: dict[str, Config] = _PRESETS | ODD | _MULTIPLYING

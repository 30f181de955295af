"""The accelerators that networks are tried on: two presets, and odd ones at the limits of what is legal."""

from __future__ import annotations

from lutterfly.golden.config import PRESETS, ArrayConfig, AxiConfig, Config, MemoryConfig


def _odd(array: tuple[int, int, int, int], memory: tuple[int, ...], axi: tuple[int, int], resident: int) -> Config:
    """``array``: lanes, columns, requant_lanes, depthwise_taps; ``memory``: bytes of features, weights and parameters,
    tables, list entries, pairs of Add tables; ``axi``: data bits, outstanding."""
    return Config(ArrayConfig(*array), MemoryConfig(*memory), AxiConfig(*axi), resident_commands=resident)


ODD: dict[str, Config] = {
    # Results never bind: as many requantisers as columns. The bus has one burst in flight.
    "unbound": _odd((4, 4, 4, 4), (4 << 10, 8 << 10, 2 << 10, 2, 512, 2), (32, 1), 4),
    # Results bind most: one requantiser for eight columns, and for eight lanes of a depthwise layer.
    "bound": _odd((8, 8, 1, 5), (16 << 10, 32 << 10, 4 << 10, 4, 1024, 2), (64, 16), 16),
    # One column, no chain, the smallest memories.
    "least": _odd((4, 1, 1, 1), (2 << 10, 4 << 10, 512, 4, 128, 1), (32, 3), 4),
    # Windows of one piece whose groups are half of it.
    "square": _odd((16, 16, 8, 16), (32 << 10, 64 << 10, 8 << 10, 8, 1024, 4), (128, 2), 8),
    # A narrow array with wide words, of which a result takes many groups.
    "wide": _odd((32, 2, 1, 2), (32 << 10, 32 << 10, 8 << 10, 16, 1024, 16), (32, 8), 32),
    # The bus is as wide as a word.
    "level": _odd((8, 4, 2, 3), (8 << 10, 16 << 10, 4 << 10, 4, 2048, 2), (64, 5), 64),
}
CONFIGS: dict[str, Config] = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")} | ODD

"""The memory of FPC: columns of weights that the weight memory has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine import OwnMemory
from .configuration import FpcConfig

if TYPE_CHECKING:
    from ...config import Config


def _size_bytes(config: Config, own: FpcConfig) -> int:
    return own.own_words * own.own_word_bytes(config.array) if own.own_columns(config.array) else 0


FPC_WEIGHT = OwnMemory(
    "FPC_WEIGHT",
    "FPC weight memory",
    write_bytes=lambda lanes: lanes,
    unit_bytes=lambda config, own: own.own_word_bytes(config.array),
    size_bytes=_size_bytes,
)

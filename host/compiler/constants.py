"""Constants: what the prologue loads into the weight, parameter, table and list memories; everything stays resident."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...golden.config import Config
from ...golden.isa import LIST_CLEAR, LIST_ENTRY_BYTES, LIST_FIRE, TABLE_BYTES, LocalMemory
from ...golden.requant import PARAMETER_BYTES, pack_parameters


class Constants:
    """Builds the images of four memories; equal step lists and equal tables are stored once.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config):
        self.config = config
        self._weights: list[bytes] = []
        self._weight_words = 0
        self._parameters = bytearray()
        self._tables: list[bytes] = []
        self._entries = bytearray()
        self._lists: dict[bytes, int] = {}
        self._identity: int | None = None

    def add_weights(self, words: npt.NDArray[np.int8]) -> int:
        """Append int8[words, columns, lanes]; returns the first word's number."""
        first = self._weight_words
        self._weight_words += len(words)
        self._weights.append(words.tobytes())
        return first

    def add_parameters(self, bias: npt.NDArray[np.int32], multiplier: npt.NDArray[np.float32]) -> int:
        """Append int32[channels] and float32[channels], up to a whole word; returns the first word's number."""
        first = len(self._parameters) // self.config.parameter_word_bytes
        self._parameters += pack_parameters(bias, multiplier).astype("<u8").tobytes()
        self._parameters += bytes(-len(self._parameters) % self.config.parameter_word_bytes)
        return first

    def identity_parameters(self) -> int:
        """The parameter word that leaves int8 codes as they are."""
        if self._identity is None:
            lanes = self.config.array.requant_lanes
            self._identity = self.add_parameters(np.zeros(lanes, np.int32), np.ones(lanes, np.float32))
        return self._identity

    def add_table(self, table: npt.NDArray[np.int8]) -> int:
        """Number of the table int8[256]."""
        image = table.tobytes()
        if image not in self._tables:
            self._tables.append(image)
        return self._tables.index(image)

    def add_list(self, offsets: npt.NDArray[np.int64]) -> int:
        """First entry of the step list with these offsets, int64[steps]."""
        entries = offsets.astype("<u4")
        entries[0] |= LIST_CLEAR
        entries[-1] |= LIST_FIRE
        image = entries.tobytes()
        if image not in self._lists:
            self._lists[image] = len(self._entries) // LIST_ENTRY_BYTES
            self._entries += image
        return self._lists[image]

    @property
    def table_count(self) -> int:
        """Tables that differ."""
        return len(self._tables)

    def images(self) -> dict[LocalMemory, bytes]:
        """What each memory holds from its address 0 on."""
        return {
            LocalMemory.WEIGHT: b"".join(self._weights),
            LocalMemory.PARAMETER: bytes(self._parameters),
            LocalMemory.TABLE: b"".join(self._tables),
            LocalMemory.LIST: bytes(self._entries),
        }

    def excess(self) -> list[str]:
        """One sentence for each memory that is too small."""
        memory = self.config.memory
        limits = {
            LocalMemory.WEIGHT: ("weight memory", memory.weight_bytes),
            LocalMemory.PARAMETER: ("parameter memory", memory.parameter_bytes),
            LocalMemory.TABLE: ("table memory", memory.tables * TABLE_BYTES),
            LocalMemory.LIST: ("list memory", memory.list_entries * LIST_ENTRY_BYTES),
        }
        return [
            f"network needs {len(image)} bytes of {limits[kind][0]}, the configuration has {limits[kind][1]}; "
            "choose a larger --config"
            for kind, image in self.images().items()
            if len(image) > limits[kind][1]
        ]


assert PARAMETER_BYTES == 8, "Config.parameter_word_bytes counts 8 bytes for each parameter"

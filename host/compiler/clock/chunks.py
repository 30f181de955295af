"""The chunks in which a LOAD is written, and the beats that bring them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....golden.config import Config
from ....golden.engines import find_memory
from ....golden.memories import LocalMemory


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a LOAD: pieces without a gap between them on the bus, each of chunks and what is left after the last
    whole one.

    Attributes
    ----------
    address, size : int
        Of its bytes outside.
    beat_bytes, piece_bytes, chunk_bytes : int
    """

    address: int
    size: int
    beat_bytes: int
    piece_bytes: int
    chunk_bytes: int

    def ended(self, beats: int) -> int:
        """Chunks that lie in the first beats with their last byte."""
        pieces, rest = divmod(self._position(beats), self.piece_bytes)
        return pieces * -(-self.piece_bytes // self.chunk_bytes) + rest // self.chunk_bytes

    def begun(self, beats: int) -> int:
        """Chunks that lie in the first beats with their first byte."""
        return self.ended(beats) + (self._position(beats) % self.piece_bytes % self.chunk_bytes > 0)

    def crosses(self, beats: int) -> bool:
        """The last chunk that ends in the first beats has begun before the last one of these: it is written as soon as
        that comes, without a place of its own for it."""
        return self.begun(beats - 1) >= self.ended(beats)

    def _position(self, beats: int) -> int:
        return max(min(beats * self.beat_bytes - self.address % self.beat_bytes, self.size), 0)


def runs(config: Config, fields: Mapping[str, int]) -> Iterator[Run]:
    """The runs of a LOAD."""
    memory, beat_bytes, chunk_bytes = find_memory(fields["memory"]), config.axi.data_bytes, config.axi.data_bytes
    if memory is not LocalMemory.FEATURE:
        chunk_bytes = min(chunk_bytes, memory.write_bytes(config.array.lanes))
    size = fields["row_pieces"] * fields["piece_bytes"]
    for row in range(fields["rows"]):
        for fold in range(fields["folds"]):
            address = fields["external"] + row * fields.get("external_row", 0) + fold * fields.get("external_fold", 0)
            yield Run(address, size, beat_bytes, fields["piece_bytes"], chunk_bytes)

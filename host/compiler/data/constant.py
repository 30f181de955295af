"""Constants: what an operation needs in a memory."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Constant:
    """What an operation needs in one of the memories for constants.

    Attributes
    ----------
    image : bytes
        From the first unit of the memory on that holds it.
    tile_bytes : tuple of int
        Bytes of each output tile, which lie one after the other. Empty where all tiles share the image.
    """

    image: bytes = field(repr=False)
    tile_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert not self.tile_bytes or sum(self.tile_bytes) == len(self.image), "an image of other tiles"

    def size(self, tiles: range) -> int:
        """Bytes of some tiles."""
        return sum(self.tile_bytes[tiles.start : tiles.stop])

    def part(self, tiles: range) -> bytes:
        """What some tiles need: all of it where they share it."""
        if not self.tile_bytes:
            return self.image
        start = self.size(range(tiles.start))
        return self.image[start : start + self.size(tiles)]

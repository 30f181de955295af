"""Constants: what an operation needs in a memory."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of a tensor as it lies in external memory, in the place of an image that is known.

    Attributes
    ----------
    tensor : str
    first, size : int
        The first byte, and how many.
    """

    tensor: str
    first: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Stored:
        start, stop, _ = part.indices(self.size)
        return Stored(self.tensor, self.first + start, stop - start)


@dataclass(frozen=True, eq=False)
class Constant:
    """What an operation needs in one of the memories for constants.

    Attributes
    ----------
    image : bytes or Stored
        From the first unit of the memory on that holds it.
    tile_bytes : tuple of int
        Bytes of each output tile, which lie one after the other. Empty where all tiles share the image.
    """

    image: bytes | Stored = field(repr=False)
    tile_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert not self.tile_bytes or sum(self.tile_bytes) == len(self.image), "an image of other tiles"

    @property
    def is_stored(self) -> bool:
        """Whether it is known at run time only."""
        return isinstance(self.image, Stored)

    def size(self, tiles: range) -> int:
        """Bytes of some tiles."""
        return sum(self.tile_bytes[tiles.start : tiles.stop])

    def part(self, tiles: range) -> bytes | Stored:
        """What some tiles need: all of it where they share it."""
        if not self.tile_bytes:
            return self.image
        start = self.size(range(tiles.start))
        return self.image[start : start + self.size(tiles)]

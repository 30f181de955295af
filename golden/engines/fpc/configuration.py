"""What FPC is built with: the greatest butterfly, see :mod:`lutterfly.golden.numerics.butterfly`."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import check, check_integers, is_power_of_two
from ...config_parts import ArrayConfig
from ...numerics.butterfly import Pattern
from ..engine import EngineConfig
from .fields import FIELDS

#: Skips that a command has a bit for.
_MOST_SKIPS = next(field.width for field in FIELDS if field.name == "skips")


@dataclass(frozen=True, slots=True)
class FpcConfig(EngineConfig):
    """What FPC is built with.

    Attributes
    ----------
    width : int
        Channels at most, a power of two.
    direction : str
        ``"bottom-up"`` or ``"top-down"``.
    densities : tuple of str
        Of each stage; none for those that belong to the direction.
    skips : tuple of (int, int)
        Those that there can be.
    own_words : int
        Words of a memory for the columns of weights that are more than the weight memory has, if there are any.
    """

    width: int = 128
    direction: str = "bottom-up"
    densities: tuple[str, ...] = ()
    skips: tuple[tuple[int, int], ...] = ()
    own_words: int = 64

    def __post_init__(self) -> None:
        check_integers(self, "width", "own_words")
        check(is_power_of_two(self.own_words), "own_words", "a power of two", self.own_words)
        check(self.own_words <= 256, "own_words", "at most 256", self.own_words)
        check(is_power_of_two(self.width), "width", "a power of two", self.width)
        check(2 <= self.width <= 256, "width", "between 2 and 256", self.width)
        check(len(self.skips) <= _MOST_SKIPS, "skips", f"at most {_MOST_SKIPS}", len(self.skips))
        # Direction, densities and skips that do not fit the width are errors of the pattern's.
        _ = self.pattern

    @property
    def pattern(self) -> Pattern:
        """The butterfly."""
        return Pattern.of(self.width, self.width, self.direction, self.densities or None, self.skips)

    @property
    def columns(self) -> int:
        """Weights of a value: columns of weights."""
        return self.pattern.weights // self.width

    def own_columns(self, array: ArrayConfig) -> int:
        """Columns of weights that the weight memory has not, and of multipliers for them."""
        return max(self.columns - array.columns, 0)

    def own_word_bytes(self, array: ArrayConfig) -> int:
        """Bytes of a word of those, a power of two: lanes weights for each."""
        return array.lanes << max(self.own_columns(array) - 1, 0).bit_length()

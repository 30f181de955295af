"""What ADD is built with."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import check, check_integers, is_power_of_two
from ..engine import EngineConfig


@dataclass(frozen=True, slots=True)
class AddConfig(EngineConfig):
    """What ADD is built with.

    Attributes
    ----------
    tables : int
        Pairs of tables, a power of two.
    """

    tables: int = 2

    def __post_init__(self) -> None:
        check_integers(self, "tables")
        check(is_power_of_two(self.tables), "tables", "a power of two", self.tables)
        check(self.tables <= 16, "tables", "at most 16", self.tables)

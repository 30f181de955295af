"""What DEPTHWISE is built with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...checks import check, check_integers
from ..engine import EngineConfig

if TYPE_CHECKING:
    from ...config import Config


@dataclass(frozen=True, slots=True)
class DepthwiseConfig(EngineConfig):
    """What DEPTHWISE is built with.

    Attributes
    ----------
    taps : int
        Columns of the array that chain (T).
    """

    taps: int = 3

    def __post_init__(self) -> None:
        check_integers(self, "taps")
        check(self.taps >= 1, "taps", "at least 1", self.taps)

    def check(self, config: Config) -> None:
        """As many columns as the array has."""
        columns = config.array.columns
        check(self.taps <= columns, "DEPTHWISE.taps", f"at most columns ({columns})", self.taps)

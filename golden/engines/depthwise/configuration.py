"""What DEPTHWISE is built with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...checks import check, check_integers
from ...records import LATER
from ..engine import EngineConfig

if TYPE_CHECKING:
    from ...config import Config
    from ...config_parts import ArrayConfig

#: A window has a result for each of them, and more windows than one have to find room in the result FIFO.
MOST_CHAINS = 6


@dataclass(frozen=True, slots=True)
class DepthwiseConfig(EngineConfig):
    """What DEPTHWISE is built with.

    Attributes
    ----------
    taps : int
        Columns of the array that chain (T).
    chains : int
        Such chains, side by side: with several the columns of the array stand in rows of ``taps``.
    """

    taps: int = 3
    chains: int = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        check_integers(self, "taps", "chains")
        check(self.taps >= 1, "taps", "at least 1", self.taps)
        check(1 <= self.chains <= MOST_CHAINS, "chains", f"between 1 and {MOST_CHAINS}", self.chains)

    def check(self, config: Config) -> None:
        """As many columns as the array has."""
        columns = config.array.columns
        check(self.taps <= columns, "DEPTHWISE.taps", f"at most columns ({columns})", self.taps)
        most = columns // self.taps
        check(self.chains <= most, "DEPTHWISE.chains", f"at most columns / taps ({most})", self.chains)

    def absent_fields(self) -> tuple[str, ...]:
        """What is said of further chains, if there is none."""
        return () if self.chains > 1 else ("further", "destination_further")

    def row_columns(self, array: ArrayConfig) -> int:
        """Those of a chain, if there are several."""
        return self.taps if self.chains > 1 else array.columns

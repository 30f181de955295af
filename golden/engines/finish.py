"""What makes codes of the totals of an engine: its finishes, of which each command chooses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..elements import NARROW_BITS
from ..numerics.requant import requantise

#: Cycles from the addends of all finishes to the choice between them.
CHOICE_LATENCY = 1


@dataclass(frozen=True, kw_only=True)
class Finish:
    """One way from totals to codes.

    There are three kinds. ``REQUANTISE`` is what every core has. Another one may give the requantiser *addends* of its
    own, in place of accumulator and bias. A *whole* finish makes the codes itself, of all lanes of a result at a time,
    without requantiser and tables.

    Attributes
    ----------
    name : str
        In lower case, as it stands in the names of signals.
    codes : callable
        The twin: totals of a tile's windows (int32[..., lanes] or int64[..., lanes]), parameters and command to
        int8[..., lanes]. Parameters are uint64[lanes], of a whole finish biases int16[lanes].
    chosen : callable or None
        Fields of the engine's commands to one bit: whether a command wants it, in an expression that means the same for
        NumPy integers and for Amaranth values. None: every command that chooses no other.
    is_whole : bool
        Its totals are of ``NARROW_BITS`` bits, and so are its biases.
    addends_latency : int or None
        Cycles in which the hardware makes its addends of totals; None if it has none of its own.
    fields : tuple of str
        Fields of the engine's commands that the hardware wants to know with each group of results.
    """

    name: str
    codes: Callable[[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, int]], npt.NDArray[np.int8]]
    chosen: Callable[[Any], Any] | None = None
    is_whole: bool = False
    addends_latency: int | None = None
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.is_whole and self.addends_latency is not None:
            raise ValueError(f"the finish {self.name} must be whole or have addends, not both")

    @property
    def has_hardware(self) -> bool:
        """Whether it needs more than the requantiser."""
        return self.is_whole or self.addends_latency is not None

    def at_once(self, config: Config) -> int:
        """Lanes of a group: results that are finished in one cycle, with one word of parameters."""
        return config.array.lanes if self.is_whole else config.array.requant_lanes

    def is_built(self, config: Config) -> bool:
        """Whether a configuration can have it: a word of parameters holds a bias for each lane of a whole finish."""
        return not self.is_whole or config.array.lanes * NARROW_BITS // 8 <= config.parameter_word_bytes


def _requantise(
    totals: npt.NDArray[Any], parameters: npt.NDArray[Any], command: Mapping[str, int]
) -> npt.NDArray[np.int8]:
    return requantise(totals, parameters, *clamp_of(command))


def clamp_of(command: Mapping[str, int]) -> tuple[int, int, int]:
    """Zero point and limits of a command's codes."""
    return command["zero_point"], command["low"], command["high"]


#: Accumulator and bias are added, scaled and rounded.
REQUANTISE = Finish(name="requantise", codes=_requantise)

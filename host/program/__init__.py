"""A compiled program, as sessions and reports read it."""

from .body import BodyCommand, bus_bytes
from .outcome import ConstantMemory, CoreOutcome, Outcome
from .spread_by import SpreadBy

__all__ = ["BodyCommand", "ConstantMemory", "CoreOutcome", "Outcome", "SpreadBy", "bus_bytes"]

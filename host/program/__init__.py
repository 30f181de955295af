"""A compiled program, as sessions and reports read it."""

from .body import BodyCommand, bus_bytes
from .outcome import ConstantMemory, Outcome

__all__ = ["BodyCommand", "ConstantMemory", "Outcome", "bus_bytes"]

"""A compiled program, as those see it who show it."""

from .body import BodyCommand, bus_bytes
from .outcome import ConstantMemory, Outcome

__all__ = ["BodyCommand", "ConstantMemory", "Outcome", "bus_bytes"]

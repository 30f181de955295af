"""A compiled program, as sessions and reports read it."""

from .body import BodyCommand, bus_beats, bus_bytes
from .bus_use import BusUse
from .outcome import ConstantMemory, CoreOutcome, Outcome
from .speed import Speed
from .spread_by import SpreadBy

__all__ = [
    "BodyCommand",
    "BusUse",
    "ConstantMemory",
    "CoreOutcome",
    "Outcome",
    "Speed",
    "SpreadBy",
    "bus_beats",
    "bus_bytes",
]

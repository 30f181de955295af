"""A compiled program as compiler, sessions and reports see it: its commands, its speed, its division over cores."""

from .commands import Bodies, BodyCommand, BusUse, bus_beats, bus_bytes, read_body
from .speed import Speed, SpreadBy, spread_of

__all__ = [
    "Bodies",
    "BodyCommand",
    "BusUse",
    "Speed",
    "SpreadBy",
    "bus_beats",
    "bus_bytes",
    "read_body",
    "spread_of",
]

"""What the simulated memory does, and what a run ends in."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...golden.timing.overheads import OVERHEADS


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How the simulated external memory behaves; the defaults are the ideal bus that predictions are made for.

    Attributes
    ----------
    read_latency : int
        Cycles from a read address to its first beat.
    write_latency : int
        Cycles from the last beat of a write to its response.
    beat_interval : int
        Cycles from beat to beat; 1 is the full bandwidth.
    outstanding : int
        Bursts in flight, for reads and for writes.
    accept, answer : bool
        Without ``accept``, addresses are not accepted; without ``answer``, accepted ones wait until it is set again.
    hold : int
        Most cycles by which the answer to a read is late, at random, while reads of other cores are answered.
    seed : int
        Of the stalls.
    stall_probability : float
        Of a stall, in each cycle on each channel, the register port included.
    """

    read_latency: int = OVERHEADS.read_latency
    write_latency: int = OVERHEADS.write_latency
    beat_interval: int = 1
    outstanding: int = OVERHEADS.bursts
    accept: bool = True
    answer: bool = True
    hold: int = 0
    seed: int = 0
    stall_probability: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("read_latency", 1, 100_000),
            ("write_latency", 1, 100_000),
            ("beat_interval", 1, 100_000),
            ("outstanding", 1, 1024),
            ("hold", 0, 100_000),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be between {low} and {high}, not {value}")
        if not 0 <= self.stall_probability <= 0.99:
            raise ValueError(f"stall_probability must be between 0 and 0.99, not {self.stall_probability}")


class Outcome(enum.IntEnum):
    """Why :meth:`Simulator.run` returned."""

    LIMIT = 0
    INTERRUPT = 1
    COMPUTE_DONE = 2


class EventKind(enum.IntEnum):
    """What the trace records: pulses of the cores' ``trace`` outputs, and that the interrupt line rises."""

    ISSUE_FIRST = 0
    ISSUE_LAST = 1
    COMPUTE_DONE = 2
    DMA_BEGIN = 3
    DMA_DONE = 4
    INTERRUPT = 5


class Fault(enum.IntEnum):
    """The AXI responses that a memory gives to tell of trouble."""

    SLAVE = 2
    DECODE = 3


class SimulationError(RuntimeError):
    """The simulated core broke the rules of its buses or an assertion, or does not answer on its register port."""

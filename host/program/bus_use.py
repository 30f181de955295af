"""What cores move over the bus that they share, and whether that is what holds them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.isa import Opcode
from ...golden.timing.latencies import command_beats
from ...golden.units import Queue
from .body import BodyCommand, bus_beats

#: The part of the cycles with a beat, from which on a channel is what holds cores up: they seldom ask all the time.
_BOUND = 0.8


@dataclass(frozen=True, slots=True)
class BusUse:
    """Beats of an inference on the two channels for data, each of which takes one a cycle.

    Attributes
    ----------
    reads, writes : int
    cycles : int
        Of the inference.
    """

    reads: int
    writes: int
    cycles: int

    @classmethod
    def of(cls, config: Config, cores: Iterable[Mapping[Queue, Sequence[BodyCommand]]], cycles: int) -> BusUse:
        """What the queues of some cores move; the commands of one that is longer than its ring as well."""
        beats = dict.fromkeys(Opcode, 0)
        fetched = 0
        for queues in cores:
            for commands in queues.values():
                for command in commands:
                    beats[command.opcode] += bus_beats(config, command.fields)
                # END is one more.
                fetched += len(commands) + 1 if len(commands) >= config.resident_commands else 0
        return cls(beats[Opcode.LOAD] + fetched * command_beats(config), beats[Opcode.STORE], cycles)

    @property
    def is_bound(self) -> bool:
        """Whether one of the channels is busy nearly all the time."""
        return max(self.reads, self.writes) >= _BOUND * self.cycles

    @property
    def text(self) -> str:
        """The beats in words, and whether they are the bound."""
        found = (
            f"{self.reads:,} beats read and {self.writes:,} written in {self.cycles:,} cycles "
            f"({self.reads / self.cycles:.0%} and {self.writes / self.cycles:.0%})"
        )
        return f"{found}; the bus is the bound" if self.is_bound else found

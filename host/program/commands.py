"""The commands of a program's body: their fields, their predicted cycles, and their use of the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.engines import decode
from ...golden.isa import COMMAND_BYTES, CommandFields, Load, Opcode, Store
from ...golden.program.outline import NONE
from ...golden.program.program import CoreProgram
from ...golden.timing.latencies import burst_beats, command_beats
from ...golden.units import Queue

# The commands, read from a program.


@dataclass(frozen=True, eq=False, slots=True)
class BodyCommand:
    """One command of the body.

    Attributes
    ----------
    fields : CommandFields
    layer : int or None
        The layer that it belongs to: it computes the layer, loads its inputs, or stores its results.
    waits_for : int or None
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already.
    begin, end : int
        Predicted: the cycle in which a unit gets a command of the DMA queue or in which a COMPUTE issues its first
        step, and that of its completion.
    """

    fields: CommandFields
    layer: int | None
    waits_for: int | None
    begin: int
    end: int

    @property
    def opcode(self) -> Opcode:
        """The kind of command."""
        return self.fields.opcode

    @property
    def after(self) -> bool:
        """Whether it begins only when every earlier command of its queue has completed."""
        return bool(self.fields.after)


def read_body(core: CoreProgram) -> dict[Queue, tuple[BodyCommand, ...]]:
    """Read the commands of each queue of a core, END left out.

    Raises
    ------
    ValueError
        If there is no such opcode or engine.
    """
    return {queue: _read_queue(core, queue) for queue in Queue}


def _read_queue(core: CoreProgram, queue: Queue) -> tuple[BodyCommand, ...]:
    data, outline, found = core.body[queue].commands, core.outline[queue], []
    columns = zip(outline.layers, outline.waits_for, outline.begins, outline.ends, strict=True)
    for index, (layer, waits_for, begin, end) in enumerate(columns):
        fields = decode(data[index * COMMAND_BYTES : (index + 1) * COMMAND_BYTES])
        found.append(BodyCommand(fields, _index(layer), _index(waits_for), begin, end))
    return tuple(found)


def _index(value: int) -> int | None:
    return None if value == NONE else value


#: The commands of each core's body, by queue.
Bodies = Sequence[Mapping[Queue, Sequence[BodyCommand]]]

# The bus: what commands move, and whether the bus that cores share is the bottleneck.

#: The share of cycles with a beat, from which on a channel is the bottleneck: cores seldom ask all the time.
_BOUND = 0.8


def bus_bytes(fields: CommandFields) -> int:
    """Return the bytes that a command moves over the bus; 0 for a command that moves none."""
    match fields:
        case Load() as load:
            return load.rows * load.folds * load.row_pieces * load.piece_bytes
        case Store() as store:
            return store.rows * store.row_bytes
        case _:
            return 0


def bus_beats(config: Config, fields: CommandFields) -> int:
    """Return the beats of a command's data on the bus, if each of its runs begins as its first one does."""
    match fields:
        case Load() as load:
            runs, size, external = load.rows * load.folds, load.row_pieces * load.piece_bytes, load.external
        case Store() as store:
            runs, size, external = store.rows, store.row_bytes, store.external
        case _:
            return 0
    return runs * sum(burst_beats(config, external, size))


@dataclass(frozen=True, slots=True)
class BusUse:
    """Beats of an inference on the two channels for data, each of which takes one a cycle.

    Attributes
    ----------
    reads, writes : int
    cycles : int
        The cycles of the inference.
    """

    reads: int
    writes: int
    cycles: int

    @classmethod
    def of(cls, config: Config, bodies: Bodies, cycles: int) -> BusUse:
        """Count the beats of the queues of some cores, and of fetching the commands of a queue longer than its ring."""
        beats = dict.fromkeys(Opcode, 0)
        fetched = 0
        for queues in bodies:
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

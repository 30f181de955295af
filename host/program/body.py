"""The commands of a program's body, with what its outline says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.engines import decode
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.program.outline import NONE, QueueOutline
from ...golden.timing.latencies import burst_beats


@dataclass(frozen=True, eq=False, slots=True)
class BodyCommand:
    """One command of the body.

    Attributes
    ----------
    opcode : Opcode
    fields : dict
    layer : int or None
        The layer that it belongs to: that it computes, that reads what it loads, that has computed what it stores.
    waits_for : int or None
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already.
    begin, end : int
        Predicted: the cycle in which a unit gets a command of the DMA queue or in which a COMPUTE issues its first
        step, and that of its completion.
    """

    opcode: Opcode
    fields: Mapping[str, int]
    layer: int | None
    waits_for: int | None
    begin: int
    end: int

    @property
    def after(self) -> bool:
        """Whether it begins only when every earlier command of its queue has completed."""
        return bool(self.fields["after"])


def read_queue(data: bytes, outline: QueueOutline) -> tuple[BodyCommand, ...]:
    """The commands of a queue in their order, END left out.

    Raises
    ------
    ValueError
        If there is no such opcode or engine.
    """
    found = []
    columns = zip(outline.layers, outline.waits_for, outline.begins, outline.ends, strict=True)
    for index, (layer, waits_for, begin, end) in enumerate(columns):
        opcode, fields = decode(data[index * COMMAND_BYTES : (index + 1) * COMMAND_BYTES])
        found.append(BodyCommand(opcode, fields, _index(layer), _index(waits_for), begin, end))
    return tuple(found)


def bus_bytes(opcode: Opcode, fields: Mapping[str, int]) -> int:
    """Bytes that a command moves over the bus; 0 for FILL and COMPUTE."""
    if opcode is Opcode.LOAD:
        return fields["rows"] * fields["folds"] * fields["row_pieces"] * fields["piece_bytes"]
    return fields["rows"] * fields["row_bytes"] if opcode is Opcode.STORE else 0


def bus_beats(config: Config, opcode: Opcode, fields: Mapping[str, int]) -> int:
    """Beats of a command's data on the bus, where each of its runs begins as its first one does."""
    if opcode is Opcode.LOAD:
        runs, size = fields["rows"] * fields["folds"], fields["row_pieces"] * fields["piece_bytes"]
    elif opcode is Opcode.STORE:
        runs, size = fields["rows"], fields["row_bytes"]
    else:
        return 0
    return runs * sum(burst_beats(config, fields["external"], size))


def _index(value: int) -> int | None:
    return None if value == NONE else value

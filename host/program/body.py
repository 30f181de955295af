"""The commands of a program's body, with what its outline says of them."""

from __future__ import annotations

from dataclasses import dataclass

from ...golden.config import Config
from ...golden.engines import decode
from ...golden.isa import COMMAND_BYTES, CommandFields, Load, Opcode, Store
from ...golden.program.outline import NONE, QueueOutline
from ...golden.timing.latencies import burst_beats


@dataclass(frozen=True, eq=False, slots=True)
class BodyCommand:
    """One command of the body.

    Attributes
    ----------
    fields : CommandFields
    layer : int or None
        The layer that it belongs to: that it computes, that reads what it loads, that has computed what it stores.
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
        """What it is told to do."""
        return self.fields.opcode

    @property
    def after(self) -> bool:
        """Whether it begins only when every earlier command of its queue has completed."""
        return bool(self.fields.after)


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
        fields = decode(data[index * COMMAND_BYTES : (index + 1) * COMMAND_BYTES])
        found.append(BodyCommand(fields, _index(layer), _index(waits_for), begin, end))
    return tuple(found)


def bus_bytes(fields: CommandFields) -> int:
    """Bytes that a command moves over the bus; 0 for what moves none."""
    match fields:
        case Load() as load:
            return load.rows * load.folds * load.row_pieces * load.piece_bytes
        case Store() as store:
            return store.rows * store.row_bytes
        case _:
            return 0


def bus_beats(config: Config, fields: CommandFields) -> int:
    """Beats of a command's data on the bus, where each of its runs begins as its first one does."""
    match fields:
        case Load() as load:
            runs, size, external = load.rows * load.folds, load.row_pieces * load.piece_bytes, load.external
        case Store() as store:
            runs, size, external = store.rows, store.row_bytes, store.external
        case _:
            return 0
    return runs * sum(burst_beats(config, external, size))


def _index(value: int) -> int | None:
    return None if value == NONE else value

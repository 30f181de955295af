"""The commands of a queue that have begun and not completed, oldest first."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden.isa import Opcode
from ...golden.units import Unit
from ..parts.assertions import Assertions
from ..parts.fifo import Buffer, Fifo, push_signature
from ..parts.isa import INDEX_BITS
from .tokens import SIGNAL_BITS

__all__ = ["UNITS", "Flight", "flight_layout"]

#: Who completes a command; the others complete by themselves.
UNITS = {
    Opcode.LOAD: Unit.LOAD,
    Opcode.FILL: Unit.FILL,
    Opcode.STORE: Unit.STORE,
    Opcode.BARRIER: Unit.BARRIER,
    Opcode.COMPUTE: Unit.FETCH,
}

#: Commands begun and not completed; more than the units hold.
_IN_FLIGHT = 16


def flight_layout() -> data.StructLayout:
    """What a command signals, and the unit that completes it; ``NONE``: it completes by itself."""
    return data.StructLayout({"signal": unsigned(SIGNAL_BITS), "unit": unsigned(4)})


class Flight(wiring.Component):
    """Complete commands in their order: a SYNC completes with the command before it.

    Parameters
    ----------
    name : str
        Of the queue, in assertions.

    Members
    -------
    start : In(1)
        A program begins. Only while ``idle``.
    begun : In(stream of flight_layout)
        A command begins.
    finished : In(1)
        A unit has completed a command.
    completed : Out(1)
        The oldest command completes.
    grant : Out(8)
        What it signals. Registered.
    idle : Out(1)
        Every command has completed.
    oldest : Out(push_signature of flight_layout)
        The oldest command, if there is one.
    index : Out(INDEX_BITS)
        Its index in the program.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            {
                "start": In(1),
                "begun": In(stream.Signature(flight_layout())),
                "finished": In(1),
                "completed": Out(1),
                "grant": Out(SIGNAL_BITS),
                "idle": Out(1),
                "oldest": Out(push_signature(flight_layout())),
                "index": Out(INDEX_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.fifo = fifo = Fifo(flight_layout(), depth=_IN_FLIGHT)
        m.submodules.buffer = buffer = Buffer(flight_layout())
        wiring.connect(m, wiring.flipped(self.begun), fifo.input)
        wiring.connect(m, fifo.output, buffer.input)
        head = buffer.output
        # A command after a SYNC can be done before the SYNC has left the queue.
        finished, finished_later = Signal(range(_IN_FLIGHT + 1)), Signal(range(_IN_FLIGHT + 1))
        has_finished, by_itself = Signal(), Signal()
        m.d.comb += [
            by_itself.eq(head.payload.unit == Unit.NONE),
            self.completed.eq(head.valid & (by_itself | self.finished | has_finished)),
            head.ready.eq(self.completed),
            finished_later.eq(finished + self.finished - (self.completed & ~by_itself)),
            self.idle.eq(~head.valid & ~fifo.output.valid),
            self.oldest.valid.eq(head.valid),
            self.oldest.payload.eq(head.payload),
        ]
        m.d.sync += [
            finished.eq(finished_later),
            has_finished.eq(finished_later != 0),
            self.grant.eq(Mux(self.completed, head.payload.signal, 0)),
        ]
        # Not as one sum, whose carry would wait for the unit far away that has finished.
        with m.If(self.start):
            m.d.sync += self.index.eq(0)
        with m.Elif(self.completed):
            m.d.sync += self.index.eq(self.index + 1)
        checks = Assertions(m, platform)
        checks.never(self.begun.valid & ~self.begun.ready, f"{self.name}: more commands in flight than are known")
        checks.never(self.finished & self.idle, f"{self.name}: a unit completes a command that nobody began")
        return m

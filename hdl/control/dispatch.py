"""Commands on their way from a queue to its units."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.isa import Opcode
from ...golden.units import Queue
from ..dma.dma_load import load_command_layout
from ..parts.isa import INDEX_BITS, command_shape, view

__all__ = ["Dispatch", "offers"]


def offers(queue: Queue, cores: int) -> dict[str, wiring.Member]:
    """The streams from a queue to its units, by name; with several cores there are barriers."""
    if queue is Queue.DMA:
        shapes = {"load": load_command_layout(), "store": command_shape(isa.STORE)}
        if cores > 1:
            shapes["barrier"] = command_shape(isa.BARRIER)
    else:
        shapes = {"compute": command_shape(isa.COMPUTE)}
    return {name: Out(stream.Signature(shape)) for name, shape in shapes.items()}


class Dispatch(wiring.Component):
    """Offer a command to its unit until that takes it.

    Parameters
    ----------
    queue : Queue
    cores : int
        Of the accelerator.

    Members
    -------
    command : In(COMMAND_BITS)
        Held from ``offer`` to ``accepted``.
    index : In(INDEX_BITS)
        Of the command, with ``offer``.
    offer : In(1)
        The command is to be offered from the next cycle on.
    accepted : Out(1)
        Its unit takes it.
    load : Out(stream of load_command_layout), store : Out(stream of STORE)
        Of the DMA queue. Payloads are registers.
    barrier : Out(stream of BARRIER)
        Of the DMA queue, with several cores.
    compute : Out(stream of COMPUTE)
        Of the compute queue.
    """

    def __init__(self, queue: Queue, cores: int):
        self.is_dma = queue is Queue.DMA
        self.names = tuple(offers(queue, cores))
        super().__init__(
            {
                "command": In(isa.COMMAND_BITS),
                "index": In(INDEX_BITS),
                "offer": In(1),
                "accepted": Out(1),
                **offers(queue, cores),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        index = Signal(INDEX_BITS, reset_less=True)
        ports = [getattr(self, name) for name in self.names]
        opcode = view(isa.SYNC, self.command).opcode
        is_store = opcode == Opcode.STORE
        m.d.comb += self.accepted.eq(Cat(port.valid & port.ready for port in ports).any())
        with m.If(self.accepted):
            m.d.sync += [port.valid.eq(0) for port in ports]
        with m.If(self.offer):
            m.d.sync += index.eq(self.index)
            if "barrier" in self.names:
                is_barrier = opcode == Opcode.BARRIER
                m.d.sync += [
                    self.load.valid.eq(~is_store & ~is_barrier),
                    self.store.valid.eq(is_store),
                    self.barrier.valid.eq(is_barrier),
                ]
            elif self.is_dma:
                m.d.sync += [self.load.valid.eq(~is_store), self.store.valid.eq(is_store)]
            else:
                m.d.sync += self.compute.valid.eq(1)

        # Views of one register, so that nothing is copied.
        def decode(target: data.View, opcode: Opcode) -> None:
            fields = view(isa.FORMATS[opcode], self.command)
            m.d.comb += target.index.eq(index)
            m.d.comb += [target[name].eq(fields[name]) for name in target.shape().members if name != "index"]

        if self.is_dma:
            m.d.comb += self.load.payload.is_fill.eq(view(isa.FILL, self.command).opcode == Opcode.FILL)
            decode(self.load.payload.load, Opcode.LOAD)
            decode(self.load.payload.fill, Opcode.FILL)
            decode(self.store.payload, Opcode.STORE)
            if "barrier" in self.names:
                decode(self.barrier.payload, Opcode.BARRIER)
        else:
            decode(self.compute.payload, Opcode.COMPUTE)
        return m

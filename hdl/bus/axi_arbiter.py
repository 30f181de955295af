"""An arbiter, through which several cores share one AXI4 port: bursts take turns, answers return to their core."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.config_parts import AxiConfig
from ...golden.timing.latencies import COLLECTED_BURSTS
from ..parts.fifo import Buffer, Fifo, remains
from ..parts.pipeline import Assertions
from .axi import BEATS_BITS, INCREMENTING, axi4_signature

__all__ = ["AxiArbiter"]

#: Two bursts, so that one leaves while the next one arrives.
_BEATS = COLLECTED_BURSTS * AxiConfig.BURST_BEATS
#: Write requests of a guard that wait for their beats, when it sends bursts of one beat without a pause.
_REQUESTS = 4


def _request_layout() -> data.StructLayout:
    """The fields that differ between the requests of guards."""
    return data.StructLayout(
        {
            "addr": unsigned(AxiConfig.ADDRESS_BITS),
            "len": unsigned(BEATS_BITS),
            "id": unsigned(AxiConfig.ID_BITS),
        }
    )


class _Turns(wiring.Component):
    """Choose the requester that is served next, round-robin: the first after the one that was served last."""

    def __init__(self, count: int):
        self.count = count
        super().__init__({"asks": In(count), "serve": In(1), "chosen": Out(range(count))})

    def elaborate(self, platform) -> Module:
        m = Module()
        last = Signal(range(self.count))
        with m.Switch(last):
            for number in range(self.count):
                with m.Case(number):
                    # Later assignments win.
                    for distance in reversed(range(1, self.count + 1)):
                        other = (number + distance) % self.count
                        with m.If(self.asks[other]):
                            m.d.comb += self.chosen.eq(other)
        with m.If(self.serve):
            m.d.sync += last.eq(self.chosen)
        return m


class AxiArbiter(wiring.Component):
    """Pass the bursts of several guards on to one port, one request a cycle and channel, and one beat.

    A read request takes two cycles, an answer one. A write burst is offered when all its beats are here, so that a
    master that delays its beats does not hold up the others: three cycles after its last beat, and its beats follow in
    the next cycle, in the order of the bursts. Masters are served in turns: one whose request is here (and its beats)
    is served after at most one burst of each of the others. Every output but ``rready`` and ``bready``, which are
    always high, is registered; no combinational path leads from one side to the other.

    Identifiers at the port are {core, identifier of its guard}, so that answers find their way back in any order.
    Soft resets do not concern the arbiter: guards end what they have begun.

    Parameters
    ----------
    config : Config

    Members
    -------
    master_0, master_1, ... : In(axi4_signature)
        The guards: always ready for answers, and bursts are incrementing ones of whole beats.
    memory : Out(axi4_signature)
        The port.

    Raises
    ------
    ValueError
        If there is one core only.
    """

    def __init__(self, config: Config):
        if config.cores < 2:
            raise ValueError(f"cores must be at least 2, not {config.cores}")
        self.config = config
        bits, id_bits = config.axi.data_bits, AxiConfig.ID_BITS + config.cluster.core_bits
        super().__init__(
            {f"master_{number}": In(axi4_signature(bits)) for number in range(config.cores)}
            | {"memory": Out(axi4_signature(bits, id_bits))}
        )

    @property
    def masters(self) -> list:
        """The masters' ports, by core."""
        return [getattr(self, f"master_{number}") for number in range(self.config.cores)]

    def elaborate(self, platform) -> Module:
        m = Module()
        checks = Assertions(m, platform)
        # These buffers are before the turns, so that no core's ready depends on another core at the other end of the
        # device.
        reads = self._elaborate_queues(m, "ar", [Buffer(_request_layout()) for _ in self.masters])
        self._elaborate_requests(m, "ar", reads, Const(-1, self.config.cores), 1)

        writes = self._elaborate_queues(m, "aw", [Fifo(_request_layout(), depth=_REQUESTS) for _ in self.masters])
        m.submodules.order = order = Buffer(unsigned(self.config.cluster.core_bits))
        whole, taken = Signal(self.config.cores), Signal(self.config.cores)
        ends = self._elaborate_beats(m, order.output, checks)
        m.d.comb += taken.eq(self._elaborate_requests(m, "aw", writes, whole, order.input.ready))
        m.d.comb += order.input.valid.eq(taken.any())
        # Bursts whose beats have all arrived, and that have not been offered.
        waiting = [Signal(range(_BEATS + 1), name=f"bursts_{number}") for number in range(self.config.cores)]
        for number, bursts in enumerate(waiting):
            with m.If(taken[number]):
                m.d.comb += order.input.payload.eq(number)
            m.d.sync += [
                bursts.eq(bursts + ends[number] - taken[number]),
                whole[number].eq(remains(bursts, leaves=taken[number], comes=ends[number])),
            ]
        self._elaborate_answers(m, checks)
        return m

    def _elaborate_queues(self, m: Module, channel: str, queues: list) -> list[stream.Interface]:
        """Build a queue of requests for each master."""
        for number, (master, queue) in enumerate(zip(self.masters, queues, strict=True)):
            m.submodules[f"{channel}_{number}"] = queue
            m.d.comb += [
                queue.input.valid.eq(getattr(master, f"{channel}valid")),
                getattr(master, f"{channel}ready").eq(queue.input.ready),
                [
                    queue.input.payload[name].eq(getattr(master, f"{channel}{name}"))
                    for name in _request_layout().members
                ],
            ]
        return [queue.output for queue in queues]

    def _elaborate_requests(self, m: Module, channel: str, queues: list, may: Value, room) -> Value:
        """Offer the requests of the queues that ``may`` in turns while there is ``room``; return whose queue is
        advanced."""
        bus, count = self.memory, len(queues)
        valid, ready = getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready")
        m.submodules[f"{channel}_turns"] = turns = _Turns(count)
        taken = Signal(count, name=f"{channel}_taken")
        chosen, request = turns.chosen, Signal(_request_layout(), name=f"{channel}_request")
        m.d.comb += [turns.asks.eq(Cat(queue.valid for queue in queues) & may), turns.serve.eq(taken.any())]
        with m.Switch(chosen):
            for number, queue in enumerate(queues):
                with m.Case(number):
                    m.d.comb += request.eq(queue.payload)
        with m.If((~valid | ready) & room):
            m.d.comb += taken.eq(turns.asks & (1 << chosen))
        m.d.comb += [
            [queue.ready.eq(taken[number]) for number, queue in enumerate(queues)],
            getattr(bus, f"{channel}size").eq(ceil_log2(self.config.axi.data_bytes)),
            getattr(bus, f"{channel}burst").eq(INCREMENTING),
        ]
        with m.If(ready):
            m.d.sync += valid.eq(0)
        with m.If(taken.any()):
            m.d.sync += [
                valid.eq(1),
                getattr(bus, f"{channel}addr").eq(request.addr),
                getattr(bus, f"{channel}len").eq(request.len),
                getattr(bus, f"{channel}id").eq(Cat(request.id, chosen)),
            ]
        return taken

    def _elaborate_beats(self, m: Module, order: stream.Interface, checks: Assertions) -> Value:
        """Gather each master's beats, and send those of offered bursts; return whose burst has just received its last
        beat."""
        bus, count = self.memory, self.config.cores
        names = {"data": len(bus.wdata), "strb": len(bus.wstrb), "last": 1}
        layout = data.StructLayout({name: unsigned(width) for name, width in names.items()})
        # Two beats wait at the pins, so that their ready has to stop nothing inside in the same cycle.
        m.submodules.outgoing = outgoing = Buffer(layout)
        ends = Signal(count)
        for number, master in enumerate(self.masters):
            m.submodules[f"beats_{number}"] = beats = Fifo(layout, depth=_BEATS)
            m.d.comb += [
                beats.input.valid.eq(master.wvalid),
                master.wready.eq(beats.input.ready),
                [beats.input.payload[name].eq(getattr(master, f"w{name}")) for name in names],
                ends[number].eq(master.wvalid & master.wready & master.wlast),
            ]
            with m.If(order.valid & (order.payload == number)):
                m.d.comb += [
                    outgoing.input.valid.eq(beats.output.valid),
                    outgoing.input.payload.eq(beats.output.payload),
                    beats.output.ready.eq(outgoing.input.ready),
                ]
        m.d.comb += [
            order.ready.eq(outgoing.input.valid & outgoing.input.ready & outgoing.input.payload.last),
            bus.wvalid.eq(outgoing.output.valid),
            outgoing.output.ready.eq(bus.wready),
            [getattr(bus, f"w{name}").eq(outgoing.output.payload[name]) for name in names],
        ]
        checks.never(order.valid & ~outgoing.input.valid, "AXI arbiter: a burst is offered before its beats are here")
        return ends

    def _elaborate_answers(self, m: Module, checks: Assertions) -> None:
        """Register the answers of the port, and pass each to the core in its identifier."""
        bus = self.memory
        for channel, names in (("r", ("data", "resp", "last")), ("b", ("resp",))):
            identifier, valid = getattr(bus, f"{channel}id"), getattr(bus, f"{channel}valid")
            m.d.comb += getattr(bus, f"{channel}ready").eq(1)
            answer = {"id": Signal(AxiConfig.ID_BITS, name=f"{channel}_id", reset_less=True)}
            m.d.sync += answer["id"].eq(identifier)
            for name in names:
                source = getattr(bus, f"{channel}{name}")
                answer[name] = Signal(len(source), name=f"{channel}_{name}", reset_less=True)
                m.d.sync += answer[name].eq(source)
            for number, master in enumerate(self.masters):
                mine = getattr(master, f"{channel}valid")
                m.d.sync += mine.eq(valid & (identifier[AxiConfig.ID_BITS :] == number))
                m.d.comb += [getattr(master, f"{channel}{name}").eq(value) for name, value in answer.items()]
                checks.never(
                    mine & ~getattr(master, f"{channel}ready"), "AXI arbiter: a guard is not ready for its answer"
                )

"""Components that do little: the simulator and boards are tried with them."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import AxiConfig
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.bus.axi import Response, axi4_lite_signature, axi4_signature
from lutterfly.hdl.control.registers import RegisterFile
from lutterfly.hdl.memories.feature_memory import FeatureMemory

BEATS = AxiConfig.BURST_BEATS
PULSES = ("compute_issue_first", "compute_issue_last", "compute_done", "dma_begin", "dma_done")


class Copier(wiring.Component):
    """Copy DMA_COMMANDS bursts from DMA_PROGRAM to COMPUTE_PROGRAM and to the feature memory, one after the other.

    An error response stops it, with the code and the burst's index in ERROR. The trace pulses ``dma_begin`` before a
    burst's read address, and ``dma_done`` and ``compute_done`` at its write response.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "control": In(axi4_lite_signature(registers.ADDRESS_BITS)),
                "memory": Out(axi4_signature(config.axi.data_bits)),
                "interrupt": Out(1),
                "trace": Out(wiring.Signature({name: Out(1) for name in PULSES})),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.registers = control = RegisterFile(self.config)
        m.submodules.feature_memory = feature = FeatureMemory(self.config)
        m.submodules.buffer = buffer = memory.Memory(shape=self.config.axi.data_bits, depth=BEATS, init=[])
        wiring.connect(m, wiring.flipped(self.control), control.control)
        write, read = buffer.write_port(), buffer.read_port(domain="comb")
        burst_bytes = BEATS * self.config.axi.data_bytes
        bus, beat, burst = self.memory, Signal(range(BEATS)), Signal(16)
        pending, busy, failed, code = Signal(), Signal(), Signal(2), Signal(8)

        m.d.comb += [
            control.read.STATUS.eq(Cat(busy, pending & ~failed.any(), failed.any())),
            control.read.ERROR.eq(Cat(code, Const(Unit.LOAD, 8), burst)),
            code.eq(failed + (ErrorCode.AXI_SLAVE - Response.SLVERR)),
            control.read.INTERRUPT.eq(pending),
            self.interrupt.eq(pending & control.kept.INTERRUPT_ENABLE[0]),
            bus.araddr.eq(control.kept.EXTERNAL_BASE + control.kept.DMA_PROGRAM + burst * burst_bytes),
            bus.awaddr.eq(control.kept.EXTERNAL_BASE + control.kept.COMPUTE_PROGRAM + burst * burst_bytes),
            write.addr.eq(beat),
            write.data.eq(bus.rdata),
            write.en.eq(bus.rvalid & bus.rready),
            read.addr.eq(beat),
            bus.wdata.eq(read.data),
            bus.wstrb.eq(-1),
            bus.wlast.eq(beat == BEATS - 1),
            feature.transfer_write.payload.address.eq(burst * burst_bytes + beat * self.config.axi.data_bytes),
            feature.transfer_write.payload.count.eq(self.config.axi.data_bytes),
            feature.transfer_write.payload.data.eq(bus.rdata),
            feature.transfer_write.valid.eq(write.en),
            feature.no_result.eq(1),
        ]
        for channel in ("ar", "aw"):
            for name, value in (
                ("len", BEATS - 1),
                ("size", (self.config.axi.data_bytes - 1).bit_length()),
                ("burst", 1),
                ("id", 5),
            ):
                m.d.comb += getattr(bus, channel + name).eq(value)
        m.d.sync += [getattr(self.trace, name).eq(0) for name in PULSES]

        with m.If(control.written.INTERRUPT):
            m.d.sync += pending.eq(0)
        with m.FSM():
            with m.State("IDLE"), m.If(control.written.CONTROL & control.data[0]):
                m.d.sync += [burst.eq(0), failed.eq(0), busy.eq(1), self.trace.dma_begin.eq(1)]
                m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += bus.arvalid.eq(1)
                with m.If(bus.arready):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += bus.rready.eq(1)
                with m.If(bus.rvalid):
                    m.d.sync += [beat.eq(beat + 1), failed.eq(failed | bus.rresp)]
                    with m.If(bus.rlast):
                        m.next = "ANNOUNCE"
            with m.State("ANNOUNCE"):
                m.d.comb += bus.awvalid.eq(1)
                with m.If(bus.awready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += bus.wvalid.eq(1)
                with m.If(bus.wready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(bus.wlast):
                        m.next = "EPILOGUE"
            with m.State("EPILOGUE"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    m.d.sync += [
                        failed.eq(failed | bus.bresp),
                        self.trace.dma_done.eq(1),
                        self.trace.compute_done.eq(1),
                    ]
                    with m.If((burst + 1 == control.kept.DMA_COMMANDS) | failed.any() | bus.bresp.any()):
                        m.d.sync += [pending.eq(1), busy.eq(0)]
                        m.next = "IDLE"
                    with m.Else():
                        m.d.sync += [burst.eq(burst + 1), self.trace.dma_begin.eq(1)]
                        m.next = "REQUEST"
        return m


# A core with a serial port that does little: what boards are tried with.


class Echo(wiring.Component):
    """Send back what comes, a clock later; the lights are those of a counter."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1, init=1), "busy": Out(1), "error": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(24)
        m.d.sync += [self.tx.eq(self.rx), count.eq(count + 1)]
        m.d.comb += [self.busy.eq(count[-1]), self.error.eq(count[-2])]
        return m

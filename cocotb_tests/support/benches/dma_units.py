"""DMA units and guard as one component."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.hdl.bus.axi import axi4_signature
from lutterfly.hdl.bus.axi_guard import AxiGuard
from lutterfly.hdl.dma.chunks import local_write_layout
from lutterfly.hdl.dma.load import DmaLoad, load_command_layout
from lutterfly.hdl.dma.store import DmaStore, feature_word_layout
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.isa import ErrorReport, command_shape


class DmaBench(wiring.Component):
    """DmaLoad and DmaStore, in reset while the guard performs a soft reset, with everything else as ports."""

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "load": In(stream.Signature(load_command_layout())),
                "store": In(stream.Signature(command_shape(isa.STORE))),
                "feature": Out(stream.Signature(feature_write_layout(config))),
                "local": Out(local_write_layout(config)),
                "read": Out(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "word": In(feature_word_layout(config)),
                "load_done": Out(1),
                "store_done": Out(1),
                "load_error": Out(ErrorReport),
                "store_error": Out(ErrorReport),
                "halt": In(1),
                "soft_reset": In(1),
                "resetting": Out(1),
                "base": In(32),
                "memory": Out(axi4_signature(config.axi.data_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.guard = guard = AxiGuard(self.config, reset_cycles=4)
        load_unit, store_unit = DmaLoad(self.config), DmaStore(self.config)
        m.submodules.load_unit = ResetInserter(self.soft_reset | self.resetting)(load_unit)
        m.submodules.store_unit = ResetInserter(self.soft_reset | self.resetting)(store_unit)
        connect(m, load_unit.bus, guard.load)
        connect(m, store_unit.bus, guard.store)
        connect(m, guard.memory, flipped(self.memory))
        connect(m, flipped(self.load), load_unit.command)
        connect(m, flipped(self.store), store_unit.command)
        connect(m, load_unit.feature, flipped(self.feature))
        connect(m, store_unit.read, flipped(self.read))
        m.d.comb += [
            self.local.eq(load_unit.local),
            store_unit.word.eq(self.word),
            self.load_done.eq(load_unit.done),
            self.store_done.eq(store_unit.done),
            self.load_error.eq(load_unit.error),
            self.store_error.eq(store_unit.error),
            load_unit.halt.eq(self.halt),
            store_unit.halt.eq(self.halt),
            guard.soft_reset.eq(self.soft_reset),
            self.resetting.eq(guard.resetting),
            guard.base.eq(self.base),
        ]
        return m

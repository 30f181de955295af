"""Transfer tables: one byte in, one byte out, from one of several tables of 256 bytes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ..parts.device import RAM_LATENCY, Ram
from ..parts.isa import field_shape
from ..parts.pipeline import delay

__all__ = ["TransferTables"]


class TransferTables(wiring.Component):
    """Look ``requant_lanes`` codes up in a table each cycle, or let them pass, with a latency of ``RAM_LATENCY``
    cycles.

    Bit-exact with :func:`lutterfly.golden.transfer.tables.apply_table`. Every lane has its own copy of all tables, and
    they are written alike.

    Parameters
    ----------
    config : Config

    Members
    -------
    enable : In(1), table : In
        Whether to look up, and in which table.
    codes : In(requant_lanes x signed(8))
    values : Out(requant_lanes x 8)
    write : Out(memory.WritePort.Signature)
        One byte of a table; the address is 256 times the table, plus the code plus 128.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        self.size = config.memory.tables * isa.TABLE_BYTES
        super().__init__(
            {
                "enable": In(1),
                "table": In(field_shape(isa.COMPUTE, "table")),
                "codes": In(data.ArrayLayout(signed(8), self.lanes)),
                "values": Out(data.ArrayLayout(unsigned(8), self.lanes)),
                "write": Out(memory.WritePort.Signature(addr_width=ceil_log2(self.size), shape=8)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        enabled = delay(m, self.enable, RAM_LATENCY, name="enabled")
        for lane in range(self.lanes):
            m.submodules[f"lane_{lane}"] = ram = Ram(width=8, depth=self.size)
            code = self.codes[lane].as_unsigned()
            m.d.comb += [
                ram.read_address.eq(Cat(code ^ 0x80, self.table)),
                ram.write_address.eq(self.write.addr),
                ram.write_data.eq(self.write.data),
                ram.write_enable.eq(self.write.en),
                self.values[lane].eq(Mux(enabled, ram.read_data, delay(m, code, RAM_LATENCY, name=f"code_{lane}"))),
            ]
        return m

"""The weight memory: one block of RAM for each column, read and written one column after the other."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..golden.config import Config
from .device import Ram
from .pipeline import delay

__all__ = ["WeightMemory"]


class WeightMemory(wiring.Component):
    """Read one word each cycle, ``lanes`` bytes for every column; column j's ``RAM_LATENCY`` + j cycles after the
    address.

    Addresses travel from column to column as activation words do in the array, so that no weight has to wait in
    registers. So do writes, so that no register drives all columns; what is written before it is read is so in each.

    Parameters
    ----------
    config : Config

    Members
    -------
    address : In
        Word.
    weights : Out(columns x lanes x signed(8))
    write_enable : In(1)
    write_address : In
        In units of ``lanes`` bytes: word times ``columns`` plus column.
    write_data : In(8 * lanes)
    """

    def __init__(self, config: Config):
        self.config = config
        self.columns = config.array.columns
        lanes = config.array.lanes
        super().__init__(
            {
                "address": In(ceil_log2(config.weight_words)),
                "weights": Out(data.ArrayLayout(data.ArrayLayout(signed(8), lanes), self.columns)),
                "write_enable": In(1),
                "write_address": In(ceil_log2(config.weight_words * self.columns)),
                "write_data": In(8 * lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        column_bits = ceil_log2(self.columns)
        ports = data.StructLayout(
            {
                "read_address": self.address.shape(),
                "write_enable": unsigned(1),
                "write_address": self.write_address.shape(),
                "write_data": self.write_data.shape(),
            }
        )
        now = Signal(ports)
        m.d.comb += [
            now.read_address.eq(self.address),
            now.write_enable.eq(self.write_enable),
            now.write_address.eq(self.write_address),
            now.write_data.eq(self.write_data),
        ]
        for index in range(self.columns):
            if index:
                now = delay(m, now, 1, name=f"hop_{index}")
            m.submodules[f"column_{index}"] = ram = Ram(
                width=8 * self.config.array.lanes, depth=self.config.weight_words
            )
            m.d.comb += [
                ram.read_address.eq(now.read_address),
                self.weights[index].eq(ram.read_data),
                ram.write_address.eq(now.write_address[column_bits:]),
                ram.write_data.eq(now.write_data),
                ram.write_enable.eq(now.write_enable & (now.write_address[:column_bits] == index)),
            ]
        return m

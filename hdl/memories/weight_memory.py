"""The weight memory: one block of RAM for each column, read and written one column after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ..parts.device import Ram
from ..parts.pipeline import delay

__all__ = ["WeightMemory"]


class WeightMemory(wiring.Component):
    """Read one word each cycle, ``lanes`` bytes for every column; column j's ``RAM_LATENCY`` + j cycles after the
    address.

    Addresses travel from column to column as activation words do in the array, so that no weight has to wait in
    registers. So do writes, so that no register drives all columns; what is written before it is read is so in each.
    An engine whose words take longer gives the times at which it wants its columns: then each address waits in front
    of a column as long as the words do.

    Parameters
    ----------
    config : Config
    late_times : sequence of int or None
        For the first columns, each greater than the one before: cycles from a word's address to that of the column.

    Members
    -------
    address : In
        Word.
    is_late : In(1), if there are late times
        Take those; stays while addresses are under way.
    weights : Out(columns x lanes x signed(8))
    write : Out(memory.WritePort.Signature)
        Of ``lanes`` bytes; the address is the word times ``columns`` plus the column.
    """

    def __init__(self, config: Config, *, late_times: Sequence[int] | None = None):
        self.config = config
        self.late_times = late_times
        self.columns = config.array.columns
        lanes = config.array.lanes
        super().__init__(
            {
                "address": In(ceil_log2(config.weight_words)),
                **({} if late_times is None else {"is_late": In(1)}),
                "weights": Out(data.ArrayLayout(data.ArrayLayout(signed(8), lanes), self.columns)),
                "write": Out(
                    memory.WritePort.Signature(
                        addr_width=ceil_log2(config.weight_words * self.columns), shape=8 * lanes
                    )
                ),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        column_bits = ceil_log2(self.columns)
        port = self.write
        write = Signal(data.StructLayout({name: getattr(port, name).shape() for name in port.signature.members}))
        m.d.comb += [write[name].eq(getattr(port, name)) for name in port.signature.members]
        read_address = self.address
        for index, wait in enumerate(self._waits()):
            if wait:
                late = delay(m, read_address, wait, name=f"late_{index}")
                read_address = Mux(self.is_late, late, read_address)
            if index:
                read_address = delay(m, read_address, 1, name=f"read_hop_{index}")
            # Whether a write is this column's is clear a hop before it arrives.
            is_own = Signal(name=f"is_own_{index}")
            m.d.sync += is_own.eq(write.en & (write.addr[:column_bits] == index))
            write = delay(m, write, 1, name=f"write_hop_{index}")
            m.submodules[f"column_{index}"] = ram = Ram(
                width=8 * self.config.array.lanes, depth=self.config.weight_words
            )
            m.d.comb += [
                ram.read_address.eq(read_address),
                self.weights[index].eq(ram.read_data),
                ram.write_address.eq(write.addr[column_bits:]),
                ram.write_data.eq(write.data),
                ram.write_enable.eq(is_own),
            ]
        return m

    def _waits(self) -> list[int]:
        """Cycles that a late address waits in front of each column, beside the hop to it."""
        times = list(self.late_times or [])
        waits = times[:1] + [time - before - 1 for before, time in pairwise(times)]
        assert all(wait >= 0 for wait in waits), "columns are wanted one after the other"
        return waits + [0] * (self.columns - len(waits))

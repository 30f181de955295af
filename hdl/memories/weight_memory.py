"""The weight memory: one block of RAM for each column, read and written one column after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.engines.floorplan import Floorplan
from ..parts.device import Ram
from ..parts.pipeline import delay

__all__ = ["WeightMemory"]


class WeightMemory(wiring.Component):
    """Read one word each cycle, ``lanes`` bytes for every column; each column's ``RAM_LATENCY`` cycles and its hops
    (:attr:`~lutterfly.golden.engines.floorplan.Floorplan.hops`) after the address.

    Addresses travel from column to column as activation words do in the array, so that no weight has to wait in
    registers. So do writes, so that no register drives all columns; a write before a read is so in each column.
    Engines that want their columns later specify when: while such an engine is selected, each address waits before a
    column as long as the words do.

    Parameters
    ----------
    config : Config
    times : mapping of str to sequence of int
        Engines, by name, that want weights at times of their own. For the first columns, each greater than the one
        before: cycles from a word's address to that of the column, and those that its weights wait in the column.

    Members
    -------
    address : In
        Word.
    selected : In(a bit for each of ``times``, by name), if there are any
        Which of these engines is selected, if any: constant while addresses are under way.
    weights : Out(columns x lanes x signed(8))
    write : Out(memory.WritePort.Signature)
        Writes of ``lanes`` bytes; the address is the word times ``columns`` plus the column.
    """

    def __init__(self, config: Config, *, times: Mapping[str, Sequence[int]] | None = None):
        self.config = config
        self.floorplan = Floorplan.of(config)
        self.times = dict(times or {})
        self.columns = config.array.columns
        lanes = config.array.lanes
        super().__init__(
            {
                "address": In(ceil_log2(config.weight_words)),
                **({"selected": In(data.StructLayout(dict.fromkeys(self.times, unsigned(1))))} if self.times else {}),
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
        port = self.write
        write = Signal(data.StructLayout({name: getattr(port, name).shape() for name in port.signature.members}))
        m.d.comb += [write[name].eq(getattr(port, name)) for name in port.signature.members]

        column_bits = ceil_log2(self.columns)
        read_addresses: list[Value] = []
        waits = {name: self._waits(times) for name, times in self.times.items()}
        for index in range(self.columns):
            now = read_address = read_addresses[self.floorplan.before(index)] if index else self.address
            for name, of_columns in waits.items():
                if of_columns[index]:
                    late = delay(m, now, of_columns[index], name=f"{name}_{index}")
                    read_address = Mux(self.selected[name], late, read_address)
            if index:
                read_address = delay(m, read_address, 1, name=f"read_hop_{index}")
            read_addresses.append(read_address)
            # Whether a write is for this column is known a hop before it arrives.
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

    def _waits(self, times: Sequence[int]) -> list[int]:
        """Return the cycles that an address waits before each column, in addition to the hop to it."""
        # The time that a column takes to prepare its weights is included.
        waits = [time - self.floorplan.waits.weights for time in times[:1]] + [
            times[index] - times[self.floorplan.before(index)] - 1 for index in range(1, len(times))
        ]
        assert all(wait >= 0 for wait in waits), "columns are wanted one after the other"
        return waits + [0] * (self.columns - len(waits))

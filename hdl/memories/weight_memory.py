"""The weight memory: one block of RAM for each column, read and written one column after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.engines.floorplan import Floorplan
from ..parts.device import Ram
from ..parts.pipeline import delay, platform_of

__all__ = ["WeightMemory"]


class WeightMemory(wiring.Component):
    """Read one word each cycle, ``lanes`` bytes for every column; each column's ``RAM_LATENCY`` cycles and its hops
    (:attr:`~lutterfly.golden.engines.floorplan.Floorplan.hops`) after the address.

    Addresses travel from column to column as activation words do in the array, so that no weight has to wait in
    registers. So do writes, so that no register drives all columns; a write before a read is so in each column.
    Where two columns have multipliers in common, they have a block in common as well, so that it is beside them: the
    weights of the one that wants them later wait.
    Engines that want their columns later specify when: while such an engine is selected, each address waits before a
    column as long as the words do.

    Parameters
    ----------
    config : Config
    ahead : collection of int
        Columns, not the first one, whose weights are wanted a cycle earlier than others'.
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

    def __init__(
        self, config: Config, *, ahead: Collection[int] = (), times: Mapping[str, Sequence[int]] | None = None
    ):
        self.config = config
        self.floorplan = Floorplan.of(config)
        self.ahead = frozenset(ahead)
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
        if platform_of(platform).is_pumped and self.columns > 1 and not self.times:
            self._elaborate_pairs(m, write)
        else:
            self._elaborate_columns(m, write)
        return m

    def _elaborate_columns(self, m: Module, write: data.View) -> None:
        """Build a block for each column; writes travel from one to the next."""
        column_bits = ceil_log2(self.columns)
        read_addresses: list[Value] = []
        waits = {name: self._waits(times) for name, times in self.times.items()}
        for index in range(self.columns):
            now = read_address = read_addresses[self.floorplan.before(index)] if index else self.address
            for name, of_columns in waits.items():
                if of_columns[index]:
                    late = delay(m, now, of_columns[index], name=f"{name}_{index}")
                    read_address = Mux(self.selected[name], late, read_address)
            coming_address = read_address
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
                ram.read_address.eq(coming_address if index in self.ahead else read_address),
                self.weights[index].eq(ram.read_data),
                ram.write_address.eq(write.addr[column_bits:]),
                ram.write_data.eq(write.data),
                ram.write_enable.eq(is_own),
            ]

    def _elaborate_pairs(self, m: Module, write: data.View) -> None:
        """Build a block for each two columns, whose bytes for a lane are adjacent; writes travel with the addresses."""
        lanes, hops, pairs = self.config.array.lanes, self.floorplan.hops, self.floorplan.pairs
        column_bits = ceil_log2(self.columns)
        number_of = {column: number for number, pair in enumerate(pairs) for column in pair}
        arrivals: list[tuple[Value, data.View]] = []
        for number, pair in enumerate(pairs):
            # A write comes a cycle after its address, so the column that it is for is known before it arrives.
            address, late, extra = self.address, 0, 1
            if number:
                before = number_of[self.floorplan.before(pair[0])]
                late, extra = hops[pair[0]] - hops[pairs[before][0]], 0
                address, write = arrivals[before]
            address = delay(m, address, late, name=f"read_hop_{number}")
            coming = delay(m, write, late + extra - 1, name=f"write_wait_{number}")
            write = delay(m, coming, 1, name=f"write_hop_{number}")
            arrivals.append((address, write))
            m.submodules[f"pair_{number}"] = ram = Ram(
                width=2 * 8 * lanes, depth=self.config.weight_words, granularity=8
            )
            read = _bytes(ram.read_data)
            m.d.comb += [
                ram.read_address.eq(address),
                ram.write_address.eq(write.addr[column_bits:]),
                ram.write_data.eq(Cat(byte.replicate(2) for byte in _bytes(write.data))),
            ]
            for place, column in enumerate(pair):
                is_own = Signal(name=f"is_own_{column}", reset_less=True)
                m.d.sync += is_own.eq(coming.en & (coming.addr[:column_bits] == column))
                m.d.comb += [enable.eq(is_own) for enable in list(ram.write_enable)[place::2]]
                late = hops[column] - hops[pair[0]] - (column in self.ahead)
                weights = delay(m, Cat(read[place::2]), late, name=f"weights_{column}")
                m.d.comb += self.weights[column].eq(weights)

    def _waits(self, times: Sequence[int]) -> list[int]:
        """Return the cycles that an address waits before each column, in addition to the hop to it."""
        # The time that a column takes to prepare its weights is included.
        waits = [time - self.floorplan.waits.weights for time in times[:1]] + [
            times[index] - times[self.floorplan.before(index)] - 1 for index in range(1, len(times))
        ]
        assert all(wait >= 0 for wait in waits), "columns are wanted one after the other"
        return waits + [0] * (self.columns - len(waits))


def _bytes(word: Value) -> list[Value]:
    return [word.word_select(byte, 8) for byte in range(len(word) // 8)]

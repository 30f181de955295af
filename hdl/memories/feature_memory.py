"""The feature memory: any ``lanes`` bytes are read, and any up to ``lanes`` bytes are written, each cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ..parts.device import RAM_LATENCY, Ram
from ..parts.pipeline import Assertions, delay

__all__ = ["FETCH_LATENCY", "WRITE_LATENCY", "FeatureMemory", "feature_write_layout", "rotated"]

#: Cycles from an address to its word: bank addresses, RAM, rotation in two stages.
FETCH_LATENCY = 1 + RAM_LATENCY + 2
#: Cycles from a write to the first read that may name its address: the write reaches its RAM a cycle later than a read.
WRITE_LATENCY = 2


def feature_write_layout(config: Config) -> data.StructLayout:
    """The first ``count`` bytes of ``data`` go to ``address``; ``count`` is 1 to ``lanes``."""
    lanes = config.array.lanes
    return data.StructLayout(
        {
            "address": unsigned(isa.LOCAL_BITS),
            "count": unsigned(ceil_log2(lanes) + 1),
            "data": unsigned(8 * lanes),
        }
    )


def rotated(word: Value, amount: Value, *, unit: int = 1) -> Value:
    """Rotate the bytes of ``word`` right (towards byte 0) by ``amount * unit``; ``unit`` is a power of two."""
    return (Cat(word, word) >> (amount << ceil_log2(8 * unit)))[: len(word)]


class FeatureMemory(wiring.Component):
    """Two banks of ``lanes``-byte words, even words in the one and odd words in the other, with a rotator after and
    one before.

    Any ``lanes`` consecutive bytes lie in one word of each bank, so that both ports take any byte address each cycle.
    Addresses wrap; the units that give them check them. A byte that is read in the cycle in which it is written is
    undefined.

    Parameters
    ----------
    config : Config

    Members
    -------
    read_address : In(24)
    read_word : Out(8 * lanes)
        ``FETCH_LATENCY`` cycles after its address.
    result_write : In(feature write), result_valid : In(1)
        A write with priority, at once; its bytes may be read ``WRITE_LATENCY`` cycles later.
    no_result : In(1)
        The complement of ``result_valid``, from a register of its own, as the source of transfers is far from that of
        results.
    transfer_write : In(stream of feature writes)
        A write that waits while a result is written: ``ready`` is ``no_result``.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.lanes
        write = feature_write_layout(config)
        super().__init__(
            {
                "read_address": In(isa.LOCAL_BITS),
                "read_word": Out(8 * self.lanes),
                "result_valid": In(1),
                "no_result": In(1),
                "result_write": In(write),
                "transfer_write": In(stream.Signature(write)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = self.config.memory.feature_bytes // (2 * self.lanes)
        for name in ("even", "odd"):
            m.submodules[name] = Ram(width=8 * self.lanes, depth=depth, granularity=8)
        self._elaborate_read(m)
        self._elaborate_write(m)
        checks = Assertions(m, platform)
        checks.never(self.no_result == self.result_valid, "feature memory: a result, and none, at once")
        for valid, write, name in (
            (self.result_valid, self.result_write, "a result"),
            (self.transfer_write.valid, self.transfer_write.payload, "a transfer"),
        ):
            outside = (write.count == 0) | (write.count > self.lanes)
            checks.never(valid & outside, f"feature memory: {name} of no byte, or of too many")
            checks.never(
                valid & (write.address + write.count > self.config.memory.feature_bytes),
                f"feature memory: {name} beyond its end",
            )
        return m

    def _bank_addresses(self, address) -> tuple:
        """Compute word addresses in the even and the odd bank, and whether the first byte's word is odd."""
        word = address[ceil_log2(self.lanes) : ceil_log2(self.config.memory.feature_bytes)]
        return (word + 1)[1 : len(word)], word[1:], word[0]

    def _elaborate_read(self, m: Module) -> None:
        offset_bits = ceil_log2(self.lanes)
        fine_bits = offset_bits - offset_bits // 2
        even, odd = m.submodules.even, m.submodules.odd

        even_address, odd_address, is_odd = self._bank_addresses(self.read_address)
        offset = self.read_address[:offset_bits]
        # For each byte position, the bank that holds the wanted byte: the first word's from the offset on, else the
        # second's.
        from_odd = Cat(is_odd ^ (offset > position) for position in range(self.lanes))
        m.d.sync += [even.read_address.eq(even_address), odd.read_address.eq(odd_address)]
        for stage in range(1 + RAM_LATENCY):
            later = Signal.like(from_odd, name=f"from_odd_{stage}", reset_less=True)
            later_offset = Signal.like(offset, name=f"offset_{stage}", reset_less=True)
            m.d.sync += [later.eq(from_odd), later_offset.eq(offset)]
            from_odd, offset = later, later_offset

        mask = Cat(bit.replicate(8) for bit in from_odd)
        merged = Signal(8 * self.lanes)
        coarse = Signal(8 * self.lanes, reset_less=True)
        fine_offset = Signal(fine_bits, reset_less=True)
        m.d.comb += merged.eq((odd.read_data & mask) | (even.read_data & ~mask))
        m.d.sync += [
            coarse.eq(rotated(merged, offset[fine_bits:], unit=1 << fine_bits)),
            fine_offset.eq(offset[:fine_bits]),
        ]
        m.d.comb += self.read_word.eq(delay(m, rotated(coarse, fine_offset), 1, name="word"))

    def _elaborate_write(self, m: Module) -> None:
        offset_bits = ceil_log2(self.lanes)
        even, odd = m.submodules.even, m.submodules.odd

        m.d.comb += self.transfer_write.ready.eq(self.no_result)
        chosen = Signal(feature_write_layout(self.config))
        m.d.comb += chosen.eq(Mux(self.result_valid, self.result_write, self.transfer_write.payload))

        valid = Signal()
        taken = Signal(feature_write_layout(self.config), reset_less=True)
        end = Signal(offset_bits + 2, reset_less=True)
        # There is a sum for each, so that no sum waits for the choice.
        ends = [write.address[:offset_bits] + write.count for write in (self.result_write, self.transfer_write.payload)]
        m.d.sync += [
            valid.eq(self.result_valid | self.transfer_write.valid),
            taken.eq(chosen),
            end.eq(Mux(self.result_valid, *ends)),
        ]

        even_address, odd_address, is_odd = self._bank_addresses(taken.address)
        offset = taken.address[:offset_bits]
        first = Cat((offset <= position) & (end > position) for position in range(self.lanes))
        second = Cat(end > position + self.lanes for position in range(self.lanes))
        # Both banks take the same rotated bytes, and each enables the part that lies in it.
        turned = rotated(taken.data, (self.lanes - offset)[:offset_bits])
        for ram, address, enable in (
            (even, even_address, Mux(is_odd, second, first)),
            (odd, odd_address, Mux(is_odd, first, second)),
        ):
            write_enable = Signal(self.lanes, name=f"{'even' if ram is even else 'odd'}_enable", reset_less=True)
            write_address = Signal.like(ram.write_address, reset_less=True)
            m.d.sync += [write_enable.eq(Mux(valid, enable, 0)), write_address.eq(address)]
            m.d.comb += [ram.write_enable.eq(write_enable), ram.write_address.eq(write_address)]
        data_register = Signal(8 * self.lanes, reset_less=True)
        m.d.sync += data_register.eq(turned)
        m.d.comb += [even.write_data.eq(data_register), odd.write_data.eq(data_register)]

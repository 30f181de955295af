"""What is to be done with a request: carry it out, answer it as before, or refuse it."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.link import frames
from ...golden.link.operations import MAX_DATA, RULES, WORD_BYTES, Counts, Operation, Status
from .frame_intake import header_layout

__all__ = ["CHECK_LATENCY", "RequestCheck"]

CHECK_LATENCY = 2
_OF_ARENA = (Operation.READ, Operation.WRITE, Operation.CHECKSUM)
_OF_REGISTERS = (Operation.READ_REGISTER, Operation.WRITE_REGISTER)


class RequestCheck(wiring.Component):
    """Judge a request within ``CHECK_LATENCY`` cycles; and remember the last one. No combinational path.

    Parameters
    ----------
    arena_bytes : int
        A power of two.
    register_bits : int
        Bits of a register's address.

    Members
    -------
    header : In(header_layout), data_bytes : In(11), crc : In(32), word : In(32)
        The request, and a word of data if it has one.
    verdict : Out(8)
        The status of its answer, where that is clear before it is carried out.
    other : Out(1)
        It has the number of the last request, and is another one.
    repeated : Out(1)
        It is the last request again, and is not carried out twice.
    remember : In(1), status : In(8)
        It is the last one from now on, and this became of it.
    forget : In(1)
        There is no last one.
    last_status : Out(8)
    """

    def __init__(self, *, arena_bytes: int, register_bits: int):
        self.arena_bytes = arena_bytes
        self.register_bits = register_bits
        super().__init__(
            {
                "header": In(header_layout()),
                "data_bytes": In(ceil_log2(MAX_DATA) + 1),
                "crc": In(32),
                "word": In(32),
                "verdict": Out(8),
                "other": Out(1),
                "repeated": Out(1),
                "remember": In(1),
                "status": In(8),
                "forget": In(1),
                "last_status": Out(8),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        operation = self.header.operation
        known, once, fits, is_within, rate_is_right = (
            Signal(name=name) for name in ("known", "once", "fits", "is_within", "rate_is_right")
        )
        lengths = self._elaborate_lengths(m)
        of_arena, of_registers = self._elaborate_addresses(m)
        is_rate = Signal(reset_less=True)
        # Both limits are powers of two, or one less: no carry.
        least, most = ceil_log2(frames.LEAST_BIT_TIME), ceil_log2(frames.MOST_BIT_TIME)
        m.d.sync += is_rate.eq(self.word[least:].any() & ~self.word[most:].any())
        m.d.comb += rate_is_right.eq((operation != Operation.SET_RATE) | is_rate)
        with m.Switch(operation):
            for code, rule in RULES.items():
                with m.Case(code):
                    right = of_arena if code in _OF_ARENA else of_registers if code in _OF_REGISTERS else 1
                    m.d.comb += [
                        known.eq(self.header.status == 0),
                        once.eq(rule.once),
                        fits.eq(lengths[rule.length] & (lengths["whole"] if rule.has_data else lengths["none"])),
                        is_within.eq(right),
                    ]
        m.d.sync += self.verdict.eq(
            Mux(
                known,
                Mux(
                    fits,
                    Mux(is_within, Mux(rate_is_right, Status.OK, Status.RATE), Status.ADDRESS),
                    Status.LENGTH,
                ),
                Status.UNKNOWN_OPERATION,
            )
        )

        has_last, last_sequence, last_crc = Signal(), Signal(16, reset_less=True), Signal(32, reset_less=True)
        same_number, same_crc = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            same_number.eq(has_last & (last_sequence == self.header.sequence)),
            same_crc.eq(last_crc == self.crc),
            self.other.eq(same_number & ~same_crc),
            self.repeated.eq(same_number & same_crc & once),
        ]
        with m.If(self.forget):
            m.d.sync += has_last.eq(0)
        with m.If(self.remember):
            m.d.sync += [
                has_last.eq(1),
                last_sequence.eq(self.header.sequence),
                last_crc.eq(self.crc),
                self.last_status.eq(self.status),
            ]
        return m

    def _elaborate_lengths(self, m: Module) -> dict:
        """Whether ``length`` is right for what it counts, and whether ``none`` or the ``whole`` of the data is here."""
        length, bits = self.header.length, ceil_log2(MAX_DATA)
        low, high = length[:bits].any(), length[bits + 1 :].any()
        conditions = {
            Counts.NOTHING: length == 0,
            Counts.WORD: length == WORD_BYTES,
            Counts.DATA: (low ^ length[bits]) & ~high,
            Counts.RANGE: length != 0,
            "none": self.data_bytes == 0,
            "whole": (self.data_bytes == length[: bits + 1]) & ~high,
        }
        found: dict = {Counts.CYCLES: 1}
        for key, condition in conditions.items():
            found[key] = Signal(name=key.name.lower() if isinstance(key, Counts) else key, reset_less=True)
            m.d.sync += found[key].eq(condition)
        return found

    def _elaborate_addresses(self, m: Module) -> tuple[Signal, Signal]:
        """Whether a range lies within the arena, and whether a register's address is one."""
        address, length, bits = self.header.address, self.header.length, ceil_log2(self.arena_bytes)
        of_arena, of_registers = Signal(reset_less=True), Signal(reset_less=True)
        end = Signal(unsigned(bits + 2))
        m.d.comb += end.eq(address[:bits] + length[: bits + 1])
        m.d.sync += [
            of_arena.eq(
                ~address[bits:].any() & ~length[bits + 1 :].any() & ((end == self.arena_bytes) | ~end[bits:].any())
            ),
            of_registers.eq(~address[self.register_bits :].any() & (address % WORD_BYTES == 0)),
        ]
        return of_arena, of_registers

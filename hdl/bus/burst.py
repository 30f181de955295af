"""Runs of bytes into AXI bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config_parts import AxiConfig
from ..parts.fifo import Buffer
from .axi import BEATS_BITS

__all__ = ["BurstSplitter"]


class BurstSplitter(wiring.Component):
    """Split runs of bytes into bursts, one each cycle, and a cycle for each run.

    Bursts end where the address is a multiple of a whole burst (16 beats). That divides 4096, so none crosses a page,
    and all but the first and the last of a run are whole. No combinational path.

    Parameters
    ----------
    data_bytes : int
        Bytes of a beat.
    context : ShapeLike
        What goes along from a run to its bursts.

    Members
    -------
    runs : In(stream)
        ``address`` of the first byte; ``last_byte``: bytes minus one; ``context``.
    bursts : Out(stream)
        ``address``, a multiple of ``data_bytes``; ``beats_minus_one``; ``first_byte`` of the first beat and
        ``last_byte`` of the last one that belong to the run; ``first`` and ``last`` burst of the run; ``context``.
    """

    def __init__(self, *, data_bytes: int, context: ShapeLike):
        self.data_bytes = data_bytes
        self.context = context
        byte = unsigned(ceil_log2(data_bytes))
        super().__init__(
            {
                "runs": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "address": unsigned(AxiConfig.ADDRESS_BITS),
                                "last_byte": unsigned(AxiConfig.ADDRESS_BITS),
                                "context": context,
                            }
                        )
                    )
                ),
                "bursts": Out(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "address": unsigned(AxiConfig.ADDRESS_BITS),
                                "beats_minus_one": unsigned(BEATS_BITS),
                                "first_byte": byte,
                                "last_byte": byte,
                                "first": unsigned(1),
                                "last": unsigned(1),
                                "context": context,
                            }
                        )
                    )
                ),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        byte_bits = ceil_log2(self.data_bytes)
        block_bits = byte_bits + BEATS_BITS
        m.submodules.found = found = Buffer(self.bursts.payload.shape())
        wiring.connect(m, found.output, wiring.flipped(self.bursts))
        run, burst, valid = self.runs.payload, found.input.payload, Signal()

        block = Signal(AxiConfig.ADDRESS_BITS - block_bits, reset_less=True)
        start = Signal(block_bits, reset_less=True)
        # From the beginning of the current block to the last byte of the run: what is left, without a subtraction of
        # lengths.
        span = Signal(AxiConfig.ADDRESS_BITS + 1, reset_less=True)
        blocks_left = span[block_bits:]
        first = Signal(reset_less=True)
        last = Signal(reset_less=True)
        context = Signal(self.context, reset_less=True)
        first_start = Signal(block_bits)
        m.d.comb += [
            first_start.eq(Mux(first, start, 0)),
            burst.address.eq(Cat(Const(0, byte_bits), first_start[byte_bits:], block)),
            burst.beats_minus_one.eq(
                Mux(last, span[byte_bits:block_bits], (1 << BEATS_BITS) - 1) - first_start[byte_bits:]
            ),
            burst.first_byte.eq(first_start),
            burst.last_byte.eq(Mux(last, span, self.data_bytes - 1)),
            burst.first.eq(first),
            burst.last.eq(last),
            burst.context.eq(context),
            # Not in the cycle of the last burst as well: that would couple what comes before to what comes after.
            self.runs.ready.eq(~valid),
            found.input.valid.eq(valid),
        ]
        with m.If(found.input.ready & valid):
            m.d.sync += [valid.eq(~last), first.eq(0), block.eq(block + 1)]
            m.d.sync += [blocks_left.eq(blocks_left - 1), last.eq(blocks_left == 1)]
        # Whether the first block is the last one, beside the long addition instead of after it.
        end_in_block = Signal(block_bits + 1)
        m.d.comb += end_in_block.eq(run.address[:block_bits] + run.last_byte[:block_bits])
        with m.If(self.runs.ready & self.runs.valid):
            m.d.sync += [
                last.eq(~run.last_byte[block_bits:].any() & ~end_in_block[-1]),
                valid.eq(1),
                first.eq(1),
                Cat(start, block).eq(run.address),
                span.eq(run.address[:block_bits] + run.last_byte),
                context.eq(run.context),
            ]
        return m

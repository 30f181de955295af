"""The operands of an Add: the codes of both, side by side, for the Add tables."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.engines import ADD
from ...golden.engines.add import ENTRIES, ENTRY_BITS, SUM
from ..parts.device import Ram
from ..parts.pipeline import delay
from .engine import (
    ACCUMULATOR_BITS,
    AddendsComponent,
    EngineComponent,
    addends_layout,
    engine_members,
    epilogue_settings_layout,
)

__all__ = [
    "AddOperands",
    "AddTables",
]


# The tables of an Add: the codes of two operands in, the addends of their sum out.

_CODES = ENTRIES // 2


class AddTables(AddendsComponent):
    """Look the operands of ``requant_lanes`` sums up each cycle, with a latency of ``RAM_LATENCY`` cycles.

    Every lane has its own copy of all tables, and they are written alike. Bit-exact with
    :func:`lutterfly.golden.numerics.addition.add_words`.

    Parameters
    ----------
    config : Config

    Members
    -------
    settings : In(epilogue_settings_layout)
        The pair of tables to look in (``add_table``).
    accumulators : In(requant_lanes x signed(32))
        The first operand's code in bits 7:0, the second one's in bits 15:8.
    biases : In(requant_lanes x signed(32))
        Ignored.
    addends : Out(addends_layout)
        Two entries.
    write : Out(memory.WritePort.Signature)
        One entry, which is written a cycle later; the address is 512 times the pair, plus 256 times the operand, plus
        the code plus 128.
    """

    epilogue: ClassVar = SUM
    memory: ClassVar = ADD.memory

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.requant_lanes
        entries = config.engines[ADD].tables * ENTRIES
        words = data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)
        super().__init__(
            {
                "settings": In(epilogue_settings_layout(ADD)),
                "accumulators": In(words),
                "biases": In(words),
                "addends": Out(addends_layout(config)),
                "write": Out(memory.WritePort.Signature(addr_width=ceil_log2(entries), shape=ENTRY_BITS)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        code_bits = ceil_log2(_CODES)
        # The memory of an entry is decoded before the entry arrives, as the memories may be far off.
        address = Cat(self.write.addr[:code_bits], self.write.addr[code_bits + 1 :])
        written = delay(m, Cat(address, self.write.data), 1, name="written_entry")
        are_written = [Signal(name=f"writes_{operand}") for operand in range(2)]
        m.d.sync += [
            flag.eq(self.write.en & (self.write.addr[code_bits] == operand)) for operand, flag in enumerate(are_written)
        ]
        for lane in range(self.lanes):
            for operand, is_written in enumerate(are_written):
                name = f"lane_{lane}_operand_{operand}"
                m.submodules[name] = ram = Ram(width=ENTRY_BITS, depth=self.config.engines[ADD].tables * _CODES)
                code = self.accumulators[lane].as_unsigned().word_select(operand, code_bits)
                m.d.comb += [
                    ram.read_address.eq(Cat(code ^ _CODES // 2, self.settings.fields.add.add_table)),
                    Cat(ram.write_address, ram.write_data).eq(written),
                    ram.write_enable.eq(is_written),
                    self.addends[lane][operand].eq(ram.read_data.as_signed()),
                ]
        return m


class AddOperands(EngineComponent):
    """Give the words of the last two steps of a window, one word per cycle, with a latency of two cycles.

    :class:`~lutterfly.hdl.engines.add.AddTables` looks them up.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :class:`.engine.EngineComponent`. Of each lane bits 7:0 are the byte of the step before the last
        and bits 15:8 that of the last.
    """

    latencies: ClassVar = {ADD: 2}
    epilogues: ClassVar = (AddTables,)
    is_narrow: ClassVar = True

    def __init__(self, config: Config):
        self.config = config
        super().__init__(engine_members(config, self.latencies))

    def elaborate(self, platform) -> Module:
        m = Module()
        step = delay(m, self.step, 1, name="step")
        word = delay(m, self.word, 1, name="word")
        latest, earlier = Signal.like(word, reset_less=True), Signal.like(word, reset_less=True)
        fired = Signal(reset_less=True)
        m.d.sync += fired.eq(step.valid & step.fire)
        with m.If(step.valid):
            m.d.sync += [latest.eq(word), earlier.eq(latest)]
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            codes = Cat(earlier.word_select(lane, 8), latest.word_select(lane, 8))
            m.d.comb += self.result.lanes[lane].eq(codes.as_signed())
        return m

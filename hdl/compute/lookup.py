"""Address lookup: the address of an issued step is its entry of the step list, added to the window's base."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.engines import specification_of
from ...golden.units import ErrorCode, Unit
from ..engines.engine import step_fields, step_layout, take_fields
from ..parts.device import RAM_LATENCY, Ram
from ..parts.isa import INDEX_BITS, ErrorReport, command_shape, field_shape, is_beyond, report_error
from ..parts.pipeline import delay
from .issue_gate import foreseen_layout

__all__ = ["ISSUE_LATENCY", "Lookup", "issued_layout", "lookup_members"]

#: Cycles from the issue of a step to its address: read the list, add.
ISSUE_LATENCY = RAM_LATENCY + 1

_COMMAND = command_shape(isa.COMPUTE)
_FLAG_BITS = 2


def issued_layout(config: Config) -> data.StructLayout:
    """Return the layout of a step on its way to the issue, and when it is issued."""
    return data.StructLayout(
        {
            "foreseen": foreseen_layout(config),
            "entry": field_shape(isa.COMPUTE, "list"),
            "base": unsigned(isa.LOCAL_BITS),
            "weight": unsigned(_COMMAND["weight"].width + 1),
            **step_fields(config, config.engines),
            "index": unsigned(INDEX_BITS),
            "first": unsigned(1),
            "last": unsigned(1),
        }
    )


def lookup_members(config: Config) -> dict[str, wiring.Member]:
    """Return the write port of the step lists and the outputs of a step, which :class:`.windows.Windows` has as
    well."""
    return {
        "list_write": Out(
            memory.WritePort.Signature(addr_width=ceil_log2(config.memory.list_entries), shape=8 * isa.LIST_ENTRY_BYTES)
        ),
        "step": Out(step_layout(config, config.engines)),
        "engine": Out(_COMMAND["engine"].shape),
        "engine_valid": Out(1),
        "address": Out(isa.LOCAL_BITS),
        "weight": Out(ceil_log2(config.weight_words)),
        "reads": Out(1),
    }


class Lookup(wiring.Component):
    """Read the step's list entry and add its offset to the window's base, ``ISSUE_LATENCY`` cycles after the issue.

    Parameters
    ----------
    config : Config

    Members
    -------
    issue : In(1), issued : In(issued_layout)
        A step.
    halt : In(1)
        Give no step.
    list_write, step, engine, engine_valid, address, weight, reads
        See :class:`.windows.Windows`.
    problem : Out(ErrorReport)
        The address lies beyond the feature memory, or the weight word beyond the weight memory; in the cycle of both.
    """

    def __init__(self, config: Config):
        self.config = config
        self.offset_bits = ceil_log2(config.memory.feature_bytes)
        self.engines = [specification_of(code) for code in config.engines]
        super().__init__(
            {
                "issue": In(1),
                "issued": In(issued_layout(config)),
                "halt": In(1),
                **lookup_members(config),
                "problem": Out(ErrorReport),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lists = self._elaborate_list(m)
        valid = delay(m, self.issue, RAM_LATENCY, name="valid")
        now = delay(m, self.issued, RAM_LATENCY, name="issued")
        engine = now.foreseen.engine

        m.d.comb += lists.read_address.eq(self.issued.entry)
        flags = lists.read_data[self.offset_bits : self.offset_bits + _FLAG_BITS]
        if self._has_counts:
            m.d.sync += self.step.keeps.eq(self._keeps(engine, lists.read_data[self.offset_bits + _FLAG_BITS :]))
        has_word, reads = self._reads(m, now, valid, flags[0]), Signal()
        index, weight = Signal(INDEX_BITS, reset_less=True), Signal.like(now.weight, reset_less=True)
        uses_weights, valid_address = Signal(), Signal()
        m.d.sync += [
            valid_address.eq(valid & ~self.halt),
            reads.eq(valid & ~self.halt & has_word),
            self.step.clear.eq(flags[0]),
            self.step.fire.eq(flags[1]),
            self.engine.eq(engine),
            *take_fields(self.step, now),
            self.address.eq(now.base + lists.read_data[: self.offset_bits]),
            weight.eq(now.weight),
            index.eq(now.index),
            uses_weights.eq(reduce(or_, (engine == own.engine for own in self.engines if own.issue.weight_words))),
        ]
        bad_address, bad_weight = Signal(), Signal()
        m.d.comb += [
            bad_address.eq(reads & is_beyond(self.address, self.config.memory.feature_bytes)),
            bad_weight.eq(uses_weights & is_beyond(weight, self.config.weight_words)),
            self.reads.eq(reads),
            self.engine_valid.eq(valid_address),
            self.step.valid.eq(valid_address & ~bad_address & ~bad_weight),
            self.weight.eq(weight),
        ]
        place = Mux(bad_address, self.address, weight)
        m.d.comb += [
            report_error(self.problem, ErrorCode.ADDRESS_RANGE, Unit.FETCH, index, place),
            self.problem.valid.eq(valid_address & (bad_address | bad_weight)),
        ]
        return m

    @property
    def _has_counts(self) -> bool:
        """Whether list entries hold the number of bytes of a word that count."""
        return "keeps" in self.step.shape().members

    def _elaborate_list(self, m: Module) -> Ram:
        """Add the memory of the step lists, whose entries have an offset, flags and perhaps a count of bytes."""
        written = self.list_write.data
        count_bits = ceil_log2(self.config.array.lanes) if self._has_counts else 0
        counts = written[isa.LIST_COUNT_LSB : isa.LIST_COUNT_LSB + count_bits]
        entry = Cat(written[: self.offset_bits], written[-_FLAG_BITS:], counts)
        m.submodules.lists = lists = Ram(width=len(entry), depth=self.config.memory.list_entries)
        m.d.comb += [
            lists.write_enable.eq(self.list_write.en),
            lists.write_address.eq(self.list_write.addr),
            lists.write_data.eq(entry),
        ]
        return lists

    def _keeps(self, engine: Value, count: Value) -> Value:
        """Return a bit for each byte of a word that counts: the first ``count`` ones, or all."""
        masks = reduce(or_, (engine == own.engine for own in self.engines if own.issue.masks_words))
        lanes = range(self.config.array.lanes)
        return Cat(~masks | (count == 0) | (count > lane) for lane in lanes)

    def _reads(self, m: Module, step: data.View, valid: Signal, clear: Value) -> Value:
        """Return whether a step reads its word, in the cycle before its address: the first ``read_steps`` of a window
        do."""
        reads: Value = Const(1)
        for engine in self.engines:
            if engine.issue.read_steps:
                left = Signal(_COMMAND["steps"].shape, name=f"{engine.name}_reads_left", reset_less=True)
                with m.If(valid):
                    count = engine.issue.read_steps(step.fields[engine.name], self.config)
                    m.d.sync += left.eq(Mux(clear, count - 1, Mux(left == 0, 0, left - 1)))
                reads &= (step.foreseen.engine != engine.engine) | clear | (left != 0)
        return reads

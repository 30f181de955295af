"""Fast pointwise convolution: a butterfly on the multipliers of the array as an engine."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from ...golden.config import Config
from ...golden.engines import FPC, specification_of
from ..parts.device import RAM_LATENCY, Ram
from ..parts.pipeline import Assertions, Sleep, delay
from .butterfly import Butterfly
from .engine import EngineComponent, engine_members
from .multipliers import borrower_members
from .shift_epilogue import ShiftEpilogue

__all__ = ["FastPointwise"]

#: Cycles of the registers that take a step and its word in front of the butterfly.
_INTAKE_LATENCY = 1


class FastPointwise(EngineComponent):
    """Take the words of a pixel, one per cycle, through the stages of a butterfly.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.run_stages`. The words of a pixel come one after the other, and
    a command's fields are stable until all its results are out. Columns of weights beyond the array's are multiplied
    here,
    with weights from a memory of the engine's own.

    Parameters
    ----------
    config : Config

    Members
    -------
    step, word, result
        See :class:`.engine.EngineComponent`. A result is ``lanes`` values of a pixel, one after the other.
    borrowed_multipliers
        See :class:`.engine.EngineComponent`.
    """

    epilogues: ClassVar = (ShiftEpilogue,)
    is_narrow: ClassVar = True
    # The butterfly stops its own clock.
    sleeps: ClassVar = False

    def __init__(self, config: Config):
        self.config = config
        self.own = config.engines[FPC]
        self.has_own_columns = bool(self.own.own_columns(config.array))
        self.lanes = config.array.lanes
        self.borrowed_columns = specification_of(FPC).borrowed_columns(config)
        self.butterfly = Butterfly(self.own.pattern, lanes=self.lanes, borrowed=self.borrowed_columns)
        self.latencies = {FPC: _INTAKE_LATENCY + self.butterfly.latency}
        times = [_INTAKE_LATENCY + time for time in self.butterfly.weight_times]
        self.weight_times, self.own_times = times[: config.array.columns], times[config.array.columns :]
        members = engine_members(config, self.latencies)
        super().__init__({**members, **borrower_members(self.borrowed_columns, self.lanes), **self._write_member()})

    def _write_member(self) -> dict[str, wiring.Member]:
        """Return the write port of the memory for weights of the engine's own columns, if it has any."""
        if not self.has_own_columns:
            return {}
        self.memory = FPC.memory
        address_bits = ceil_log2(self.config.size_bytes(self.memory) // self.lanes)
        return {"write": Out(memory.WritePort.Signature(addr_width=address_bits, shape=8 * self.lanes))}

    def elaborate(self, platform) -> Module:
        m = Module()
        butterfly = self.butterfly
        sleep = Sleep(m, platform, self.selected.fpc, cycles=max(self.latencies.values()))
        m.submodules.butterfly = sleep.of(butterfly)
        checks, lent = Assertions(m, platform), Const(0)
        fields = self.step.fields.fpc
        # The pixel's remaining results, this word's included.
        position, results_left = Signal(butterfly.step.position.shape()), Signal.like(fields.lanes)
        own_weight = Signal.like(fields.own_weight)
        settings, valid = Signal.like(butterfly.settings, name="settings"), Signal()
        m.d.sync += valid.eq(self.step.valid)
        with m.If(self.step.valid):
            m.d.sync += [
                position.eq(Mux(self.step.clear, 0, position + 1)),
                results_left.eq(Mux(self.step.clear, fields.lanes, _without(results_left, self.lanes))),
                # The settings are stable while words are under way, as a command waits for all results of earlier ones.
                settings.zero_point.eq(fields.input_zero_point),
                settings.input_shift.eq(fields.input_shift),
                settings.halves.eq(fields.halves),
                settings.is_used.eq(
                    Cat(fields.stages > ceil_log2(distance) for distance in butterfly.pattern.distances)
                ),
            ]
            if self.has_own_columns:
                m.d.sync += own_weight.eq(fields.own_weight)
            if butterfly.pattern.skips:
                m.d.sync += settings.skips.eq(fields.skips)
        m.d.comb += [
            butterfly.settings.eq(settings),
            butterfly.step.valid.eq(valid & results_left.any()),
            butterfly.step.position.eq(position),
            butterfly.step.exists.eq(self._existing(m, fields.channels)),
            butterfly.word.eq(delay(m, self.word, _INTAKE_LATENCY, name="word")),
            self.result.valid.eq(butterfly.valid),
        ]
        m.d.comb += [lane.eq(value) for lane, value in zip(self.result.lanes, butterfly.values, strict=True)]
        if self.borrowed_columns:
            m.d.comb += butterfly.is_selected.eq(self.selected.fpc)
            lent = butterfly.borrowed_multipliers.factors.as_value().any()
            wiring.connect(m, butterfly.borrowed_multipliers, wiring.flipped(self.borrowed_multipliers))
        if self.own_times:
            weights = self._own_weights(m, (own_weight + position)[: len(own_weight)])
            m.d.comb += [target.eq(source) for target, source in zip(butterfly.weights, weights, strict=True)]
        checks.never(self.step.valid & ~self.selected.fpc, "butterfly: a step while it is not selected")
        self._check_settings(checks, m, settings, valid)
        checks.never(~sleep.awake & (butterfly.valid | lent), "butterfly: values or factors of one that is asleep")
        return m

    def _check_settings(self, checks: Assertions, m: Module, settings: data.View, comes: Signal) -> None:
        """Assert that settings change only when no words are under way."""
        if not checks.wanted:
            return
        left = Signal(range(self.butterfly.latency + 1), name="cycles_left")
        m.d.sync += left.eq(Mux(comes, self.butterfly.latency, left - (left != 0)))
        changes = settings.as_value() != delay(m, settings.as_value(), 1, name="settings_before")
        checks.never(changes & (left != 0), "butterfly: its settings change while words are under way")

    def _existing(self, m: Module, channels) -> Value:
        """Return a bit for each code of the word in the butterfly that is a channel.

        The bits come from registers, without a comparison in front of the codes: words of which all codes are channels
        are counted, and the word after them has the rest.
        """
        lane_bits = ceil_log2(self.lanes)
        whole_words = Signal.like(channels[lane_bits:], name="whole_words")
        rest = Signal(self.lanes, name="rest")
        with m.If(self.step.valid & self.step.clear):
            m.d.sync += [
                whole_words.eq(channels[lane_bits:]),
                rest.eq(Cat(channels[:lane_bits] > lane for lane in range(self.lanes))),
            ]
        with m.Elif(self.step.valid & whole_words.any()):
            m.d.sync += whole_words.eq(whole_words - 1)
        with m.Elif(self.step.valid):
            m.d.sync += rest.eq(0)
        return rest | whole_words.any().replicate(self.lanes)

    def _own_weights(self, m: Module, word) -> list:
        """Return the weights of each column from the engine's own memory, in the cycle in which its stage needs them;
        ``word`` is their address for the current step."""
        columns, waited = [], _INTAKE_LATENCY
        column_bits = ceil_log2(self.own.own_word_bytes(self.config.array) // self.lanes)
        for column, time in enumerate(self.own_times):
            word, waited = delay(m, word, time - RAM_LATENCY - waited, name=f"own_weight_{column}"), time - RAM_LATENCY
            m.submodules[f"weights_{column}"] = ram = Ram(width=8 * self.lanes, depth=self.own.own_words)
            m.d.comb += [
                ram.read_address.eq(word),
                ram.write_address.eq(self.write.addr[column_bits:]),
                ram.write_data.eq(self.write.data),
                ram.write_enable.eq(self.write.en & (self.write.addr[:column_bits] == column)),
            ]
            columns.append(ram.read_data)
        return columns


def _without(count, lanes: int):
    """Return a count less the lanes of a word, at least zero."""
    return Mux(count > lanes, count - lanes, 0)

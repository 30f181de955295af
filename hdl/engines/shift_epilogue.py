"""The shifting epilogue: bias, shift, zero point and clamp of all lanes at a time, without a multiplier."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from ...golden.config import Config
from ...golden.engines import FPC
from ...golden.engines.fpc import SHIFT
from ...golden.numerics.fpc import MOST_EPILOGUE_SHIFT
from ..parts.pipeline import delay, spread
from .engine import WholeEpilogueComponent, codes_layout, epilogue_settings_layout, values_layout

__all__ = ["LATENCY", "ShiftEpilogue"]

#: Cycles: add the bias, shift by zero or four, shift by the rest, add the zero point, limit to a range in which codes
#: are compared, clamp.
LATENCY = 6

#: Bits of the shift distance that the second shift takes.
_FINE_BITS = 2
_COARSE_SHIFT = 1 << _FINE_BITS

#: Bits of a shifted value that are kept beside its sign: a value with one more is beyond every code, for any zero
#: point.
_KEPT_BITS = 9


def _differs(bits: Value, bit: Value) -> Value:
    return (bits ^ bit.replicate(len(bits))).any()


class ShiftEpilogue(WholeEpilogueComponent):
    """Convert ``lanes`` values to codes each cycle.

    Bit-exact with :func:`lutterfly.golden.numerics.fpc.shift_values`.

    Parameters
    ----------
    config : Config

    Members
    -------
    settings, values, biases, codes
        See :class:`.engine.WholeEpilogueComponent`. ``low`` is at most ``high``.
    """

    epilogue: ClassVar = SHIFT
    latency: ClassVar = LATENCY

    def __init__(self, config: Config):
        self.lanes = config.array.lanes
        values = values_layout(self.lanes)
        super().__init__(
            {
                "settings": In(epilogue_settings_layout(FPC)),
                "values": In(values),
                "biases": In(values),
                "codes": Out(codes_layout(self.lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        assert MOST_EPILOGUE_SHIFT < 2 * _COARSE_SHIFT, "the coarse shift is one bit"
        given, shift = self.settings, self.settings.fields.fpc.shift
        settings = [
            spread(m, shift[_FINE_BITS:], self.lanes, cycles=1, name="coarse"),
            spread(m, shift[:_FINE_BITS], self.lanes, cycles=2, name="fine"),
            spread(m, delay(m, given.zero_point, 1, name="zero_point"), self.lanes, cycles=2, name="zero_points"),
        ]
        for name in ("low", "high"):
            waiting = delay(m, given[name], LATENCY - 3, name=name)
            settings.append(spread(m, waiting, self.lanes, cycles=2, name=f"{name}_of_lanes"))
        for lane, of_lane in enumerate(zip(*settings, strict=True)):
            m.d.comb += self.codes[lane].eq(self._lane(m, lane, *of_lane))
        return m

    def _lane(
        self, m: Module, lane: int, coarse: Value, fine: Value, zero_point: Value, low: Value, high: Value
    ) -> Value:
        def register(name: str, value: Value) -> Signal:
            held = Signal(value.shape(), name=f"{name}_{lane}", reset_less=True)
            m.d.sync += held.eq(value)
            return held

        total = register("total", self.values[lane] + self.biases[lane])
        # The value has as many fractional bits as the coarse shift may leave.
        scaled = Cat(Const(0, _COARSE_SHIFT), total).as_signed()
        total = register("coarsely", Mux(coarse, total, scaled))
        sign = total[-1]

        def chosen(of_shift: Callable[[int], Value]) -> Value:
            return Array(of_shift(_COARSE_SHIFT + bits) for bits in range(_COARSE_SHIFT))[fine]

        kept = chosen(lambda bits: (total >> bits)[:_KEPT_BITS])
        half = chosen(lambda bits: total[bits - 1])
        rest = chosen(lambda bits: total[: bits - 1].any())
        beyond = chosen(lambda bits: _differs(total[bits + _KEPT_BITS :], sign))
        shifted = register("shifted", Cat(kept, sign).as_signed())
        rounds_up, overflows = register("rounds_up", half & (rest | kept[0])), register("overflows", beyond)

        # The carry of the rounding enters one bit below both.
        moved = register("moved", (Cat(Const(1, 1), shifted).as_signed() + Cat(rounds_up, zero_point).as_signed()) >> 1)
        is_negative, overflows = register("is_negative", shifted[-1]), register("overflows_later", overflows)

        least, greatest = -(1 << len(moved) - 1), (1 << len(moved) - 1) - 1
        limited = register("limited", Mux(overflows, Mux(is_negative, least, greatest), moved))
        return register("code", Mux(limited < low, low, Mux(limited > high, high, limited))[:8])

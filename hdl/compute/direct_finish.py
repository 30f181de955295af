"""The finish of direct results: bias, shift, zero point and clamp of all lanes at a time, without a multiplier."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.fpc import MOST_FINISH_SHIFT, VALUE_BITS
from ..parts.pipeline import delay

__all__ = ["LATENCY", "DirectFinish", "direct_settings_layout"]

#: Add the bias, shift, add the zero point, limit to what a code can be compared with, clamp.
LATENCY = 5

#: Bits of a shifted value that are kept beside its sign: with one more it is beyond every code, whatever zero point.
_KEPT_BITS = 9


def direct_settings_layout() -> data.StructLayout:
    """What a command says of it."""
    return data.StructLayout(
        {"shift": range(MOST_FINISH_SHIFT + 1), "zero_point": signed(8), "low": signed(8), "high": signed(8)}
    )


def _differs(bits: Value, bit: Value) -> Value:
    return (bits ^ bit.replicate(len(bits))).any()


class DirectFinish(wiring.Component):
    """Make codes of values, ``lanes`` a cycle, with a latency of ``LATENCY`` cycles.

    Bit-exact with :func:`lutterfly.golden.fpc.shift_values`.

    Parameters
    ----------
    lanes : int

    Members
    -------
    values, biases : In(lanes x signed(16))
    settings : In(direct_settings_layout)
        ``low`` is at most ``high``.
    codes : Out(lanes x 8)
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        values = data.ArrayLayout(signed(VALUE_BITS), lanes)
        super().__init__(
            {
                "values": In(values),
                "biases": In(values),
                "settings": In(direct_settings_layout()),
                "codes": Out(data.ArrayLayout(unsigned(8), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        shift = delay(m, self.settings.shift, 1, name="shift")
        zero_point = delay(m, self.settings.zero_point, 2, name="zero_point")
        limits = [delay(m, self.settings[name], LATENCY - 1, name=name) for name in ("low", "high")]
        for lane in range(self.lanes):
            m.d.comb += self.codes[lane].eq(self._lane(m, lane, shift, zero_point, *limits))
        return m

    def _lane(self, m: Module, lane: int, shift: Value, zero_point: Value, low: Value, high: Value) -> Value:
        def register(name: str, value: Value) -> Signal:
            held = Signal(value.shape(), name=f"{name}_{lane}", reset_less=True)
            m.d.sync += held.eq(value)
            return held

        total = register("total", self.values[lane] + self.biases[lane])
        sign, by_shift = total[-1], range(MOST_FINISH_SHIFT + 1)

        def chosen(of_shift: Callable[[int], Value]) -> Value:
            return Array(map(of_shift, by_shift))[shift]

        kept = chosen(lambda bits: (total >> bits)[:_KEPT_BITS])
        half = chosen(lambda bits: total[bits - 1] if bits else Const(0, 1))
        rest = chosen(lambda bits: total[: max(bits - 1, 0)].any())
        beyond = chosen(lambda bits: _differs(total[bits + _KEPT_BITS :], sign))
        shifted = register("shifted", Cat(kept, sign).as_signed())
        rounds_up, overflows = register("rounds_up", half & (rest | kept[0])), register("overflows", beyond)

        # The carry of the rounding comes in at a bit below both.
        moved = register("moved", (Cat(Const(1, 1), shifted).as_signed() + Cat(rounds_up, zero_point).as_signed()) >> 1)
        is_negative, overflows = register("is_negative", shifted[-1]), register("overflows_later", overflows)

        least, greatest = -(1 << len(moved) - 1), (1 << len(moved) - 1) - 1
        limited = register("limited", Mux(overflows, Mux(is_negative, least, greatest), moved))
        return register("code", Mux(limited < low, low, Mux(limited > high, high, limited))[:8])

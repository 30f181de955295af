"""Requantisation: accumulators to int8 codes, with the bits of float32 arithmetic."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.numerics import requant
from ..parts.device import MULTIPLIER_LATENCY, Multiplier
from ..parts.pipeline import platform_of

__all__ = ["LATENCY", "Parameter", "Requantiser", "Scale"]

#: Registers before the multiplier's first one, and after its last one.
_STAGES_BEFORE, _STAGES_AFTER = 5, 6
LATENCY = _STAGES_BEFORE + MULTIPLIER_LATENCY + _STAGES_AFTER

_ACC_BITS = 32
_SUM_BITS = requant.SUM_BITS
_MANTISSA_BITS = requant.MANTISSA_BITS
_PRODUCT_BITS = 2 * _MANTISSA_BITS
#: Bits of a sum shifted to the left that are below its significant bits.
_DROPPED_BITS = _SUM_BITS - _MANTISSA_BITS

#: The multiplier takes this many low bits of both factors; logic multiplies the rest, two bits a row.
_LOW_BITS = 18
_ROWS = range(0, _MANTISSA_BITS - _LOW_BITS, 2)

#: 24 significant bits shifted right by less are at least 256, beyond every code.
_LEAST_SHIFT = 16
_INTEGER_BITS = _MANTISSA_BITS - _LEAST_SHIFT
#: Bits of the shift less this least one, which is from -48 to 48.
_SHIFT_BITS = 7


Scale = data.StructLayout({"mantissa": unsigned(requant.MANTISSA_BITS), "exponent": unsigned(requant.EXPONENT_BITS)})

#: One channel's word of the parameter memory, as :func:`lutterfly.golden.numerics.requant.pack_parameters` packs it.
Parameter = data.StructLayout({"bias": signed(_ACC_BITS), "scale": Scale, "spare": unsigned(2)})


class Requantiser(wiring.Component):
    """Requantise the sum of two addends each cycle, with a latency of ``LATENCY`` cycles.

    Bit-exact with :func:`~lutterfly.golden.numerics.requant.requantise` and ``requantise_sum``.
    Nothing stalls and nothing is reset: a result is as valid as the inputs were ``LATENCY`` cycles before. All inputs
    belong to one cycle and may change in the next. There is no combinational path from an input to the output.

    Members
    -------
    addends : In(2 x signed(37))
        Addends with 5 bits of fraction, which are zero in accumulator and bias
        (:func:`~lutterfly.hdl.engines.engine.addend_of`): their sum wraps at 32 bits.
    scale : In(Scale)
        A mantissa is 0 or has its highest bit set.
    zero_point, low, high : In(signed(8))
        ``low`` is at most ``high``.
    result : Out(signed(8))
    """

    def __init__(self):
        super().__init__(
            {
                "addends": In(data.ArrayLayout(signed(_SUM_BITS), 2)),
                "scale": In(Scale),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        sign, normalised, leading_zeros, is_exact = self._normalise(m)
        factor, shift = self._round_sum(m, normalised, leading_zeros, sign, is_exact)
        mantissa = _delay(m, self.scale.mantissa, _STAGES_BEFORE)
        is_whole = platform_of(platform).primitives.widest_factor >= _MANTISSA_BITS
        product = self._multiply(m, factor, mantissa, is_whole=is_whole)

        # From here to the product these delays run in parallel with the multiplier's registers and two more.
        beside = MULTIPLIER_LATENCY + 2
        is_nonzero = _delay(m, factor[-1] & mantissa[-1], beside)
        shift = _delay(m, shift, beside - 1)
        magnitude, increment = self._round_product(m, product, shift, is_nonzero)

        # A negative result is the complement plus one, and the increment is 0 or 1: one carry stands for both.
        total = Signal(signed(_INTEGER_BITS + 2), reset_less=True)
        zero_point = _delay(m, self.zero_point, LATENCY - 2)
        sign = _delay(m, sign, beside + 3)
        addend = (magnitude ^ sign.replicate(len(magnitude))).as_signed()
        m.d.sync += total.eq((Cat(1, zero_point).as_signed() + Cat(increment ^ sign, addend).as_signed()) >> 1)

        low, high = (_delay(m, limit, LATENCY - 1) for limit in (self.low, self.high))
        result = Signal(signed(8), reset_less=True)
        m.d.sync += result.eq(Mux(total < low, low, Mux(total > high, high, total)))
        m.d.comb += self.result.eq(result)
        return m

    def _normalise(self, m: Module) -> tuple[Value, Value, Value, Value]:
        """Build four stages: add, and shift to the left until the highest bit is set.

        A negative sum is complemented; the rounding adds the one that is missing to its magnitude. Ones are shifted in,
        so that it may be added at the lowest bit. A sum with more leading zeros than are counted is far below a code.
        The last
        result is whether the magnitude's bits below the half of the dropped ones are all zero.
        """
        total = _register(m, (self.addends[0] + self.addends[1])[:_SUM_BITS], "total")
        sign = total[-1]
        word, count = total ^ sign.replicate(_SUM_BITS), Value.cast(Cat())
        for first, second in ((16, None), (8, 4), (2, 1)):
            before = word ^ sign.replicate(_SUM_BITS)
            is_empty = Signal(name=f"is_empty_{first}")
            m.d.comb += is_empty.eq(word[-first:] == 0)
            empties, amounts = is_empty, (0, first)
            if second:
                # The second step's test is made for both outcomes of the first.
                is_next_empty = Signal(name=f"is_empty_{second}")
                m.d.comb += is_next_empty.eq(Mux(is_empty, word[-first - second : -first] == 0, word[-second:] == 0))
                empties, amounts = Cat(is_next_empty, is_empty), (0, second, first, first + second)
            shifted = Array(Cat(sign.replicate(amount), word[: _SUM_BITS - amount]) for amount in amounts)
            word, count, sign = (
                _register(m, value, name)
                for value, name in (
                    (shifted[empties], f"normalised_{first}"),
                    (Cat(empties, count), f"leading_zeros_{first}"),
                    (sign, f"sign_{first}"),
                )
            )
        # This is done in parallel with the last shift, so that it is known before the sum that rounds.
        is_zero = Array(before[: _DROPPED_BITS - 1 - amount] == 0 for amount in amounts)
        return sign, word, count, _register(m, is_zero[empties], "is_exact")

    def _round_sum(
        self, m: Module, normalised: Value, leading_zeros: Value, sign: Value, is_exact: Value
    ) -> tuple[Value, Value]:
        """Build the stage that rounds to 24 significant bits; and two for the shift that makes the product an integer,
        less ``_LEAST_SHIFT``."""
        half, kept = normalised[_DROPPED_BITS - 1], normalised[_DROPPED_BITS:]
        # The dropped bits and the sign's missing one are compared with a half, without the addition.
        is_above = half & (sign | ~is_exact)
        is_half = is_exact & (half ^ sign)
        rounded = kept + (is_above | (is_half & kept[0]))
        # After an overflow the other bits are zero.
        overflow = rounded[-1]
        factor = _register(m, Cat(rounded[: _MANTISSA_BITS - 1], rounded[_MANTISSA_BITS - 1] | overflow), "factor")
        exponent = _delay(m, self.scale.exponent, _STAGES_BEFORE - 1)
        shift = (exponent + leading_zeros - (_ACC_BITS + _LEAST_SHIFT))[:_SHIFT_BITS].as_signed()
        shift = _register(m, shift, "shift_before_overflow") - _register(m, overflow, "overflow")
        return factor, _register(m, shift[:_SHIFT_BITS].as_signed(), "shift")

    def _multiply(self, m: Module, factor: Value, mantissa: Value, *, is_whole: bool) -> Value:
        """Build five stages: the product, of which one multiplier gives the low bits' part and six rows of logic the
        rest, unless it takes whole factors."""
        if is_whole:
            m.submodules.multiplier = multiplier = Multiplier(
                a_width=_MANTISSA_BITS, b_width=_MANTISSA_BITS, is_signed=False
            )
            m.d.comb += [multiplier.a.eq(factor), multiplier.b.eq(mantissa)]
            return _delay(m, multiplier.product, 2)
        m.submodules.multiplier = multiplier = Multiplier(a_width=_LOW_BITS, b_width=_LOW_BITS, is_signed=False)
        m.d.comb += [multiplier.a.eq(factor[:_LOW_BITS]), multiplier.b.eq(mantissa[:_LOW_BITS])]

        def masked(word: Value, digit: Value, name: str) -> Signal:
            """Register a word or zero by the reset of registers, which needs no look-up tables before an adder."""
            register = _register(m, word, name)
            with m.If(~digit):
                m.d.sync += register.eq(0)
            return register

        def row(word: Value, digits: Value, name: str) -> Signal:
            low, high = (masked(word, digit, f"{name}_{number}") for number, digit in enumerate(digits))
            return _register(m, low + (high << 1), name)

        sums = []
        for lsb in _ROWS:
            digits = slice(_LOW_BITS + lsb, _LOW_BITS + lsb + 2)
            by_factor = row(mantissa, factor[digits], f"mantissa_row_{lsb}")
            by_mantissa = row(factor[:_LOW_BITS], mantissa[digits], f"factor_row_{lsb}")
            sums.append(_register(m, by_factor + by_mantissa, f"row_{lsb}"))
        lowest = _register(m, multiplier.product + (sums[0] << _LOW_BITS), "product_lowest")
        others = _register(m, sums[1] + (sums[2] << 2), "product_others")
        return _register(m, (lowest + (others << _LOW_BITS + 2))[:_PRODUCT_BITS], "product")

    def _round_product(self, m: Module, product: Value, shift: Value, is_nonzero: Value) -> tuple[Value, Value]:
        """Build two stages: the magnitude, at most 256, and whether to increment it.

        The product is rounded to 24 significant bits and these to an integer. The first increment is never carried out:
        after the half's bit it only matters where the rest is zero or all ones.
        """
        is_long = product[-1]
        significant = Mux(is_long, product[_MANTISSA_BITS:], product[_MANTISSA_BITS - 1 : -1])
        dropped_half = Mux(is_long, product[_MANTISSA_BITS - 1], product[_MANTISSA_BITS - 2])
        dropped_rest = product[: _MANTISSA_BITS - 2].any() | (is_long & product[_MANTISSA_BITS - 2])
        first_increment = _register(m, dropped_half & (dropped_rest | significant[0]), "first_increment")
        significant = _register(m, significant, "significant")
        shift = _register(m, (shift + ~is_long)[:_SHIFT_BITS].as_signed(), "shift_significant")
        is_nonzero = _register(m, is_nonzero, "is_nonzero_significant")

        is_saturated = (shift < 0) & is_nonzero
        is_vanishing = shift >= 2 * _INTEGER_BITS
        amount = shift[:4]
        rest, upper = significant[: _LEAST_SHIFT - 1], significant[_LEAST_SHIFT - 1 :]
        shifted = Signal(_INTEGER_BITS + 1)
        below = Signal(_INTEGER_BITS)
        m.d.comb += [
            shifted.eq(Mux(is_vanishing, 0, upper >> amount)),
            below.eq(Cat(amount > bit for bit in range(_INTEGER_BITS))),
        ]
        rest_is_zero = _register(m, ~rest.any() & ~(upper[:-1] & below).any(), "rest_is_zero")
        rest_is_ones = _register(m, rest.all() & (upper[:-1] | ~below).all(), "rest_is_ones")
        half = _register(m, shifted[0] & ~is_saturated, "half")
        magnitude = _register(m, Mux(is_saturated, 1 << _INTEGER_BITS, shifted[1:]), "magnitude")
        first_increment = _register(m, first_increment, "first_increment_shifted")

        is_above = half & (~rest_is_zero | first_increment)
        is_half = Mux(half, rest_is_zero & ~first_increment, rest_is_ones & first_increment)
        return Cat(magnitude, 0), is_above | (is_half & magnitude[0])


def _register(m: Module, value: Value, name: str) -> Signal:
    register = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += register.eq(value)
    return register


def _delay(m: Module, value: Value, cycles: int) -> Value:
    value = Value.cast(value)
    name = getattr(value, "name", "value")
    for cycle in range(cycles):
        value = _register(m, value, f"{name}_delayed_{cycle + 1}")
    return value

"""A multiplier of look-up tables, in the place of a :class:`.device.Multiplier` where a device has no more blocks."""

from __future__ import annotations

import functools

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .device import MULTIPLIER_LATENCY

__all__ = ["FabricMultiplier"]


class FabricMultiplier(wiring.Component):
    """Multiply two signed numbers each cycle, with a latency of ``MULTIPLIER_LATENCY`` cycles: as
    :class:`.device.Multiplier` does, without a block.

    Each bit of ``b`` takes ``a`` or nothing. Two such rows are a sum, and a carry chain with four inputs a bit takes
    the rows' masks with it (``synth/mapped/fold.py``). Two levels of sums follow. There is a register after each level
    and none in front, where a block has one.
    Nine or ten rows, as the weights of Winograd steps have, are five first sums, which leave three terms for the last
    level. It adds them up in one cycle, because the latency has to be that of a block.

    Parameters
    ----------
    a_width, b_width : int
        Bits of the operands; of ``b`` 3 to 10.

    Members
    -------
    a, b : In
    product : Out(a_width + b_width)

    Raises
    ------
    ValueError
        If ``b`` has other bits: there are three levels of sums, of which the last one takes three terms at most.
    """

    def __init__(self, *, a_width: int, b_width: int):
        if b_width not in range(3, 11):
            raise ValueError(f"b_width must be between 3 and 10, not {b_width}")
        self.a_width, self.b_width = a_width, b_width
        super().__init__(
            {
                "a": In(signed(a_width)),
                "b": In(signed(b_width)),
                "product": Out(signed(a_width + b_width)),
            }
        )

    def elaborate(self, platform) -> Module:
        assert MULTIPLIER_LATENCY == 3, "a register after each level of sums"
        m = Module()
        # An even number of rows, of which the last one counts negative.
        bits = [*self.b, self.b[-1]][: self.b_width + self.b_width % 2]
        rows = [(self.a.as_unsigned() & bit.replicate(self.a_width)).as_signed() for bit in bits]
        level = [
            _sum(low, high, 1, subtracts=high is rows[-1]) for low, high in zip(rows[::2], rows[1::2], strict=True)
        ]
        held = _registers(m, level, 0)
        held = _registers(m, [_joined(held[first : first + 2], 2) for first in range(0, len(held), 2)], 1)
        (product,) = _registers(m, [_joined(held, 4)], 2)
        m.d.comb += self.product.eq(product)
        return m


def _registers(m: Module, level: list[Value], number: int) -> list[Value]:
    """The values of a level, a cycle later."""
    registers: list[Value] = []
    for index, value in enumerate(level):
        registers.append(register := Signal.like(value, name=f"level_{number}_{index}", reset_less=True))
        m.d.sync += register.eq(value)
    return registers


def _joined(terms: list[Value], shift: int) -> Value:
    """The sum of terms of which each counts 2**``shift`` times the one before."""
    return functools.reduce(lambda above, term: _sum(term, above, shift), reversed(terms))


def _sum(low: Value, high: Value, shift: int, *, subtracts: bool = False) -> Value:
    """``low`` and 2**``shift`` times ``high``; what is below does not go through the sum."""
    above = low >> shift
    return Cat(low[:shift], above - high if subtracts else above + high).as_signed()

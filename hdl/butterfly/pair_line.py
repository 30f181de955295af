"""The two values of a pair, brought together: those of other words by a line of words."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden.numerics.fpc import VALUE_BITS
from ..parts.pipeline import spread

__all__ = ["SETTING_LATENCY", "PairLine", "values_layout"]

#: Cycles until a setting has reached all lanes of a stage.
SETTING_LATENCY = 2


def values_layout(lanes: int) -> data.ArrayLayout:
    """A word of values between stages."""
    return data.ArrayLayout(signed(VALUE_BITS), lanes)


class PairLine(wiring.Component):
    """Give with each value the other one of its pair, a word each cycle, ``distance`` cycles later.

    The words of a pixel come one after the other, each with its position; between pixels any number of cycles may pass.
    The first of two words waits until the second one is there, the second one still finds the first. A pair within a
    word needs no line: there ``partner`` is the value itself, because what it is multiplied to changes its lane after
    the multiplier, where nothing has to be chosen.

    Parameters
    ----------
    lanes : int
        Values in a word.
    distance : int
        Of the two words of a pair, a power of two; 0 for pairs within a word.
    own_delay, partner_delay : int
        Cycles by which ``own`` and ``partner`` are later than they could be: what is made of them is to meet.

    Members
    -------
    values : In(lanes x signed(16))
    is_second : In(1)
        A cycle before ``partner``: the word of ``own`` is the second one of its pair.
    enable : In(1)
        Else the partner is zero. Takes ``SETTING_LATENCY`` cycles to be so everywhere.
    partner : Out(lanes x signed(16))
        ``distance + partner_delay`` cycles after ``values``.
    own : Out(lanes x signed(16))
        ``distance + own_delay`` cycles after ``values``.
    """

    def __init__(self, *, lanes: int, distance: int, own_delay: int, partner_delay: int):
        self.lanes = lanes
        self.distance = distance
        self.own_delay = own_delay
        self.partner_delay = partner_delay
        values = values_layout(lanes)
        super().__init__(
            {"values": In(values), "is_second": In(1), "enable": In(1), "partner": Out(values), "own": Out(values)}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        length = max(2 * self.distance + self.partner_delay, self.distance + self.own_delay)
        # One line serves both: of the same registers, the partner reads the end and ``own`` the middle.
        taps = [self.values]
        for number in range(length):
            tap = Signal.like(self.values, name=f"tap_{number}", reset_less=True)
            m.d.sync += tap.eq(taps[-1])
            taps.append(tap)
        m.d.comb += self.own.eq(taps[self.distance + self.own_delay])
        enable = spread(m, self.enable, self.lanes, cycles=SETTING_LATENCY, name="enable")
        if self.distance:
            is_second = spread(m, self.is_second, self.lanes, cycles=1, name="is_second")
        for lane in range(self.lanes):
            latest, earliest = (taps[self.partner_delay + wait][lane] for wait in (0, 2 * self.distance))
            partner = Mux(is_second[lane], earliest, latest) if self.distance else latest
            # Masked, not chosen: synthesis makes a reset of a choice, and a multiplier's register has none to spare.
            m.d.comb += self.partner[lane].eq(partner.as_unsigned() & enable[lane].replicate(VALUE_BITS))
        return m

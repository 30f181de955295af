"""Multipliers for two columns of the array that work twice a cycle, in the place of :class:`.device.Multiplier` where a
device has too few blocks."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .device import MULTIPLIER_LATENCY

__all__ = ["DOUBLE", "HALF_CYCLE", "MultiplierBank", "PumpedMultipliers", "Turn"]

#: The domain of a clock twice as fast as that of `sync`, of which every other rising edge is one of `sync`.
DOUBLE = "double"
#: The signal of `double` that registers of `sync` see while it changes with every edge: it has half a cycle of `sync`.
HALF_CYCLE = "changing"


class MultiplierBank(wiring.Signature):
    """The multipliers of one column, as the column sees them.

    Parameters
    ----------
    lanes : int
    a_width, b_width : int
        Bits of the operands, which are signed.
    is_early : bool
        Whether operands come from registers of ``double``, and are there in the first half of a cycle only.

    Members
    -------
    a : Out(lanes x signed(a_width)), b : Out(lanes x signed(b_width))
    products : In(lanes x signed(a_width + b_width))
        ``MULTIPLIER_LATENCY`` cycles later.
    """

    def __init__(self, lanes: int, *, a_width: int, b_width: int, is_early: bool = False):
        self.lanes, self.a_width, self.b_width, self.is_early = lanes, a_width, b_width, is_early
        widths = {"a": (Out, a_width), "b": (Out, b_width), "products": (In, a_width + b_width)}
        super().__init__({name: flow(data.ArrayLayout(signed(bits), lanes)) for name, (flow, bits) in widths.items()})


class Turn(wiring.Component):
    """Say whose turn it is before each edge of the clock ``double``.

    Members
    -------
    is_second : Out(1)
        Before the edges between those of ``sync``; of ``double``.
    """

    def __init__(self):
        super().__init__({"is_second": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        # What `sync` sees of a bit that changes with each edge of `double` is always the same.
        changing, seen = Signal(name=HALF_CYCLE, reset_less=True), Signal(reset_less=True)
        m.d[DOUBLE] += changing.eq(~changing)
        m.d.sync += seen.eq(changing)
        m.d[DOUBLE] += self.is_second.eq(changing == seen)
        return m


class PumpedMultipliers(wiring.Component):
    """Multiply for two columns with one multiplier a lane, which the clock ``double`` gives two turns a cycle.

    Factors of the first column are multiplied with the edge of ``sync`` that would take them into a multiplier's
    registers, those of the second with the next one of ``double``. Both products come when they would otherwise. If the
    first column's are early, one of both columns' is chosen half a cycle before, in front of a register of its own, so
    that each wire has half a cycle for itself.
    What goes from ``sync`` to ``double`` is used with an edge of ``sync`` at the earliest, and products come in
    registers of ``double`` that have an enable, and change with edges of ``sync`` only: both ways have a cycle.
    What has half of one is within ``double``, which place and route knows as one clock, but for :data:`HALF_CYCLE`.

    Parameters
    ----------
    banks : tuple of MultiplierBank
        Those of both columns; only the first one may be early.

    Members
    -------
    is_second : In(1)
        As :class:`Turn` says it, or as another of these passes it on.
    next_is_second : Out(1)
        For the next one.
    bank_0, bank_1 : In(MultiplierBank)
    """

    def __init__(self, banks: tuple[MultiplierBank, MultiplierBank]):
        if banks[1].is_early:
            raise ValueError("banks of the second turn have a cycle; only those of the first one can be early")
        self.banks = banks
        ports = {f"bank_{place}": In(bank) for place, bank in enumerate(banks)}
        super().__init__({"is_second": In(1), "next_is_second": Out(1), **ports})

    def elaborate(self, platform) -> Module:
        assert MULTIPLIER_LATENCY == 3, "registers for factors, products, and products of both columns at once"
        m = Module()
        turn = self.is_second
        for lane in range(self.banks[0].lanes):
            product, turn = self._elaborate_lane(m, lane, turn)
            # The first column's waits for the second one's.
            waiting = Signal.like(product, name=f"waiting_{lane}", reset_less=True)
            m.d[DOUBLE] += waiting.eq(product)
            # An enable for each column, whose products may be far from the other's.
            is_end = turn
            for place, (bank, value) in enumerate(((self.bank_0, waiting), (self.bank_1, product))):
                before, is_end = is_end, Signal(name=f"is_end_{lane}_{place}", reset_less=True)
                m.d[DOUBLE] += is_end.eq(~before if place else before)
                found = Signal.like(bank.products[lane], name=f"found_{lane}", reset_less=True)
                with m.If(is_end):
                    m.d[DOUBLE] += found.eq(value)
                m.d.comb += bank.products[lane].eq(found)
        m.d.comb += self.next_is_second.eq(turn)
        return m

    def _elaborate_lane(self, m: Module, lane: int, turn: Signal) -> tuple[Signal, Signal]:
        """A lane's multiplier: its products, of both columns in turn; and the turn for the next lane."""
        factors = []
        # Each factor has its own turn, near its bits, so that few wires have to be as fast as this clock; lanes may be
        # far apart. Whose turn it is changes with every edge, and so does what a register more makes of it.
        turns = [Signal(name=f"{name}_{lane}_is_second", reset_less=True) for name in ("passing", "a", "b")]
        for later in turns:
            m.d[DOUBLE] += later.eq(~turn)
            turn = later
        for name, own in zip(("a", "b"), turns[1:], strict=True):
            first, second = (getattr(bank, name)[lane] for bank in (self.bank_0, self.bank_1))
            factor = Signal(signed(max(len(first), len(second))), name=f"factor_{name}_{lane}", reset_less=True)
            if self.banks[0].is_early:
                chosen = Signal.like(factor, name=f"chosen_{name}_{lane}", reset_less=True)
                m.d[DOUBLE] += [chosen.eq(Mux(own, first, second)), factor.eq(chosen)]
            else:
                held = Signal.like(second, name=f"held_{name}_{lane}", reset_less=True)
                m.d[DOUBLE] += [held.eq(second), factor.eq(Mux(own, held, first))]
            factors.append(factor)
        a, b = factors
        product = Signal(signed(len(a) + len(b)), name=f"product_{lane}", reset_less=True)
        output = Signal.like(product, name=f"output_{lane}", reset_less=True)
        m.d[DOUBLE] += [product.eq(a * b), output.eq(product)]
        return output, turn

"""Tokens that one queue has given to another: the counter of this pair of peers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ..parts.assertions import Assertions

__all__ = ["SIGNAL_BITS", "Tokens"]

SIGNAL_BITS = isa.SYNC.field("signal").width
_WAIT_BITS = isa.SYNC.field("wait").width


class Tokens(wiring.Component):
    """Count the tokens that a queue has from one peer.

    Parameters
    ----------
    name : str
        Of the queue, in assertions.

    Members
    -------
    granted : In(8)
        Tokens that the peer gives in this cycle.
    needed : In(16)
        What the queue's next command takes.
    take : In(1)
        The command begins.
    enough : Out(1)
        ``needed`` tokens are there. While ``take`` is low it can only become true.
    left : Out(1)
        There are tokens that nobody has taken; or there were before the last cycle's ``take``. Registered.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            {
                "granted": In(SIGNAL_BITS),
                "needed": In(_WAIT_BITS),
                "take": In(1),
                "enough": Out(1),
                "left": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(_WAIT_BITS)
        # What is left is worked out before it is known whether a command takes: that comes late.
        m.d.sync += count.eq(Mux(self.take, (count - self.needed) + self.granted, count + self.granted))
        m.d.sync += self.left.eq((count != 0) | (self.granted != 0))
        m.d.comb += self.enough.eq(count >= self.needed)
        checks = Assertions(m, platform)
        checks.never(self.take & (count < self.needed), f"{self.name}: a command takes tokens that are not there")
        checks.never(count + self.granted >= 1 << _WAIT_BITS, f"{self.name}: more tokens than are counted")
        return m

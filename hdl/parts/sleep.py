"""Parts that stand still in a simulation while nobody uses them; hardware that is built has none of it."""

from __future__ import annotations

from amaranth.hdl import Const, Elaboratable, EnableInserter, Module, Signal, Value, ValueLike

from ...golden.pins import AWAKE
from .platforms import platform_of

__all__ = ["Sleep"]


class Sleep:
    """When a part of a component is awake: always, unless it is elaborated for :data:`.platforms.SIMULATED`.

    A register that stands still costs a simulation nothing, nor does the logic between such registers
    (``host/simulation/enabled.py``). What a part holds when it falls asleep is what came by while nobody used it, as it
    is in hardware when it is used again.

    Parameters
    ----------
    m : Module
        Of the component.
    platform : object
        What the component is elaborated for.
    used : Value
        Somebody uses the part, or will, in this cycle. Combinational to :attr:`awake`.
    cycles : int
        How long it goes on afterwards: as long as anything of what it has been given is under way in it.

    Attributes
    ----------
    awake : Value
        The part's registers take new values at the end of this cycle.
    """

    def __init__(self, m: Module, platform: object, used: ValueLike, *, cycles: int):
        self._wanted = platform_of(platform).sleeps
        self.awake: Value = Const(1)
        if not self._wanted:
            return
        self.awake = Signal(name=AWAKE)
        # At first it is awake: what a simulation begins with is not what comes by.
        left = Signal(range(cycles + 1), init=cycles, name="awake_left")
        m.d.comb += self.awake.eq(Value.cast(used) | left.any())
        with m.If(used):
            m.d.sync += left.eq(cycles)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)

    def of(self, part: Elaboratable) -> Elaboratable:
        """The part, to be made a submodule."""
        return EnableInserter(self.awake)(part) if self._wanted else part

"""What must never happen, looked at in every cycle of a simulation; hardware that is built has none of it."""

from __future__ import annotations

from amaranth.hdl import Assert, Module, Signal, ValueLike

from .platforms import platform_of

__all__ = ["Assertions"]


class Assertions:
    """The assertions of one component: none unless it is elaborated for :data:`.platforms.ASSERTED`.

    Parameters
    ----------
    m : Module
        Of the component.
    platform : object
        What the component is elaborated for.

    Attributes
    ----------
    wanted : bool
        There are assertions: what only they need may be built.
    """

    def __init__(self, m: Module, platform: object):
        self.wanted = platform_of(platform).is_asserted
        self._module = m
        # While a component is reset, others go on, and what they send finds its queues closed.
        self._runs = Signal(name="asserted")
        if self.wanted:
            m.d.sync += self._runs.eq(1)

    def never(self, condition: ValueLike, message: str) -> None:
        """Assert that ``condition`` is false in every cycle out of reset; ``message`` says what it would mean."""
        if self.wanted:
            self._module.d.sync += Assert(~(self._runs & condition), message)

"""The top level of a board: a clock from its oscillator, a reset without a pin, and levels as the board needs them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from amaranth.hdl import ClockDomain, ClockSignal, IOPort, Module
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from .parts.device import BidirectionalPins, ClockPin

__all__ = ["RESET_CYCLES", "TopBoard"]

#: Clocks for which everything stays in reset after the PLL has locked.
RESET_CYCLES = 4


class TopBoard(wiring.Component):
    """Run a core with a serial port on a board; all is in reset until the clock is steady, and again if it is lost.

    Parameters
    ----------
    core : wiring.Component
        A core with the members ``rx``, ``tx``, ``busy`` and ``error`` of ``TopUart``.
    pll : wiring.Component
        A component with the members of :class:`~lutterfly.hdl.parts.pll.Pll`.
    has_error : bool
        Whether the board has a light for errors.
    inverted : collection of str
        Outputs that the board has inverted, by their names here.
    held : sequence of int
        The level of each pin that is held.
    sdram : collection of str
        Outputs to an SDRAM that the board has, by the core's names for them without ``sdram_``; none if the core has
        no SDRAM. The PLL has a clock for it then.

    Members
    -------
    clock : In(1)
        The oscillator's clock.
    rx : In(1)
    tx : Out(1)
    busy : Out(1)
        A light that is on while a program runs.
    error : Out(1), if the board has it
        A light that is on after an error.
    held_0, held_1, ... : Out(1)
        Always at their levels.
    sdram_clock : Out(1), sdram_address and so on : Out
        With an SDRAM: its clock, and its commands.

    Attributes
    ----------
    sources : sequence of str
        Verilog of modules that the core instantiates beside its own.
    sdram_data : IOPort or None
        The pins of the SDRAM's data, which are in the generated ports although they are no member.

    Raises
    ------
    ValueError
        If a level is not 0 or 1, or an output is inverted that does not exist.
    """

    def __init__(
        self,
        core: wiring.Component,
        pll: wiring.Component,
        *,
        has_error: bool = True,
        inverted: Collection[str] = (),
        held: Sequence[int] = (),
        sdram: Collection[str] = (),
    ):
        if set(held) - {0, 1}:
            raise ValueError(f"held must be levels of 0 and 1, not {', '.join(map(str, held))}")
        outputs = ["tx", "busy", *(["error"] if has_error else []), *(f"held_{number}" for number in range(len(held)))]
        if set(inverted) - set(outputs):
            raise ValueError(f"inverted must be some of {', '.join(outputs)}, not {', '.join(sorted(inverted))}")
        self.core, self.pll = core, pll
        self.has_error, self.inverted, self.held, self.sdram = has_error, inverted, held, sdram
        self.sources = getattr(core, "sources", ())
        self.sdram_data = IOPort(len(core.sdram_data_in), name="sdram_data") if sdram else None
        widths = {f"sdram_{name}": len(getattr(core, f"sdram_{name}")) for name in sdram}
        widths |= {"sdram_clock": 1} if sdram else {}
        super().__init__(
            {
                "clock": In(1),
                "rx": In(1),
                **{name: Out(1) for name in outputs},
                **{name: Out(width) for name, width in widths.items()},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = ClockDomain(local=True)
        m.submodules.pll = self.pll
        m.submodules.reset = ResetSynchronizer(~self.pll.locked, stages=RESET_CYCLES)
        m.submodules.core = self.core
        values = {"tx": self.core.tx, "busy": self.core.busy, "error": self.core.error}
        values |= {f"held_{number}": level for number, level in enumerate(self.held)}
        m.d.comb += [
            self.pll.clock_in.eq(self.clock),
            ClockSignal().eq(self.pll.clock_out),
            self.core.rx.eq(self.rx),
            *(
                getattr(self, name).eq(value ^ (name in self.inverted))
                for name, value in values.items()
                if name in self.signature.members
            ),
        ]
        if self.sdram_data is not None:
            self._elaborate_sdram(m, self.sdram_data)
        return m

    def _elaborate_sdram(self, m: Module, pins: IOPort) -> None:
        m.submodules.sdram_clock = clock = ClockPin()
        m.submodules.sdram_data = data = BidirectionalPins(pins)
        m.d.comb += [
            clock.clock.eq(self.pll.clock_early),
            self.sdram_clock.eq(clock.pin),
            *(getattr(self, f"sdram_{name}").eq(getattr(self.core, f"sdram_{name}")) for name in self.sdram),
            data.output.eq(self.core.sdram_data_out),
            data.off.eq(self.core.sdram_data_off),
            self.core.sdram_data_in.eq(data.input),
        ]

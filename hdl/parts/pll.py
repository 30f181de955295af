"""The clock of an FPGA board, made from its oscillator: dividers of a PLL, and the primitive that they configure.

Source: Lattice FPGA-TN-02200 (sysCLOCK PLL) for the primitive, FPGA-DS-02012 for the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .pipeline import platform_of

__all__ = ["Dividers", "Pll"]

_MHZ = 1_000_000
#: Ranges in Hz, both ends included: of the oscillator (8 MHz are permitted, but too slow for the phase detector), of
#: the phase detector, of the PLL's own oscillator, and of outputs.
INPUT_HZ, DETECTOR_HZ = (10 * _MHZ, 400 * _MHZ), (10 * _MHZ, 400 * _MHZ)
VCO_HZ, OUTPUT_HZ = (400 * _MHZ, 800 * _MHZ), (3_125_000, 400 * _MHZ)
#: The greatest divisor.
MOST = 128
#: The best clock of the PLL's own oscillator: in the middle of its range.
_MIDDLE_HZ = 600 * _MHZ


@dataclass(frozen=True, slots=True)
class Dividers:
    """The divisors of a PLL.

    The phase detector compares the oscillator's clock, divided by ``reference``, with that of the PLL's own oscillator,
    divided by ``loop`` and then by ``feedback``. The clock that is used is the latter's, divided by ``output``.

    Attributes
    ----------
    input_hz : int
        The oscillator's clock.
    reference, feedback, loop, output : int
        The divisors, each from 1 to 128.
    """

    input_hz: int
    reference: int
    feedback: int
    loop: int
    output: int

    @property
    def detector_hz(self) -> Fraction:
        """The clock that the phase detector compares."""
        return Fraction(self.input_hz, self.reference)

    @property
    def vco_hz(self) -> Fraction:
        """The clock of the PLL's own oscillator."""
        return self.detector_hz * self.feedback * self.loop

    @property
    def output_hz(self) -> Fraction:
        """The clock that comes out."""
        return self.vco_hz / self.output

    @property
    def is_in_loop(self) -> bool:
        """Whether the clock that comes out is the one that goes to the phase detector."""
        return self.output == self.loop

    @classmethod
    def find(cls, input_hz: int, output_hz: int, *, is_doubled: bool = False) -> Dividers:
        """Find dividers that make exactly ``output_hz``; and, if ``is_doubled``, twice as much with half of the last
        divider.

        Of several solutions, those with the fastest phase detector are preferred, then those with one clock for the
        loop and for use, and then those whose oscillator is nearest to 600 MHz.

        Raises
        ------
        ValueError
            If one of the clocks is out of range, or if no dividers make it; names the nearest clocks that can be made.
        """
        outputs = (OUTPUT_HZ[0], OUTPUT_HZ[1] // (1 + is_doubled))
        for name, value, (least, most) in (("input_hz", input_hz, INPUT_HZ), ("output_hz", output_hz, outputs)):
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most} Hz, not {value}")
        possible = [one for one in _possible(input_hz, output_hz) if not (is_doubled and one.output % 2)]
        exact = [one for one in possible if one.output_hz == output_hz]
        if exact:
            return min(exact, key=lambda one: (one.reference, not one.is_in_loop, abs(one.vco_hz - _MIDDLE_HZ)))
        # Clocks are given in whole Hz.
        made = {int(one.output_hz) for one in possible if one.output_hz.denominator == 1}
        below = max((one for one in made if one < output_hz), default=None)
        above = min((one for one in made if one > output_hz), default=None)
        near = " or ".join(f"{one / _MHZ:.10g} MHz" for one in (below, above) if one is not None)
        raise ValueError(
            f"output_hz must be a clock that a PLL makes of {input_hz / _MHZ:g} MHz, such as {near}, not {output_hz}"
        )


def _possible(input_hz: int, output_hz: int) -> Iterator[Dividers]:
    """Yield dividers within all ranges whose clock is ``output_hz`` or near it."""
    for reference in range(1, MOST + 1):
        detector = Fraction(input_hz, reference)
        if not DETECTOR_HZ[0] <= detector <= DETECTOR_HZ[1]:
            continue
        for multiple in range(-(-VCO_HZ[0] // detector), VCO_HZ[1] // detector + 1):
            vco = detector * multiple
            for output in {min(max(near, 1), MOST) for near in (int(vco / output_hz), -int(-vco // output_hz))}:
                if OUTPUT_HZ[0] <= vco / output <= OUTPUT_HZ[1]:
                    # It is best to have the used clock in the loop. In any case the loop's clock is in range: with 1 it
                    # is the phase detector's; and the divisor is at most 80, the fastest clock by the slowest.
                    feedback = multiple // output if multiple % output == 0 else 1
                    yield Dividers(input_hz, reference, feedback, multiple // feedback, output)


class Pll(wiring.Component):
    """Make a clock, and signal when it is steady.

    With the primitives of an ECP5 (:mod:`.pipeline`) it is EHXPLLL. Without, the clock passes unchanged, and is steady
    from the start: a simulation has no time but the clock's edges.

    Parameters
    ----------
    dividers : Dividers
    is_doubled : bool
        Whether there is a second clock, which only a primitive can make.

    Members
    -------
    clock_in : In(1)
    clock_out : Out(1)
        Combinational from ``clock_in`` where there is no primitive.
    clock_double : Out(1), if it ``is_doubled``
        Twice as fast as ``clock_out``; every other rising edge is one of it.
    locked : Out(1)
        Whether ``clock_out`` is steady; changes at any time.
    """

    def __init__(self, dividers: Dividers, *, is_doubled: bool = False):
        self.dividers, self.is_doubled = dividers, is_doubled
        second = {"clock_double": Out(1)} if is_doubled else {}
        super().__init__({"clock_in": In(1), "clock_out": Out(1), **second, "locked": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform_of(platform).has_ecp5_primitives:
            self._elaborate_primitive(m)
        else:
            assert not self.is_doubled, "wires do not make a faster clock"
            m.d.comb += [self.clock_out.eq(self.clock_in), self.locked.eq(1)]
        return m

    def _elaborate_primitive(self, m: Module) -> None:
        dividers, loop = self.dividers, Signal()
        used, more = loop, {}
        if not dividers.is_in_loop:
            used = Signal()
            more |= _output("CLKOS", dividers.output, used)
        if self.is_doubled:
            more |= _output("CLKOS2", dividers.output // 2, self.clock_double)
        m.d.comb += self.clock_out.eq(used)
        m.submodules.primitive = Instance(
            "EHXPLLL",
            # Settings of the loop's filter, as Lattice's tool and `ecppll` of Project Trellis choose them.
            ("a", "ICP_CURRENT", "12"),
            ("a", "LPF_RESISTOR", "8"),
            ("a", "MFG_ENABLE_FILTEROPAMP", "1"),
            ("a", "MFG_GMCREF_SEL", "2"),
            p_CLKI_DIV=dividers.reference,
            p_CLKFB_DIV=dividers.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=dividers.loop,
            # The output is in phase with the reference, as far as that matters to a single clock.
            p_CLKOP_CPHASE=dividers.loop - 1,
            p_CLKOP_FPHASE=0,
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            i_CLKI=self.clock_in,
            i_CLKFB=loop,
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=loop,
            o_LOCK=self.locked,
            **more,
        )


def _output(name: str, divider: int, clock: Signal) -> dict[str, object]:
    """Return the settings of another output, in phase with the first one."""
    phase = {f"p_{name}_CPHASE": divider - 1, f"p_{name}_FPHASE": 0}
    return {f"p_{name}_ENABLE": "ENABLED", f"p_{name}_DIV": divider, **phase, f"o_{name}": clock}

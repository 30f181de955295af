"""A harness that gives any component four pins, so that place and route needs no package with thousands of them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..hdl.parts.device import DOUBLE
from ..hdl.parts.pipeline import Platform
from .device import Device

__all__ = ["Harness", "constraints"]

#: Inputs of one exclusive-or: one LUT.
_FAN_IN = 4


class Harness(wiring.Component):
    """Feed a component's inputs from a shift register, and fold its outputs into one bit.

    There is a register before every input and after every output, so that all paths of the component lie between
    registers, and none of its logic is unused.

    Parameters
    ----------
    dut : wiring.Component

    Members
    -------
    shift : In(1)
        Next bit of the shift register.
    folded : Out(1)
        The exclusive-or of all outputs, some cycles late.
    """

    def __init__(self, dut: wiring.Component):
        self.dut = dut
        super().__init__({"shift": In(1), "folded": Out(1)})

    def _ports(self) -> tuple[Value, Value]:
        """All inputs, all outputs."""
        members = [(member.flow, Value.cast(value)) for _, member, value in self.dut.signature.flatten(self.dut)]
        inputs, outputs = (Cat(value for flow, value in members if flow is wanted) for wanted in (In, Out))
        return inputs, outputs

    @property
    def flip_flops(self) -> int:
        """Flip-flops of the harness; yosys removes those of unused inputs at the end and of constant outputs."""
        inputs, outputs = self._ports()
        return len(inputs) + sum(_level_widths(len(outputs)))

    def elaborate(self, platform) -> Module:
        """Build it."""
        m = Module()
        m.submodules.dut = self.dut
        inputs, outputs = self._ports()

        shifted = Signal(len(inputs), reset_less=True)
        m.d.sync += shifted.eq(Cat(self.shift, shifted))
        m.d.comb += inputs.eq(shifted)

        level = Signal(len(outputs), reset_less=True)
        m.d.sync += level.eq(outputs)
        for width in _level_widths(len(outputs))[1:]:
            folded = Signal(width, reset_less=True)
            m.d.sync += folded.eq(Cat(level[lsb : lsb + _FAN_IN].xor() for lsb in range(0, len(level), _FAN_IN)))
            level = folded
        m.d.comb += self.folded.eq(level)
        return m


def constraints(device: Device, platform: Platform) -> str:
    """What nextpnr is told of a harness (LPF): the clock's pin, and the clock that is twice as fast. Other pins go
    anywhere."""
    lines = [f'LOCATE COMP "clk" SITE "{device.clock_pin}";\n'] if device.clock_pin else []
    if platform.is_pumped:
        lines.append(f'FREQUENCY PORT "{DOUBLE}_clk" {2 * device.aim_mhz:.3f} MHZ;\n')
    return "".join(lines)


def _level_widths(width: int) -> list[int]:
    """Registers of each level of the tree that folds ``width`` outputs."""
    widths = [width]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // _FAN_IN))
    return widths

"""Assertions: seen in every cycle out of reset by a simulation, and absent from hardware that is built."""

from __future__ import annotations

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator, SimulatorContext

from lutterfly.hdl.parts.pipeline import ASSERTED, Assertions


class Watched(wiring.Component):
    """Something that must never be."""

    def __init__(self):
        super().__init__({"wrong": In(1)})
        self.wanted: bool | None = None

    def elaborate(self, platform) -> Module:
        m = Module()
        # So that there is a clock in hardware without assertions too.
        m.d.sync += Signal(name="other").eq(self.wrong)
        checks = Assertions(m, platform)
        checks.never(self.wrong, "something wrong")
        self.wanted = checks.wanted
        return m


def simulated(wrong: list[int], reset: list[int]) -> None:
    """Run a component for as many cycles, with these inputs."""
    component, in_reset = Watched(), Signal()
    simulator = Simulator(ResetInserter(in_reset)(component.elaborate(ASSERTED)))
    simulator.add_clock(1e-6)

    async def bench(context: SimulatorContext) -> None:
        for one, other in zip(wrong, reset, strict=True):
            context.set(component.wrong, one)
            context.set(in_reset, other)
            await context.tick()
        context.set(component.wrong, 0)
        await context.tick()

    simulator.add_testbench(bench)
    simulator.run()


def test_what_must_never_be_stops_the_simulation() -> None:
    simulated([0, 0, 0], [1, 0, 0])
    with pytest.raises(AssertionError, match="something wrong"):
        simulated([0, 0, 1], [1, 0, 0])


def test_nothing_is_asserted_in_reset() -> None:
    simulated([1, 1, 0], [1, 1, 0])


@pytest.mark.parametrize(("platform", "wanted"), [(ASSERTED, True), (None, False)])
def test_hardware_that_is_built_has_none(platform: object, wanted: bool) -> None:
    component = Watched()
    text = rtlil.convert(component, platform=platform)
    assert component.wanted == wanted
    assert ("$check" in text) == wanted

"""Parts that sleep: in a simulation that is to be fast they stand still while nobody uses them; else they never do."""

from __future__ import annotations

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, SimulatorContext

from lutterfly.hdl.parts.pipeline import ASSERTED, SIMULATED, Sleep, delay
from lutterfly.synth.families.ecp5 import PLATFORM as ECP5

CYCLES = 3


class Line(wiring.Component):
    """A delay line of two registers."""

    def __init__(self):
        super().__init__({"value": In(8), "later": Out(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.later.eq(delay(m, self.value, 2, name="later"))
        return m


class Sleeper(wiring.Component):
    """It in its user."""

    def __init__(self):
        super().__init__({"value": In(8), "used": In(1), "later": Out(8), "awake": Out(1)})

    def elaborate(self, platform) -> Module:
        m, line = Module(), Line()
        # So that there is a clock in hardware too.
        m.d.sync += Signal(name="other").eq(self.used)
        sleep = Sleep(m, platform, self.used, cycles=CYCLES)
        m.submodules.line = sleep.of(line)
        m.d.comb += [line.value.eq(self.value), self.later.eq(line.later), self.awake.eq(sleep.awake)]
        return m


def simulated(used: list[int], platform: object) -> tuple[list[int], list[int]]:
    """Whether the part is awake, and what comes out of it, in each cycle, with the cycle's number as its input."""
    component, awake, later = Sleeper(), [], []
    simulator = Simulator(component.elaborate(platform))
    simulator.add_clock(1e-6)

    async def bench(context: SimulatorContext) -> None:
        for number, one in enumerate(used):
            context.set(component.used, one)
            context.set(component.value, number)
            awake.append(context.get(component.awake))
            later.append(context.get(component.later))
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()
    return awake, later


def expected(used: list[int]) -> tuple[list[int], list[int]]:
    """The same, said once more."""
    awake, later, line = [], [], [0, 0]
    for number in range(len(used)):
        recent = used[max(number - CYCLES, 0) : number + 1]
        awake.append(int(any(recent) or number < CYCLES))
        later.append(line[-1])
        if awake[-1]:
            line = [number, line[0]]
    return awake, later


@pytest.mark.parametrize(
    "used",
    [
        [0] * 12,
        [1] * 12,
        # A cycle of use, the last one before it would fall asleep, and the first one asleep.
        [*[0] * 6, 1, *[0] * 8],
        [*[0] * 6, 1, 0, 0, 0, 1, *[0] * 6],
        [*[0] * 6, 1, 0, 0, 0, 0, 1, 0, 1, *[0] * 6],
    ],
)
def test_a_part_is_awake_while_it_is_used_and_so_many_cycles_after(used: list[int]) -> None:
    assert simulated(used, SIMULATED) == expected(used)


@pytest.mark.parametrize("platform", [None, ECP5, ASSERTED])
def test_nothing_sleeps_in_hardware_nor_where_it_is_not_asked_for(platform: object) -> None:
    assert simulated([0] * 8, platform) == ([1] * 8, [0, 0, *range(6)])
    text = rtlil.convert(Sleeper(), platform=platform)
    assert "awake_left" not in text
    assert "awake_left" in rtlil.convert(Sleeper(), platform=SIMULATED)


def test_what_does_not_sleep_is_itself() -> None:
    m, line = Module(), Line()
    sleep = Sleep(m, None, Const(0), cycles=CYCLES)
    assert sleep.of(line) is line
    m.submodules.line = line

"""Assertions: seen in every cycle out of reset by a simulation, and absent from hardware that is built; and those that
watch commands in succession, each with two that are nearer to one another than the gate lets them be."""

from __future__ import annotations

import dataclasses

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator, SimulatorContext

from cocotb_tests.support.networks.butterflies import FPC_CONFIGS
from lutterfly.golden.engines import DEPTHWISE, ENGINES, EngineConfigs
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.compute import check_engines
from lutterfly.hdl.engines.add import AddOperands
from lutterfly.hdl.engines.fpc import FastPointwise
from lutterfly.hdl.engines.maximum import Maximum
from lutterfly.hdl.parts.pipeline import ASSERTED, Assertions
from lutterfly.hdl.results.write_back import WriteBack


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


#: What is set in a cycle.
Inputs = list[tuple[Value, int]]


def simulated(component: wiring.Component, inputs: list[Inputs]) -> None:
    """Run a component with the inputs of each cycle; what is not named stays."""
    simulator = Simulator(component.elaborate(ASSERTED))
    simulator.add_clock(1e-6)

    async def bench(context: SimulatorContext) -> None:
        for values in [*inputs, []]:
            for signal, value in values:
                context.set(signal, value)
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()


def watched(wrong: list[int], reset: list[int]) -> None:
    """Run what watches one input for as many cycles, with these inputs."""
    component, in_reset = Watched(), Signal()
    module = ResetInserter(in_reset)(component.elaborate(ASSERTED))
    component.elaborate = lambda platform: module
    simulated(component, [[(component.wrong, one), (in_reset, other)] for one, other in zip(wrong, reset, strict=True)])


def test_what_must_never_be_stops_the_simulation() -> None:
    watched([0, 0, 0], [1, 0, 0])
    with pytest.raises(AssertionError, match="something wrong"):
        watched([0, 0, 1], [1, 0, 0])


def test_nothing_is_asserted_in_reset() -> None:
    watched([1, 1, 0], [1, 1, 0])


@pytest.mark.parametrize(("platform", "wanted"), [(ASSERTED, True), (None, False)])
def test_hardware_that_is_built_has_none(platform: object, wanted: bool) -> None:
    component = Watched()
    text = rtlil.convert(component, platform=platform)
    assert component.wanted == wanted
    assert ("$check" in text) == wanted


class Engines(wiring.Component):
    """Two engines that give what a test says."""

    def __init__(self):
        super().__init__({})
        self.engines = [AddOperands(PRESETS["tiny"]), Maximum(PRESETS["tiny"])]

    def elaborate(self, platform) -> Module:
        m = Module()
        check_engines(m, Assertions(m, platform), self.engines, Signal())
        return m


@pytest.mark.parametrize("pause", [0, 1])
def test_a_result_that_another_engine_has_overtaken_is_seen(pause: int) -> None:
    component = Engines()
    first, second = component.engines
    begins: list[Inputs] = [[(first.step.valid, 1)], [(first.step.valid, 0)], *[[]] * pause]
    result, overtakes = [(first.result.valid, 1)], [(second.step.valid, 1)]
    simulated(component, [*begins, [*result, *overtakes], [(first.result.valid, 0)]])
    with pytest.raises(AssertionError, match="a result that comes after the first word of another engine"):
        simulated(component, [*begins, overtakes, result])


def test_settings_of_a_burst_that_change_before_its_last_word_is_out_are_seen() -> None:
    component = FastPointwise(FPC_CONFIGS["further"])
    step, latency = component.step, component.butterfly.latency
    zero_point = step.fields.fpc.input_zero_point

    def apart(cycles: int) -> list[Inputs]:
        first = [(component.selected.fpc, 1), (step.valid, 1), (step.fire, 1), (zero_point, 1)]
        return [first, [(step.valid, 0)], *[[]] * (cycles - 2), [(step.valid, 1), (zero_point, 2)], []]

    simulated(component, apart(latency + 1))
    with pytest.raises(AssertionError, match="its settings change while words are under way"):
        simulated(component, apart(latency))


def test_a_byte_of_bits_of_two_commands_is_seen() -> None:
    engines = EngineConfigs.of(*ENGINES.values(), DEPTHWISE=PRESETS["tiny"].engines[DEPTHWISE])
    component = WriteBack(dataclasses.replace(PRESETS["tiny"], engines=engines))
    place = component.place

    def joined(index: int) -> list[Inputs]:
        piece = [(place.valid, 1), (place.write, 1), (place.packed, 1), (place.count, 2), (place.slot, 1)]
        return [[*piece, (place.index, 3)], [(place.bit, 2), (place.index, index)], [(place.valid, 0)]]

    simulated(component, joined(3))
    with pytest.raises(AssertionError, match="a piece is joined to the bits of another command"):
        simulated(component, joined(4))

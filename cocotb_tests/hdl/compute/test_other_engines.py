# amaranth: UnusedElaboratable=no
"""Other sets of engines: each of them left out in turn, and one that the project does not have.

The engine added here is the least byte of each lane. All that there is of it stands in this file: a specification with
its twin, a component, and a line in each of the two tables.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re

import cocotb
import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Module, Signal, signed
from compute_bench import ComputeBench, expected
from random_commands import random_scenario

from lutterfly.golden.config import PRESETS, Config
from lutterfly.golden.engines import ENGINES
from lutterfly.golden.engines.engine import EngineSpecification, RandomWindow, TileWindows
from lutterfly.golden.isa import Engine
from lutterfly.hdl.compute.compute import Compute
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import EngineComponent, engine_members

TINY = PRESETS["tiny"]


class Toy(enum.IntEnum):
    MINIMUM = 6


def _totals(windows: TileWindows) -> np.ndarray:
    return windows.words.min(axis=-2).astype(np.int32)


MINIMUM = EngineSpecification(
    code=Toy.MINIMUM,
    notes="Gives the least byte of each lane.",
    results="lanes",
    totals=_totals,
    latency=lambda config, command: 1,
    random_window=lambda config, rng, size: RandomWindow({"steps": int(rng.integers(1, size))}),
)


class Minimum(EngineComponent):
    """Keep the least byte of each lane, one word per cycle, with a latency of one cycle."""

    def __init__(self, config: Config):
        self.config = config
        self.latencies = {Toy.MINIMUM: 1}
        super().__init__(engine_members(config))

    def elaborate(self, platform) -> Module:
        m = Module()
        fired = Signal(reset_less=True)
        m.d.sync += fired.eq(self.step.valid & self.step.fire)
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            least, byte = Signal(signed(8), name=f"least_{lane}", reset_less=True), self.word.word_select(lane, 8)
            with m.If(self.step.valid & (self.step.clear | (byte.as_signed() < least))):
                m.d.sync += least.eq(byte)
            m.d.comb += self.result.lanes[lane].eq(least)
        return m


#: What stays out of the hardware with an engine: names of modules, ports and signals, as regular expressions. Commands
#: have the fields of all engines.
TRACES = {
    Engine.MAXIMUM: ("maximum", "greatest"),
    Engine.DEPTHWISE: ("depthwise", "chain", "line$", "step.*rows$"),
    Engine.ADD: ("add_tables", "operand", "is_add", "is_sum", r"settings\w*\.add_table", "add_table_write"),
}


def without(*left_out: Engine) -> Config:
    return dataclasses.replace(TINY, engines=tuple(code for code in TINY.engines if code not in left_out))


CONFIGS = {
    **{f"no {code.name}": without(code) for code in TRACES},
    "MAC alone": without(*TRACES),
    "MINIMUM for ADD": dataclasses.replace(TINY, engines=(*without(Engine.ADD).engines, Toy.MINIMUM)),
}
#: The others take half a minute each.
IN_EVERY_RUN = ("no DEPTHWISE", "MINIMUM for ADD")


def names(config: Config) -> set[str]:
    """All names in the Verilog of the compute unit."""
    text = verilog.convert(Compute(config), name="dut", emit_src=False, strip_internal_attrs=True)
    return set(re.findall(r"[A-Za-z_][\w.]*", text))


def test_an_engine_that_is_left_out_leaves_no_trace() -> None:
    assert set(TRACES) == set(ENGINES) - {Engine.MAC}
    everything = names(TINY)
    found = {code: names(without(code)) for code in TRACES}
    for code, words in TRACES.items():
        for word in words:
            assert any(re.search(word, name) for name in everything), word
            assert not any(re.search(word, name) for name in found[code]), word


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, Toy.MINIMUM, MINIMUM)
    monkeypatch.setitem(COMPONENTS, Toy.MINIMUM, Minimum)


@pytest.mark.usefixtures("with_toy")
@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.regress) for name in CONFIGS]
)
def test_matches_golden(simulate, name: str) -> None:
    simulate(Compute(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_engine_of_the_configuration(dut) -> None:
    # The simulator is a process of its own.
    ENGINES[Toy.MINIMUM], COMPONENTS[Toy.MINIMUM] = MINIMUM, Minimum
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(0)
    scenario = random_scenario(config, rng, 40)
    assert {command["engine"] for command in scenario.commands} == set(config.engines)
    bench = ComputeBench(dut, config)
    await bench.start()
    await bench.fill(scenario)
    await bench.run(scenario, rng, 0.0)
    np.testing.assert_array_equal(await bench.image(rng), expected(config, scenario))

# amaranth: UnusedElaboratable=no
"""What the requantiser adds: accumulator and bias, or what the chosen epilogue makes of them, all in the same cycle."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, MAC, EngineConfigs
from lutterfly.golden.engines.specification import Epilogue
from lutterfly.golden.numerics.requant import SUM_FRACTION_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import addends_latency
from lutterfly.hdl.engines.engine import (
    AddendsComponent,
    addend_of,
    addends_layout,
    built_epilogues,
    epilogue_flag,
    epilogue_settings_layout,
)
from lutterfly.hdl.parts.pipeline import delay
from lutterfly.hdl.results.epilogues import Addends
from lutterfly.hdl.results.group_walk import settings_layout

CONFIGS: dict[str, Config] = {
    "several": PRESETS["tiny"],
    "requantise alone": dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC)),
}


class Swapped(AddendsComponent):
    """An epilogue that is faster than the slowest one, and gives the bias and the inverted accumulator."""

    epilogue: ClassVar = Epilogue(name="swap", codes=lambda totals, parameters, command: totals, addends_latency=1)

    def __init__(self, config: Config):
        self.config = config
        words = Addends(config, {}).signature.members["accumulators"].shape
        members = {"accumulators": In(words), "biases": In(words), "addends": Out(addends_layout(config))}
        super().__init__({"settings": In(epilogue_settings_layout(ADD)), **members})

    def elaborate(self, platform) -> Module:
        m = Module()
        for lane in range(self.config.array.requant_lanes):
            for place, given in enumerate((self.biases[lane], (~self.accumulators[lane]).as_signed())):
                m.d.comb += self.addends[lane][place].eq(delay(m, addend_of(given), 1, name=f"own_{lane}_{place}"))
        return m


def flags_of(config: Config) -> list[str]:
    return [epilogue_flag(*built) for built in built_epilogues(config)]


class Joined(wiring.Component):
    """The addends beside the epilogue."""

    def __init__(self, config: Config):
        self.epilogues = {flag: Swapped(config) for flag in flags_of(config)}
        self.addends = Addends(config, self.epilogues)
        super().__init__(
            {
                **{
                    name: In(self.addends.signature.members[name].shape)
                    for name in ("settings", "accumulators", "biases")
                },
                "given": Out(addends_layout(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = self.addends
        m.submodules += self.epilogues.values()
        m.d.comb += [
            *(getattr(self.addends, name).eq(getattr(self, name)) for name in ("settings", "accumulators", "biases")),
        ]
        # Registered, so that there is a clock where nothing else has one.
        m.d.sync += self.given.eq(self.addends.addends)
        return m


@pytest.mark.parametrize("name", CONFIGS)
def test_gives_addends(simulate, name: str) -> None:
    simulate(Joined(CONFIGS[name]), env={"CONFIG": name})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def as_each_group_has_chosen(dut) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(9)
    lanes, flags, latency = config.array.requant_lanes, flags_of(config), addends_latency(config) + 1
    await start(dut, {"settings": 0, "accumulators": 0, "biases": 0})
    expected, outputs = [], []
    for _ in range(300):
        accumulators, biases = rng.integers(-(1 << 31), 1 << 31, (2, lanes)).astype(np.int32)
        chosen = {flag: int(rng.integers(2)) for flag in flags}
        addends = (biases, ~accumulators) if any(chosen.values()) else (accumulators, biases)
        expected.append([[int(value) << SUM_FRACTION_BITS for value in pair] for pair in zip(*addends, strict=True)])
        inputs = {"settings": pack({"zero_point": int(rng.integers(-128, 128)), **chosen}, settings_layout(config))}
        for name, values in (("accumulators", accumulators), ("biases", biases)):
            inputs[name] = int.from_bytes(values.tobytes(), "little")
        outputs += await cycle(dut, inputs, "given")
    layout = addends_layout(config)
    found = [unpack(output, layout) for output in outputs[latency:]]
    assert [[list(pair.values()) for pair in one.values()] for one in found] == expected[: len(found)]

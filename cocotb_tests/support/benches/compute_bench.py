"""One compute unit in cocotb: its memories filled, commands run, and the feature memory read back."""

from __future__ import annotations

import cocotb
import numpy as np
from amaranth.hdl import unsigned
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.random_commands import Scenario, payload
from cocotb_tests.support.benches.streams import pack, send
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.machine.compute import compute_results, write_results
from lutterfly.golden.memories import LocalMemory
from lutterfly.hdl.dma.chunks import local_write_layout
from lutterfly.hdl.memories.feature_memory import feature_write_layout
from lutterfly.hdl.parts.isa import command_shape


def expected(config: Config, scenario: Scenario) -> np.ndarray:
    """The feature memory after all commands, one after the other."""
    rng = np.random.default_rng(0)
    memories = {name: image.copy() for name, image in scenario.memories.items()}
    for command in scenario.commands:
        results = compute_results(command, memories, config, rng)
        write_results(command, results, memories[LocalMemory.FEATURE], config)
    return memories[LocalMemory.FEATURE]


class ComputeBench:
    """One compute unit, its clock and its counters."""

    def __init__(self, dut, config: Config):
        self.dut = dut
        self.config = config
        self.done = 0
        self.issued = 0

    async def start(self) -> None:
        for name in ("command__valid", "feature_write__valid", "store_read__valid", "local_write", "halt"):
            getattr(self.dut, name).value = 0
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            self.done += int(self.dut.done.value)
            self.issued += int(self.dut.issued.value)
            assert not int(self.dut.error.value) & 1, "the unit reports an error"

    async def fill(self, scenario: Scenario) -> None:
        layout, lanes = local_write_layout(self.config), self.config.array.lanes
        for memory, size in scenario.filled.items():
            unit = lanes if memory is LocalMemory.FEATURE else memory.write_bytes(lanes)
            for number, address in enumerate(range(0, size, unit)):
                word = int.from_bytes(scenario.memories[memory][address : address + unit].tobytes(), "little")
                if memory is LocalMemory.FEATURE:
                    self.dut.feature_write__payload.value = pack(
                        {"address": address, "count": unit, "data": word}, feature_write_layout(self.config)
                    )
                    self.dut.feature_write__valid.value = 1
                else:
                    self.dut.local_write.value = pack(
                        {"valid": 1, "memory": int(memory), "address": number, "data": word}, layout
                    )
                await RisingEdge(self.dut.clk)
            self.dut.feature_write__valid.value = self.dut.local_write.value = 0

    async def run(self, scenario: Scenario, rng: np.random.Generator, p_stall: float) -> None:
        words = [{"index": number, **payload(command)} for number, command in enumerate(scenario.commands)]
        await send(self.dut.clk, self.dut, "command", words, rng, p_stall, shape=command_shape(isa.COMPUTE))
        while self.done < len(words):
            await RisingEdge(self.dut.clk)

    async def read(self, addresses: range, rng: np.random.Generator, p_stall: float) -> bytes:
        """The words at ``addresses``, through the port of STORE."""
        cocotb.start_soon(
            send(self.dut.clk, self.dut, "store_read", addresses, rng, p_stall, shape=unsigned(isa.LOCAL_BITS))
        )
        words = []
        while len(words) < len(addresses):
            await FallingEdge(self.dut.clk)
            word = int(self.dut.store_word.value)
            if word & 1:
                words.append((word >> 1).to_bytes(self.config.array.lanes, "little"))
        return b"".join(words)

    async def image(self, rng: np.random.Generator) -> np.ndarray:
        """The whole feature memory, uint8[feature_bytes]."""
        lanes = self.config.array.lanes
        return np.frombuffer(await self.read(range(0, self.config.memory.feature_bytes, lanes), rng, 0.0), np.uint8)

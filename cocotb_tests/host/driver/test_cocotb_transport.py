"""The cocotb transport, around a component that only copies: a synchronous function drives the simulation."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge

from cocotb_tests.support.toys.toy_components import BEATS, Copier
from cocotb_tests.support.transports.cocotb_transport import start
from lutterfly.golden import registers
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.registers import REGISTERS
from lutterfly.host.driver.transport import Transport
from lutterfly.host.simulation.simulator import SimulationError

CONFIG = PRESETS["tiny"]
SIZE = 3 * BEATS * CONFIG.axi.data_bytes
SOURCE, TARGET = 0x1000, 0x8000


@pytest.mark.regress
@pytest.mark.verilator
def test_transport(simulate) -> None:
    simulate(Copier(CONFIG))


def copy(transport: Transport, content: bytes) -> None:
    """What a driver does, in short."""
    base = transport.arena_base
    assert transport.read_register(REGISTERS["ID"].address) == registers.ID
    transport.write_memory(base + SOURCE, content)
    settings = {
        "EXTERNAL_BASE": base,
        "DMA_PROGRAM": SOURCE,
        "DMA_COMMANDS": 3,
        "COMPUTE_PROGRAM": TARGET,
        "INTERRUPT_ENABLE": 1,
        "CONTROL": registers.CONTROL_START,
    }
    for name, value in settings.items():
        transport.write_register(REGISTERS[name].address, value)
    assert not transport.wait_for_interrupt(10)
    assert transport.wait_for_interrupt(5000)
    assert transport.read_memory(base + TARGET, SIZE) == content
    with pytest.raises(ValueError, match=r"^address must be in the arena of \d+ bytes at 0x40000000, not 0x3fffffff"):
        transport.read_memory(base - 1, 1)
    with pytest.raises(SimulationError, match=r"^the core refuses the access to register 0xfc$"):
        transport.read_register(0xFC)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def a_synchronous_function_drives(dut, p_stall: float) -> None:
    rng = np.random.default_rng(0)
    transport = await start(dut)
    transport.stall(rng, p_stall)
    await bridge(copy)(transport, rng.bytes(SIZE))

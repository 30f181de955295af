# amaranth: UnusedElaboratable=no
"""What the top level itself does: starts, resets and their time, the base of addresses, the interrupt line."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from cocotb.utils import get_sim_time

from cocotb_tests.support.benches.core_bench import BASE, END, PAGE, Core
from lutterfly.golden import registers
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.timing.latencies import reset_cycles
from lutterfly.hdl.top_axi import TopAxi

CONFIG = PRESETS["tiny"]
PERIOD_NS = 10
#: Cycles that a read of a register takes, at most.
READ = 12
#: Two programs of nothing but their ends.
NOTHING = Queues(QueueProgram(END, PAGE), QueueProgram(END, 3 * PAGE))


@pytest.mark.regress
@pytest.mark.verilator
def test_top(simulate) -> None:
    simulate(TopAxi(CONFIG))


async def prepared(dut) -> Core:
    """A core whose next run does nothing."""
    core = Core(dut, CONFIG)
    await core.start()
    core.put(np.frombuffer(END * (4 * PAGE // len(END)), np.uint8))
    await core.select(NOTHING)
    return core


async def cycles_of_reset(core: Core) -> int:
    """Cycles until STATUS says that a reset is over."""
    begin = get_sim_time("ns")
    assert await core.status() == registers.STATUS_RESETTING
    await core.reset_is_over()
    return int(get_sim_time("ns") - begin) // PERIOD_NS


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(is_soft=[False, True])
async def a_reset_lasts_until_the_pipelines_are_empty(dut, is_soft: bool) -> None:
    core = await prepared(dut)
    await core.run(NOTHING)
    if is_soft:
        await core.write("CONTROL", registers.CONTROL_RESET)
    else:
        dut.rst.value = 1
        await core.cycles(1)
        dut.rst.value = 0
    taken = await cycles_of_reset(core)
    assert reset_cycles(CONFIG) - READ <= taken <= reset_cycles(CONFIG) + 2 * READ
    assert await core.status() == 0
    # Registers are kept over a soft reset.
    assert await core.read("DMA_PROGRAM") == (NOTHING.dma.address if is_soft else 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def only_the_bit_for_it_starts_a_run(dut) -> None:
    core = await prepared(dut)
    for bit in (None, *range(2, 32)):
        await core.write("CONTROL", 0 if bit is None else 1 << bit)
        assert await core.status() == 0
    assert not core.monitor.requests["ar"]
    await core.write("CONTROL", registers.CONTROL_START)
    await core.cycles(200)
    assert await core.status() == registers.STATUS_DONE


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def no_run_begins_in_a_reset(dut) -> None:
    core = await prepared(dut)
    await core.write("CONTROL", registers.CONTROL_RESET | registers.CONTROL_START)
    await core.reset_is_over()
    await core.cycles(200)
    assert await core.status() == 0
    assert not core.monitor.requests["ar"]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def addresses_are_relative_to_the_base(dut) -> None:
    core = await prepared(dut)
    await core.go()
    moved = 5 * PAGE
    await core.write("EXTERNAL_BASE", BASE + moved)
    core.ram.write((BASE + moved) % core.ram.size, END * (4 * PAGE // len(END)))
    await core.go()
    places = (NOTHING.dma.address, NOTHING.compute.address)
    assert sorted(address for address, *_ in core.monitor.requests["ar"]) == [
        base + place for base in (BASE, BASE + moved) for place in places
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_line_is_high_while_an_interrupt_is_pending_and_enabled(dut) -> None:
    core = await prepared(dut)
    await core.write("CONTROL", registers.CONTROL_START)
    await core.cycles(200)
    for name, value, line in (
        ("INTERRUPT_ENABLE", 0, 0),
        ("INTERRUPT_ENABLE", 1, 1),
        ("INTERRUPT", 0, 1),
        ("INTERRUPT", 1, 0),
    ):
        await core.write(name, value)
        await core.cycles(3)
        assert int(dut.interrupt.value) == line, (name, value)

# amaranth: UnusedElaboratable=no
"""External memory: the initialisation is litedram's, and a host's bytes reach a memory on AXI4 that nobody here wrote.

The controller itself is simulated with a chip at its pins in `host/transports/test_twin.py`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import cocotb
import numpy as np
import pytest
from amaranth.sim import Simulator
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiRam
from litedram import init

from cocotb_tests.support.benches.clocking import start
from lutterfly.boards import BOARDS
from lutterfly.hdl.memories import sdram
from lutterfly.hdl.memories.sdram import HostMaster, InitSequencer, SdramChip, generate_controller

CHIP = SdramChip(*BOARDS["ulx3s-85f"].sdram.chip_fields)
CLOCK_HZ = 75_000_000
#: The truth table of commands: select_n, ras_n, cas_n, we_n.
COMMANDS = {(0, 0, 1, 0): "PRECHARGE_ALL", (0, 0, 0, 0): "MODE_REGISTER", (0, 0, 0, 1): "AUTO_REFRESH"}
SIZE = 8192


def test_the_initialisation_is_that_of_litedram() -> None:
    controller = generate_controller(CHIP, CLOCK_HZ, 64, 5)
    sequencer = InitSequencer(controller)
    seen: list[tuple[int, str, int, int]] = []
    pins = [getattr(sequencer, name) for name in ("select_n", "ras_n", "cas_n", "we_n")]

    async def watch(ctx) -> None:
        cycle = 0
        while not ctx.get(sequencer.done):
            await ctx.tick()
            cycle += 1
            levels = tuple(ctx.get(pin) for pin in pins)
            if levels[0] == 0:
                seen.append((cycle, COMMANDS[levels], ctx.get(sequencer.address), ctx.get(sequencer.bank)))
        seen.append((cycle, "done", 0, 0))

    simulator = Simulator(sequencer)
    simulator.add_clock(1e-6)
    simulator.add_testbench(watch)
    simulator.run()
    steps, _ = init.get_sdr_phy_init_sequence(SimpleNamespace(cl=controller.cas_latency, nphases=1), None)
    # The first step enables the clock, as the pins always do.
    assert steps[0][3] == init.cmds["CKE"]
    expected = [(step[3], step[1], step[2]) for step in steps[1:]]
    assert [(init.cmds[name], address, bank) for _, name, address, bank in seen[:-1]] == expected
    assert seen[0][0] > max(steps[0][4], 200e-6 * CLOCK_HZ)
    times = controller.times
    needed = {"PRECHARGE_ALL": times["tRP"], "AUTO_REFRESH": times["tRFC"], "MODE_REGISTER": 2}
    for (cycle, name, _, _), (later, *_), step in zip(seen, seen[1:], steps[1:], strict=False):
        assert later - cycle >= max(needed[name], step[4])


def test_the_controller_is_the_same_every_time_and_has_the_boards_pins() -> None:
    script = (
        f"from lutterfly.hdl.memories.sdram import *; print(generate_controller({CHIP!r}, {CLOCK_HZ}, 64, 5).verilog)"
    )
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        texts.append(done.stdout)
        # litedram writes the second in which it generates.
        time.sleep(1)
    assert texts[0] == texts[1]
    assert texts[0].startswith("module sdram_controller (")
    board = BOARDS["ulx3s-85f"].sdram
    controller = generate_controller(CHIP, CLOCK_HZ, 64, 5)
    assert controller.size_bytes == board.size_bytes
    assert (controller.row_bits, 1 << controller.bank_bits) == (
        len(board.address.split()),
        2 ** len(board.bank.split()),
    )


def test_a_chip_that_litedram_does_not_know_is_refused() -> None:
    for name in ("MT8LC", "MT41J128M16"):
        with pytest.raises(ValueError, match=rf"^name must be a chip of SDR SDRAM in litedram\.modules, not {name}$"):
            generate_controller(dataclasses.replace(CHIP, name=name), CLOCK_HZ, 64, 5)


def test_without_litedram_or_with_another_release_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(sdram.importlib.metadata, "version", version)
    remedy = r"run `pip install 'lutterfly\[sdram\]'`$"
    with pytest.raises(ImportError, match=rf"^external memory needs litedram, and it is not installed; {remedy}"):
        generate_controller(CHIP, CLOCK_HZ + 1, 64, 5)
    monkeypatch.setattr(sdram.importlib.metadata, "version", lambda name: "2023.4")
    with pytest.raises(ImportError, match=rf"^litedram must be 2024.12 for external memory, not 2023.4; {remedy}"):
        generate_controller(CHIP, CLOCK_HZ + 1, 64, 5)


@pytest.mark.verilator
@pytest.mark.parametrize("data_bits", [32, 64])
def test_host_master(simulate, data_bits: int) -> None:
    simulate(HostMaster(address_bits=SIZE.bit_length() - 1, data_bits=data_bits))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def every_byte_is_written_when_it_is_taken_and_read_in_order(dut, p_stall: float) -> None:
    rng = np.random.default_rng(3)
    await start(dut, {"host__request__valid": 0, "host__request__payload": 0})
    memory = AxiRam(AxiBus.from_prefix(dut, "memory_"), dut.clk, dut.rst, size=SIZE)
    if p_stall:
        for channel in (
            memory.write_if.aw_channel,
            memory.write_if.w_channel,
            memory.write_if.b_channel,
            memory.read_if.ar_channel,
            memory.read_if.r_channel,
        ):
            channel.set_pause_generator(bool(rng.random() < p_stall) for _ in iter(int, 1))
    contents = rng.integers(0, 256, SIZE, dtype=np.uint8)
    memory.write(0, contents.tobytes())
    answers: list[int] = []

    async def watch() -> None:
        while True:
            await FallingEdge(dut.clk)
            if dut.host__answer__valid.value == 1:
                answers.append(int(dut.host__answer__payload.value))

    cocotb.start_soon(watch())
    expected = []
    bits = SIZE.bit_length() - 1
    for at in (0, SIZE - 1, *map(int, rng.integers(0, SIZE, 150))):
        writes, value = bool(rng.integers(2)), int(rng.integers(256))
        dut.host__request__payload.value = at | writes << bits | value << bits + 1
        dut.host__request__valid.value = 1
        while True:
            await FallingEdge(dut.clk)
            if dut.host__request__ready.value == 1:
                break
        if writes:
            # Nothing that is asked for later can be before it.
            contents[at] = value
            assert memory.read(at, 1)[0] == value
        else:
            expected.append(int(contents[at]))
        await RisingEdge(dut.clk)
        dut.host__request__valid.value = 0
        if rng.integers(2):
            await RisingEdge(dut.clk)
    for _ in range(4):
        await RisingEdge(dut.clk)
    assert answers == expected
    assert memory.read(0, SIZE) == contents.tobytes()

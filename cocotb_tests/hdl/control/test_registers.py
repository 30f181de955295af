# amaranth: UnusedElaboratable=no
"""Registers against golden.registers, through an AXI4-Lite master with random pauses."""

from __future__ import annotations

import dataclasses
import logging
import os

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from cocotb_tests.support.tiers import sweep
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.registers import Access
from lutterfly.hdl.control.registers import RegisterFile, core_read_layout, kept_layout, read_layout, write_layout


def config_of(cores: int) -> Config:
    return dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=cores))


def constants_of(config: Config) -> dict[str, int]:
    several = {"CORES": config.cores} if config.cores > 1 else {}
    return {
        "ID": int.from_bytes(b"LUTF", "little"),
        "VERSION": registers.VERSION,
        "CONFIG_HASH": config.hash,
    } | several


#: In the simulator, of the component at hand.
CONFIG = config_of(int(os.environ.get("CORES", "1")))
CONSTANTS, REGISTERS = constants_of(CONFIG), registers.register_map(CONFIG.cores)
WINDOW = 1 << registers.address_bits(CONFIG.cores)
KEPT, WRITE = kept_layout(CONFIG.cores), write_layout(CONFIG.cores)


@pytest.mark.parametrize("cores", sweep([1, 2, 4], kept=[1, 4]))
def test_registers(simulate, cores: int) -> None:
    simulate(RegisterFile(config_of(cores)), env={"CORES": str(cores)})


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_every_register_has_one_place(cores: int) -> None:
    config = config_of(cores)
    known, window, constants = registers.register_map(cores), 1 << registers.address_bits(cores), constants_of(config)
    layouts = (kept_layout(cores), read_layout(config), write_layout(cores))
    kept, read, write = (set(layout.members) for layout in layouts)
    for name, register in known.items():
        assert (name in kept) + (name in read) + (name in constants) == (register.access is not Access.WRITE)
        assert (name in write) == (register.access is not Access.READ)
        assert register.address in range(0, window, 4)
        assert register.reset & ~register.mask == 0
    assert len({register.address for register in known.values()}) == len(known)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_core_sees_the_registers_of_one(cores: int) -> None:
    """Each of the accelerator's is some core's, under the name of core 0, or everybody's."""
    config, known = config_of(cores), registers.register_map(cores)
    own = set(core_read_layout(config).members)
    names = {
        registers.core_name(name, core) if known[name].core == 0 else name for name in own for core in range(cores)
    }
    assert names == set(read_layout(config).members) - {"ERROR_CORE"}


class Bench:
    """The master, and what the core beside the registers supplies and sees."""

    def __init__(self, dut, rng: np.random.Generator, p_stall: float):
        logging.getLogger(f"cocotb.{dut._name}.control_").setLevel(logging.WARNING)
        self.dut = dut
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "control_"), dut.clk, dut.rst)
        self.written: list[tuple[str, int]] = []
        write, read = self.master.write_if, self.master.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            if p_stall:
                channel.set_pause_generator(iter(lambda: bool(rng.random() < p_stall), None))

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        self.dut.read.value = 0
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        layout = WRITE
        while True:
            await FallingEdge(self.dut.clk)
            flags = layout.from_bits(int(self.dut.written.value))
            self.written += [(name, int(self.dut.data.value)) for name in layout.members if flags[name]]

    def supply(self, values: dict[str, int]) -> None:
        self.dut.read.value = read_layout(CONFIG).const(values).as_bits()

    def kept(self) -> dict[str, int]:
        values = KEPT.from_bits(int(self.dut.kept.value))
        return {name: int(values[name]) for name in KEPT.members}

    async def read(self, address: int) -> tuple[int, AxiResp]:
        answer = await self.master.read(address, 4)
        return int.from_bytes(answer.data, "little"), answer.resp

    async def write(self, address: int, value: int) -> AxiResp:
        return (await self.master.write(address, value.to_bytes(4, "little"))).resp


async def _bench(dut, p_stall: float, seed: int = 0) -> tuple[Bench, np.random.Generator]:
    rng = np.random.default_rng(seed)
    bench = Bench(dut, rng, p_stall)
    await bench.start()
    return bench, rng


def _random_word(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 32))


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def values_after_reset(dut, p_stall: float) -> None:
    bench, rng = await _bench(dut, p_stall)
    supplied = {name: _random_word(rng) for name in read_layout(CONFIG).members}
    bench.supply(supplied)
    for name, register in REGISTERS.items():
        expected = (CONSTANTS | supplied).get(name, register.reset)
        readable = register.access is not Access.WRITE
        assert await bench.read(register.address) == ((expected, AxiResp.OKAY) if readable else (0, AxiResp.SLVERR)), (
            name
        )
    assert not bench.written


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.5], seed=[1, 2])
async def random_accesses(dut, p_stall: float, seed: int) -> None:
    bench, rng = await _bench(dut, p_stall, seed)
    by_address = {register.address: name for name, register in REGISTERS.items()}
    supplied = {name: _random_word(rng) for name in read_layout(CONFIG).members}
    bench.supply(supplied)
    expected = {name: REGISTERS[name].reset for name in KEPT.members}
    written = []
    for _ in range(150):
        address = 4 * int(rng.integers(WINDOW // 4)) if rng.random() < 0.2 else int(rng.choice(list(by_address)))
        register = REGISTERS.get(by_address.get(address, ""))
        if rng.random() < 0.5:
            # Any part of a word, as the strobes of the master give it.
            offset, count = (
                (0, 4) if rng.random() < 0.5 else (first := int(rng.integers(4)), int(rng.integers(1, 5 - first)))
            )
            part = rng.bytes(count)
            answer = await bench.master.write(address + offset, part)
            enable = ((1 << 8 * count) - 1) << 8 * offset
            word = int.from_bytes(part, "little") << 8 * offset
            if register is None or register.access is Access.READ:
                assert answer.resp == AxiResp.SLVERR
                continue
            assert answer.resp == AxiResp.OKAY
            written.append((register.name, word & register.mask))
            if register.name in expected:
                expected[register.name] = (expected[register.name] & ~enable | word) & register.mask
        else:
            value = (CONSTANTS | supplied | expected).get(register.name) if register else None
            assert await bench.read(address) == ((0, AxiResp.SLVERR) if value is None else (value, AxiResp.OKAY))
        assert bench.kept() == expected
    await RisingEdge(dut.clk)
    assert bench.written == written


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def accesses_that_do_not_wait_for_the_answer_before(dut, p_stall: float) -> None:
    bench, rng = await _bench(dut, p_stall)
    supplied = {name: _random_word(rng) for name in read_layout(CONFIG).members}
    bench.supply(supplied)
    values = CONSTANTS | supplied
    names = [str(name) for name in rng.permutation([*values] * 3)]
    reads = [bench.master.init_read(REGISTERS[name].address, 4) for name in names]
    words = [("WATCHDOG", _random_word(rng)) for _ in range(20)]
    writes = [bench.master.init_write(REGISTERS[name].address, word.to_bytes(4, "little")) for name, word in words]
    for event in (*reads, *writes):
        await event.wait()
    assert [int.from_bytes(event.data.data, "little") for event in reads] == [values[name] for name in names]
    assert {event.data.resp for event in (*reads, *writes)} == {AxiResp.OKAY}
    await RisingEdge(dut.clk)
    assert bench.written == words
    assert bench.kept()["WATCHDOG"] == words[-1][1]


@cocotb.test(timeout_time=50, timeout_unit="us")
async def address_and_data_in_either_order(dut) -> None:
    """By hand: the master above sends the address first or with the data, and is always ready for the answer."""
    Clock(dut.clk, 10, unit="ns").start()
    for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
        getattr(dut, f"control__{name}").value = 0
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    for index, order in enumerate([("w", "aw"), ("aw", "w"), ("w aw",)]):
        dut.control__awaddr.value = REGISTERS["WATCHDOG"].address
        dut.control__wdata.value, dut.control__wstrb.value = 0x100 + index, 0xF
        for channels in order:
            for channel in channels.split():
                getattr(dut, f"control__{channel}valid").value = 1
            await RisingEdge(dut.clk)
            for channel in channels.split():
                getattr(dut, f"control__{channel}valid").value = 0
            await Timer(35, "ns")
        assert dut.control__bvalid.value == 1
        dut.control__bready.value = 1
        await RisingEdge(dut.clk)
        dut.control__bready.value = 0
        await FallingEdge(dut.clk)
        assert dut.control__bvalid.value == 0
        assert KEPT.from_bits(int(dut.kept.value))["WATCHDOG"] == 0x100 + index

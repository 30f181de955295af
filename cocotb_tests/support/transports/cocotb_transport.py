"""The transport to gateware in cocotb: the shipped driver, which is synchronous, runs beside it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.task import resume
from cocotb.triggers import ClockCycles, First, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiResp

from lutterfly.host.driver.transport import Transport
from lutterfly.host.simulation.simulator import SimulationError

ARENA_BASE = 0x4000_0000
#: cocotbext-axi's memory wraps addresses at its size; the base is a multiple of it.
ARENA_BYTES = 1 << 24
#: Cycles in which the core must answer on its register port.
_REGISTER_CYCLES = 10_000


@dataclass(frozen=True)
class Names:
    """What pins are called."""

    clock: str = "clk"
    reset: str = "rst"
    reset_level: bool = True
    registers: str = "control_"
    memory: str = "memory_"


class CocotbTransport(Transport):
    """cocotbext-axi's AXI4-Lite master and AXI4 memory around a core.

    Make it in the simulation's thread; the methods are for functions that :func:`cocotb.task.bridge` runs in another.

    Parameters
    ----------
    dut : HierarchyObject
        The core, with its clock running.
    names : Names
        Of its pins: by default those of :class:`~lutterfly.hdl.top_axi.TopAxi`.
    """

    def __init__(self, dut: HierarchyObject, names: Names = Names()):
        self._interrupt = dut.interrupt
        self.clock, self.reset, level = getattr(dut, names.clock), getattr(dut, names.reset), names.reset_level
        registers, memory = AxiLiteBus.from_prefix(dut, names.registers), AxiBus.from_prefix(dut, names.memory)
        self.master = AxiLiteMaster(registers, self.clock, self.reset, level)
        self.ram = AxiRam(memory, self.clock, self.reset, level, size=ARENA_BYTES)

    @property
    def arena_base(self) -> int:
        """Address of the memory."""
        return ARENA_BASE

    @property
    def arena_bytes(self) -> int:
        """Size of the memory."""
        return ARENA_BYTES

    def stall(self, rng: np.random.Generator, probability: float) -> None:
        """Let every channel of both buses pause at random from now on."""

        def pauses(seed: int) -> Iterator[bool]:
            channel = np.random.default_rng(seed)
            while True:
                yield bool(channel.random() < probability)

        write, read = self.ram.write_if, self.ram.read_if
        control_write, control_read = self.master.write_if, self.master.read_if
        for channel in (
            write.aw_channel,
            write.w_channel,
            write.b_channel,
            read.ar_channel,
            read.r_channel,
            control_write.aw_channel,
            control_write.w_channel,
            control_write.b_channel,
            control_read.ar_channel,
            control_read.r_channel,
        ):
            channel.set_pause_generator(pauses(int(rng.integers(2**32))))

    def read_register(self, address: int) -> int:
        """Read through the AXI4-Lite port."""
        return int.from_bytes(self._access(lambda: self.master.init_read(address, 4), address).data, "little")

    def write_register(self, address: int, value: int) -> None:
        """Write through the AXI4-Lite port."""
        self._access(lambda: self.master.init_write(address, value.to_bytes(4, "little")), address)

    def read_memory(self, address: int, size: int) -> bytes:
        """Read the memory, past the core; takes no simulated time."""
        self.check_range(address, size)
        return self.ram.read(address - ARENA_BASE, size)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write the memory, past the core; takes no simulated time."""
        self.check_range(address, len(data))
        self.ram.write(address - ARENA_BASE, data)

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Simulate until the interrupt."""
        return self._wait_for_interrupt(timeout_cycles)

    @resume
    async def _wait_for_interrupt(self, timeout_cycles: int) -> bool:
        if not self._interrupt.value:
            await First(RisingEdge(self._interrupt), ClockCycles(self.clock, timeout_cycles))
        return bool(self._interrupt.value)

    @resume
    async def _access(self, begin: Callable, address: int):
        operation = begin()
        await First(operation.wait(), ClockCycles(self.clock, _REGISTER_CYCLES))
        if operation.data is None:
            raise SimulationError(
                f"the core must answer an access to register {address:#x} within {_REGISTER_CYCLES} cycles, and does "
                "not"
            )
        if operation.data.resp != AxiResp.OKAY:
            raise SimulationError(f"the core refuses the access to register {address:#x}")
        return operation.data


async def start(dut: HierarchyObject, names: Names = Names(), *, reset_cycles: int = 4) -> CocotbTransport:
    """Start clock and buses, and reset the core."""
    clock, reset = getattr(dut, names.clock), getattr(dut, names.reset)
    Clock(clock, 10, unit="ns").start()
    reset.value = names.reset_level
    transport = CocotbTransport(dut, names)
    await ClockCycles(clock, reset_cycles)
    reset.value = not names.reset_level
    await ClockCycles(clock, 4)
    return transport

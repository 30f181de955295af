"""The transport to the golden machine: register map and runs as in hardware, without simulating any."""

from __future__ import annotations

import numpy as np

from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.isa import COMMAND_BYTES
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.machine import Machine
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.registers import core_name, register_map
from lutterfly.golden.units import ErrorCode, Queue
from lutterfly.host.driver.transport import Transport


class GoldenTransport(Transport):
    """An accelerator that computes in the golden machine when its interrupt is waited for.

    Attributes
    ----------
    values : dict of str to int
        The registers.
    next_error : MachineError or None
        What the next run stops with.
    hangs : bool
        Whether runs and soft resets never end.
    memory : uint8[arena_bytes]
        The arena.
    starts : list of int
        DMA_PROGRAM of every run so far.
    """

    def __init__(self, config: Config, *, arena_bytes: int = 1 << 22, arena_base: int = 0x8000_0000):
        self._names = {register.address: name for name, register in register_map(config.cores).items()}
        self.values = {name: register.reset for name, register in register_map(config.cores).items()}
        self.values |= {"ID": registers.ID, "VERSION": registers.VERSION, "CONFIG_HASH": config.hash}
        self.next_error: MachineError | None = None
        self.hangs = False
        self.starts: list[int] = []
        self.memory = np.zeros(arena_bytes, np.uint8)
        self._arena_base = arena_base
        self._config = config
        self._machine = Machine(config)

    @property
    def arena_base(self) -> int:
        """Somewhere."""
        return self._arena_base

    @property
    def arena_bytes(self) -> int:
        """As asked for."""
        return len(self.memory)

    def read_register(self, address: int) -> int:
        """Read a value."""
        return self.values[self._names[address]]

    def write_register(self, address: int, value: int) -> None:
        """Write a value; CONTROL acts."""
        name = self._names[address]
        if name == "CONTROL":
            if value & registers.CONTROL_RESET:
                # The memories do not keep their contents here, so that a driver that forgets the prologue is noticed.
                self._machine = Machine(self._config, seed=len(self.starts))
                self.values["STATUS"] = registers.STATUS_RESETTING if self.hangs else 0
            elif value & registers.CONTROL_START and not self.values["STATUS"] & (
                registers.STATUS_BUSY | registers.STATUS_ERROR
            ):
                self.starts.append(self.values["DMA_PROGRAM"])
                self.values["STATUS"] = registers.STATUS_BUSY
        elif name != "INTERRUPT":
            self.values[name] = value

    def read_memory(self, address: int, size: int) -> bytes:
        """Read the arena."""
        self.check_range(address, size)
        return self.memory[address - self.arena_base :][:size].tobytes()

    def write_memory(self, address: int, data: bytes) -> None:
        """Write the arena."""
        self.check_range(address, len(data))
        self.memory[address - self.arena_base :][: len(data)] = np.frombuffer(data, np.uint8)

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Do the run that was started."""
        if not self.values["STATUS"] & registers.STATUS_BUSY or self.hangs:
            return False
        base = self.values["EXTERNAL_BASE"] - self.arena_base
        cores = range(self._config.cores)
        try:
            if self.next_error is not None:
                raise self.next_error
            self._machine.run([self._queues(core, base) for core in cores], self.memory[base:], order="random")
            self.values |= {"STATUS": registers.STATUS_DONE}
            self.values |= {core_name("CYCLES", core): 1000 - core for core in cores}
        except MachineError as error:
            self.next_error = None
            self.values |= {
                "STATUS": registers.STATUS_ERROR,
                "ERROR_CORE": error.core,
                **{core_name("ERROR", core): ErrorCode.STOPPED for core in cores},
                core_name("ERROR", error.core): error.code | error.unit << 8 | error.index << 16,
                core_name("ERROR_ADDRESS", error.core): error.address,
            }
        return True

    def _queues(self, core: int, base: int) -> Queues:
        """What a core is to run."""
        queues = []
        for queue in Queue:
            start, count = (self.values[core_name(f"{queue.name}_{what}", core)] for what in ("PROGRAM", "COMMANDS"))
            commands = self.memory[base + start :][: count * COMMAND_BYTES].tobytes()
            queues.append(QueueProgram(commands, start))
        return Queues(*queues)

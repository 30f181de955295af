"""The transport to the golden machine: register map and runs as in hardware, without simulating any."""

from __future__ import annotations

import numpy as np

from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.isa import COMMAND_BYTES
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.machine import Machine
from lutterfly.golden.program.queues import QueueProgram, Queues
from lutterfly.golden.registers import REGISTERS
from lutterfly.golden.units import Queue
from lutterfly.host.driver.transport import Transport

_NAMES = {register.address: name for name, register in REGISTERS.items()}


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
    starts : list of int
        DMA_PROGRAM of every run so far.
    """

    def __init__(self, config: Config, *, arena_bytes: int = 1 << 22):
        self.values = {name: register.reset for name, register in REGISTERS.items()}
        self.values |= {"ID": registers.ID, "VERSION": registers.VERSION, "CONFIG_HASH": config.hash}
        self.next_error: MachineError | None = None
        self.hangs = False
        self.starts: list[int] = []
        self._memory = np.zeros(arena_bytes, np.uint8)
        self._config = config
        self._machine = Machine(config)

    @property
    def arena_base(self) -> int:
        """Somewhere."""
        return 0x8000_0000

    @property
    def arena_bytes(self) -> int:
        """As asked for."""
        return len(self._memory)

    def read_register(self, address: int) -> int:
        """Read a value."""
        return self.values[_NAMES[address]]

    def write_register(self, address: int, value: int) -> None:
        """Write a value; CONTROL acts."""
        name = _NAMES[address]
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
        return self._memory[address - self.arena_base :][:size].tobytes()

    def write_memory(self, address: int, data: bytes) -> None:
        """Write the arena."""
        self.check_range(address, len(data))
        self._memory[address - self.arena_base :][: len(data)] = np.frombuffer(data, np.uint8)

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Do the run that was started."""
        if not self.values["STATUS"] & registers.STATUS_BUSY or self.hangs:
            return False
        base = self.values["EXTERNAL_BASE"] - self.arena_base
        queues = []
        for queue in Queue:
            start, count = self.values[f"{queue.name}_PROGRAM"], self.values[f"{queue.name}_COMMANDS"]
            commands = self._memory[base + start :][: count * COMMAND_BYTES].tobytes()
            queues.append(QueueProgram(commands, start))
        try:
            if self.next_error is not None:
                raise self.next_error
            self._machine.run(Queues(*queues), self._memory[base:])
            self.values |= {"STATUS": registers.STATUS_DONE, "CYCLES": 1000}
        except MachineError as error:
            self.next_error = None
            self.values |= {
                "STATUS": registers.STATUS_ERROR,
                "ERROR": error.code | error.unit << 8 | error.index << 16,
                "ERROR_ADDRESS": error.address,
            }
        return True

"""The transport to a simulated accelerator in this process."""

from __future__ import annotations

from pathlib import Path

from ...golden.config import Config
from ..driver.transport import Transport
from ..files.progress import Progress, silent
from .build import library
from .settings import MemorySettings, Outcome
from .simulator import Simulator

#: Anywhere but zero, so that an address without its base is noticed.
ARENA_BASE = 0x4000_0000
ARENA_BYTES = 256 << 20
#: One call into the simulator runs for about a second at most: Python sees an interrupt from the keyboard in between.
_CYCLES_PER_CALL = 500_000


class VerilatorTransport(Transport):
    """A simulated accelerator, built on the first use of its configuration.

    Parameters
    ----------
    config : Config
    settings : MemorySettings
        How the external memory behaves; by default the ideal bus.
    cache_root : Path or None
        Where simulators are kept, by default in the user's cache.
    progress : callable
        Told what is being built.

    Attributes
    ----------
    simulator : Simulator
        For faults, the trace and the feature memory.

    Raises
    ------
    ToolError
        If the simulator cannot be built.
    """

    title = "simulated accelerator"

    def __init__(
        self,
        config: Config,
        *,
        settings: MemorySettings | None = None,
        cache_root: Path | None = None,
        progress: Progress = silent,
    ):
        self.simulator = Simulator(
            library(config, root=cache_root, progress=progress),
            base=ARENA_BASE,
            size=config.arena.on_chip_bytes or ARENA_BYTES,
            cores=config.cores,
        )
        self.simulator.configure(settings or MemorySettings())

    @property
    def arena_base(self) -> int:
        """Address of the simulated memory."""
        return self.simulator.base

    @property
    def arena_bytes(self) -> int:
        """Size of the simulated memory."""
        return self.simulator.size

    def read_register(self, address: int) -> int:
        """Read through the simulated AXI4-Lite port."""
        return self.simulator.read_register(address)

    def write_register(self, address: int, value: int) -> None:
        """Write through the simulated AXI4-Lite port."""
        self.simulator.write_register(address, value)

    def read_memory(self, address: int, size: int) -> bytes:
        """Read the simulated memory, past the core; takes no simulated time."""
        self.check_range(address, size)
        return bytes(self.simulator.memory[address - self.arena_base :][:size])

    def write_memory(self, address: int, data: bytes) -> None:
        """Write the simulated memory, past the core; takes no simulated time."""
        self.check_range(address, len(data))
        self.simulator.memory[address - self.arena_base :][: len(data)] = data

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Simulate until the interrupt."""
        left = timeout_cycles
        while left > 0:
            if self.simulator.run(min(left, _CYCLES_PER_CALL), until_interrupt=True) is Outcome.INTERRUPT:
                return True
            left -= _CYCLES_PER_CALL
        return False

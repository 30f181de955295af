"""Control: the registers of the accelerator behind a transport, by name; its identity, starts and resets."""

from __future__ import annotations

from collections.abc import Sequence

from ...golden import registers
from ...golden.config import Config
from ...golden.program.program import Program, Queues
from ...golden.registers import core_name, register_map
from ...golden.timing.latencies import reset_cycles
from ...golden.units import ErrorCode, Queue, Unit
from .errors import AcceleratorError, HardwareError
from .transport import Transport

COUNTERS = ("CYCLES", "DMA_BUSY", "DMA_STALLED", "COMPUTE_BUSY", "COMPUTE_STALLED", "DMA_DONE", "COMPUTE_DONE")
#: Of several cores.
CLUSTER_COUNTERS = (*COUNTERS, "BARRIER_STALLED")

#: Polls of STATUS, each after twice the time that a soft reset takes, until it must be over.
_RESET_POLLS = 10
#: A run that its watchdog does not stop moves on, however slowly: this bounds it.
_CYCLES_AT_LEAST, _TIMES_PREDICTED = 2_000_000, 100


def cycle_limit(program: Program) -> int:
    """How many cycles a driver waits for the end of a run of this program."""
    return max(_CYCLES_AT_LEAST, _TIMES_PREDICTED * program.predicted_cycles)


class Control:
    """The registers of one accelerator.

    Whoever uses it holds ``transport.exclusive()``, but for :meth:`check_identity`.

    Parameters
    ----------
    transport : Transport
    config : Config
        What the hardware must have been generated from.
    """

    def __init__(self, transport: Transport, config: Config):
        self._transport = transport
        self._config = config
        self._registers = register_map(config.cores)

    def check_identity(self) -> None:
        """Raise HardwareError if ID, version or configuration hash differ."""
        for name, expected, remedy in (
            ("ID", registers.ID, "check the register port's address"),
            ("VERSION", registers.VERSION, "use the release of lutterfly that the hardware was generated with"),
            ("CONFIG_HASH", self._config.hash, "name the configuration that the hardware was generated from"),
        ):
            with self._transport.exclusive():
                found = self.read(name)
            if found != expected:
                raise HardwareError(f"{name} must be {expected:#010x}, not {found:#010x}; {remedy}")

    def set_up(self, cores: Sequence[Queues], watchdog_cycles: int) -> None:
        """Write what a run of all cores needs, which ends with an interrupt, before it is started."""
        settings = {"EXTERNAL_BASE": self._transport.arena_base}
        for number, queues in enumerate(cores):
            settings |= {core_name(f"{queue.name}_PROGRAM", number): queues[queue].address for queue in Queue}
            settings |= {core_name(f"{queue.name}_COMMANDS", number): len(queues[queue]) for queue in Queue}
        settings |= {"WATCHDOG": watchdog_cycles, "INTERRUPT_ENABLE": 1}
        # What is written again counts as changed: the hardware would fetch commands that it still holds.
        state = self._transport.state
        for name, value in settings.items():
            if state.settings.get(name) != value:
                # Unknown if the write fails.
                state.settings.pop(name, None)
                self.write(name, value)
                state.settings[name] = value
        self.write("INTERRUPT", 1)

    def start(self) -> None:
        """Start the run that is set up."""
        self.write("CONTROL", registers.CONTROL_START)

    def reset(self) -> None:
        """Reset the core, and wait for the end of it.

        Raises
        ------
        AcceleratorError
            If it does not end.
        """
        state, cycles_per_poll = self._transport.state, 2 * reset_cycles(self._config)
        state.program, state.must_reset = None, True
        self.write("CONTROL", registers.CONTROL_RESET)
        for _ in range(_RESET_POLLS):
            if not self.read("STATUS") & registers.STATUS_RESETTING:
                state.run, state.must_reset = None, False
                return
            self._transport.wait_for_interrupt(cycles_per_poll)
        raise AcceleratorError(
            f"a soft reset must end within {_RESET_POLLS * cycles_per_poll} cycles, and does not; "
            "reset the hardware as a whole",
            code=ErrorCode.NONE,
            unit=Unit.NONE,
        )

    def counters(self) -> list[dict[str, int]]:
        """The performance counters of each core, by their names in lower case."""
        cores = range(self._config.cores)
        names = COUNTERS if len(cores) == 1 else CLUSTER_COUNTERS
        return [{name.lower(): self.read(name, core) for name in names} for core in cores]

    def read(self, name: str, core: int = 0) -> int:
        """The value of a register, of a core's own if it has one."""
        return self._transport.read_register(self._registers[core_name(name, core)].address)

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        self._transport.write_register(self._registers[name].address, value)

"""The simulated accelerator in this process: Python's side of ``harness.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .harness import HarnessSettings, Model
from .settings import EventKind, Fault, MemorySettings, Outcome, SimulationError

_VIOLATION = 3
_REGISTER_TIMEOUT, _REGISTER_REFUSED = 1, 2


class Simulator:
    """One simulated accelerator with its external memory; not for several threads at a time.

    Parameters
    ----------
    library : Path
        From :func:`lutterfly.host.simulation.build.library`.
    cores : int
        Of the accelerator.
    base : int
        Address of the memory's first byte.
    size : int
        Its bytes; only those that are used take room.
    """

    def __init__(self, library: Path, *, base: int, size: int, cores: int = 1):
        self.cores = cores
        self.base = base
        self.size = size
        self._model = Model(library, base, size)
        self._memory = self._model.memory()
        self.configure(MemorySettings())

    def _call(self, name: str, *arguments: object) -> int:
        return self._model.call(name, *arguments)

    def configure(self, settings: MemorySettings, *, port: int | None = None) -> None:
        """Let the memory behave as ``settings`` say, from the next cycle on, at one port or at all."""
        self._call(
            "configure",
            ctypes.byref(HarnessSettings(*(getattr(settings, name) for name, _ in HarnessSettings._fields_))),
            -1 if port is None else port,
        )

    def add_fault(self, start: int, end: int, response: Fault) -> None:
        """Let the memory answer ``response`` to every access to addresses from ``start`` up to ``end``."""
        self._call("add_fault", start, end, response)

    def clear_faults(self) -> None:
        """Let the memory work everywhere again."""
        self._call("clear_faults")

    def reset(self) -> None:
        """Hold the core's reset pin for some cycles."""
        self._call("reset")

    @property
    def memory(self) -> memoryview:
        """The external memory: uint8[size]."""
        return self._memory

    @property
    def cycle(self) -> int:
        """Cycles since the simulator was made."""
        return self._call("cycle")

    def run(self, cycles: int, *, until_interrupt: bool = False, until_compute_done: Sequence[int] = ()) -> Outcome:
        """Let at most ``cycles`` pass.

        Parameters
        ----------
        cycles : int
            The bound.
        until_interrupt : bool
            Stop when the interrupt line is high.
        until_compute_done : sequence of int
            Stop when that many compute commands of some core have completed since the trace was cleared: a number for
            each core, 0 for never.

        Raises
        ------
        SimulationError
            If the core breaks a rule of AXI.
        """
        counts = (ctypes.c_uint64 * self.cores)(*until_compute_done)
        result = self._call("run", cycles, until_interrupt, counts)
        self._check_rules(result)
        return Outcome(result)

    def read_register(self, address: int) -> int:
        """Read 32 bits through the register port."""
        value = ctypes.c_uint32()
        self._check_access(self._call("read_register", address, ctypes.byref(value)), address)
        return value.value

    def write_register(self, address: int, value: int) -> None:
        """Write 32 bits through the register port."""
        self._check_access(self._call("write_register", address, value), address)

    def read_feature(self, address: int, size: int, *, core: int = 0) -> bytes:
        """The bytes of a core's feature memory now, past the core."""
        out = ctypes.create_string_buffer(size)
        self._call("read_feature", core, address, size, out)
        return out.raw

    def compute_done(self, core: int) -> int:
        """How many of a core's compute commands have completed since the trace was cleared."""
        return self._call("compute_done", core)

    def events(self, *, core: int = 0) -> npt.NDArray[np.uint64]:
        """The trace of a core so far: uint64[events, 2], cycle and :class:`EventKind` of each, that of the interrupt
        included.
        """
        count = self._call("event_count")
        if not count:
            return np.empty((0, 2), np.uint64)
        found = np.ctypeslib.as_array((ctypes.c_uint64 * (3 * count)).from_address(self._call("events"))).reshape(-1, 3)
        return found[(found[:, 2] == core) | (found[:, 1] == EventKind.INTERRUPT), :2].copy()

    def clear_events(self) -> None:
        """Empty the trace, and count completed compute commands from zero."""
        self._call("clear_events")

    def _check_access(self, result: int, address: int) -> None:
        self._check_rules(result)
        if result == _REGISTER_TIMEOUT:
            raise SimulationError(
                f"the core must answer an access to register {address:#x} within 10000 cycles, and does not"
            )
        if result == _REGISTER_REFUSED:
            raise SimulationError(f"the core refuses the access to register {address:#x}")

    def _check_rules(self, result: int) -> None:
        if result == _VIOLATION:
            broken, violation = self._model.call("broken").decode(), self._model.call("violation").decode()
            if broken:
                raise SimulationError(
                    f"the core did in cycle {self.cycle} what it must never do: {broken}; report it with the model"
                )
            raise SimulationError(f"the core breaks a rule of AXI in cycle {self.cycle}: {violation}")

"""The simulated accelerator in this process: Python's side of ``harness.cpp``."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...golden.config import Config
from ...golden.timing.overheads import OVERHEADS
from ..driver.transport import Transport
from ..files.terminal import Progress, silent
from .build import library

# Settings of the simulated memory, and outcomes of a run.


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings of the simulated external memory; the defaults are the ideal bus of the predictions.

    Attributes
    ----------
    read_latency : int
        Cycles from a read address to its first beat.
    write_latency : int
        Cycles from the last beat of a write to its response.
    beat_interval : int
        Cycles from beat to beat; 1 is the full bandwidth.
    outstanding : int
        Bursts in flight, for reads and for writes.
    accept, answer : bool
        Without ``accept``, addresses are not accepted; without ``answer``, accepted ones wait until it is set again.
    hold : int
        The greatest random delay of the answer to a read, in cycles, while reads of other cores are answered.
    seed : int
        Seed of the stalls.
    stall_probability : float
        Probability of a stall, in each cycle on each channel, including the register port.
    """

    read_latency: int = OVERHEADS.read_latency
    write_latency: int = OVERHEADS.write_latency
    beat_interval: int = 1
    outstanding: int = OVERHEADS.bursts
    accept: bool = True
    answer: bool = True
    hold: int = 0
    seed: int = 0
    stall_probability: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("read_latency", 1, 100_000),
            ("write_latency", 1, 100_000),
            ("beat_interval", 1, 100_000),
            ("outstanding", 1, 1024),
            ("hold", 0, 100_000),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be between {low} and {high}, not {value}")
        if not 0 <= self.stall_probability <= 0.99:
            raise ValueError(f"stall_probability must be between 0 and 0.99, not {self.stall_probability}")


class StopReason(enum.IntEnum):
    """The reason why :meth:`Simulator.run` returned."""

    LIMIT = 0
    INTERRUPT = 1
    COMPUTE_DONE = 2


class EventKind(enum.IntEnum):
    """Events of the trace: pulses of the cores' ``trace`` outputs, and rises of the interrupt line."""

    ISSUE_FIRST = 0
    ISSUE_LAST = 1
    COMPUTE_DONE = 2
    DMA_BEGIN = 3
    DMA_DONE = 4
    INTERRUPT = 5


class Fault(enum.IntEnum):
    """AXI responses of errors."""

    SLAVE = 2
    DECODE = 3


class SimulationError(RuntimeError):
    """The simulated core broke the rules of its buses or an assertion, or does not answer on its register port."""


# The compiled simulator in Python: the functions of ``harness.cpp``, and an instance of the model.


class HarnessSettings(ctypes.Structure):
    """Settings of the simulated memory, as in ``harness.cpp``."""

    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in (
                "read_latency",
                "write_latency",
                "beat_interval",
                "outstanding",
                "accept",
                "answer",
                "hold",
                "seed",
            )
        ),
        ("stall_probability", ctypes.c_double),
    )


_WORD, _LONG, _POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


#: Result and arguments of the library's functions.
_SIGNATURES: dict[str, tuple[object, Sequence[object]]] = {
    "create": (_POINTER, (_LONG, _LONG)),
    "destroy": (None, (_POINTER,)),
    "configure": (None, (_POINTER, ctypes.POINTER(HarnessSettings), ctypes.c_int)),
    "add_fault": (None, (_POINTER, _LONG, _LONG, _WORD)),
    "clear_faults": (None, (_POINTER,)),
    "reset": (None, (_POINTER,)),
    "arena": (_POINTER, (_POINTER,)),
    "cycle": (_LONG, (_POINTER,)),
    "violation": (ctypes.c_char_p, (_POINTER,)),
    "broken": (ctypes.c_char_p, (_POINTER,)),
    "run": (ctypes.c_int, (_POINTER, _LONG, ctypes.c_int, ctypes.POINTER(_LONG))),
    "read_register": (ctypes.c_int, (_POINTER, _WORD, ctypes.POINTER(_WORD))),
    "write_register": (ctypes.c_int, (_POINTER, _WORD, _WORD)),
    "read_feature": (None, (_POINTER, ctypes.c_uint, _LONG, _LONG, ctypes.c_char_p)),
    "compute_done": (_LONG, (_POINTER, ctypes.c_uint)),
    "event_count": (_LONG, (_POINTER,)),
    "events": (_POINTER, (_POINTER,)),
    "clear_events": (None, (_POINTER,)),
}


def load_functions(library: Path, signatures: Mapping[str, tuple[object, Sequence[object]]]) -> ctypes.CDLL:
    """Load the library of a simulator, and declare its functions, whose names begin with ``lutterfly_``.

    Raises
    ------
    SimulationError
        If it cannot be loaded.
    """
    try:
        functions = ctypes.CDLL(str(library))
    except OSError as error:
        raise SimulationError(
            f"{library}: cannot be loaded: {error}; remove its folder, and it is built again; the file system must "
            "permit programs"
        ) from error
    for name, (result, arguments) in signatures.items():
        function = getattr(functions, f"lutterfly_{name}")
        function.restype, function.argtypes = result, arguments
    return functions


class SimulationModel:
    """A simulator in the library, which is destroyed when it and its memory are not used any more."""

    def __init__(self, library: Path, base: int, size: int):
        self._handle: ctypes.c_void_p | None = None
        self._size = size
        self._functions = load_functions(library, _SIGNATURES)
        created = self._functions.lutterfly_create(base, size)
        if not created:
            raise MemoryError(f"the simulated memory needs {size} bytes, and there is no room")
        self._handle = ctypes.c_void_p(created)

    def __del__(self) -> None:
        if self._handle is not None:
            self._functions.lutterfly_destroy(self._handle)

    def call(self, name: str, *arguments: object) -> Any:
        """Call one of :data:`_SIGNATURES` with this simulator."""
        return getattr(self._functions, f"lutterfly_{name}")(self._handle, *arguments)

    def memory(self) -> memoryview:
        """The external memory, which keeps this object alive."""
        array = (ctypes.c_uint8 * self._size).from_address(self.call("arena"))
        array.model = self
        return memoryview(array).cast("B")


_VIOLATION = 3
_REGISTER_TIMEOUT, _REGISTER_REFUSED = 1, 2


class Simulator:
    """One simulated accelerator with its external memory; not for several threads at a time.

    Parameters
    ----------
    library : Path
        The result of :func:`lutterfly.host.simulation.build.library`.
    cores : int
        Cores of the accelerator.
    base : int
        Address of the memory's first byte.
    size : int
        Its bytes; only used ones take memory of this machine.
    """

    def __init__(self, library: Path, *, base: int, size: int, cores: int = 1):
        self.cores = cores
        self.base = base
        self.size = size
        self._model = SimulationModel(library, base, size)
        self._memory = self._model.memory()
        self.configure(MemorySettings())

    def _call(self, name: str, *arguments: object) -> int:
        return self._model.call(name, *arguments)

    def configure(self, settings: MemorySettings, *, port: int | None = None) -> None:
        """Apply ``settings`` to the memory from the next cycle on, at one port or at all."""
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

    def run(self, cycles: int, *, until_interrupt: bool = False, until_compute_done: Sequence[int] = ()) -> StopReason:
        """Simulate at most ``cycles``.

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
        return StopReason(result)

    def read_register(self, address: int) -> int:
        """Read 32 bits through the register port."""
        value = ctypes.c_uint32()
        self._check_access(self._call("read_register", address, ctypes.byref(value)), address)
        return value.value

    def write_register(self, address: int, value: int) -> None:
        """Write 32 bits through the register port."""
        self._check_access(self._call("write_register", address, value), address)

    def read_feature(self, address: int, size: int, *, core: int = 0) -> bytes:
        """Return the present bytes of a core's feature memory, bypassing the core."""
        out = ctypes.create_string_buffer(size)
        self._call("read_feature", core, address, size, out)
        return out.raw

    def compute_done(self, core: int) -> int:
        """Return the number of a core's compute commands that have completed since the trace was cleared."""
        return self._call("compute_done", core)

    def events(self, *, core: int = 0) -> npt.NDArray[np.uint64]:
        """Return the trace of a core so far: uint64[events, 2], cycle and :class:`EventKind` of each, with the
        interrupt.
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


# The transport to a simulated accelerator in this process.

#: The base is not zero, so that an address without it is noticed.
ARENA_BASE = 0x4000_0000
ARENA_BYTES = 256 << 20
#: Cycles of a call into the simulator, about a second at most: in between Python sees an interrupt from the keyboard.
_CYCLES_PER_CALL = 500_000


class VerilatorTransport(Transport):
    """A simulated accelerator, built on the first use of its configuration.

    Parameters
    ----------
    config : Config
    settings : MemorySettings
        Settings of the external memory; by default the ideal bus.
    cache_root : Path or None
        The folder of simulators, by default in the user's cache.
    progress : callable
        Called with the build that is in progress.

    Attributes
    ----------
    simulator : Simulator
        The simulator, for faults, the trace and the feature memory.

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
        """Read the simulated memory, bypassing the core; this takes no simulated time."""
        self.check_range(address, size)
        return bytes(self.simulator.memory[address - self.arena_base :][:size])

    def write_memory(self, address: int, data: bytes) -> None:
        """Write the simulated memory, bypassing the core; this takes no simulated time."""
        self.check_range(address, len(data))
        self.simulator.memory[address - self.arena_base :][: len(data)] = data

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Simulate until the interrupt."""
        left = timeout_cycles
        while left > 0:
            if self.simulator.run(min(left, _CYCLES_PER_CALL), until_interrupt=True) is StopReason.INTERRUPT:
                return True
            left -= _CYCLES_PER_CALL
        return False

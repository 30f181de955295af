"""The simulated core in this process: Python's side of ``harness.cpp``."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...golden.timing import OVERHEADS


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How the simulated external memory behaves; the defaults are the ideal bus that predictions are made for.

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
    seed : int
        Of the stalls.
    stall_probability : float
        Of a stall, in each cycle on each channel, the register port included.
    """

    read_latency: int = OVERHEADS.read_latency
    write_latency: int = OVERHEADS.write_latency
    beat_interval: int = 1
    outstanding: int = OVERHEADS.bursts
    accept: bool = True
    answer: bool = True
    seed: int = 0
    stall_probability: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("read_latency", 1, 100_000),
            ("write_latency", 1, 100_000),
            ("beat_interval", 1, 100_000),
            ("outstanding", 1, 1024),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be between {low} and {high}, not {value}")
        if not 0 <= self.stall_probability <= 0.99:
            raise ValueError(f"stall_probability must be between 0 and 0.99, not {self.stall_probability}")


class Outcome(enum.IntEnum):
    """Why :meth:`Simulator.run` returned."""

    LIMIT = 0
    INTERRUPT = 1
    COMPUTE_DONE = 2


class EventKind(enum.IntEnum):
    """What the trace records: pulses of the core's ``trace`` outputs, and that the interrupt line rises."""

    ISSUE_FIRST = 0
    ISSUE_LAST = 1
    COMPUTE_DONE = 2
    DMA_BEGIN = 3
    DMA_DONE = 4
    INTERRUPT = 5


class Fault(enum.IntEnum):
    """The AXI responses that a memory gives to tell of trouble."""

    SLAVE = 2
    DECODE = 3


class SimulationError(RuntimeError):
    """The simulated core broke the rules of its buses or an assertion, or does not answer on its register port."""


class _Settings(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in ("read_latency", "write_latency", "beat_interval", "outstanding", "accept", "answer", "seed")
        ),
        ("stall_probability", ctypes.c_double),
    )


_WORD, _LONG, _POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
#: Result and arguments of the library's functions.
_SIGNATURES: dict[str, tuple[object, Sequence[object]]] = {
    "create": (_POINTER, (_LONG, _LONG)),
    "destroy": (None, (_POINTER,)),
    "configure": (None, (_POINTER, ctypes.POINTER(_Settings))),
    "add_fault": (None, (_POINTER, _LONG, _LONG, _WORD)),
    "clear_faults": (None, (_POINTER,)),
    "reset": (None, (_POINTER,)),
    "arena": (_POINTER, (_POINTER,)),
    "cycle": (_LONG, (_POINTER,)),
    "violation": (ctypes.c_char_p, (_POINTER,)),
    "broken": (ctypes.c_char_p, (_POINTER,)),
    "run": (ctypes.c_int, (_POINTER, _LONG, ctypes.c_int, _LONG)),
    "read_register": (ctypes.c_int, (_POINTER, _WORD, ctypes.POINTER(_WORD))),
    "write_register": (ctypes.c_int, (_POINTER, _WORD, _WORD)),
    "read_feature": (None, (_POINTER, _LONG, _LONG, ctypes.c_char_p)),
    "event_count": (_LONG, (_POINTER,)),
    "events": (_POINTER, (_POINTER,)),
    "clear_events": (None, (_POINTER,)),
}
_VIOLATION = 3
_REGISTER_TIMEOUT, _REGISTER_REFUSED = 1, 2


class _Model:
    """A simulator in the library, which is destroyed when nobody uses it or its memory any more."""

    def __init__(self, library: Path, base: int, size: int):
        self._handle: ctypes.c_void_p | None = None
        self._size = size
        try:
            self._functions = functions = ctypes.CDLL(str(library))
        except OSError as error:
            raise SimulationError(
                f"{library}: cannot be loaded: {error}; remove its folder, and it is built again; the file system must "
                "permit programs"
            ) from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(functions, f"lutterfly_{name}")
            function.restype, function.argtypes = result, arguments
        created = functions.lutterfly_create(base, size)
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
        """The external memory, which keeps this object as long as somebody holds it."""
        array = (ctypes.c_uint8 * self._size).from_address(self.call("arena"))
        array.model = self
        return memoryview(array).cast("B")


class Simulator:
    """One simulated core with its external memory; not for several threads at a time.

    Parameters
    ----------
    library : Path
        From :func:`lutterfly.host.simulation.build.library`.
    base : int
        Address of the memory's first byte.
    size : int
        Its bytes; only those that are used take room.
    """

    def __init__(self, library: Path, *, base: int, size: int):
        self.base = base
        self.size = size
        self._model = _Model(library, base, size)
        self._memory = self._model.memory()
        self.configure(MemorySettings())

    def _call(self, name: str, *arguments: object) -> int:
        return self._model.call(name, *arguments)

    def configure(self, settings: MemorySettings) -> None:
        """Let the memory behave as ``settings`` say, from the next cycle on."""
        self._call("configure", ctypes.byref(_Settings(*(getattr(settings, name) for name, _ in _Settings._fields_))))

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

    def run(self, cycles: int, *, until_interrupt: bool = False, until_compute_done: int = 0) -> Outcome:
        """Let at most ``cycles`` pass.

        Parameters
        ----------
        cycles : int
            The bound.
        until_interrupt : bool
            Stop when the interrupt line is high.
        until_compute_done : int
            Stop when that many compute commands have completed since the trace was cleared; 0 for never.

        Raises
        ------
        SimulationError
            If the core breaks a rule of AXI.
        """
        result = self._call("run", cycles, until_interrupt, until_compute_done)
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

    def read_feature(self, address: int, size: int) -> bytes:
        """The bytes of the feature memory now, past the core."""
        out = ctypes.create_string_buffer(size)
        self._call("read_feature", address, size, out)
        return out.raw

    def events(self) -> npt.NDArray[np.uint64]:
        """The trace so far: uint64[events, 2], cycle and :class:`EventKind` of each."""
        count = self._call("event_count")
        if not count:
            return np.empty((0, 2), np.uint64)
        return (
            np.ctypeslib.as_array((ctypes.c_uint64 * (2 * count)).from_address(self._call("events")))
            .reshape(-1, 2)
            .copy()
        )

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

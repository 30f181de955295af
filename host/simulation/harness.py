"""The compiled simulator as Python calls it: ``harness.cpp``'s functions, and one core of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .settings import SimulationError


class HarnessSettings(ctypes.Structure):
    """Of the simulated memory, as ``harness.cpp`` has them."""

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
    """The library of a simulator, with result and arguments of its functions, whose names begin with ``lutterfly_``.

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


class Model:
    """A simulator in the library, which is destroyed when nobody uses it or its memory any more."""

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
        """The external memory, which keeps this object as long as somebody holds it."""
        array = (ctypes.c_uint8 * self._size).from_address(self.call("arena"))
        array.model = self
        return memoryview(array).cast("B")

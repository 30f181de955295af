"""The simulated top of a board, as its serial adapter sees it: Python's side of ``harness.cpp``."""

from __future__ import annotations

import ctypes
from pathlib import Path

from ...golden.config import Config
from ..files.progress import Progress, silent
from ..simulation.build import library
from ..simulation.harness import load_functions
from ..simulation.settings import SimulationError
from ..simulation.top import Top

_HARNESS = (Path(__file__).parent / "harness.cpp",)
#: Parts of a cycle in which the harness takes times.
_PARTS = 1 << 16
_WORD, _POINTER = ctypes.c_uint64, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "create": (_POINTER, ()),
    "destroy": (None, (_POINTER,)),
    "send": (None, (_POINTER, ctypes.c_char_p, _WORD, _WORD)),
    "run": (_WORD, (_POINTER, _WORD, _WORD, ctypes.c_char_p, _WORD)),
    "idle": (ctypes.c_int, (_POINTER,)),
    "cycle": (_WORD, (_POINTER,)),
    "broken": (ctypes.c_char_p, (_POINTER,)),
}


def board_top(clock_hz: int, *, edges: int = 1) -> Top:
    """:class:`~lutterfly.hdl.top_uart.TopUart` at this clock, in a harness of its pins, whose clock has so many edges a
    cycle."""
    header = f"#pragma once\n// Of the clock's pin in a cycle.\nconstexpr unsigned kEdges = {edges};\n"
    return Top("top_uart", _HARNESS, lambda root_header, config: header, (("clock_hz", clock_hz),))


class Pins:
    """A simulated board; not for several threads at a time.

    Parameters
    ----------
    library : Path
        Of the model in its harness, see :meth:`build`.
    clock_hz : int
        Cycles in a second of its time.
    """

    def __init__(self, library: Path, clock_hz: int):
        self.clock_hz = clock_hz
        self._functions = load_functions(library, _SIGNATURES)
        self._handle = ctypes.c_void_p(self._functions.lutterfly_create())

    @classmethod
    def build(
        cls, config: Config, clock_hz: int, *, cache_root: Path | None = None, progress: Progress = silent
    ) -> Pins:
        """Build the model, unless it is in the cache.

        Raises
        ------
        ToolError
            If it cannot be built.
        """
        return cls(library(config, top=board_top(clock_hz), root=cache_root, progress=progress), clock_hz)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._functions.lutterfly_destroy(self._handle)

    def send(self, data: bytes, rate: float) -> None:
        """Have bytes put on the board's receiving pin at a rate in bits a second, after those before."""
        self._functions.lutterfly_send(self._handle, data, len(data), self._bit_time(rate))

    def run(self, cycles: int, rate: float, most: int = 4096) -> bytes:
        """Let cycles pass, while the adapter listens at a rate.

        Parameters
        ----------
        cycles : int
            At most.
        rate : float
            Bits a second.
        most : int
            Bytes after which it returns.

        Returns
        -------
        bytes
            What the board has sent.

        Raises
        ------
        SimulationError
            If an assertion of the hardware breaks.
        """
        data = ctypes.create_string_buffer(most)
        count = self._functions.lutterfly_run(self._handle, cycles, self._bit_time(rate), data, most)
        broken = self._functions.lutterfly_broken(self._handle)
        if broken:
            raise SimulationError(f"an assertion of the hardware broke in cycle {self.cycle}: {broken.decode()}")
        return data.raw[:count]

    def _bit_time(self, rate: float) -> int:
        return round(_PARTS * self.clock_hz / rate)

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return bool(self._functions.lutterfly_idle(self._handle))

    @property
    def cycle(self) -> int:
        """Cycles since the beginning."""
        return int(self._functions.lutterfly_cycle(self._handle))

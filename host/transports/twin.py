"""The twin of a board: its top level with the serial pins, simulated, at a pseudo-terminal."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import select
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...boards import Sdram
from ...golden.config import Config
from ...golden.link.frames import INITIAL_RATE
from ...golden.pins import MODULE
from ...synth.netlist import Library, netlist_verilog
from ..files.terminal import Progress, silent
from ..simulation.build import Top, library, library_of
from ..simulation.simulator import SimulationError, load_functions

__all__ = [
    "Twin",
]


# The simulated top level of a board, at its serial pins: the Python side of ``harness.cpp``.

_HARNESS = tuple(Path(__file__).parent / name for name in ("twin.cpp", "sdram.h"))
#: The unit of times in the harness, in parts of a cycle.
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


def board_top(clock_hz: int, *, sdram: Sdram | None = None) -> Top:
    """Return :class:`~lutterfly.hdl.top_uart.TopUart` at this clock, in a harness of its pins, and with a chip of SDRAM
    beside it if its arena is there."""
    settings: tuple[tuple[str, object], ...] = (("clock_hz", clock_hz),)
    if sdram:
        settings += (("sdram", sdram.chip_fields),)

    def header(root_header: str, config: Config) -> str:
        return "\n".join(("#pragma once", *(_sdram_lines(sdram, clock_hz, config) if sdram else ()))) + "\n"

    return Top("top_uart", _HARNESS, header, settings)


def _sdram_lines(sdram: Sdram, clock_hz: int, config: Config) -> Iterator[str]:
    """Yield the lines of ``design.h`` that describe the chip of SDRAM, by its data in litedram."""
    # It is imported here, since a simulator that is in the cache does without Amaranth.
    from ...hdl.memories.sdram import POWER_UP_S, SdramChip, generate_controller  # noqa: PLC0415

    found = generate_controller(SdramChip(*sdram.chip_fields), clock_hz, config.axi.data_bits, config.port_id_bits)
    times = {name.removeprefix("t").lower(): cycles for name, cycles in found.times.items()}
    times |= {"power_up": int(POWER_UP_S * clock_hz), "cas_latency": found.cas_latency}
    shape = (found.bank_bits, found.row_bits, found.column_bits, sdram.data_bits, str(bool(sdram.mask)).lower())
    yield '#include "sdram.h"'
    yield f"#define LUTTERFLY_SDRAM Sdram<{', '.join(map(str, shape))}>"
    yield "inline SdramTimes sdram_times() {"
    yield "    SdramTimes times;"
    yield from (f"    times.{name} = {cycles};" for name, cycles in times.items())
    yield "    return times;"
    yield "}"


class Pins:
    """A simulated board; not for several threads at a time.

    Parameters
    ----------
    library : Path
        The library of the model in its harness, see :meth:`build`.
    clock_hz : int
        Cycles in a second of its time.
    """

    def __init__(self, library: Path, clock_hz: int):
        self.clock_hz = clock_hz
        self._functions = load_functions(library, _SIGNATURES)
        self._handle = ctypes.c_void_p(self._functions.lutterfly_create())

    @classmethod
    def build(
        cls,
        config: Config,
        clock_hz: int,
        *,
        sdram: Sdram | None = None,
        cache_root: Path | None = None,
        progress: Progress = silent,
    ) -> Pins:
        """Build the model, unless it is in the cache; with a chip of SDRAM, if the arena is there.

        Raises
        ------
        ToolError
            If it cannot be built.
        """
        top = board_top(clock_hz, sdram=sdram)
        return cls(library(config, top=top, root=cache_root, progress=progress), clock_hz)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._functions.lutterfly_destroy(self._handle)

    def send(self, data: bytes, rate: float) -> None:
        """Queue bytes for the board's receiving pin, at a rate in bits a second."""
        self._functions.lutterfly_send(self._handle, data, len(data), self._bit_time(rate))

    def run(self, cycles: int, rate: float, most: int = 4096) -> bytes:
        """Simulate cycles, while the adapter receives at a rate.

        Parameters
        ----------
        cycles : int
            The greatest number of cycles.
        rate : float
            Bits a second.
        most : int
            Bytes after which it returns.

        Returns
        -------
        bytes
            The bytes that the board has sent.

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
        """Whether no transfer or run is in progress."""
        return bool(self._functions.lutterfly_idle(self._handle))

    @property
    def cycle(self) -> int:
        """Cycles since the beginning."""
        return int(self._functions.lutterfly_cycle(self._handle))


# The twin: a simulated board at a pseudo-terminal, which any program can open as the serial port of a real one.

#: Cycles between two looks at the terminal.
_CYCLES = 20_000
#: Bytes that the adapter reads from the terminal at a time.
_BYTES = 4096
#: Seconds of idleness after which the simulation slows down to leave the processor free.
_REST_S, _LOOK_S = 0.2, 0.1
#: Bits a second by the terminal's codes.
_RATES = {
    getattr(termios, f"B{rate}"): rate
    for rate in (
        *(9600, 19200, 38400, 57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600),
        *(1_000_000, 1_152_000, 1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000),
    )
    if hasattr(termios, f"B{rate}")
}
_UNKNOWN_RATE = 115_200
#: Index of the output rate in a terminal's attributes.
_OUTPUT_RATE = 5


class Twin:
    """A simulated board at a pseudo-terminal.

    The adapter uses the rate of the terminal, so a program that sets a wrong one reads the same as from a board.

    Parameters
    ----------
    pins : Pins

    Attributes
    ----------
    path : str
        Path of the terminal.
    """

    def __init__(self, pins: Pins):
        self.pins = pins
        # Our end stays open, so that the terminal exists after a program has closed it.
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        os.set_blocking(self._ours, False)
        self.path = os.ttyname(self._theirs)
        self._ends = threading.Event()

    def close(self) -> None:
        """Close the terminal; a :meth:`serve` in another thread ends soon."""
        self._ends.set()

    def serve(self) -> None:
        """Simulate until :meth:`close`.

        Raises
        ------
        SimulationError
            If an assertion of the hardware breaks.
        """
        active = time.monotonic()
        try:
            while not self._ends.is_set():
                data, rate = self._read(), self._rate()
                self.pins.send(data, rate)
                sent = self.pins.run(_CYCLES, rate)
                self._write(sent)
                if data or sent or not self.pins.is_idle:
                    active = time.monotonic()
                elif time.monotonic() - active > _REST_S:
                    select.select([self._ours], [], [], _LOOK_S)
        finally:
            os.close(self._ours)
            os.close(self._theirs)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serve in a thread of its own until the end of the block; yield the name of the device."""
        thread = threading.Thread(target=self.serve, daemon=True)
        thread.start()
        try:
            yield f"uart:{self.path}"
        finally:
            self.close()
            thread.join()

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, _BYTES)
        except BlockingIOError:
            return b""

    def _write(self, data: bytes) -> None:
        # Bytes that are not read are lost, as in an adapter.
        with contextlib.suppress(BlockingIOError):
            os.write(self._ours, data)

    def _rate(self) -> int:
        """Return the rate that the program at the terminal has set."""
        return _RATES.get(termios.tcgetattr(self._theirs)[_OUTPUT_RATE], _UNKNOWN_RATE)


# The pins of a simulated board as a line in the board's time, so that results do not depend on a machine's speed.


class PinsLine:
    """A :class:`~lutterfly.host.transports.line.BoardLine` to simulated pins, without a terminal between.

    Parameters
    ----------
    pins : Pins

    Attributes
    ----------
    name : str
        For messages.
    slowness : float
        The factor of time-outs is 1, as the clock is the board's.
    """

    name = "simulated pins"
    slowness = 1.0

    def __init__(self, pins: Pins):
        self.pins = pins
        self._rate = INITIAL_RATE

    def clock(self) -> float:
        """Return the board's time in seconds, for the client."""
        return self.pins.cycle / self.pins.clock_hz

    def set_rate(self, rate: int) -> None:
        """Continue at ``rate`` bits a second."""
        self._rate = rate

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.pins.send(data, self._rate)

    def read(self, limit_s: float) -> bytes:
        """Simulate until a byte arrives, or to the time-out."""
        return self.pins.run(max(1, round(limit_s * self.pins.clock_hz)), self._rate, 1)

    def close(self) -> None:
        """Do nothing, as nothing is open."""


# Simulation of a board's mapped netlist, the input of place and route.

_NETLIST = "netlist"
#: The harness's reset is not connected: a board has none, and ends its reset by itself when its PLL has locked.
_TOP = f"""
module {MODULE}(clk, rst, rx, tx, busy);
  input clk;
  input rst;
  input rx;
  output tx;
  output busy;
  {_NETLIST} board(.clock(clk), .rx(rx), .tx(tx), .busy(busy));
endmodule
"""


def netlist_pins(
    netlist: Mapping[str, Any],
    library: Library,
    config: Config,
    clock_hz: int,
    *,
    cache_root: Path | None = None,
    progress: Progress = silent,
) -> Pins:
    """Build the simulator of a netlist, unless it is in the cache.

    Parameters
    ----------
    netlist : mapping
        The netlist of a board's top, see :func:`~lutterfly.synth.netlist.netlist_verilog`; its light is not inverted.
    library : Library
        The cells of its family.
    config : Config
        The configuration in the board.
    clock_hz : int
        Clock of the accelerator.

    Raises
    ------
    NetlistError
        If there is a cell without a model.
    ToolError
        If it cannot be built.
    """
    text = netlist_verilog(netlist, library, name=_NETLIST) + _TOP
    top = dataclasses.replace(board_top(clock_hz), is_rewritten=False)
    return Pins(library_of(text, config, top=top, root=cache_root, progress=progress), clock_hz)

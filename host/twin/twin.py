"""The twin: a simulated board at a pseudo-terminal, which any program can open as the serial port of a real one."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import threading
import time
import tty
from collections.abc import Iterator

from .pins import Pins

#: Cycles between two looks at the terminal.
_CYCLES = 20_000
#: Bytes that the adapter takes from the terminal at a time.
_BYTES = 4096
#: After so long without anything under way, the board's time goes on slowly, and the processor is free.
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
#: Where a terminal's attributes have the rate of what is written to it.
_OUTPUT_RATE = 5


class Twin:
    """A simulated board behind a pseudo-terminal.

    The adapter goes at the rate that the terminal is set to; so a program that sets a wrong one reads what it would
    read of a board.

    Parameters
    ----------
    pins : Pins

    Attributes
    ----------
    path : str
        Of the terminal.
    """

    def __init__(self, pins: Pins):
        self.pins = pins
        # Ours stays open: so the terminal does when a program closes it.
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        os.set_blocking(self._ours, False)
        self.path = os.ttyname(self._theirs)
        self._ends = threading.Event()

    def close(self) -> None:
        """End the terminal, and a :meth:`serve` in another thread soon."""
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
        """Serve in a thread of its own until the end of the block; gives the name of the device."""
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
        # What nobody reads is lost, as in an adapter.
        with contextlib.suppress(BlockingIOError):
            os.write(self._ours, data)

    def _rate(self) -> int:
        """What the program that has opened the terminal asks for."""
        return _RATES.get(termios.tcgetattr(self._theirs)[_OUTPUT_RATE], _UNKNOWN_RATE)

"""The accelerator behind a transport, by default a simulated one on the ideal bus."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

import numpy as np

from ..driver.driver import Driver
from ..driver.transport import Transport
from ..simulation.simulator import VerilatorTransport
from .backend import Arrays, Backend


class Accelerator(Backend):
    """Inferences by the driver; without a transport the simulator is built on the first use."""

    name = "simulator"
    title = "simulated accelerator"
    has_accelerator = True

    def _set_up(self) -> None:
        self._driver: Driver | None = None
        self._lock = threading.RLock()
        self._counters: list[dict[str, int]] = []
        self._core_counters: list[list[dict[str, int]]] = []

    def prepare(self) -> None:
        """Build the simulator, and load the program."""
        self.driver()

    def infer(self, inputs: Iterable[Arrays]) -> Iterator[list[np.ndarray]]:
        """Compute inferences one after the other; the caller has the accelerator to itself until the iterator ends."""
        driver = self.driver()
        # If each inference took it anew, sessions that take turns would load their programs each time.
        with self.transport.exclusive():
            self._counters, self._core_counters = counters, of_cores = [], []
            with contextlib.closing(driver.infer_all(inputs)) as inferences:
                for outputs in inferences:
                    counters.append(driver.counters())
                    of_cores.append(driver.core_counters())
                    yield outputs

    @property
    def counters(self) -> list[dict[str, int]]:
        """Performance counters of each inference of the last :meth:`infer`, in whatever thread it ran."""
        return self._counters

    @property
    def core_counters(self) -> list[list[dict[str, int]]]:
        """The same of each core."""
        return self._core_counters

    @property
    def transport(self) -> Transport:
        """The accelerator; if it is simulated, the simulator is built on the first use."""
        with self._lock:
            if self._transport is None:
                self._transport = VerilatorTransport(self.config, progress=self._progress)
            return self._transport

    def driver(self) -> Driver:
        """Return the driver of the program; it is made, with the simulator, and loaded on the first call."""
        # This lock alone: two locks could wait for each other.
        with self.transport.exclusive():
            if self._driver is None:
                driver = Driver(self.transport, self.config)
                driver.load(self.program)
                self._driver = driver
            return self._driver

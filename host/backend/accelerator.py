"""The accelerator behind a transport, by default a simulated one on the ideal bus."""

from __future__ import annotations

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
        """One by one; the accelerator is the caller's until the iterator ends."""
        driver = self.driver()
        # Not for each inference: sessions that take turns would load their programs each time.
        with self.transport.exclusive():
            self._counters, self._core_counters = counters, of_cores = [], []
            for arrays in inputs:
                outputs = driver.infer(arrays)
                counters.append(driver.counters())
                of_cores.append(driver.core_counters())
                yield outputs

    @property
    def counters(self) -> list[dict[str, int]]:
        """Of each inference of the last :meth:`infer`, in whatever thread."""
        return self._counters

    @property
    def core_counters(self) -> list[list[dict[str, int]]]:
        """Likewise."""
        return self._core_counters

    @property
    def transport(self) -> Transport:
        """The accelerator; if it is simulated, the simulator is built on the first use."""
        with self._lock:
            if self._transport is None:
                self._transport = VerilatorTransport(self.config, progress=self._progress)
            return self._transport

    def driver(self) -> Driver:
        """The driver of the program; made, with the simulator, and loaded on the first call."""
        # One lock, and not two that could wait for each other.
        with self.transport.exclusive():
            if self._driver is None:
                driver = Driver(self.transport, self.config)
                driver.load(self.program)
                self._driver = driver
            return self._driver

"""The interface from the driver to an accelerator: registers, external memory, the interrupt, and exclusive access."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeVar

from ...golden.program.program import Program, Queues

# A fair lock: threads get it in the order in which they ask for it.


class FairLock:
    """A re-entrant, fair lock. Python's own locks may go to the same thread again and again while others wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._queue: deque[object] = deque()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock until the end of the block."""
        me = threading.get_ident()
        if self._owner == me:
            yield
            return
        ticket = object()
        # Waiting and holding are one block: an interrupt from the keyboard may come anywhere in it.
        try:
            with self._changed:
                self._queue.append(ticket)
                self._changed.wait_for(lambda: self._owner is None and self._queue[0] is ticket)
                self._queue.popleft()
                self._owner = me
            yield
        finally:
            with self._changed:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                if self._owner == me:
                    self._owner = None
                self._changed.notify_all()


_Result = TypeVar("_Result")
#: Returns the result of what was posted, once it is there.
Promise = Callable[[], _Result]


@dataclass(eq=False, slots=True)
class StartedRun:
    """A run that a driver has started and whose end is not known: the queues of each core."""

    cores: Sequence[Queues]


@dataclass(eq=False, slots=True)
class AcceleratorState:
    """The state of an accelerator, which its drivers share: a program that one loads replaces that of another.

    Attributes
    ----------
    program : Program or None
        The program whose commands and constants are in the arena, and whose prologue has run.
    run : StartedRun or None
        The run in progress.
    settings : dict of str to int
        The values of the registers of a run, as far as they are known.
    must_reset : bool
        Whether it needs a soft reset before use, as after an error. So it does at first, as its state is unknown.
    """

    program: Program | None = None
    run: StartedRun | None = None
    settings: dict[str, int] = field(default_factory=dict)
    must_reset: bool = True


class Transport(ABC):
    """One accelerator that drivers can reach; all its users must have this one object.

    Addresses are absolute; the arena is the memory that driver and accelerator share. The methods are not thread-safe:
    drivers call them within :meth:`exclusive`, and so must all other callers.

    Attributes
    ----------
    state : AcceleratorState
        The state for drivers, to be used within :meth:`exclusive`.
    title : str
        The name of the accelerator in messages.
    """

    title: ClassVar[str] = "accelerator"
    state: AcceleratorState

    # This is not in __init__, which classes for other hardware need not call.
    def __new__(cls, *_arguments: object, **_options: object) -> Self:
        """Create a transport to an accelerator of unknown state."""
        transport = super().__new__(cls)
        transport.state = AcceleratorState()
        transport._lock = FairLock()
        transport._process = os.getpid()
        return transport

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock out all other threads; the lock is re-entrant.

        Threads get it in the order in which they ask; a driver holds it for a bounded time, so their wait is bounded.

        Raises
        ------
        RuntimeError
            In a process that was forked from the one that made the transport: it shares the accelerator, or has half a
            copy of a simulated one, and another thread of the parent may have been using it.
        """
        if os.getpid() != self._process:
            raise RuntimeError("a transport must be used in the process that made it; make one after the fork")
        with self._lock.held():
            yield

    @property
    @abstractmethod
    def arena_base(self) -> int:
        """Address of the arena's first byte; a multiple of 4096."""

    @property
    @abstractmethod
    def arena_bytes(self) -> int:
        """Size of the arena."""

    @abstractmethod
    def read_register(self, address: int) -> int:
        """Read the 32-bit register at ``address``."""

    @abstractmethod
    def write_register(self, address: int, value: int) -> None:
        """Write the 32-bit register at ``address``."""

    @abstractmethod
    def read_memory(self, address: int, size: int) -> bytes:
        """Read ``size`` bytes of the arena."""

    @abstractmethod
    def write_memory(self, address: int, data: bytes) -> None:
        """Write ``data`` into the arena."""

    @abstractmethod
    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """Wait until the interrupt line is high, for at most ``timeout_cycles`` cycles; return whether it is."""

    # What is posted is done in this order, and at the latest when a later result is asked for; a failure shows then. A
    # transport that has a long way to its accelerator has several of these on the way at a time.

    def post_write_register(self, address: int, value: int) -> None:
        """Post :meth:`write_register`."""
        self.write_register(address, value)

    def post_read_register(self, address: int) -> Promise[int]:
        """Post :meth:`read_register`. Nothing that changes the value may be posted before the result is there."""
        value = self.read_register(address)
        return lambda: value

    def post_read_registers(self, address: int, count: int) -> Promise[list[int]]:
        """Post :meth:`post_read_register` for registers that follow one another, 16 at most."""
        values = [self.read_register(address + 4 * number) for number in range(count)]
        return lambda: values

    def post_write_memory(self, address: int, data: bytes) -> None:
        """Post :meth:`write_memory`."""
        self.write_memory(address, data)

    def post_read_memory(self, address: int, size: int) -> Promise[bytes]:
        """Post :meth:`read_memory`. Nothing that changes the bytes may be posted before the result is there."""
        data = self.read_memory(address, size)
        return lambda: data

    def post_wait(self, timeout_cycles: int) -> Promise[bool]:
        """Post :meth:`wait_for_interrupt`."""
        is_high = self.wait_for_interrupt(timeout_cycles)
        return lambda: is_high

    def check_range(self, address: int, size: int) -> None:
        """Raise ValueError unless ``size`` bytes from ``address`` on lie in the arena."""
        if not (self.arena_base <= address and address + size <= self.arena_base + self.arena_bytes):
            raise ValueError(
                f"address must be in the arena of {self.arena_bytes} bytes at {self.arena_base:#x}, "
                f"not {address:#x} for {size} bytes"
            )

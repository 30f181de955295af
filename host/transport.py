"""The way from the driver to an accelerator: registers, external memory, the interrupt."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Transport(ABC):
    """One accelerator that a driver can reach.

    Addresses are absolute; the arena is the memory that driver and accelerator share.
    """

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
        """Wait until the interrupt line is high, for at most ``timeout_cycles`` cycles; tells whether it is."""

    def check_range(self, address: int, size: int) -> None:
        """Raise ValueError unless ``size`` bytes from ``address`` on lie in the arena."""
        if not (self.arena_base <= address and address + size <= self.arena_base + self.arena_bytes):
            raise ValueError(
                f"address must be in the arena of {self.arena_bytes} bytes at {self.arena_base:#x}, "
                f"not {address:#x} for {size} bytes"
            )

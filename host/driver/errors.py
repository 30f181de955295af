"""What the driver raises."""

from __future__ import annotations

from ...golden.units import ErrorCode, Unit


class HardwareError(RuntimeError):
    """The device that answers is no accelerator of the expected version and configuration."""


class AcceleratorError(RuntimeError):
    """A run that stopped.

    Attributes
    ----------
    code : ErrorCode
        Why; ``NONE`` if the accelerator does not answer in time.
    unit : Unit
        Where.
    index : int
        Of the command in its queue.
    address : int
        Address out of range, or external address of the failed burst; 0 where there is none.
    command : str
        What the command was, in words.
    core : int
        The core that it is of.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode,
        unit: Unit,
        index: int = 0,
        address: int = 0,
        command: str = "",
        core: int = 0,
    ):
        super().__init__(message)
        self.code = code
        self.unit = unit
        self.index = index
        self.address = address
        self.command = command
        self.core = core

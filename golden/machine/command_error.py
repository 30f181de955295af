"""Why the hardware refuses a command, or stops at it."""

from __future__ import annotations

from ..units import ErrorCode, Unit


class CommandError(Exception):
    """A command that the hardware refuses or stops at.

    Attributes
    ----------
    code : ErrorCode
    unit : Unit
    address : int
        The address out of range; 0 where there is none.
    """

    def __init__(self, code: ErrorCode, unit: Unit, address: int = 0):
        super().__init__(f"{unit.name}: {code.name} at address {address:#x}")
        self.code = code
        self.unit = unit
        self.address = address

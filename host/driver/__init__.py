"""The driver of an accelerator, over any transport."""

from .driver import Driver
from .errors import AcceleratorError, HardwareError
from .transport import Transport

__all__ = ["AcceleratorError", "Driver", "HardwareError", "Transport"]

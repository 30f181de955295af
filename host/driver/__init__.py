"""The driver of an accelerator, over any transport."""

from .driver import AcceleratorError, Driver, HardwareError
from .transport import Transport

__all__ = ["AcceleratorError", "Driver", "HardwareError", "Transport"]

"""An accelerator on this machine's own bus, as on a Zynq: Linux's UIO, and the transport for the driver."""

from __future__ import annotations

from .errors import UioError
from .transport import UioTransport, open_device

__all__ = ["UioError", "UioTransport", "open_device"]

"""The serial link to a board: the port, the client that loses nothing, and the transport for the driver."""

from __future__ import annotations

from .errors import LinkError, PortError
from .transport import LinkTransport, open_device

__all__ = ["LinkError", "LinkTransport", "PortError", "open_device"]

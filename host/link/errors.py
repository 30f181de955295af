"""What goes wrong with a serial link."""

from __future__ import annotations


class LinkError(RuntimeError):
    """A board does not answer, or answers something else; the message says what was tried, and the remedy."""


class PortError(OSError):
    """A serial port that cannot be opened or used; the message names it and the remedy."""

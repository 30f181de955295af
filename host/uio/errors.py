"""What goes wrong with devices of this machine."""

from __future__ import annotations


class UioError(OSError):
    """A device that cannot be opened or used; the message names it and the remedy."""
